"""A matrix that was broken off goes on where it was: nothing is lost, nothing counts twice, no two files mix."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from checkers import RULES
from harness.errors import ConfigError, UsageError
from harness.matrix import MatrixRun, check_same, read_plan
from harness.matrix.plan import Plan
from harness.results import held
from harness.runs import book
from harness.trial.config import TrialConfig
from tests.matrix.fake import NOWHERE, FakeTrial, matrix, plan_of
from tests.waiting import until

FOUR = '[defaults]\nrepeat = {}\n[axes]\nsystem = ["redis", "etcd"]\nfault = ["none", "freeze-leader"]\n'


def resumed(folder: Path, **more: Any) -> MatrixRun:
    """The matrix in a folder, ready to go on."""
    begun = read_plan(folder)
    return matrix(begun.plan, folder, resumed=True, budget=begun.budget, keep=begun.keep, **more)


def interrupted_after(plan: Plan, folder: Path, runs: int) -> MatrixRun:
    """Runs a matrix until Ctrl-C comes in the middle of the run after so many."""
    cancel, begun = threading.Event(), 0

    def before(config: TrialConfig) -> None:
        nonlocal begun
        begun += 1
        if begun > runs:
            cancel.set()

    run = matrix(plan, folder, cancel=cancel, trial=lambda *given, **more: FakeTrial(*given, **more, before=before))
    run.run(NOWHERE)
    return run


def counted(folder: Path) -> list[tuple[int, int]]:
    pages = book.read(folder)
    assert pages is not None
    return [(run.cell, run.run) for run in pages.counted()]


def seeds(folder: Path) -> dict[tuple[int, int], int | None]:
    pages = book.read(folder)
    assert pages is not None
    return {(run.cell, run.run): run.seed for run in pages.runs}


def test_an_interrupted_matrix_goes_on(tmp_path: Path) -> None:
    """The run that Ctrl-C broke off is kept aside and run again with its seed; the others stay as they are."""
    plan = plan_of(tmp_path, FOUR.format(2))
    first = interrupted_after(plan, tmp_path / "m", 3)
    assert sum(first.words.values()) == 3
    assert json.loads((tmp_path / "m" / "matrix.json").read_text())["not_run"] == 0
    (broken,) = first.broken_off.values()
    kept = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "m").glob("*/trial.json")
        if path.parent.name != broken.trial
    }
    again = resumed(tmp_path / "m")
    found = again.run(NOWHERE)
    assert again.errors == []
    assert len(found) == 4
    assert counted(tmp_path / "m") == [(cell, run) for cell in range(4) for run in (1, 2)]
    assert seeds(tmp_path / "m") == {(cell, run): plan.config(cell, run).seed for cell in range(4) for run in (1, 2)}
    assert again.aside == [tmp_path / "m" / "unfinished" / f"{broken.trial}-1"]
    assert (again.aside[0] / "trial.json").exists()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    # Once more there is nothing left to do, and nothing changes.
    last = resumed(tmp_path / "m")
    assert [result.outcome for result in last.run(NOWHERE)] == [result.outcome for result in found]
    assert sum(last.words.values()) == 8


def test_a_cell_that_was_only_interrupted_is_shown_and_run_again(tmp_path: Path) -> None:
    """Single runs too: matrix.json has it as it ended, until it has a run that counts."""
    plan = plan_of(tmp_path, FOUR.format(1))
    interrupted_after(plan, tmp_path / "m", 1)
    told = json.loads((tmp_path / "m" / "matrix.json").read_text())
    assert (len(told["cells"]), told["not_run"]) == (2, 2)
    assert counted(tmp_path / "m") == [(0, 1)]
    resumed(tmp_path / "m").run(NOWHERE)
    assert counted(tmp_path / "m") == [(cell, 1) for cell in range(4)]
    names = sorted(path.name for path in (tmp_path / "m").iterdir() if path.is_dir())
    assert names == [
        "etcd-freeze-leader-guarded", "etcd-none-guarded", "redis-freeze-leader-guarded", "redis-none-guarded",
        "unfinished",
    ]  # fmt: skip


KILLED = """
import sys, time
from pathlib import Path
from tests.matrix.fake import NOWHERE, FakeTrial, matrix, plan_of
folder = Path(sys.argv[1])
begun = []
def before(config):
    begun.append(config)
    if len(begun) > 4:
        (folder / "stuck").touch()
        time.sleep(600)
