"""Matrices whose cells get several runs, with trials that take no time: what is run, written down, kept and told."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from harness import cli
from harness.commands.many import _tell, _title, pooled_table
from harness.commands.view import Screen
from harness.errors import ConfigError, UsageError
from harness.matrix import plan as plans
from harness.matrix.plan import run_seed
from harness.report import write_matrix
from harness.runs import book
from harness.runs.rule import Rule
from harness.trial.config import TrialConfig
from tests.matrix.fake import NOWHERE, FakeTrial, matrix, plan_of
from tests.report.pages import page_of

TWO = '[defaults]\nseed = 7\n{}\n[axes]\nsystem = ["redis"]\nfault = ["none", "clock-leader"]\n'


def rules_of(tmp_path: Path, text: str, **given: Any) -> list[Rule]:
    return list(plan_of(tmp_path, text, **given).rules)


def test_repeat_and_until_stand_wherever_a_key_of_a_trial_may(tmp_path: Path) -> None:
    """In the defaults, a cell, an override, as an axis, and in what an override is for."""
    rules = rules_of(
        tmp_path,
        """
        [defaults]
        repeat = 4
        [axes]
        system = ["etcd", "redis"]
        repeat = [1, 3]
        [[cells]]
        system = "consul"
        until = { violations = 2, minutes = 30 }
        [[cells]]
        system = "zookeeper"
        repeat = 9
        until = { runs = 5 }
        [[override]]
        when = { system = "redis", repeat = 3 }
        set = { repeat = 7 }
        """,
    )
    assert rules == [
        Rule(runs=1), Rule(runs=3), Rule(runs=1), Rule(runs=7), Rule(runs=4, violations=2, minutes=30), Rule(runs=5),
    ]  # fmt: skip


def test_flags_go_over_the_files_defaults(tmp_path: Path) -> None:
    """As those of a trial do; in a soak `repeat` says nothing, and `until` holds."""
    text = '[defaults]\nrepeat = 4\n[axes]\nsystem = ["redis"]'
    assert rules_of(tmp_path, text, given={"repeat": 2, "until": {"violations": 1}}) == [Rule(runs=2, violations=1)]
    assert rules_of(tmp_path, text, soak=True) == [Rule()]
    assert rules_of(tmp_path, text, given={"until": {"violations": 1}}, soak=True) == [Rule(violations=1)]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("repeat = 0", "repeat: must be a whole number between 1 and"),
        ("repeat = true", "repeat: must be a whole number"),
        ("repeat = 2.5", "repeat: must be a whole number"),
        ("repaet = 3", "repaet: unknown key; did you mean 'repeat'"),
        ("until = 3", "until: must be a table"),
        ("until = { violation = 1 }", "until.violation: unknown key; known: violations, runs, minutes"),
        ("until = { runs = -1 }", "until.runs: must be a whole number"),
        ("until = { minutes = 0 }", "until.minutes: must be a number of minutes, more than 0"),
        ("until = { violations = 1 }", "until: may never come true"),
    ],
)
def test_bad_numbers_of_runs_are_named(tmp_path: Path, keys: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(tmp_path, f'[defaults]\n{keys}\n[axes]\nsystem = ["redis"]')
    assert said in str(caught.value)


def test_each_run_has_a_seed_that_anybody_can_make_again(tmp_path: Path) -> None:
    """The first has the cell's own, so that one run is what it always was; its `again:` line repeats any run."""
    plan = plan_of(tmp_path, TWO.format("repeat = 3"))
    assert [plan.config(0, run).seed for run in (1, 2, 3)] == [7, 231060907, 849297907]
    assert len({run_seed(7, run) for run in range(1, 1001)}) == 1000
    assert plan.config(0, 2).repeat_command() == "fencepost run redis --seed 231060907"


def run_all(folder: Path, plan: plans.Plan, **more: Any) -> dict[str, Any]:
    """Runs a matrix; what its matrix.json says."""
    run = matrix(plan, folder, **more)
    run.run(NOWHERE)
    assert run.errors == []
    return json.loads((folder / "matrix.json").read_text())  # type: ignore[no-any-return]


def test_a_matrix_of_single_runs_is_what_it_was(tmp_path: Path) -> None:
    """The same folders, the same matrix.json, key by key, and nothing of repeats on its page."""
    told = run_all(tmp_path / "m", plan_of(tmp_path, TWO.format("")))
    assert list(told) == [
        "format", "rules", "id", "file", "cells", "left_out", "planned", "not_run", "seconds", "jobs", "errors",
    ]  # fmt: skip
    assert [list(cell) for cell in told["cells"]] == [
        ["trial", "cell", "outcome", "verdicts", "expect", "expect_reason"]
    ] * 2
    assert [cell["trial"] for cell in told["cells"]] == ["redis-none-guarded", "redis-clock-leader-guarded"]
    text = page_of(write_matrix(tmp_path / "m")).text
    assert "Runs of each cell" not in text
    assert "Flakes" not in text


