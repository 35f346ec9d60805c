"""The matrix of what operators do: each cell can be run, and says what is expected of it and why."""

from __future__ import annotations

from pathlib import Path

from harness import matrix
from harness.trial.config import resolve


def test_every_cell_can_be_run_and_says_why_it_expects_what_it_does() -> None:
    """Each with its own reason; nothing of it is left out by a rule."""
    plan = matrix.load(matrix.named(Path("operator")))
    assert not plan.left_out
    for cell in plan.cells:
        assert cell.expect_reason, cell.describe()
        assert cell.expect
        resolve(cell)
    assert len({(cell.system, cell.expect_reason) for cell in plan.cells}) == len(plan.cells)