plan = plan_of(folder, (folder / "text.toml").read_text())
matrix(plan, folder / "m", jobs=2, trial=lambda *given, **more: FakeTrial(*given, **more, before=before)).run(NOWHERE)
"""


def test_a_killed_matrix_goes_on(tmp_path: Path) -> None:
    """By SIGKILL in the middle of two runs: four count, two are kept aside, and all that is missing is run."""
    (tmp_path / "text.toml").write_text(FOUR.format(2))
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=Path(__file__).parents[2])
    try:
        until(lambda: len(list((tmp_path / "m").glob("*/harness.log"))) == 6, "two runs are under way")
        until(lambda: (tmp_path / "stuck").exists() and len(counted(tmp_path / "m")) == 4, "four have ended")
        with pytest.raises(UsageError, match=f"is being written by process {process.pid} "):
            resumed(tmp_path / "m").run(NOWHERE)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = counted(tmp_path / "m")
    again = resumed(tmp_path / "m")
    again.run(NOWHERE)
    assert again.errors == []
    assert len(again.aside) == 2
    assert counted(tmp_path / "m") == [(cell, run) for cell in range(4) for run in (1, 2)]
    lines = (tmp_path / "m" / book.BOOK).read_text().splitlines()
    runs = [json.loads(line) for line in lines if '"line": "run"' in line]
    assert len(runs) == 8
    assert {(run["cell"], run["run"]) for run in runs[:4]} == set(before)


def test_a_run_that_ended_without_its_line_counts_once(tmp_path: Path) -> None:
    """The power went between the trial's last file and the book: it is entered, not run again; half a line is none."""
    plan = plan_of(tmp_path, FOUR.format(1))
    matrix(plan, tmp_path / "m").run(NOWHERE)
    path = tmp_path / "m" / book.BOOK
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:-1]) + whole[-1][:100])
    lost = json.loads(whole[-1])
    (tmp_path / "m" / lost["trial"] / "report.html").write_text("<!doctype html>")
    again = resumed(tmp_path / "m", trial=lambda *given, **more: pytest.fail("nothing was left to run"))
    again.run(NOWHERE)
    assert (again.errors, again.aside) == ([], [])
    assert counted(tmp_path / "m") == [(cell, 1) for cell in range(4)]
    entered = json.loads(path.read_bytes().splitlines()[-2])  # before the new session's
    for key in ("cell", "run", "trial", "seed", "outcome", "verdicts", "required", "figures"):
        assert entered[key] == lost[key], key


@pytest.mark.parametrize("what", ["another seed", "no outcome", "a harness error", "half a file"])
def test_a_run_without_its_line_that_did_not_end_is_run_again(tmp_path: Path, what: str) -> None:
    """Whatever its folder says."""
    plan = plan_of(tmp_path, FOUR.format(1))
    matrix(plan, tmp_path / "m").run(NOWHERE)
    path = tmp_path / "m" / book.BOOK
    *lines, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines))
    record = tmp_path / "m" / json.loads(last)["trial"] / "trial.json"
    trial = json.loads(record.read_text())
    if what == "another seed":
        trial["config"]["seed"] += 1
    elif what == "no outcome":
        trial["outcome"] = None
    elif what == "a harness error":
        trial["outcome"]["word"] = "harness-error"
    record.write_text(json.dumps(trial)[: 50 if what == "half a file" else None])
    again = resumed(tmp_path / "m")
    again.run(NOWHERE)
    assert [aside.name for aside in again.aside] == [f"{record.parent.name}-1"]
    assert counted(tmp_path / "m") == [(cell, 1) for cell in range(4)]


def test_a_soak_goes_on_for_what_was_left_of_its_time(tmp_path: Path) -> None:
    """Sessions add up, a further time goes on top, and when it is over nothing begins."""
    plan = plan_of(tmp_path, '[axes]\nsystem = ["redis"]', soak=True)
    clock = [1000.0]
    cancel = threading.Event()

    def passes(config: TrialConfig) -> None:
        clock[0] += 30.0
        if clock[0] == 1060.0:  # in the second run
            cancel.set()

    def trial(*given: Any, **more: Any) -> FakeTrial:
        return FakeTrial(*given, **more, before=passes)

    more: dict[str, Any] = {"now": lambda: clock[0], "trial": trial}
    matrix(plan, tmp_path / "m", seconds=200.0, cancel=cancel, **more).run(NOWHERE)
    assert counted(tmp_path / "m") == [(0, 1)]
    clock[0] += 5000.0  # nobody works on it meanwhile
    left = resumed(tmp_path / "m", **more)
    left.run(NOWHERE)
    # 60 s were spent, so four runs of 30 s fit into what was left of 200 s.
    assert counted(tmp_path / "m") == [(0, run) for run in range(1, 6)]
    assert (left.budget, left.spent) == (200.0, 180.0)
    over = resumed(tmp_path / "m", **more)
    over.run(NOWHERE)
    assert len(counted(tmp_path / "m")) == 5
    longer = resumed(tmp_path / "m", seconds=70.0, **more)
    longer.run(NOWHERE)
    assert longer.budget == 250.0
    assert counted(tmp_path / "m") == [(0, run) for run in range(1, 8)]


