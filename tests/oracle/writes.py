"""`fenced` and `damage`: what a resource accepted, and what it held when it was read at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise

from tests.oracle.intervals import Grant
from tests.oracle.reading import History, Op
from tests.oracle.said import Finding, Verdict, certainly_before, done, lines, word


def _writes(history: History, resource: str, outcome: str) -> list[Op]:
    return [
        op for op in history.ops if op.f == "write" and op.invoke.get("resource") == resource and op.outcome == outcome
    ]


def accepted(history: History, resource: str) -> list[Op]:
    return _writes(history, resource, "ok")


def of_resource(resource: str) -> Callable[[History, list[Grant]], Verdict]:
    def verdict(history: History, found: list[Grant]) -> Verdict:
        took, unknown = accepted(history, resource), _writes(history, resource, "info")
        findings: list[Finding] = []
        no_order = False
        for lock in sorted({op.lock for op in took}):
            here = _in_order(history, [op for op in took if op.lock == lock])
            if here is None:
                no_order = True
                continue
            findings += _stale(here)
            findings += _lost(history, here, [op for op in unknown if op.lock == lock])
        looked_for, at_the_end = _held_against_the_audit(history, resource)
        findings += at_the_end
        counts = Counter(finding.kind for finding in findings)
        stats = {
            "writes": len(took),
            "stale": counts["stale-write"],
            "lost": counts["lost-update"],
            "looked_for": looked_for,
            "gone": counts["gone-write"],
            "ghosts": counts["ghost-write"],
            "unknown_outcome": len(unknown),
        }
        return Verdict(word(findings, unknown=not took or no_order), findings, stats)

    return verdict


def _in_order(history: History, writes: list[Op]) -> list[Op] | None:
    """By seq; where some lack it by time, None when two have no certain order."""
    if all(op.seq is not None for op in writes):
        return sorted(writes, key=lambda op: (op.seq, done(op).position))

    def ordered(a: Op, b: Op) -> bool:
        return certainly_before(history, done(a), b.invoke)

    if all(ordered(a, b) or ordered(b, a) for a, b in combinations(writes, 2)):
        return sorted(writes, key=lambda op: done(op).position)
    return None


def _stale(writes: list[Op]) -> Iterator[Finding]:
    for i, write in enumerate(writes):
        earlier = [op.key("token") for op in writes[:i] if op.key("token") is not None]
        if write.key("token") is not None and any(token > write.key("token") for token in earlier):
            yield Finding("stale-write", write.lock, lines(done(write)))


def _lost(history: History, writes: list[Op], unknown: list[Op]) -> Iterator[Finding]:
    for before, write in pairwise(writes):
        made, read = before.key("version"), write.key("read")
        if made is None or read is None or made == read:
            continue
        possible = [op for op in unknown if not certainly_before(history, done(write), op.invoke)]
        if any(op.key("read") is None or op.key("version") is None for op in possible):
            continue
        reached, grew = {made}, True
        while grew:
            more = {op.key("version") for op in possible if op.key("read") in reached}
            grew = not more <= reached
            reached |= more
        if read not in reached:
            yield Finding("lost-update", write.lock, lines(done(write)))


def _held_against_the_audit(history: History, resource: str) -> tuple[int, list[Finding]]:
    """How many writes were, and those that are gone though acknowledged, or there though refused."""
    held, findings = 0, []
    for audit in history.audits:
        if audit.get("resource") != resource:
            continue
        for op in history.ops:
            if op.f != "write" or op.lock != audit.lock or op.invoke.get("resource") != resource:
                continue
            if op.key("id") is None or op.outcome == "info":
                continue
            there = op.key("id") in audit.get("ids")
            kind = None
            if op.outcome == "ok" and done(op).time + history.uncertainty <= audit.time:
                held += 1
                kind = None if there else "gone-write"
            elif op.outcome == "fail":
                held += 1
                kind = "ghost-write" if there else None
            if kind is not None:
                findings.append(Finding(kind, op.lock, lines(done(op), audit), no_more=True))
    return held, findings