def test_several_runs_say_k_of_n_everywhere(tmp_path: Path) -> None:
    """In matrix.json, on the page and in the terminal; the runs that tell most are linked."""
    plan = plan_of(tmp_path, TWO.format("repeat = 5"))
    run = matrix(plan, tmp_path / "m", jobs=3)
    words = [result.outcome.word for result in run.run(NOWHERE)]  # type: ignore[arg-type]
    odd = sum((plan.config(0, number).seed or 0) % 2 for number in range(1, 6))
    assert 0 < odd < 5
    assert words == ["violation", "violation"]
    told = json.loads((tmp_path / "m" / "matrix.json").read_text())
    assert (told["runs"], told["not_run"]) == (10, 0)
    repeats = told["cells"][0]["repeats"]
    assert repeats["verdicts"]["lease"]["false"]["k"] == odd
    assert repeats["words"]["violation"]["n"] == 5
    assert repeats["first"]["violation"]["trial"] == told["cells"][0]["trial"] == "redis-none-guarded.r1"
    (tmp_path / "m" / "redis-none-guarded.r1" / "report.html").write_text("<!doctype html>")
    page = page_of(write_matrix(tmp_path / "m"))
    assert f"lease {odd} of 5 (" in page.text
    assert "10: 5 bit, 5 missed" in page.text
    assert "violation: run 1, 12.0 s (7.0 s of faults), 1 fault" in page.text
    assert "Of 10 runs: 0 inconclusive" in page.text
    assert "redis-none-guarded.r1/report.html" in [a.get("href") for _, a in page.tags]
    screen = Screen(width=200)
    with screen.capture() as captured:
        screen.print(pooled_table(run))
    assert f"lease {odd} of 5 (" in captured.get()
    assert "10: 5 bit, 5 missed" in captured.get()


def test_flakes_are_counted(tmp_path: Path) -> None:
    """What came to nothing, by kind, and in which cells."""
    come = iter(["as-expected", "inconclusive", "harness-error", "unknown"])
    told = run_all(
        tmp_path / "m",
        plan_of(tmp_path, '[defaults]\nrepeat = 4\n[axes]\nsystem = ["redis"]'),
        trial=lambda *given, **more: FakeTrial(*given, **more, script=lambda config: next(come)),
    )
    assert told["cells"][0]["outcome"]["word"] == "harness-error"
    text = page_of(write_matrix(tmp_path / "m")).text
    assert "Of 4 runs: 1 inconclusive, 1 harness-error, 1 unknown, 0 wrongly red." in text
    assert "redis × none 1 inconclusive, 1 harness-error, 1 unknown of 4" in text


def test_a_cell_stops_at_its_violation(tmp_path: Path) -> None:
    """And says so; the other cell, in which nothing is seen, has all its runs."""
    plan = plan_of(tmp_path, TWO.format("repeat = 6\nuntil = { violations = 1 }"))

    def script(config: TrialConfig) -> str:
        return "false" if config.fault != "none" and config.seed == run_seed(7, 3) else "as-expected"

    told = run_all(tmp_path / "m", plan, trial=lambda *given, **more: FakeTrial(*given, **more, script=script))
    none, clock = (cell["repeats"] for cell in told["cells"])
    assert (none["runs"], none["stopped"], none["violations"]["inverse"]) == (6, "6 runs", False)
    assert (clock["runs"], clock["stopped"], clock["violations"]["inverse"]) == (3, "1 violation", True)
    text = page_of(write_matrix(tmp_path / "m")).text
    assert "3, stopped by 1 violation" in text
    assert "violations 1 of 3 (0.84-84 %, n by chance)" in text


def test_only_telling_runs_keep_their_folders(tmp_path: Path) -> None:
    """Their lines in the book stay, and the figures are those of all."""
    plan = plan_of(tmp_path, '[defaults]\nrepeat = 8\nseed = 7\n[axes]\nsystem = ["redis"]')

    def script(config: TrialConfig) -> str:
        return {4: "inconclusive", 5: "false", 6: "false"}.get(numbers[config.seed], "as-expected")

    numbers = {run_seed(7, run): run for run in range(1, 9)}
    told = run_all(
        tmp_path / "m", plan, keep="telling", trial=lambda *given, **more: FakeTrial(*given, **more, script=script)
    )
    repeats = told["cells"][0]["repeats"]
    assert repeats["runs"] == 8
    worst = max((5, 6), key=lambda run: run_seed(7, run) % 7)
    left = sorted(path.name[-2:] for path in (tmp_path / "m").iterdir() if path.is_dir())
    assert left == sorted({"r1", "r4", "r5", f"r{worst}"})
    assert repeats["telling"]["first"].endswith(".r5")


