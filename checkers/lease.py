"""lease: did the service grant the lock to B inside the time that it had promised A?

What the service did, judged without trusting any client's clock. Two grants that *precede each other* were both held at
once whatever the account; a single grant can be taken away early, or be taken back after the service had said that it
was gone. Unknown with no grant, when fewer than half of the grants are solid, or when two believed in it at once and
one of them renews in silence: its lease may still have run, or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from checkers import pairs, standing, words
from checkers.findings import LISTED, Finding, Verdict
from checkers.intervals import INF, Model, lengths
from harness.history.events import FAIL, INVOKE, LOST, NONE, OK, RELEASE, RENEW, Ints

#: So many renewals are looked at to say when a lease had run out.
_MOST_RENEWS = 10_000


def check(model: Model) -> Verdict:
    """False with any finding, unknown where too little is known of the grants, else true."""
    return model.once("lease", lambda: _check(model))


def early_expiries(model: Model) -> Ints:
    """The grants that the service ended inside their promise, with no own release before that."""

    def early() -> Ints:
        over: Ints = np.flatnonzero(model.ended_row < len(model.history))
        promise = model.promise_then[over]
        over = over[(promise != NONE) & (model.ended[over] < promise)]
        return over[model.standing_release_row[over] > model.ended_row[over]]

    return model.once("early expiries", early)


def revivals(model: Model) -> Ints:
    """The grants of which an own renew or release succeeded after the service had said that they were gone."""

    def revived() -> Ints:
        return np.flatnonzero(model.revived_row < len(model.history))

    return model.once("revivals", revived)


def count_pairs(model: Model) -> int:
    """How many pairs of grants precede each other. Those of one process never do: a hold ends by the next acquire."""
    return sum(pairs.count(model.of(group, model.ok), model.of(group, model.until)) for group in model.by_lock)


def count_single(model: Model) -> int:
    """How many findings there are about one grant: `early-expiry` and `revived`."""
    return len(early_expiries(model)) + len(revivals(model))


def single_findings(model: Model) -> list[Finding]:
    """The `early-expiry` and `revived` findings, as many of each as are listed."""
    found = [_early_expiry(model, g) for g in _first_by(early_expiries(model), model.ended_row)]
    return found + [_revived(model, g) for g in _first_by(revivals(model), model.revived_row)]


def _check(model: Model) -> Verdict:
    solid = int(np.count_nonzero(model.solid))
    stats = {"grants": len(model), "solid": solid, "late": int(np.count_nonzero(model.late))}
    if not model.owners:
        return Verdict("unknown", stats=stats, note="a history without owners says nothing of who held the lock")
    double = count_pairs(model)
    total = double + count_single(model)
    found = single_findings(model)
    found += words.pick_pairs(model, model.until, double, _evidence, _pair)
    if total:
        return Verdict(False, words.ordered(found), total, stats)
    if not len(model):
        return Verdict("unknown", stats=stats, note="no grant")
    if 2 * solid < len(model):
        return Verdict("unknown", stats=stats, note=f"only {solid} of {len(model)} grants were held for certain")
    pair = _unseen_overlap(model)
    if pair is not None:
        one, other = (words.who(model, g) for g in pair)
        at_once = f"{one} and {other} believed in {words.lock(model, pair[0])} at once"
        whose = words.who(model, pair[0] if model.unseen[pair[0]] else pair[1])
        return Verdict("unknown", stats=stats, note=f"{at_once}, and the renewals of {whose} are unseen")
    return Verdict(True, stats=stats)


def unseen_of(model: Model, a: int, b: int) -> int | None:
    """Of two grants (a was granted before b) the one whose unseen renewals leave it open who is wrong: the earlier, or
    one that looks late; None where neither does."""
    if model.unseen[a]:
        return a
    return b if model.unseen[b] and model.late[b] else None


def _unseen_overlap(model: Model) -> tuple[int, int] | None:
    """Some pair of grants whose beliefs overlap by more than u, of which `unseen_of` names one."""
    if not model.unseen.any():
        return None
    until = model.belief_end - model.u
    for group in model.by_lock:
        # Only a belief longer than u overlaps another by more. In order of ok, one that reaches any later ok reaches
        # the next; and a later one is reached if the longest of those before it reaches it.
        group = group[until[group] > model.ok[group]]
        if len(group) < 2:
            continue
        ok, end, unseen = model.ok[group], until[group], model.unseen[group]
        at = np.flatnonzero(unseen[:-1] & (end[:-1] > ok[1:]))
        if len(at):
            return int(group[at[0]]), int(group[at[0] + 1])
        longest = np.maximum.accumulate(end)
        at = np.flatnonzero(unseen[1:] & model.late[group][1:] & (longest[:-1] > ok[1:]))
        if len(at):
            b = int(at[0]) + 1
            return int(group[np.argmax(end[:b])]), int(group[b])
    return None


def _first_by(grants: Ints, row: Ints) -> list[int]:
    """The first `LISTED` of some grants in order of a row."""
    return [int(g) for g in grants[np.argsort(row[grants], kind="stable")][:LISTED]]


def _evidence(model: Model, a: int, b: int) -> list[int]:
    """The rows that prove a pair: both grants, and what shows that each was still held when the other was granted."""
    rows = [int(model.ok_row[a]), int(model.ok_row[b])]
    for this, other in ((a, b), (b, a)):
        if model.E_proven[this] > model.ok[other] + model.u:
            # Where it was asked for after the other's grant alone, nothing else is needed.
            if model.invoke[this] <= model.ok[other] + model.u:
                row = proof_after(model, this, other)
                rows += [row, int(model.history.mate[row])]
        elif model.promise_row[this] >= 0 and model.E[this] > max(model.invoke[this], model.proven[this]):
            rows.append(int(model.promise_row[this]))
    return rows


def _own_rows(model: Model, name: str, rows: Callable[[], Ints], g: int, since: int) -> Iterator[int]:
    """Of some rows (made once, under `name`) those of a grant's process and lock, in order, from row `since` on."""

    def index() -> Ints:
        found = rows()
        return np.sort(standing.keys(model, found) * len(model.history) + found)

    n = len(model.history)
    numbers: Ints = model.once(name, index)
    key = int(standing.keys(model, model.ok_row[g : g + 1])[0])
    for at in range(int(np.searchsorted(numbers, key * n + since)), len(numbers)):
        if int(numbers[at]) // n != key:
            return
        yield int(numbers[at]) % n


