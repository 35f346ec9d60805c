"""exclusion: did two holders ever *believe* that they held the lock at once?

What the clients thought. A pause can always bring this about; `blame` says what did, the first that fits of service,
pause, clock, unseen, late-grant and client.
"""

from __future__ import annotations

import numpy as np

from checkers import lease, pairs, standing, words
from checkers.findings import Finding, Verdict
from checkers.intervals import INF, Model, nanoseconds
from harness.history.events import ACQUIRE, CRASH, LOST, NONE, Ints


def check(model: Model) -> Verdict:
    """False when the beliefs of two processes in one lock overlap by more than u, else true; unknown without owners."""
    if not model.owners:
        return Verdict("unknown", note="a history without owners says nothing of who believed what")
    until = model.belief_end - model.u
    # Only a belief longer than u can overlap another by more; those of one process end where its next begins.
    total = sum(pairs.count(model.ok[group], until[group]) for group in _believed(model))
    unsafe, awake = unsafe_time(model)
    stats = {"unsafe_seconds": words.seconds(unsafe), "unsafe_seconds_awake": words.seconds(awake)}
    if not total:
        return Verdict(True, stats=stats)
    # Beliefs that are no longer than u can't be long in the sense of `pairs`, and must not meet as short ones.
    never = np.where(until > model.ok, until, np.iinfo(np.int64).min)
    return Verdict(False, words.ordered(words.pick_pairs(model, never, total, _evidence, _overlap)), total, stats)


def _believed(model: Model) -> list[Ints]:
    """The grants of each lock whose belief is longer than u."""
    long = model.belief_end - model.u > model.ok
    return [group[long[group]] for group in model.by_lock]


def unsafe_time(model: Model) -> tuple[int, int]:
    """The time in ns with two or more believers in a lock, and the part of it in which the older holder was awake.

    The older holder at an instant is the one with the earliest ok of those who believe. In order of ok, grant i is that
    from where all earlier beliefs have ended to its own end, so the spans of older holders are a running maximum.
    """
    total = awake = 0
    for group in model.by_lock:
        start, end = model.ok[group], model.belief_end[group]
        if len(group) < 2:
            continue
        latest = np.maximum.accumulate(end)
        meets = np.flatnonzero(start[1:] < latest[:-1]) + 1
        if not len(meets):
            continue
        low, high = _depth_two(start, end)
        total += int((high - low).sum())
        older = np.concatenate(([start[0]], np.maximum(start[1:], latest[:-1])))
        awake += _awake(model, group, older, end, low, high)
    return total, awake


