"""`progress` and `faults`: was it granted when it was free, wanted and nothing was broken; and what was broken?"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from tests.oracle.intervals import Grant, Instant
from tests.oracle.reading import Fault, History, nanoseconds
from tests.oracle.said import Finding, Verdict, lines, word


def progress(history: History, found: list[Grant]) -> Verdict:
    """False, else unknown also where a stretch is left out only because of faults from outside."""
    bound = history.meta.get("progress_bound")
    tried = any(op.f == "acquire" for op in history.ops)
    if bound is None:
        return Verdict("unknown")
    most = nanoseconds(bound)
    ours = [fault for fault in history.faults if not fault.outside]
    findings, longest, hidden = [], Fraction(0), False
    for lock in history.locks:
        for low, high in _stretches(history, found, lock, most, history.faults):
            longest = max(longest, Fraction(high - low))
            if high - low > most:
                findings.append(Finding("stuck", lock, frozenset()))
        hidden |= any(high - low > most for low, high in _stretches(history, found, lock, most, ours))
    return Verdict(word(findings, unknown=not tried or hidden), findings, {"longest_gap": longest / 10**9})


def _active(history: History, fault: Fault) -> tuple[int, int]:
    stop = fault.stop.time if fault.stop is not None and fault.undone else history.last
    return fault.start.time, stop


def _stretches(
    history: History, found: list[Grant], lock: str, bound: Fraction, those: list[Fault]
) -> Iterator[tuple[Instant, Instant]]:
    """The stretches of time that count: cut at every instant that matters, keep the pieces in which all holds, join
    those that touch where neither a grant nor a fault lies between them."""
    wants: list[tuple[Instant, Instant]] = []
    acquires = [op for op in history.ops if op.f == "acquire" and op.lock == lock]
    for op in acquires:
        closing = op.completion or op.crash
        end: Instant = history.last if closing is None else closing.time
        if op.outcome != "ok" and closing is not None:
            later = [
                other.invoke
                for other in acquires
                if other.process == op.process and other.invoke.position > op.invoke.position
            ]
            again = min(later, key=lambda event: event.position, default=None)
            if again is not None and again.time - end <= bound / 10:
                end = again.time
        wants.append((op.invoke.time, end))
    blocks: list[tuple[Instant, Instant]] = []
    for a in found:
        if a.lock != lock:
            continue
        blocks.append((a.ok, a.belief_end))
        free: list[Instant] = [
            own.completion.time
            for own in a.own
            if own.f == "release" and own.outcome == "ok" and own.completion is not None
        ]
        free += [event.time for event in (a.ended,) if event is not None]
        free += [latest for latest in (a.latest,) if latest is not None]
        if free:
            blocks.append((a.ok, max(a.ok, min(free))))
        if a.proven is not None:
            blocks.append((a.ok, a.proven.time))
    for fault in those:
        if fault.receipt != "skipped":
            blocks.append(_active(history, fault))

    cuts = {instant for low, high in wants + blocks for instant in (low, high)} | {history.last}
    start: Instant | None = None
    instants = sorted(instant for instant in cuts if instant <= history.last)
    for low, high in pairwise(instants):
        wanted = any(a <= low and high <= b for a, b in wants)
        blocked = any(a <= low and high <= b for a, b in blocks)
        cut = any(a == b == low for a, b in blocks) or any(low in (a, b) for a, b in blocks)
        if start is not None and (cut or blocked or not wanted):
            yield start, low
            start = None
        if start is None and wanted and not blocked:
            start = low
    if start is not None:
        yield start, instants[-1]


def faults(history: History, found: list[Grant]) -> Verdict:
    counted = [fault for fault in history.faults if fault.receipt != "skipped"]
    outside = [fault for fault in counted if fault.outside]
    left = [fault for fault in counted if not fault.outside and not fault.undone]
    unproven = [fault for fault in counted if not fault.landed]
    findings = [Finding("not-undone", None, lines(fault.start)) for fault in left]
    findings += [Finding("not-landed", None, lines(fault.start)) for fault in unproven]
    findings += [Finding("outside", None, lines(fault.start)) for fault in outside]
    bits = [fault.stop.get("bit") for fault in counted if fault.stop is not None]
    stats = {"bit": bits.count(True), "missed": bits.count(False), "immune": bits.count("immune")}
    return Verdict(False if left else ("unknown" if unproven or outside else True), findings, stats)
