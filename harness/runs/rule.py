"""When a cell has had enough runs: `repeat` and `until` of a matrix file, as one rule.

    repeat = 20
    until = { violations = 1, runs = 20, minutes = 30 }     # whichever comes first

`minutes` are those of the cell's own runs, start-up and judging included, not those in which others had their turn. A
run that was begun is finished, so a cell may come to a few runs more than its rule needs when several run side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

MOST_RUNS = 1_000_000
"""Of one cell; days, whatever it tests."""


class Counted(Protocol):
    """A run, as far as a rule looks at it (`harness.runs.book.Run`)."""

    @property
    def violates(self) -> bool:
        """Whether it shows a violation."""

    @property
    def wall(self) -> float:
        """Seconds that it took."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Whichever comes first; None = never. All None: only the end of the time ends it (a soak)."""

    runs: int | None = None
    violations: int | None = None
    """So many runs in which a verdict is false that is required, or that the cell expects anything of."""
    minutes: float | None = None

    @property
    def single(self) -> bool:
        """Whether it is the rule of an ordinary cell: one run."""
        return self.runs == 1

    def words(self) -> str:
        """`20 runs or 1 violation or 30 minutes`."""
        parts = [
            *([_count(self.runs, "run")] if self.runs is not None else []),
            *([_count(self.violations, "violation")] if self.violations is not None else []),
            *([_count(self.minutes, "minute")] if self.minutes is not None else []),
        ]
        return " or ".join(parts) or "until the time is over"

    def enough(self, runs: Sequence[Counted]) -> str | None:
        """Why the cell needs no further run, in words; None while it does."""
        violations = sum(run.violates for run in runs)
        if self.violations is not None and violations >= self.violations:
            return _count(self.violations, "violation")
        if self.runs is not None and len(runs) >= self.runs:
            return _count(self.runs, "run")
        if self.minutes is not None and sum(run.wall for run in runs) >= 60 * self.minutes:
            return _count(self.minutes, "minute")
        return None

    def stopped_at(self, runs: Sequence[Counted]) -> int | None:
        """How many runs there were, in their order, up to the violation that stopped the cell; None when none did.

        Runs behind that had begun already: they count nowhere that chance must not choose n.
        """
        if self.violations is None:
            return None
        seen = 0
        for number, run in enumerate(runs, 1):
            seen += run.violates
            if seen == self.violations:
                return number
        return None


def _count(number: float, what: str) -> str:
    return f"{number:g} {what}{'' if number == 1 else 's'}"
