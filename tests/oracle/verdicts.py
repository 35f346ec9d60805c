"""The contract's chapter "Verdicts", by quantifying over pairs of grants, and orders of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise

from tests.oracle.conduct import conduct
from tests.oracle.intervals import (
    INFINITE,
    Grant,
    Instant,
    frozen,
    grants,
    precedes,
    precedes_without_promises,
    promise_over,
)
from tests.oracle.progress import faults, progress
from tests.oracle.reading import History, Op, nanoseconds
from tests.oracle.said import Finding, Judgement, Verdict, Word, done, lines, word
from tests.oracle.writes import accepted, of_resource


def judge(history: History, *, partial: bool = False) -> Judgement:
    """`partial` judges what is there of a history that was cut off as if it were whole."""
    found = grants(history)
    owners = history.setting("owners", True)
    verdicts = {name: verdict(history, found) for name, verdict in VERDICTS.items()}
    if not owners:
        for name in ("exclusion", "lease", "fencing"):
            verdicts[name] = Verdict("unknown")
        verdicts["linearizable"] = mutex(history, found)
    if history.cut_off and not partial:
        for verdict in verdicts.values():
            verdict.valid = "unknown"  # a line may be missing that clears somebody
    required = history.meta.get("require")
    if not required:
        required = ["lease", "linearizable", "faults"] if owners else ["linearizable", "faults"]
        if owners and any(grant.token is not None for grant in found):
            required.append("fencing")
        if accepted(history, "fenced") or verdicts["fenced"].valid is False:
            required.append("fenced")
        if history.meta.get("progress_bound") is not None:
            required.append("progress")
    words = [verdicts[name].valid for name in required]
    valid: Word = True
    if history.cut_off and not partial:
        valid = "unknown"
    elif False in words:
        valid = False
    elif "unknown" in words or len(found) < history.setting("min_grants", 0):
        valid = "unknown"
    placed = {event.line: event for event in history.events}
    return Judgement(valid, sorted(required), verdicts, len(history.events), len(found), placed, history.cut_off)


def _pairs(found: list[Grant]) -> Iterator[tuple[Grant, Grant]]:
    """All pairs of grants of one lock, the one with the earlier ok (ties by line) first."""
    for a, b in combinations(found, 2):
        if a.lock == b.lock:
            yield a, b


# lease


def _lease_pair(a: Grant, b: Grant) -> str | None:
    """The kind of the finding that these two make, if they make one."""
    if a.process == b.process or not (precedes(a, b) and precedes(b, a)):
        return None
    if precedes_without_promises(a, b) and precedes_without_promises(b, a):
        return "double-grant"
    return "early-grant"


def lease(history: History, found: list[Grant]) -> Verdict:
    findings = []
    for a, b in _pairs(found):
        kind = _lease_pair(a, b)
        if kind is not None:
            findings.append(Finding(kind, a.lock, lines(a.ok_event, b.ok_event)))
    for a in found:
        if a.ended is None:
            continue
        before = [own for own in a.own if own.invoke.position < a.ended.position]
        promise_then = promise_over(a, [own for own in before if own.f == "renew"])
        given_up = any(own.f == "release" and own.outcome != "fail" for own in before)
        if promise_then is not None and a.ended.time < promise_then and not given_up:
            findings.append(Finding("early-expiry", a.lock, lines(a.ok_event, a.ended)))
        for own in a.own:
            after = own.invoke.position > a.ended.position
            if own.f in ("renew", "release") and own.outcome == "ok" and own.proves and after:
                findings.append(Finding("revived", a.lock, lines(a.ok_event, a.ended)))
                break
    # Beliefs overlap in a pair that is no finding, and nobody can tell whether the lease still ran.
    hidden = any(_overlap(a, b) is not None and _unseen(a, b) and _lease_pair(a, b) is None for a, b in _pairs(found))
    solid = sum(a.solid for a in found)
    stats = {"grants": len(found), "solid": solid, "late": sum(a.late for a in found)}
    return Verdict(word(findings, unknown=not found or 2 * solid < len(found) or hidden), findings, stats)


# exclusion


def _overlap(a: Grant, b: Grant) -> tuple[Instant, Instant] | None:
    """Where both believe, when they are of different processes and it is longer than the uncertainty."""
    low, high = max(a.ok, b.ok), min(a.belief_end, b.belief_end)
    if a.process == b.process or high - low <= a.history.uncertainty:
        return None
    return low, high


def _unseen(a: Grant, b: Grant) -> bool:
    """The renewals of the earlier holder, which is `a`, or of a late one of the two, are unseen."""
    return a.unseen or (b.unseen and b.late)


def exclusion(history: History, found: list[Grant]) -> Verdict:
    findings = []
    for a, b in _pairs(found):
        overlap = _overlap(a, b)
        if overlap is not None:
            low, high = overlap
            blame = _blame(history, a, b, low, high)
            seconds = Fraction(high - low) / 10**9
            findings.append(Finding("overlap", a.lock, lines(a.ok_event, b.ok_event), blame, seconds))
    unsafe, awake = _unsafe(history, found)
    return Verdict(not findings, findings, {"unsafe_seconds": unsafe, "unsafe_seconds_awake": awake})


def _blame(history: History, a: Grant, b: Grant, low: Instant, high: Instant) -> str:
    """`a` is the earlier holder; low to high is the overlap."""
    if _lease_pair(a, b) is not None:
        return "service"
    after = nanoseconds(a.ttl if a.ttl is not None else 0)
    spans: list[tuple[int, Instant]] = [(start, stop + after) for start, stop in frozen(history, a.process)]
    if _covered(low, high, spans):
        return "pause"
    for fault in history.faults:
        if fault.landed and fault.start.get("kind") == "clock" and fault.hits(a.process):
            stop = history.last if fault.stop is None else fault.stop.time
            if fault.start.time < high and stop > a.ok:  # instants that touch don't overlap
                return "clock"
    if _unseen(a, b):
        return "unseen"
    if a.late or b.late:
        return "late-grant"
    return "client"


def _covered(low: Instant, high: Instant, spans: list[tuple[int, Instant]]) -> bool:
    """Every part of low to high lies in one of the spans."""
    reached = low
    for start, stop in sorted(spans):
        if start <= reached:
            reached = max(reached, stop)
    return reached >= high


def _unsafe(history: History, found: list[Grant]) -> tuple[Fraction, Fraction]:
    """Cut the time at every instant that matters, and ask of each piece who believes."""
    unsafe = awake = Fraction(0)
    for lock in {a.lock for a in found}:
        here = [a for a in found if a.lock == lock]
        cuts = {instant for a in here for instant in (a.ok, a.belief_end)}
        for a in here:
            cuts.update(instant for span in frozen(history, a.process) for instant in span)
        for low, high in pairwise(sorted(cuts)):
            believers = [a for a in here if a.ok <= low and high <= a.belief_end]
            if len({a.process for a in believers}) < 2:
                continue
            unsafe += Fraction(high - low)
            oldest = min(believers, key=lambda a: a.ok_event.position)
            if not any(start <= low and high <= stop for start, stop in frozen(history, oldest.process)):
                awake += Fraction(high - low)
    return unsafe / 10**9, awake / 10**9


# fencing


def fencing(history: History, found: list[Grant]) -> Verdict:
    findings = []
    with_token = [a for a in found if a.token is not None]
    for b in with_token:
        same_lock = [a for a in with_token if a.lock == b.lock]
        before = [a for a in same_lock if a.token == b.token and a.ok_event.position < b.ok_event.position]
        if before and before[-1].process != b.process:
            findings.append(Finding("duplicate", b.lock, lines(before[-1].ok_event, b.ok_event)))
        greater = [a for a in same_lock if a.token > b.token and _granted_before(a, b)]  # type: ignore[operator]
        if greater:
            worst = min(greater, key=lambda a: (-(a.token or 0), a.ok_event.position))
            findings.append(Finding("regression", b.lock, lines(worst.ok_event, b.ok_event)))
    pairs = list(_pairs(with_token))
    gaps = 0
    for lock in {a.lock for a in with_token}:
        tokens = sorted({a.token for a in with_token if a.lock == lock and a.token is not None})
        gaps += sum(high - low - 1 for low, high in pairwise(tokens))
    stats = {
        "pairs": len(pairs),
        "unordered_pairs": sum(not precedes(a, b) and not precedes(b, a) for a, b in pairs),
        "without_token": len(found) - len(with_token),
        "gaps": gaps,
    }
    return Verdict(word(findings, unknown=not found or 2 * len(with_token) < len(found)), findings, stats)


def _granted_before(a: Grant, b: Grant) -> bool:
    if a.process == b.process:
        return a.ok_event.position < b.ok_event.position
    real_time = a.ok + a.history.uncertainty < b.invoke
    hold_order = precedes(a, b) and not precedes(b, a)
    return real_time or hold_order


# linearizable


def linearizable(history: History, found: list[Grant]) -> Verdict:
    """Search every order of each lock's grants; each placed as early as its order allows (that leaves the others the
    most room). An early-expiry or revived makes it false too."""
    by_lease = lease(history, found)
    findings = [finding for finding in by_lease.findings if finding.kind in ("early-expiry", "revived")]
    for lock in sorted({a.lock for a in found}):
        here = [a for a in found if a.lock == lock]
        if not _orderable(history, here):
            findings.append(Finding("no-order", lock, frozenset()))
    return Verdict(word(findings, unknown=by_lease.valid == "unknown"), findings)


def _orderable(history: History, here: list[Grant]) -> bool:
    for a, b in combinations(here, 2):
        if a.token is not None and a.token == b.token and a.process != b.process:
            return False
    half = history.uncertainty / 2
    windows = [(a.invoke - half, a.ok + half, None if a.L is None else a.L - half) for a in here]
    # Instants are only ever compared, so that their ranks do as well, which are small numbers.
    instants = sorted({instant for window in windows for instant in window if instant is not None})
    rank = {instant: number for number, instant in enumerate(instants)}
    first, last, end = zip(
        *[[None if each is None else rank[each] for each in window] for window in windows], strict=True
    )
    own_earlier = [frozenset(j for j, b in enumerate(here[:i]) if b.process == a.process) for i, a in enumerate(here)]
    # The least instant at which these can all have ended, however they are ordered.
    earliest: dict[frozenset[int], int] = {}

    def place(placed: frozenset[int], highest: int | None, free: int) -> bool:
        if len(placed) == len(here):
            return True
        if placed in earliest and earliest[placed] <= free:
            return False  # tried, and from no later an instant
        earliest[placed] = free
        for i, a in enumerate(here):
            start = max(first[i], free)
            if i in placed or start > last[i] or not own_earlier[i] <= placed:
                continue
            if a.token is not None and highest is not None and a.token < highest:
                continue
            token = highest if a.token is None else a.token
            if place(placed | {i}, token, start if end[i] is None else max(start, end[i])):
                return True
        return False

    return place(frozenset(), None, -1)


def mutex(history: History, found: list[Grant]) -> Verdict:
    """Histories without owners: acquire ok needs it free, release ok needs it held, info takes effect at some instant
    from its invoke on, or never."""
    findings = []
    half = history.uncertainty / 2
    for lock in history.locks:
        ops = [op for op in history.ops if op.lock == lock and op.f in ("acquire", "release") and op.outcome != "fail"]
        if not _mutex_orderable(ops, half):
            findings.append(Finding("no-order", lock, frozenset()))
    return Verdict(not findings, findings)


def _mutex_orderable(ops: list[Op], half: Fraction) -> bool:
    """Any order of any of the unknown ones with all of the ok ones, each at an instant of its window; what a process
    did after one of its operations had returned comes after that one, whatever the uncertainty."""

    @cache
    def place(placed: frozenset[int]) -> bool:
        if all(i in placed for i, op in enumerate(ops) if op.outcome == "ok"):
            return True
        held = sum(1 if ops[i].f == "acquire" else -1 for i in placed) == 1
        now: Instant = max((ops[i].invoke.time - half for i in placed), default=-INFINITE)
        for i, op in enumerate(ops):
            if i in placed or held == (op.f == "acquire"):
                continue
            if op.outcome == "ok" and max(now, op.invoke.time - half) > done(op).time + half:
                continue
            earlier = [j for j, other in enumerate(ops) if other.process == op.process and other.outcome == "ok"]
            if any(j not in placed and done(ops[j]).position < op.invoke.position for j in earlier):
                continue
            if place(placed | {i}):
                return True
        return False

    return place(frozenset())


VERDICTS: dict[str, Callable[[History, list[Grant]], Verdict]] = {
    "exclusion": exclusion,
    "lease": lease,
    "fencing": fencing,
    "fenced": of_resource("fenced"),
    "damage": of_resource("unfenced"),
    "conduct": conduct,
    "linearizable": linearizable,
    "progress": progress,
    "faults": faults,
}