def proof_after(model: Model, g: int, other: int) -> int:
    """The first own renew or release of g that returned ok and was sent after the other's grant (there is one where
    proven(g) is after it), by the row of its invoke."""
    history = model.history

    def succeeded() -> Ints:
        done = ((history.f == RENEW) | (history.f == RELEASE)) & (history.type == OK) & (history.proves != 0)
        rows: Ints = history.mate[done]
        return rows

    since = int(np.searchsorted(history.time, int(model.ok[other]) + model.u, "right"))
    for row in _own_rows(model, "successes", succeeded, g, max(since, int(model.ok_row[g]))):
        if history.mate[row] <= model.next_acquire_row[g]:
            return row
    raise AssertionError(f"grant {g} was proven after grant {other}, and no success says so")


def _renews(model: Model, g: int) -> Iterator[int]:
    """The renews of a grant's process and lock from that grant on, by the rows of their invokes."""
    history = model.history

    def asked() -> Ints:
        return np.flatnonzero((history.f == RENEW) & (history.type == INVOKE))

    return _own_rows(model, "renews", asked, g, int(model.ok_row[g]))


def renewed(model: Model, g: int) -> bool:
    """Whether a grant's contender asked to renew it while it believed in it, whatever came of it."""
    return next(_renews(model, g), len(model.history)) < int(model.belief_end_row[g])


def ran_out(model: Model, g: int, row: int) -> int | None:
    """When the lease of g had run out by itself at the latest, as far as it had been renewed before a row; None where
    nobody can tell, where it never does, and where it would take long to find out."""
    history, meta = model.history, model.history.meta
    greatest = float(model.ttl[g])
    if not meta.expires or model.unseen[g]:
        return None

    last = int(model.ok[g])
    for number, renew in enumerate(_renews(model, g)):
        if renew >= row:
            break
        if number == _MOST_RENEWS:
            return None
        done = int(history.mate[renew])
        if done >= 0 and history.type[done] == FAIL:
            continue
        ttls = [float(history.ttl[at]) for at in (renew, done) if at >= 0 and not np.isnan(history.ttl[at])]
        greatest = max([greatest, *ttls])
        last = max(last, int(history.time[done if done >= 0 else renew]))
    if np.isnan(greatest):
        return None
    end = last + int(lengths(np.array([greatest]), 1.0 + meta.rate_tolerance)[0])
    return end if end + model.u < int(history.time[row]) else None


def is_double(model: Model, a: int, b: int) -> bool:
    """Whether a and b precede each other with all promises left out."""
    return bool(model.E_proven[a] > model.ok[b] + model.u and model.E_proven[b] > model.ok[a] + model.u)


def _pair(model: Model, a: int, b: int, rows: list[int]) -> Finding:
    """a was granted before b."""
    start = int(model.ok[a])
    kind = "double-grant" if is_double(model, a, b) else "early-grant"
    text = (
        f"{words.who(model, a)} was granted {words.lock(model, a)}{words.token(model, a)}; "
        f"{words.after(int(model.ok[b]), start)} {words.who(model, b)} was granted it too{words.token(model, b)}"
        f"{_why(model, a, b, start)}"
    )
    text = words.sentence(text) + words.meanwhile(model, start, int(model.ok[b]))
    events, time = words.lines(model, rows)
    shared = min(int(model.E[a]), int(model.E[b])) - int(model.ok[b])
    return Finding(
        kind,
        model.lock_name(a),
        events,
        text,
        time,
        words.seconds(shared) if 0 < shared < INF // 2 else None,
    )


