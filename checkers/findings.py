"""What a verdict says: a word, its findings, its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

#: True, False, or "unknown" when the history can't tell.
Word: TypeAlias = bool | Literal["unknown"]

#: Kinds that say most of what went wrong, whatever was found before them: two had the lock at once.
GRAVEST = frozenset({"double-grant", "early-grant", "no-order"})

#: At most so many findings of a verdict are listed; `count` gives them all.
LISTED = 1000


def gravest(kinds: Iterable[str]) -> int:
    """Which of a verdict's findings to tell where there is room for one (0 where there is none): a grant inside a
    promise before the refusal that followed from it, else the first."""
    return next((number for number, kind in enumerate(kinds) if kind in GRAVEST), 0)


@dataclass(frozen=True)
class Finding:
    """One thing that went wrong, and the events that prove it."""

    kind: str
    lock: str | None
    events: tuple[int, ...]
    """Line numbers, from 1, in order of time."""
    text: str
    """The finding in words: what happened, when, to whom; times in seconds relative to the first event."""
    time: int
    """ns of the last of the events; findings are listed in this order."""
    seconds: float | None = None
    blame: str | None = None
    certificate: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"kind": self.kind, "lock": self.lock, "events": list(self.events)}
        if self.seconds is not None:
            out["seconds"] = self.seconds
        if self.blame is not None:
            out["blame"] = self.blame
        out["text"] = self.text
        if self.certificate is not None:
            out["certificate"] = dict(self.certificate)
        return out


@dataclass(frozen=True)
class Verdict:
    """The answer to one question about a history."""

    valid: Word
    findings: Sequence[Finding] = ()
    """In order of the time of their last event, at most `LISTED`."""
    count: int | None = None
    """How many there are; None when all are listed."""
    stats: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None
    """What a reader can check the answer `true` by; only `linearizable` has one, and only when it was asked for."""
    note: str | None = None
    """Why the verdict is unknown, what a true one rests on, or the traceback of a checker that crashed."""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "valid": self.valid,
            "count": len(self.findings) if self.count is None else self.count,
            "findings": [finding.to_json() for finding in self.findings],
            "stats": dict(self.stats),
        }
        if self.note is not None:
            out["note"] = self.note
        if self.certificate is not None:
            out["certificate"] = dict(self.certificate)
        return out
