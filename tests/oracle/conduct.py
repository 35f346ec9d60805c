"""`conduct`: did each contender act only while it believed, and leave alone what it had given up?

Everything here is the order of the events of one process and lock; no clock is looked at but to measure the ttl after a
`lost`.
"""

from __future__ import annotations

from fractions import Fraction

from tests.oracle.intervals import Grant
from tests.oracle.reading import Event, History, Op, nanoseconds
from tests.oracle.said import Finding, Verdict, done, lines, word


def conduct(history: History, found: list[Grant]) -> Verdict:
    if history.setting("owners", True) is False:
        return Verdict("unknown")
    outside = [
        op for op in history.ops if op.f in ("write", "renew") and not _believed(_of(op, found), op.invoke.position)
    ]
    writes = [op for op in outside if op.f == "write"]
    findings = [_unheld(history, op, _of(op, found)) for op in writes if op.outcome != "fail"]

    strays: dict[tuple[object, str, int], list[tuple[Op, Event | None]]] = {}
    for op in outside:
        grants = [grant for grant in _of(op, found) if grant.ok_event.position < op.invoke.position]
        last = grants[-1] if grants else None
        if op.f == "renew" and op.outcome == "ok":
            stray, why = _stray(history, op, last)
            if stray:
                group = (op.process, op.lock, -1 if last is None else last.ok_event.position)
                strays.setdefault(group, []).append((op, why))
    for renews in strays.values():
        first, why = renews[0]
        since = first.invoke if why is None else why
        seconds = Fraction(renews[-1][0].invoke.time - since.time, 10**9)
        shown = [done(first)] if why is None else [done(first), why]
        findings.append(Finding("stray-renew", first.lock, lines(*shown), seconds=seconds, no_more=True))
    stats = {"unheld_writes": len(writes), "stray_renews": sum(len(renews) for renews in strays.values())}
    return Verdict(word(findings, unknown=not found), findings, stats)


def _of(op: Op, found: list[Grant]) -> list[Grant]:
    return [grant for grant in found if grant.process == op.process and grant.lock == op.lock]


def _believed(grants: list[Grant], position: int) -> bool:
    """In one of the beliefs: after the grant's ok and, where something ended it, before that."""
    return any(
        grant.ok_event.position < position
        and (grant.belief_ended_by is None or position < grant.belief_ended_by.position)
        for grant in grants
    )


def _unheld(history: History, write: Op, grants: list[Grant]) -> Finding:
    """With the event that says why: what ended the last belief, or a later acquire of its own that returned no ok."""
    why = [grant.belief_ended_by for grant in grants if grant.belief_ended_by is not None]
    for op in history.ops:
        if op.f == "acquire" and op.process == write.process and op.lock == write.lock and op.outcome != "ok":
            why += [event for event in (op.invoke, op.completion) if event is not None]
    before = [event for event in why if event.position < write.invoke.position]
    shown = [write.last, *sorted(before, key=lambda event: event.position)[-1:]]
    return Finding("unheld-write", write.lock, lines(*shown), no_more=True)


def _stray(history: History, renew: Op, last: Grant | None) -> tuple[bool, Event | None]:
    """Whether this one, outside every belief, was a stray; and the release invoke, crash or lost that says so."""
    if last is None:
        return True, None
    for event in history.events:
        if last.ok_event.position < event.position < renew.invoke.position and event.process == renew.process:
            release = event.f == "release" and event.type == "invoke" and event.lock == renew.lock
            if release or event.f == "crash":
                return True, event
    lost = last.belief_ended_by
    if lost is None or lost.f != "lost" or last.ttl is None:
        return False, None
    return renew.invoke.time - lost.time > nanoseconds(last.ttl), lost