def test_the_plan_goes_on_whatever_became_of_the_file(tmp_path: Path) -> None:
    """It is stored with all that was drawn; a file that says something else is refused, comments and order aside."""
    text = FOUR.format(2)
    plan = plan_of(tmp_path, text, given={"ttl": 3.0})
    interrupted_after(plan, tmp_path / "m", 1)
    begun = read_plan(tmp_path / "m")
    stored = begun.plan
    assert (begun.budget, begun.keep) == (None, "all")
    assert list(stored.cells) == list(plan.cells)
    assert list(stored.rules) == list(plan.rules)
    check_same(tmp_path / "m", stored, plan_of(tmp_path, "# a comment\n" + text, given=stored.source["given"]))
    with pytest.raises(UsageError, match=r"m\.toml differs \(in defaults\) from the file that .*m began with"):
        check_same(tmp_path / "m", stored, plan_of(tmp_path, FOUR.format(3), given=stored.source["given"]))
    with pytest.raises(UsageError, match="in what was given besides"):
        check_same(tmp_path / "m", stored, plan_of(tmp_path, text))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("{}", "not the plan of a matrix: KeyError"),
        (
            '{"cells": [], "left_out": [], "file": "x", "source": {}, "for_seconds": null, "keep": "all"}',
            "cells: there are none",
        ),
        ('{"cells": [{"config": {"systm": 3}, "rule": {}}]}', r"cells\[1\]\.config\.systm: unknown key"),
        ('{"format": 9}', "format: is 9"),
    ],
)
def test_a_spoilt_plan_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_plan(tmp_path)


def test_runs_of_other_rules_are_not_gone_on_with(tmp_path: Path) -> None:
    """One cell can't have verdicts of two rules."""
    plan = plan_of(tmp_path, FOUR.format(2))
    interrupted_after(plan, tmp_path / "m", 1)
    path = tmp_path / "m" / book.BOOK
    path.write_text(path.read_text().replace(f'"rules": {RULES}', '"rules": 1'))
    with pytest.raises(UsageError, match="was judged by rules 1"):
        resumed(tmp_path / "m").run(NOWHERE)


def test_a_version_that_knows_more_keys_goes_on(tmp_path: Path) -> None:
    """What tells cells apart is what the plan says, however this version would make it. Runs of others are refused."""
    plan = plan_of(tmp_path, FOUR.format(2))
    interrupted_after(plan, tmp_path / "m", 3)
    for name in ("plan.json", book.BOOK):
        path = tmp_path / "m" / name
        path.write_text(path.read_text().replace(plan.same[0], "made by another version"))
    again = resumed(tmp_path / "m")
    again.run(NOWHERE)
    assert sum(again.words.values()) == 8
    path.write_text(path.read_text().replace("made by another version", "of another folder"))
    with pytest.raises(UsageError, match="run 1 of cell 1 is none of the plan's"):
        resumed(tmp_path / "m").run(NOWHERE)


def test_what_is_at_its_default_does_not_tell_cells_apart(tmp_path: Path) -> None:
    """Nor does the seed; anything else does."""
    one, two, other = (
        plan_of(tmp_path, f'[[cells]]\nsystem = "redis"\n{more}').same[0]
        for more in ("seed = 1", "contenders = 5\nguarded = true", "contenders = 4")
    )
    assert one == two != other


def test_a_folder_that_is_held_is_not_gone_on_with(tmp_path: Path) -> None:
    """By another thread of this process either."""
    plan = plan_of(tmp_path, FOUR.format(1))
    interrupted_after(plan, tmp_path / "m", 1)
    with held(tmp_path / "m"), pytest.raises(UsageError, match=f"is being written by process {os.getpid()}"):
        resumed(tmp_path / "m").run(NOWHERE)
