"""Which run is next: fewest first, never more than a cell needs, and none that can't end in time."""

from __future__ import annotations

import itertools
from typing import Any

from harness.matrix.rounds import Rounds
from harness.runs.book import Run
from harness.runs.rule import Rule


def ended(cell: int, run: int, wall: float = 10.0, *, violation: bool = False, **more: Any) -> Run:
    verdicts: dict[str, bool | str] = {"lease": not violation}
    return Run(cell=cell, run=run, trial=f"{cell}.r{run}", wall=wall, required=["lease"], verdicts=verdicts, **more)


def all_of(rounds: Rounds, wall: float = 10.0) -> list[tuple[int, int]]:
    """What one lane runs, one run after the other."""
    order, spent = [], 0.0
    while (place := rounds.next(spent)) is not None:
        order.append(place)
        spent += wall
        rounds.ended(ended(*place, wall))
    return order


def test_cells_take_turns() -> None:
    """Round by round in the given order, the longer cells alone at the end."""
    rounds = Rounds([Rule(runs=1), Rule(runs=3), Rule(runs=2)], [2, 0, 1], [1.0] * 3)
    assert rounds.left() == 6
    assert all_of(rounds) == [(2, 1), (0, 1), (1, 1), (2, 2), (1, 2), (1, 3)]
    assert rounds.left() == 0


def test_several_lanes_never_run_the_same_twice() -> None:
    """What has begun counts: four lanes get four runs, and no fifth one of three."""
    rounds = Rounds([Rule(runs=3)], [0], [1.0])
    assert [rounds.next(0) for _ in range(4)] == [(0, 1), (0, 2), (0, 3), None]


def test_after_earlier_sessions_those_with_the_fewest_runs_come_first() -> None:
    """Numbers that are free are used up: a run that was broken off is the next one again."""
    done = [ended(0, 1), ended(0, 3), ended(1, 1)]
    rounds = Rounds([Rule(runs=4), Rule(runs=2), Rule(runs=1)], [0, 1, 2], [1.0] * 3, done)
    assert all_of(rounds) == [(2, 1), (1, 2), (0, 2), (0, 4)]


def test_an_interrupted_run_is_given_out_again() -> None:
    """It has not been run."""
    rounds = Rounds([Rule(runs=1)], [0], [1.0])
    assert rounds.next(0) == (0, 1)
    rounds.ended(ended(0, 1, interrupted=True))
    assert rounds.next(0) == (0, 1)


def test_a_violation_stops_its_cell_alone() -> None:
    """The others go on; a run beside it that had begun is awaited, and none begins any more."""
    rounds = Rounds([Rule(runs=9, violations=1), Rule(runs=2)], [0, 1], [1.0, 1.0])
    assert [rounds.next(0) for _ in range(3)] == [(0, 1), (1, 1), (0, 2)]
    rounds.ended(ended(0, 1, violation=True))
    assert [rounds.next(0) for _ in range(2)] == [(1, 2), None]


def test_minutes_are_those_of_the_cell() -> None:
    """Of its own runs, whatever time others take; runs that are under way count as long as the longest of the last."""
    rounds = Rounds([Rule(minutes=1), Rule(runs=1)], [0, 1], [20.0, 20.0])
    assert all_of(rounds, 25.0) == [(0, 1), (1, 1), (0, 2), (0, 3)]
    rounds = Rounds([Rule(minutes=1)], [0], [20.0], [ended(0, 1, 25.0)])
    assert [rounds.next(0) for _ in range(3)] == [(0, 2), (0, 3), None]


def test_a_soak_begins_nothing_that_can_not_end_in_time() -> None:
    """By how long the cell took before; one that was never run takes what it must, and what others took beyond that."""
    rounds = Rounds([Rule(), Rule()], [0, 1], [20.0, 40.0], budget=100.0)
    assert rounds.left() is None
    assert rounds.next(0.0) == (0, 1)
    rounds.ended(ended(0, 1, 25.0))
    assert rounds.estimate(0) == 25.0
    assert rounds.estimate(1) == 45.0
    assert rounds.next(54.0) == (1, 1)  # 54 + 45 ends in time
    rounds.ended(ended(1, 1, 45.0))
    assert rounds.next(75.0) == (0, 2)  # by the order, both having one run
    rounds.ended(ended(0, 2, 25.0))
    assert rounds.next(75.1) is None


def test_a_run_that_hung_once_is_forgotten() -> None:
    """Only the last five runs of a cell say how long the next may take."""
    hung = [ended(0, 1, 300.0), *(ended(0, number, 25.0, spent=float(number)) for number in range(2, 6))]
    assert Rounds([Rule()], [0], [20.0], hung, budget=1e4).estimate(0) == 300.0
    assert Rounds([Rule()], [0], [20.0], [*hung, ended(0, 6, 26.0, spent=6.0)], budget=1e4).estimate(0) == 26.0


def test_a_soak_goes_round_evenly() -> None:
    """However long it lasts, no cell is more than one run ahead of another."""
    rounds = Rounds([Rule()] * 5, [3, 1, 4, 0, 2], [10.0] * 5, budget=1000.0)
    counts = [0] * 5
    for cell, run in itertools.islice(all_of(rounds), 1000):
        counts[cell] += 1
        assert run == counts[cell]
        assert max(counts) - min(counts) <= 1
    assert sum(counts) == 100