def _depth_two(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The maximal spans in which at least two of the intervals overlap."""
    times = np.concatenate((start, end))
    change = np.repeat(np.array([1, -1]), len(start))
    order = np.argsort(times)  # among equal times in any order: what lies between them has no length
    times, depth = times[order], np.cumsum(change[order])
    inside = depth[:-1] >= 2
    low, high = times[:-1][inside], times[1:][inside]
    some = high > low
    return low[some], high[some]


def _awake(model: Model, group: Ints, older: Ints, end: Ints, low: Ints, high: Ints) -> int:
    """The part of the spans [low, high] in which the grant that is the older one there wasn't frozen."""
    frozen = {code: model.frozen(process) for code, process in enumerate(model.history.processes)}
    total = int((high - low).sum())
    if not any(frozen.values()):
        return total
    asleep = 0
    mine = np.flatnonzero((older < end) & np.isin(model.process[group], [c for c, spans in frozen.items() if spans]))
    for i in mine.tolist():
        first, last = int(older[i]), int(end[i])
        at = int(np.searchsorted(high, first, "right"))
        while at < len(low) and low[at] < last:
            a, b = max(first, int(low[at])), min(last, int(high[at]))
            for start, stop in frozen[int(model.process[group[i]])]:
                asleep += max(0, min(b, stop) - max(a, start))
            at += 1
    return total - asleep


def _evidence(model: Model, a: int, b: int) -> list[int]:
    """Both grants, and what ended the overlap (nothing where it lasted to the end)."""
    first = a if model.belief_end[a] <= model.belief_end[b] else b
    return [int(model.ok_row[a]), int(model.ok_row[b]), int(model.belief_end_row[first])]


def _overlap(model: Model, a: int, b: int, rows: list[int]) -> Finding:
    """a was granted before b."""
    start, low = int(model.ok[a]), int(model.ok[b])
    first = a if model.belief_end[a] <= model.belief_end[b] else b
    high = int(model.belief_end[first])
    blame = _blame(model, a, b, low, high)
    because = words.sentence(_because(model, a, b, blame, high))
    text = (
        f"{words.who(model, a)} was granted {words.lock(model, a)}{words.token(model, a)}; "
        f"{words.after(low, start)} {words.who(model, b)} was granted it too{words.token(model, b)}, and both believed "
        f"that they held it for {words.span(high - low)}, until {_how(model, first)}. {because}"
    )
    text = words.sentence(text)
    if blame not in ("service", "pause"):  # lease tells of the first, and the other names the fault
        text += words.meanwhile(model, start, high)
    events, time = words.lines(model, rows)
    return Finding("overlap", model.lock_name(a), events, text, time, words.seconds(high - low), blame)


def _how(model: Model, g: int) -> str:
    """How a belief ended."""
    row = int(model.belief_end_row[g])
    if row >= len(model.history):
        return "the end of the history"
    f, name = int(model.history.f[row]), words.who(model, g)
    if f == LOST:
        by = standing.lost_by(model.history, row)
        return f"{name} noticed that it had lost it" + ("" if by is None else f" ({by})")
    if f == CRASH:
        return f"{name} crashed"
    return f"{name} asked for it anew" if f == ACQUIRE else f"{name} released it"


def _blame(model: Model, a: int, b: int, low: int, high: int) -> str:
    if model.precedes(a, b) and model.precedes(b, a):
        return "service"
    ttl = float(model.ttl[a])
    if _asleep(model.frozen(model.process_id(a)), 0 if np.isnan(ttl) else nanoseconds(ttl), low, high):
        return "pause"
    for fault in model.clock_faults(model.process_id(a)):
        # Touching isn't lying between: closed intervals that share an instant don't overlap.
        if fault.start < high and (model.end if fault.stop is None else fault.stop) > int(model.ok[a]):
            return "clock"
    if lease.unseen_of(model, a, b) is not None:
        return "unseen"
    if model.late[a] or model.late[b]:
        return "late-grant"
    return "client"


def _asleep(frozen: list[tuple[int, int]], after: int, low: int, high: int) -> bool:
    """Whether every part of [low, high] lies in a frozen interval or within `after` ns of its end."""
    for start, stop in frozen:
        if start > low:
            return False
        low = max(low, stop + after)
        if low >= high:
            return True
    return False


def _because(model: Model, a: int, b: int, blame: str, high: int) -> str:
    """Who is to blame for an overlap that ended at `high`, and why."""
    name = words.who(model, a)
    if blame == "service":
        return f"{words.BLAME}: {_wrong(model, a, b)}"
    if blame == "pause":
        return f"{name} was frozen, and had not noticed that its time was over"
    if blame == "clock":
        promise = int(model.promise[a])
        told = f"the clock of {name} had been moved"
        if promise in (NONE, INF) or promise >= high:
            return told
        return f"{told}; by its ttl its lease was over by {words.at(promise, int(model.ok[a]))}"
    if blame == "unseen":
        whose = words.who(model, a if model.unseen[a] else b)
        return f"{whose} renews in silence: nobody can tell whether its lease still ran, so service or client is wrong"
    if blame == "late-grant":
        late = a if model.late[a] else b
        told = f"the grant of {words.who(model, late)} had run out before it arrived{_since(model, late)}"
        return (
            f"{told}. It used that grant all the same, which a client that looks at the time when the answer comes "
            "does not; whether service, network or library was late nobody can tell"
        )
    return f"{name} {_went_on(model, a, high)}"


def _wrong(model: Model, a: int, b: int) -> str:
    """What was wrong with the answers by which two held a lock at once; a was granted it before b."""
    one, other = words.who(model, a), words.who(model, b)
    if lease.is_double(model, a, b):
        row = lease.proof_after(model, a, b)
        accepted = f"the {words.operation(model, row)} that {one} sent later (line {model.line(row)}; see lease)"
        told = f"it granted the lock to {other}, and yet accepted {accepted}"
        over = lease.ran_out(model, a, int(model.ok_row[b]))
        if over is None:
            return told
        spent = words.at(over, int(model.ok[a]))
        went_on = f"{words.sentence(one)[:-1]} had gone on past its own deadline besides"
        return f"{told}. {went_on}: by its ttl its lease was over by {spent}"
    if not model.history.meta.expires:
        return f"it granted {other} a lock that doesn't expire, and that {one} had not given back (see lease)"
    return f"it granted the lock to {other} inside the time promised to {one} (see lease)"


def _since(model: Model, late: int) -> str:
    """By how much a grant came after its own lease, where a ttl says so, and what that counts from."""
    promise = int(model.promise[late])
    if promise in (NONE, INF) or promise >= int(model.ok[late]):
        return ""
    asked = model.history.lease_from[model.ok_row[late]] == NONE
    since = f"when it was asked for (line {model.line(int(model.invoke_row[late]))})" if asked else "its lease_from"
    over = f"had been over for {words.span(int(model.ok[late]) - promise)}"
    return f": its ttl of {float(model.ttl[late]):g} s, counted from {since}, {over}"


def _went_on(model: Model, a: int, high: int) -> str:
    """How a client believed in a hold that the service had ended, or may have: what of it is known."""
    refused = int(model.ended_row[a])
    if refused < len(model.history) and int(model.ended[a]) < high:
        how = f"{words.at(int(model.ended[a]), int(model.ok[a]))} (line {model.line(refused)})"
        return f"went on all the same after the service had said that it doesn't hold it, at {how}"
    promise = int(model.promise[a])
    if promise in (NONE, INF):
        return "went on believing in it; no ttl is known, so nothing says when its hold was over"
    row = int(model.promise_row[a])
    if row >= 0:
        since = f"its renew of line {model.line(row)}"
    else:
        since = "its acquire, " + ("as no renew succeeded" if lease.renewed(model, a) else "which it never renewed")
    return f"went on past its own deadline: that was {words.at(promise, int(model.ok[a]))}, by its ttl from {since}"
