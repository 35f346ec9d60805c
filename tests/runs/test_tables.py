"""What `bench.flakes` and `bench.detection` print is what the runs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import detection, flakes
from harness.errors import UsageError
from harness.runs.book import First, Run
from harness.runs.gathered import gather
from tests.runs.test_pooled import run, write


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def of_cell(system: str, fault: str, number: int, word: str = "as-expected", **more: Any) -> Run:
    place = {"system": system, "fault": fault, "parameters": {"guarded": False}}
    return run(number, word, place=place, same=system + fault, **more)


def test_a_table_of_flakes(tmp_path: Path) -> None:
    """Each cell over all folders, and all cells together."""
    expected = {"lease": False}
    one = write(
        tmp_path / "a",
        of_cell("redis", "none", 1),
        of_cell("redis", "none", 2, "inconclusive"),
        of_cell("etcd", "clock-leader", 1, "violation", cell=1, expect=expected, false=False),
    )
    two = write(tmp_path / "b", of_cell("redis", "none", 1, "harness-error"), of_cell("redis", "none", 2, "violation"))
    head, ruler, *rows = map(cells, flakes.table(gather([one, two])))
    assert len(head) == len(ruler) == len(rows[0])
    shown = [dict(zip(head, row, strict=True)) for row in rows]
    columns = ("runs", "inconclusive", "harness-error", "unknown", "wrongly red", "violation", "applied", "bit")
    assert {row["cell"]: [row[name] for name in columns] for row in shown} == {
        "redis × none, naive": ["4", "1", "1", "0", "0", "1", "8", "4"],
        "etcd × clock-leader, naive": ["1", "0", "0", "0", "1", "1", "2", "1"],
        "all cells": ["5", "1", "1", "0", "1", "2", "10", "5"],
    }
    assert shown[0]["seen (95 % interval)"] == "lease 1 of 4 (0.63-81 %)"
    assert (shown[0]["median s to it"], shown[0]["median faults to it"]) == ("lease 7.0", "lease 1")


def test_cells_that_differ_in_an_option_are_told_by_it(tmp_path: Path) -> None:
    """By its key alone, and not by a mark that says nothing."""
    places = [
        {"system": "etcd", "fault": "clock-leader", "parameters": {"guarded": False, "ttl": 2.0, **more}}
        for more in ({}, {"fault_options.clocks": "monotonic"})
    ]
    folder = write(
        tmp_path / "a", *(run(1, place=place, same=str(number), cell=number) for number, place in enumerate(places))
    )
    assert [cell.name for cell in gather([folder])] == [
        "etcd × clock-leader, naive",
        "etcd × clock-leader clocks=monotonic, naive",
    ]


def test_a_table_of_detection(tmp_path: Path) -> None:
    """Seen in 2 of 3 runs, each time 7 s after the first fault; the third had two faults in 20 s for nothing."""
    place = ("redis", "clock-leader")
    folder = write(
        tmp_path / "a",
        *(of_cell(*place, number, "violation", expect={"lease": False}) for number in (1, 2)),
        of_cell(*place, 3, verdicts={"lease": True}),
        of_cell(*place, 4, "harness-error", verdicts={}),
        of_cell("redis", "none", 1, cell=1),
    )
    head, _, row = map(cells, detection.table(gather([folder]), list(detection.MEANT)))
    shown = dict(zip(head, row, strict=True))
    assert shown["seen (95 % interval)"] == "2 of 3 (9.4-99 %)"
    assert shown["median s to it"] == "7.0"
    assert shown["per fault"] == "0.50"  # 2 of 1 + 1 + 2 faults
    assert shown["per minute"] == "3.5"  # 2 in 7 + 7 + 20 s
    assert (shown["applied"], shown["bit"]) == ("8", "4")


def test_a_finding_before_any_fault_is_none_of_a_faults(tmp_path: Path) -> None:
    """It is seen, and costs neither faults nor seconds of them."""
    early = of_cell("redis", "clock-leader", 1, "violation")
    early.figures.first["lease"] = First(seconds=1.0)
    found = detection.seen([early], "lease")
    assert (found.rate.k, found.seconds, found.faults, found.per_fault, found.per_minute) == (1, 0.0, 0, None, None)


def test_the_cells_that_are_meant_are_in_the_default_matrix() -> None:
    """All of them, by their fault, their system or both; something else is refused."""
    plan = detection.plan_of(list(detection.MEANT), 3)
    assert {(cell.system, cell.fault) for cell in plan.cells} == set(detection.MEANT)
    assert [rule.runs for rule in plan.rules] == [3] * len(plan.cells)
    assert detection.chosen(["redis clock-leader"]) == [("redis", "clock-leader")]
    assert {fault for _, fault in detection.chosen(["freeze-holder", "partition-holder"])} == {
        "freeze-holder",
        "partition-holder",
    }
    with pytest.raises(UsageError, match="'kill-leader' is none of the cells"):
        detection.chosen(["kill-leader"])