def test_nothing_but_harness_errors_ends_a_long_matrix(tmp_path: Path) -> None:
    """An engine that is gone at midnight makes no thousand empty runs, and has two minutes to come back."""

    class Impatient(threading.Event):
        waited: ClassVar[list[float]] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.waited.append(timeout or 0.0)
            return False

    run = matrix(
        plan_of(tmp_path, '[defaults]\nrepeat = 500\n[axes]\nsystem = ["redis"]'),
        tmp_path / "m",
        cancel=Impatient(),
        trial=lambda *given, **more: FakeTrial(*given, **more, script=lambda config: "harness-error"),
    )
    run.run(NOWHERE)
    assert sum(run.words.values()) == 10
    assert Impatient.waited == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60]
    assert run.errors == ["10 runs one after the other were harness errors, so no more were begun"]


def test_many_runs_cost_no_more_than_few(tmp_path: Path) -> None:
    """matrix.json has an entry for each cell, not for each run: the book has those, a line each."""
    cells = 'seed = 7\n[axes]\nsystem = ["redis", "etcd"]'
    many = run_all(tmp_path / "many", plan_of(tmp_path, f"[defaults]\nrepeat = 60\n{cells}"))
    few = run_all(tmp_path / "few", plan_of(tmp_path, f"[defaults]\nrepeat = 2\n{cells}"))
    assert len(json.dumps(many["cells"])) < 1.2 * len(json.dumps(few["cells"]))
    assert len((tmp_path / "many" / book.BOOK).read_text().splitlines()) == 1 + 120


def said_by(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli.cli, [str(word) for word in words])
    if isinstance(done.exception, UsageError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--for", "8"), "--for '8': must be a time such as 90s, 30m or 8h"),
        (("--for", "2d"), "--for '2d': must be a time"),
        (("--for", "-3h"), "must be a time"),
        (("--for", "0h"), "must be a time"),
        (("--for", "5s"), "--for 5s: not one run can end in that time; the shortest takes at least 24 s"),
        (("--for", "8h", "--repeat", "3"), "--repeat says nothing"),
        (("--until", "violations=1"), "until: may never come true"),
        (("--until", "minuts=1"), "until.minuts: unknown key"),
        (("--resume", "{folder}", "--ttl", "3"), "it can't be told anything else (ttl)"),
        (("--resume", "{folder}", "--repeat", "3"), "it can't be told anything else (repeat)"),
        (("--resume", "{folder}"), "there is no plan.json of a matrix in it"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    """Before anything is started."""
    given = [word.format(folder=tmp_path) for word in words]
    code, told = said_by("matrix", *given)
    assert code == 2
    assert said in told


def test_the_list_says_how_many_runs(tmp_path: Path) -> None:
    """Beside the command of the first."""
    (tmp_path / "m.toml").write_text('[defaults]\nrepeat = 3\n[axes]\nsystem = ["redis"]')
    code, told = said_by("matrix", tmp_path / "m.toml", "--list", "--until", "violations=1", "--seed", "7")
    assert (code, told.strip()) == (0, "fencepost run redis --seed 7  # 3 runs or 1 violation")


def test_a_soak_ends_in_time(tmp_path: Path) -> None:
    """Round after round with fresh seeds, by a clock that only runs in trials; what can't end in time isn't begun."""
    plan = plan_of(tmp_path, TWO.format(""), soak=True)
    clock = [1000.0]

    def passes(config: TrialConfig) -> None:
        clock[0] += 30.0

    run = matrix(
        plan,
        tmp_path / "m",
        seconds=200.0,
        now=lambda: clock[0],
        trial=lambda *given, **more: FakeTrial(*given, **more, before=passes),
    )
    assert _title(run) == "2 cells, 1 side by side, 0 runs"  # before it has begun
    run.run(NOWHERE)
    assert [len(runs) for runs in run.runs.values()] == [3, 3]
    assert run.spent == 180.0
    assert len({each.seed for each in run.runs[0]}) == 3
    assert _title(run).startswith("2 cells, 1 side by side, 6 runs, 0 min left, ")


def test_a_soak_without_time_for_a_cell_is_inconclusive(tmp_path: Path) -> None:
    """A cell that was never run proves nothing, however green the others are."""
    clock = [0.0]

    def passes(config: TrialConfig) -> None:
        clock[0] += 30.0

    run = matrix(
        plan_of(tmp_path, TWO.format(""), soak=True),
        tmp_path / "m",
        seconds=50.0,
        now=lambda: clock[0],
        trial=lambda *given, **more: FakeTrial(*given, **more, before=passes, script=lambda config: "as-expected"),
    )
    found = run.run(NOWHERE)
    screen = Screen(width=200)
    with screen.capture() as captured:
        assert _tell(screen, run, found) == "inconclusive"
    assert "1 cells, 1 not run, 1 runs: inconclusive" in captured.get()


def test_a_soak_is_shown_before_it_goes_on(tmp_path: Path) -> None:
    """Its title asks for the time that is left before anybody has read how much was spent."""
    plan = plan_of(tmp_path, TWO.format(""), soak=True)
    run = matrix(plan, tmp_path / "m", resumed=True, budget=240.0)
    assert _title(run) == "2 cells, 1 side by side, 0 runs, 4 min left"
