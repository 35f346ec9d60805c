"""Whether a fault *bit*: had the chance to matter, as it was measured.

That a fault landed says that it was there, not that anything could follow from it. A frozen holder that goes on before
its lease runs out proves nothing of the lock; nor does a clock that nobody reads. Three words for it:

    bit      true       what it takes was there: a live lease ran out under it, the clock that was moved is the one that
                        decides, state was there that could be lost
    missed   false      it wasn't; the remedy says what to set
    immune   "immune"   by design it can't matter here, with the reason

The word is measured, from the history and from the state of the processes. It never follows from the outcome (a fault
that bit and did no damage is what one hopes for), and never from the call that made the fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Bit = bool | Literal["immune"]


@dataclass(frozen=True)
class Bite:
    """What one fault came to. `bit` and `reason` stand on its stop in the history, all of it in the journal."""

    bit: Bit
    reason: str
    """A sentence: what was measured, or why it can't matter by design."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What was measured, plain JSON; moments in ns of the history."""
    remedy: str | None = None
    """Where it missed: what to set, so that it bites."""


@dataclass(frozen=True)
class SeenRequest:
    """One acquire, renew or release as it stands in the history so far. Moments in ns of the history."""

    node: str
    """The contender's node."""
    process: int
    f: str
    sent_ns: int
    done_ns: int | None
    """Its completion; None while it is under way."""
    came_to: str | None
    """"ok", "fail", "info", or "crash": its process ended first."""
    held: bool | None
    """What a fail said: False when the service's word was that the contender doesn't hold it."""


@dataclass(frozen=True)
class Tally:
    """What all faults of a trial came to: of those that landed, how many bit, missed and were immune, and why.

    The rest of them don't measure it, or could not.
    """

    landed: int = 0
    bit: int = 0
    missed: int = 0
    immune: int = 0
    missed_by: tuple[str, ...] = ()
    """Each reason for which one missed, once, with what to set; in the order in which they came."""
    immune_by: tuple[str, ...] = ()
    """Each reason for which one can't matter."""

    @property
    def unmeasured(self) -> int:
        """How many landed of which it isn't known."""
        return self.landed - self.bit - self.missed - self.immune

    @property
    def toothless(self) -> bool:
        """Whether it is known that nothing that landed could have mattered, though it was meant to."""
        return self.landed > 0 and self.missed == self.landed

    def with_(self, bite: Bite | None) -> Tally:
        """One more that landed; None: not measured."""
        if bite is None:
            return replace(self, landed=self.landed + 1)
        more = replace(self, landed=self.landed + 1)
        if bite.bit == "immune":
            return replace(more, immune=more.immune + 1, immune_by=_once(more.immune_by, bite.reason))
        if bite.bit:
            return replace(more, bit=more.bit + 1)
        said = bite.reason + (f"; it takes {bite.remedy}" if bite.remedy else "")
        return replace(more, missed=more.missed + 1, missed_by=_once(more.missed_by, said))

    def to_json(self) -> dict[str, Any]:
        """As it stands in trial.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tally:
        """What `to_json` gave, read again."""
        values: dict[str, Any] = {name: tuple(v) if name.endswith("_by") else v for name, v in data.items()}
        return cls(**values)


def _once(reasons: tuple[str, ...], reason: str) -> tuple[str, ...]:
    return reasons if reason in reasons else (*reasons, reason)


@dataclass(frozen=True)
class SeenHold:
    """One grant as it stands in the history so far. All moments in ns of the history, by the contender's own stamps."""

    node: str
    """The contender's node."""
    process: int
    """Its number in the history."""
    token: int | None
    since_ns: int
    """The ok of its acquire."""
    promise_end_ns: int | None
    """Until when the lock was promised to it: from when the last request was *sent* that started or extended its lease,
    for one ttl (docs/contract.md). None where no ttl is known or its renewals are unseen."""
    renewals_seen: bool
    """Whether every renewal of its lease stands in the history."""
    ended_ns: int | None
    """When it stopped believing: its first own release, loss, crash or next acquire. None while it believes."""
    ended_by: str | None
    """Which of these: "release", "lost", "crash", "acquire"."""
    released_ns: int | None
    """When it first sent a release that didn't fail. A hold that was lost may still be released, later."""

    def believed(self, at_ns: int) -> bool:
        """Whether it was believed in at this moment."""
        return self.since_ns <= at_ns and (self.ended_ns is None or self.ended_ns > at_ns)


@dataclass(frozen=True)
class SeenWait:
    """One acquire as it stands in the history so far. Moments in ns of the history."""

    process: int
    since_ns: int
    """Its invoke."""
    until_ns: int | None
    """Its completion, or the crash of its process; None while it is under way."""
    came_to: str | None
    """How it ended: "ok", "fail", "info" or "crash"."""

    def open(self, at_ns: int) -> bool:
        """Whether it was under way at this moment."""
        return self.since_ns <= at_ns and (self.until_ns is None or self.until_ns > at_ns)
