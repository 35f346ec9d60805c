"""What is said of a history: a verdict, its findings, and what the contract fixes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.oracle.reading import Event, History, Op

Word = bool | str  # True, False or "unknown"


@dataclass
class Finding:
    """What the contract fixes of a finding: `lines` are those that it must list at least (it may list more)."""

    kind: str
    lock: str | None
    lines: frozenset[int]
    blame: str | None = None
    seconds: Fraction | None = None
    no_more: bool = False
    """It lists these lines and no other."""


@dataclass
class Verdict:
    valid: Word
    findings: list[Finding] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass
class Judgement:
    valid: Word
    required: list[str]
    verdicts: dict[str, Verdict]
    events: int
    grants: int
    placed: dict[int, Event]
    """The events by their lines."""
    cut_off: bool
    """A line may be missing, whether or not what is there was judged as if it were whole."""


def word(findings: list[Finding], *, unknown: bool) -> Word:
    """False with any finding, else unknown where that holds, else true."""
    return False if findings else ("unknown" if unknown else True)


def lines(*events: Event) -> frozenset[int]:
    return frozenset(event.line for event in events)


def done(op: Op) -> Event:
    """The completion of an operation that has one."""
    assert op.completion is not None
    return op.completion


def certainly_before(history: History, a: Event, b: Event) -> bool:
    """Events of one process come in their order, stamps of two may be off by the uncertainty."""
    if a.process == b.process:
        return a.position < b.position
    return a.time + history.uncertainty < b.time
