"""Which run of which cell is next: round after round, the cells with the fewest runs first, until each had enough.

Pure bookkeeping, without a clock or a thread of its own: the matrix calls it under its lock. Runs that have begun count
as runs, so that several lanes share a cell out evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.runs.book import Run
from harness.runs.rule import Rule

LOOK_BACK = 5
"""How many of a cell's last runs say how long the next may take (the longest of them)."""


class Rounds:
    """The runs that are still to come.

    Args:
        rules: how many runs each cell gets.
        order: the cells in the order in which they begin; ties of the number of runs are broken by it.
        nominal: how many seconds a run of each cell takes at least, by its configuration.
        done: the runs that have ended already.
        budget: seconds after which the whole work must be over; None = there is no such time.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        order: Sequence[int],
        nominal: Sequence[float],
        done: Iterable[Run] = (),
        budget: float | None = None,
    ) -> None:
        self._rules, self._order, self._nominal, self._budget = rules, order, nominal, budget
        self._done: list[list[Run]] = [[] for _ in rules]
        self._active: list[set[int]] = [set() for _ in rules]
        self._taken: list[set[int]] = [set() for _ in rules]
        self._over: list[float] = []
        """By how much the last runs of any cell took longer than they must."""
        for run in sorted(done, key=lambda run: (run.spent, run.cell, run.run)):
            self._taken[run.cell].add(run.run)
            self._enter(run)

    def next(self, spent: float) -> tuple[int, int] | None:
        """The next run, as (cell, run from 1), which has begun now; None when none may begin any more.

        `spent` is how many seconds of the budget are over. A run that can't end in time doesn't begin.
        """
        for cell in sorted(self._order, key=self._begun):  # stable: the order decides between equals
            if not self._wants(cell):
                continue
            if self._budget is not None and spent + self.estimate(cell) > self._budget:
                continue
            run = next(number for number in range(1, len(self._taken[cell]) + 2) if number not in self._taken[cell])
            self._taken[cell].add(run)
            self._active[cell].add(run)
            return cell, run
        return None

    def ended(self, run: Run) -> None:
        """A run that `next` gave out has ended. An interrupted one has not been: it may be given out again."""
        self._active[run.cell].discard(run.run)
        if run.interrupted:
            self._taken[run.cell].discard(run.run)
        else:
            self._enter(run)

    def left(self) -> int | None:
        """How many more runs the cells want; None where only the time ends them."""
        wanting = [
            (rule.runs, len(done)) for rule, done in zip(self._rules, self._done, strict=True) if not rule.enough(done)
        ]
        if any(runs is None for runs, _ in wanting):
            return None
        return sum((runs or 0) - done for runs, done in wanting)

    def estimate(self, cell: int) -> float:
        """How many seconds the next run of a cell may take, judged by its last ones.

        Before its first it is what it takes by its configuration, and what the last runs of others took beyond that.
        """
        lasts = [run.wall for run in self._done[cell][-LOOK_BACK:]]
        return max(lasts) if lasts else self._nominal[cell] + max(self._over[-LOOK_BACK:], default=0.0)

    def _wants(self, cell: int) -> bool:
        rule, done, active = self._rules[cell], self._done[cell], len(self._active[cell])
        if rule.enough(done):
            return False
        if rule.runs is not None and len(done) + active >= rule.runs:
            return False
        if rule.minutes is None or not active:
            return True
        return sum(run.wall for run in done) + active * self.estimate(cell) < 60 * rule.minutes

    def _begun(self, cell: int) -> int:
        return len(self._done[cell]) + len(self._active[cell])

    def _enter(self, run: Run) -> None:
        self._done[run.cell].append(run)
        self._over.append(max(0.0, run.wall - self._nominal[run.cell]))