def _why(model: Model, a: int, b: int, start: int) -> str:
    """What shows that a still held it when b was granted it."""
    if model.E_proven[a] > model.ok[b] + model.u:
        row = proof_after(model, a, b)
        what = words.operation(model, row)
        sent = words.at(int(model.history.time[row]), start)
        told = (
            f"; yet the {what} of its hold that {words.who(model, a)} sent after that, at {sent}, succeeded (line "
            f"{model.line(row)}): either that grant or this success was wrong"
        )
        over = ran_out(model, a, int(model.ok_row[b]))
        if over is not None:
            whose = f"the lease of {words.who(model, a)} had run out by {words.at(over, start)}, before that grant"
            so = "what it released was no longer its own" if what == "release" else "it renewed a lease that was over"
            told += f". By the ttl it was this success: {whose}, so {so}"
        return told
    if model.promise[a] == INF:
        return f", and {words.who(model, a)} hadn't given it back: this lock doesn't expire"
    row = int(model.promise_row[a])
    source = "its acquire" if row < 0 else f"its renew of line {model.line(row)}"
    # "At least": the promise counts from when the request was sent, and the service can't have counted from earlier.
    told = (
        f", inside the time promised to {words.who(model, a)}: {source} promised it {_promised(model, a)}until at "
        f"least {words.at(int(model.promise[a]), start)}, counted from the grant of {words.who(model, a)}"
    )
    if model.L[a] < model.promise[a]:
        told += f", and {_what_ended(model, a)} {words.at(int(model.L[a]), start)}"
    return told


def _promised(model: Model, g: int) -> str:
    """The length of a grant's promise before its end: `30 s, so `; nothing where its ttl changed on the way."""
    row = int(model.promise_row[g])
    ttls = {float(model.ttl[g])}
    if row >= 0:
        done = int(model.history.mate[row])
        ttls |= {float(model.history.ttl[at]) for at in (row, done) if at >= 0 and not np.isnan(model.history.ttl[at])}
    return f"{ttls.pop():g} s, so " if len(ttls) == 1 else ""


def _what_ended(model: Model, g: int) -> str:
    """What came at L(g), inside the promise, said so that the time can follow."""
    for rows, told in (
        (model.standing_release_row, "it did not release it before"),
        (model.ended_row, "the service did not say that it was over before"),
        (model.next_acquire_row, "it did not ask for it again before"),
    ):
        row = int(rows[g])
        if row < len(model.history) and model.history.time[row] == model.L[g]:
            return told
    return "it was still held at"


def _early_expiry(model: Model, g: int) -> Finding:
    start, row = int(model.ok[g]), int(model.ended_row[g])
    promise = int(model.promise_then[g])
    left = (
        "though this lock doesn't expire"
        if promise == INF
        else f"{words.span(promise - int(model.ended[g]))} too early"
    )
    text = (
        f"{words.who(model, g)} was granted {words.lock(model, g)}{words.token(model, g)}; "
        f"{words.after(int(model.ended[g]), start)} {_said(model, row)}, {left}. {words.BLAME}: "
        f"{words.who(model, g)} had not released the lock"
    )
    text = words.sentence(text) + words.meanwhile(model, start, int(model.ended[g]))
    events, time = words.lines(model, (model.ok_row[g], row))
    missing = None if promise == INF else words.seconds(promise - int(model.ended[g]))
    return Finding("early-expiry", model.lock_name(g), events, text, time, missing)


def _said(model: Model, row: int) -> str:
    """How the service said that a grant had ended."""
    if model.history.f[row] == LOST:
        over = "its lease had expired" if model.history.meta.expires else "it doesn't hold it any more"
        return f"the service said that {over}"
    what = words.operation(model, row)
    return f"its {what} was refused: the service said that it doesn't hold it"


def _revived(model: Model, g: int) -> Finding:
    start, ended, row = int(model.ok[g]), int(model.ended_row[g]), int(model.revived_row[g])
    what = words.operation(model, row)
    text = (
        f"{words.who(model, g)} was granted {words.lock(model, g)}{words.token(model, g)}; "
        f"{words.after(int(model.ended[g]), start)} {_said(model, ended)}; yet its {what} sent at "
        f"{words.at(int(model.history.time[row]), start)} succeeded: the service took back what it had said"
    )
    events, time = words.lines(model, (model.ok_row[g], ended, row, model.history.mate[row]))
    return Finding("revived", model.lock_name(g), events, words.sentence(text), time)
