"""progress: did somebody get the lock, when it was free, wanted, and no fault was active?

Each lock by itself. A *stretch* is a span of time in which somebody wants the lock, nobody believes to hold it, no
grant may still be held in any account, and no fault is active; a grant or a fault ends it even when it lasts no time.
False when a stretch is longer than `progress_bound`; else unknown when there is no bound, nobody ever tried, or a
stretch would be too long but for what somebody other than the nemesis did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers import words
from checkers.findings import LISTED, Finding, Verdict
from checkers.intervals import INF, Model, nanoseconds
from harness.history.events import (
    ACQUIRE,
    CRASH,
    FAIL,
    FAULT,
    INVOKE,
    LOST,
    NONE,
    OK,
    RELEASE,
    RENEW,
    Fault,
    History,
    Ints,
    crash_epochs,
    group_order,
)

#: So many beginnings or ends of a kind are laid on the line of time at once.
_PIECE = 1 << 16


@dataclass(frozen=True, eq=False)
class _Attempts:
    """Acquires of all locks, each wanting its lock over [start, end]."""

    row: Ints
    lock: Ints
    start: Ints
    end: Ints
    since: Ints
    """The start of the first of those by which its process has polled up to this one; its own where it didn't poll."""


def check(model: Model) -> Verdict:
    """The verdict on the longest stretch of each lock."""
    history, bound = model.history, model.history.meta.progress_bound
    limit = None if bound is None else nanoseconds(bound)
    attempts = _attempts(model)
    faults = _fault_spans(model, model.history.faults)
    held = _held(model)
    granted = {int(model.lock[group[0]]): group for group in model.by_lock}
    nobody = np.empty(0, dtype=np.int64)
    stuck: list[tuple[int, int, int]] = []
    wanting = dict(_by_lock(attempts.lock, len(history.locks)))

    def stretches(lock: int, faults: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
        grants, trying = granted.get(lock, nobody), wanting[lock]
        return _stretches(model.ok[grants], held[grants], attempts.start[trying], attempts.end[trying], faults)

    longest = 0
    for lock in wanting:
        low, high = stretches(lock, faults)
        length = high - low
        longest = max(longest, int(length.max(initial=0)))
        if limit is not None:
            stuck += [(int(high[i]), int(low[i]), lock) for i in np.flatnonzero(length > limit)]
    # A stretch ends with an event, which is the last of its finding.
    found = [
        _stuck(model, attempts, wanting[lock], granted.get(lock, nobody), low, high)
        for high, low, lock in sorted(stuck)[:LISTED]
    ]
    stats = {
        "first_grant_after": _first_grant_after(model),
        "handover_seconds": _handovers(model),
        "availability": _availability(model, attempts),
        "longest_gap": words.seconds(longest),
        "longest_wait": None,
    }
    waited = _longest_wait(model, attempts)
    if waited is not None:
        stats["longest_wait"] = words.seconds(waited.ns)
    if found:
        return Verdict(False, words.ordered(found), len(stuck), stats)
    if limit is None:
        note = "no progress_bound" if waited is None else f"no progress_bound; {_told(model, waited)}"
        return Verdict("unknown", stats=stats, note=note)
    if not len(attempts.row):
        return Verdict("unknown", stats=stats, note="nobody ever tried to get a lock")
    ours = [fault for fault in history.faults if not fault.outside]
    if len(ours) < len(history.faults):
        spans = _fault_spans(model, ours)
        hidden = []
        for lock in wanting:
            low, high = stretches(lock, spans)
            if bool((high - low > limit).any()):
                hidden.append(lock)
        if hidden:
            names = ", ".join(repr(history.locks[lock]) for lock in hidden)
            note = (
                f"nobody got lock {names} for longer than the bound, while somebody other than the nemesis interfered"
            )
            return Verdict("unknown", stats=stats, note=note)
    if waited is None:
        return Verdict(True, stats=stats)
    never = f"it was never free, wanted and undisturbed for longer than the bound of {words.span(limit)}; "
    return Verdict(True, stats=stats, note=(never if waited.ns > limit else "") + _told(model, waited))


@dataclass(frozen=True)
class _Wait:
    """From when somebody first asked to when it was granted, or stopped wanting: the longest there is."""

    ns: int
    row: int
    """Of the invoke of its last acquire."""
    end: int


def _longest_wait(model: Model, attempts: _Attempts) -> _Wait | None:
    """The longest wait of anybody, whatever was broken or held meanwhile; None where nobody asked."""
    if not len(attempts.row):
        return None
    length = attempts.end - attempts.since
    longest = int(np.argmax(length))
    return _Wait(int(length[longest]), int(attempts.row[longest]), int(attempts.end[longest]))


def _told(model: Model, wait: _Wait) -> str:
    """`the longest wait of anybody was 388.000 s, in vain, of contender 1 (line 8), behind contender 0, which …`."""
    history = model.history
    done = int(history.mate[wait.row])
    granted = done >= 0 and history.type[done] == OK
    who = f"contender {history.process_name(wait.row)} (line {model.line(wait.row)})"
    vain = "" if granted else ", in vain"
    return f"the longest wait of anybody was {words.span(wait.ns)}{vain}, of {who}{_behind(model, wait)}"


def _behind(model: Model, wait: _Wait) -> str:
    """Who was granted a lock last before somebody's wait for it ended, and what is known of that hold's end; nothing
    where it was given back before the wait began, or was the waiter's own."""
    history = model.history
    before = np.flatnonzero((model.lock == history.lock[wait.row]) & (model.ok < wait.end))
    if not len(before) or model.process[before[-1]] == history.process[wait.row]:
        return ""
    grant = int(before[-1])
    row, given = int(model.belief_end_row[grant]), int(model.given_row[grant])
    if given < len(history) and history.time[given] < wait.end - wait.ns:
        return ""
    behind = f", behind {words.who(model, grant)}, which"
    if int(model.belief_end[grant]) >= wait.end:
        return f"{behind} believed that it held it (granted in line {model.line(int(model.ok_row[grant]))})"
    ends = {LOST: "said that it had lost it", CRASH: "crashed", ACQUIRE: "asked for it anew", RELEASE: "released it"}
    told = ends[int(history.f[row])]
    if history.f[row] == RELEASE and given >= len(history):
        told += " without an ok"
    return f"{behind} {told} (line {model.line(row)}){_went_on(model, int(history.lock[wait.row]), row, wait.end)}"


def _went_on(model: Model, lock: int, row: int, end: int) -> str:
    """That the contender of a row went on renewing a lock after it, until a wait for that ended; nothing where not."""
    history = model.history
    rows = _renewed(history, lock, row + 1, end)
    rows = rows[history.process[rows] == history.process[row]]
    if not len(rows):
        return ""
    return f", and went on renewing it ({len(rows):,} ok, the last in line {model.line(int(rows[-1]))})"


def _renewed(history: History, lock: int, first: int, until: int) -> Ints:
    """The oks of the renews of a lock, from a row on up to a time (ns)."""
    then = slice(first, int(np.searchsorted(history.time, until, "right")))
    rows: Ints = first + np.flatnonzero(
        (history.lock[then] == lock) & (history.f[then] == RENEW) & (history.type[then] == OK)
    )
    return rows


def _by_lock(lock: Ints, locks: int) -> list[tuple[int, Ints]]:
    if not len(lock):
        return []
    order = group_order(lock.astype(np.int64), locks)
    parts = np.split(order, np.flatnonzero(np.diff(lock[order])) + 1)
    return [(int(lock[part[0]]), part) for part in parts]


def _attempts(model: Model) -> _Attempts:
    """Who wants what when: from an acquire's invoke to its completion, or the crash, or the end; and after one that
    didn't return ok on to that process's next acquire invoke on the lock, if that comes within a tenth of the bound."""
    history = model.history
    n = len(history)
    row = np.flatnonzero((history.f == ACQUIRE) & (history.type == INVOKE)).astype(history.mate.dtype)
    done = history.mate[row]
    lock, process = history.lock[row], history.process[row].astype(np.int64)
    time = history.time
    closed = np.where(done >= 0, done, n)
    epochs = crash_epochs(history)
    if epochs is not None:
        closed = np.where(done >= 0, done, epochs.next_crash(row))
    end = np.where(closed < n, time.take(closed, mode="clip"), model.end) if n else np.empty(0, dtype=np.int64)
    succeeded = (done >= 0) & (history.type[done] == OK) if n else done >= 0
    since = time[row]
    if history.meta.progress_bound is not None and len(row):
        bound = nanoseconds(history.meta.progress_bound)
        order = group_order(process * len(history.locks) + lock, max(1, len(history.processes)) * len(history.locks))
        here, following = order[:-1], order[1:]
        same = (process[here] == process[following]) & (lock[here] == lock[following]) & ~succeeded[here]
        here, following = here[same], following[same]
        gap = time[row[following]] - end[here]
        polling = gap <= bound // 10
        end[here[polling]] = time[row[following[polling]]]
        polls = np.zeros(len(row), dtype=bool)
        polls[following[polling]] = True
        # In `order` those of one process and lock stand side by side: a wait began at the last one that was no poll.
        began = np.maximum.accumulate(np.where(polls[order], 0, np.arange(len(row))))
        since = since.copy()
        since[order] = time[row[order[began]]]
    return _Attempts(row, lock, time[row], end, since)


def _fault_spans(model: Model, faults: Sequence[Fault]) -> tuple[Ints, Ints]:
    """The spans of the faults that aren't skipped: to the stop, or to the end when that is missing or not `undone`."""
    spans = [
        (fault.start, fault.stop if fault.stop is not None and fault.undone else model.end)
        for fault in faults
        if not fault.skipped
    ]
    array = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _held(model: Model) -> Ints:
    """Until when each grant keeps its lock from being free: to the end of its belief, and as long as it may be held.

    That is to the earliest of its latest end, the service's word that it isn't held and the completion of an own
    release that returned ok, where there is any of them, and in any case to its last proof.
    """
    given = np.minimum(model.when(model.given_row), model.ended)
    latest = model.latest
    # Where nobody can tell when the lease ran out, it may still have been held when it was given back; without that
    # nothing says that it was held for any time.
    known = (latest != NONE) | (given < INF)
    maybe = np.where(known, np.minimum(np.where(latest != NONE, latest, INF), given), NONE)
    held: Ints = np.maximum(np.maximum(model.ok, model.belief_end), np.maximum(maybe, model.proven))
    return np.minimum(held, model.end)


def _stretches(ok: Ints, held: Ints, start: Ints, end: Ints, faults: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """The stretches of one lock, in order: its grants over [ok, held], who wants it over [start, end].

    All that begins and ends is laid on one line of time, of which one piece is looked at after the other: it is long.
    """
    # What adds to those who want it and what takes from them, what adds to what blocks it and takes from that; sorted.
    lines = [start, np.sort(end), np.sort(np.append(ok, faults[0])), np.sort(np.append(held, faults[1]))]
    low, high = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    wanted = blocked = 0
    was_free = False
    done = [0] * len(lines)
    for cut in np.unique(
        np.concatenate([[int(line[-1]) for line in lines if len(line)], *(line[_PIECE::_PIECE] for line in lines)])
    ):
        until = [int(np.searchsorted(line, cut, "right")) for line in lines]
        pieces = [line[first:last] for line, first, last in zip(lines, done, until, strict=True)]
        done = until
        sizes = [len(piece) for piece in pieces]
        times = np.concatenate(pieces)
        order = np.argsort(times)  # in what order those of one instant come doesn't matter: only their sum is looked at
        times = times[order]
        wants = wanted + np.cumsum(np.repeat(np.array([1, -1, 0, 0]), sizes)[order])
        blocks = blocked + np.cumsum(np.repeat(np.array([0, 0, 1, -1]), sizes)[order])
        last = np.append(np.flatnonzero(times[1:] != times[:-1]), len(times) - 1)
        broken = np.zeros(len(last), dtype=bool)
        broken[np.searchsorted(last, np.flatnonzero(np.repeat([False, False, True, False], sizes)[order]))] = True
        times, wanted, blocked = times[last], int(wants[-1]), int(blocks[-1])
        free = (wants[last] > 0) & (blocks[last] == 0)  # from this instant to the next
        if all(line_done == len(line) for line_done, line in zip(done, lines, strict=True)):
            free[-1] = False
        before = np.concatenate(([was_free], free[:-1]))
        low.append(times[free & (~before | broken)])
        high.append(times[before & (~free | broken)])
        was_free = bool(free[-1])
    return np.concatenate(low), np.concatenate(high)


def _stuck(model: Model, attempts: _Attempts, wanting: Ints, granted: Ints, low: int, high: int) -> Finding:
    """Names the one who had waited longest, and what ended the stretch."""
    history = model.history
    lock = int(attempts.lock[wanting[0]])
    inside = wanting[(attempts.start[wanting] < high) & (attempts.end[wanting] > low)]
    first = int(attempts.row[inside[np.argmin(attempts.row[inside])]])
    rows = [first]
    # What happened at the instant of its end: a grant of this lock before anything else.
    at = int(np.searchsorted(model.ok[granted], high, "left"))
    if at < len(granted) and model.ok[granted[at]] == high:
        rows.append(int(model.ok_row[granted[at]]))
        ended_by = f"{words.who(model, int(granted[at]))} was granted it"
    else:
        began = any(fault.start == high and not fault.skipped for fault in history.faults)
        ended_by = "a fault began" if began else "nobody wanted it any more"
        if high == model.end:
            ended_by = "the history ended"
        first_then, after = (int(np.searchsorted(history.time, high, side)) for side in ("left", "right"))
        then = np.arange(first_then, after)
        about = (history.lock[then] == lock) & (history.f[then] < CRASH) | (history.f[then] == FAULT)
        rows.append(int(then[about][0]) if about.any() else first_then)
    since = "from then on" if low == history.time[first] else f"from {words.at(low, int(history.time[first]))} on"
    others = len(np.unique(history.process[attempts.row[inside]])) - 1
    also = f" (and {others} more)" if others else ""
    text = (
        f"contender {history.process_name(first)}{also} asked for lock {history.locks[lock]!r} (line "
        f"{model.line(first)}); {since} nobody was known to hold it and no fault was active, and yet nobody got it for "
        f"{words.span(high - low)}, until {ended_by}"
    )
    if history.meta.progress_bound is not None:
        text += f"; the bound is {words.span(nanoseconds(history.meta.progress_bound))}"
    told, more = _what_may_keep_it(model, lock, granted, inside, attempts, low, high)
    events, time = words.lines(model, rows + [row for row in more if row > first])
    text = f"{words.sentence(text)} {told}"
    return Finding("stuck", history.locks[lock], events, text, time, words.seconds(high - low))


#: So many acquires before a stretch are looked at for those of contenders that ask no more.
_LOOKED_BACK = 1000


def _what_may_keep_it(
    model: Model, lock: int, granted: Ints, inside: Ints, attempts: _Attempts, low: int, high: int
) -> tuple[str, list[int]]:
    """What is known of whoever may hold a lock in secret, in sentences, and the rows that say so: how its last hold
    ended, renewals that went on in the stretch, the last acquire that came to nothing of one that asks no more."""
    history = model.history
    told, rows = ["Nobody had ever been granted it."], list[int]()
    last = int(np.searchsorted(model.ok[granted], low, "right")) - 1
    if last >= 0:
        told, rows = _how_it_ended(model, int(granted[last]))
    renews = _renewed(history, lock, int(np.searchsorted(history.time, low, "left")), high)
    if len(renews):
        at = int(renews[0])
        more = f", and {len(renews) - 1:,} more" if len(renews) > 1 else ""
        went_on = f"contender {history.process_name(at)} went on renewing it, and that succeeded"
        told.append(f"But {went_on} (line {model.line(at)}{more}).")
        rows.append(at)
    upto = int(np.searchsorted(attempts.start, low, "right"))
    tried = np.arange(max(0, upto - _LOOKED_BACK), upto)
    tried = attempts.row[tried[attempts.lock[tried] == lock]]
    done = history.mate[tried]
    asking = np.isin(history.process[tried], history.process[attempts.row[inside]])
    nothing = done[(done >= 0) & (history.time[done] <= low) & (history.type[done] != OK) & ~asking]
    if len(nothing):
        at = int(nothing.max())
        how = "had failed" if history.type[at] == FAIL else "was of unknown outcome"
        told.append(
            f"An acquire of contender {history.process_name(at)}, which asks no more, {how} (line {model.line(at)}): "
            "whatever that left behind may stand in the way."
        )
    return " ".join(told), rows


def _how_it_ended(model: Model, grant: int) -> tuple[list[str], list[int]]:
    """How the last hold of a lock ended, in sentences, and the rows that leave it open whether it did."""
    history, who = model.history, words.who(model, grant)
    given, asked = int(model.given_row[grant]), int(model.release_row[grant])
    if given < len(history):
        if history.proves[given] == 0:
            return [
                f"Its last holder, {who}, had given it back (line {model.line(given)}, an ok that proves nothing)."
            ], []
        return [f"Its last holder, {who}, had given it back, and was told ok (line {model.line(given)})."], []
    if asked < len(history):
        done = int(history.mate[asked])
        if done >= 0 and history.type[done] == FAIL:
            return [f"The release of its last holder, {who}, had failed (line {model.line(done)})."], [done]
        may = "the service may still hold it for that contender"
        return [
            f"The release of its last holder, {who}, is of unknown outcome (line {model.line(asked)}): {may}"
            f"{_however(model, grant)}."
        ], [asked]
    row = int(model.belief_end_row[grant])
    if row >= len(history):
        return [f"Its last holder was {who}."], []
    f = int(history.f[row])
    how = "crashed" if f == CRASH else "said that it had lost it" if f == LOST else "asked for it anew"
    return [f"Its last holder, {who}, had {how} (line {model.line(row)}), and never given it back."], []


def _however(model: Model, grant: int) -> str:
    """What a ttl says of a hold that was perhaps not given back."""
    latest = int(model.latest[grant])
    if not model.history.meta.expires:
        return ", and this lock doesn't expire"
    if latest in (NONE, INF):
        return "; no ttl says until when"
    over = words.span(latest - int(model.ok[grant]))
    return (
        f", though by its ttl its lease was over {over} after its grant (line "
        f"{model.line(int(model.ok_row[grant]))}), unless something kept it alive unseen"
    )


def _first_grant_after(model: Model) -> dict[str, float | None]:
    """For each undone fault the seconds from its stop to the next grant of any lock, None where none came."""
    out: dict[str, float | None] = {}
    for fault in model.history.faults:
        if fault.skipped or fault.stop is None or not fault.undone:
            continue
        at = int(np.searchsorted(model.ok, fault.stop, "left"))
        out[str(fault.id)] = words.seconds(int(model.ok[at]) - fault.stop) if at < len(model) else None
    return out


def _handovers(model: Model) -> dict[str, Any]:
    """From the end of a belief to the next grant of that lock, of all locks together; beliefs that lasted to the end of
    the history have no hand-over."""
    parts = [np.empty(0, dtype=np.int64)]
    for group in model.by_lock:
        over = group[model.belief_end_row[group] < len(model.history)]
        ends, ok = model.belief_end[over], model.ok[group]
        at = np.searchsorted(ok, ends, "left")
        come = at < len(ok)
        parts.append(ok[at[come]] - ends[come])
    spans = np.concatenate(parts) / 1e9
    if not len(spans):
        return {"count": 0}
    low, middle, high, top = np.percentile(spans, [0, 50, 99, 100]).tolist()
    return {"count": len(spans), "min": low, "median": middle, "p99": high, "max": top, "mean": float(spans.mean())}


def _availability(model: Model, attempts: _Attempts) -> float | None:
    """The share of the time from a lock's first acquire invoke to the end in which somebody believes; of all locks."""
    believed = total = 0
    locks = len(model.history.locks)
    if not len(attempts.row):
        return None
    first = np.full(locks, NONE, dtype=np.int64)
    first[attempts.lock[::-1]] = attempts.start[::-1]
    total = sum(model.end - start for start in first.tolist() if start != NONE)
    for group in model.by_lock:
        start, end = model.ok[group], np.maximum.accumulate(model.belief_end[group])
        since = np.concatenate(([start[0]], np.maximum(start[1:], end[:-1])))
        believed += int(np.maximum(end - since, 0).sum())
    return believed / total if total else None
