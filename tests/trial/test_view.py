"""What a person reads below the table of a run: what its words leave out."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from checkers import judge
from harness.commands.terminal import columns, wrapped
from harness.commands.view import (
    PHASES,
    Watcher,
    beside_lines,
    left_out,
    look,
    phase_words,
    print_results,
    results_shown,
    results_table,
)
from harness.history import read
from harness.trial import Progress, TrialResult
from harness.trial.config import from_mapping
from harness.trial.outcome import Outcome

REQUIRED = ("lease", "progress")
CELL = {"system": "redis", "fault": "freeze-holder"}


def result(word: str = "as-expected", expect: dict[str, Any] | None = None, **verdicts: Any) -> TrialResult:
    """A trial of which lease and progress are required."""
    config = from_mapping({**CELL, "expect": expect or {}})
    values = {"lease": True, "progress": True, "exclusion": True, "damage": True, **verdicts}
    return TrialResult(Path("x"), config, Outcome(word, [], True, 40, 20), values, None, REQUIRED)


def below(*results: TrialResult) -> str:
    """All that stands under the rows."""
    console = Console(width=180, record=True, file=StringIO())
    console.print(results_table(results))
    return " ".join(" ".join(console.export_text().splitlines()[1 + len(results) :]).split())


def test_what_the_word_leaves_out_stands_below_the_table() -> None:
    """One trial by its verdicts; of many how often; nothing where nothing is left out, or the word is another."""
    harmed, stray, fine = result(exclusion=False, damage=False), result(conduct=False), result()
    assert below(harmed) == (
        "as-expected speaks of what was required; exclusion and damage are false, and not required"
    )
    assert below(harmed, stray, fine, harmed) == (
        "as-expected speaks of what was required; exclusion and damage are false, and not required (2 trials); conduct "
        "is false, and not required (1 trial)"
    )
    assert below(fine) == ""
    assert left_out(result("violation", lease=False, damage=False)) is None
    assert left_out(result(expect={"damage": False}, damage=False)) is None


def shown(width: int, *results: TrialResult) -> str:
    """What a run prints of its trials on a screen of so many columns."""
    console = Console(width=width, record=True, file=StringIO())
    console.print(results_shown(results, console))
    return console.export_text()


def test_on_a_narrow_screen_no_verdict_is_cut() -> None:
    """Eighty columns are no room for sixteen of a table: each trial is a paragraph then, the worst verdicts first."""
    violation = result("violation", lease=False, damage=False, fenced=None, fencing="unknown")
    narrow = shown(80, violation)
    assert [line.rstrip() for line in narrow.splitlines()] == [
        "redis  freeze-holder  guarded: violation",
        "  40 grants, 20 hand-overs",
        "  FALSE    lease",
        "  false    damage (not required)",
        "  unknown  fencing",
        "  true     exclusion, progress",
    ]
    assert shown(200, violation).split()[:3] == ["system", "fault", "came"]
    assert "damage is false, and not required" in shown(80, result(damage=False))


@pytest.mark.parametrize("width", [80, 200])
def test_a_running_trial_is_shown_whole_on_any_screen(width: int) -> None:
    """Its name, its phase and its time stand there: in a row of a table, or in two lines where no table fits."""
    name = "20261130T140711-redis-partition-minority-guarded"
    progress = Progress("redis")
    progress.phase = "warm-up"
    console = Console(width=width, record=True, file=StringIO())
    watcher = Watcher(console, lambda: {name: progress}, title="redis x partition-minority, guarded")
    console.print(watcher._render())
    text = console.export_text()
    assert all(part in text for part in (name, "warm-up", "0 s"))
    assert "\u2026" not in text
    assert ("faults so far" in text) is (width == 200)


def test_a_line_is_as_wide_as_the_terminal_and_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the rest of a line stands below its summary; elsewhere an entry is one line, for `grep`."""
    line = "  freeze  stop the processes of a server or a contender [freeze-leader, freeze-follower, freeze-holder]"
    assert wrapped(line, 10) == line
    assert columns() is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert columns() == 60
    first, *rest = wrapped(line, 10).splitlines()
    assert all(len(each) <= 60 for each in (first, *rest))
    assert all(each.startswith(" " * 10) and each[10] != " " for each in rest)
    assert " ".join(" ".join((first, *rest)).split()) == " ".join(line.split())
    path = "/a/path-that/is-longer/than-a-narrow-terminal/is-wide/and-must/be-copied/whole.jsonl"
    assert path in wrapped(f"{path}: no such file\nand a second line", 2).splitlines()[0]
    assert wrapped("one\n\ntwo", 2).splitlines() == ["one", "", "two"]


def test_in_a_pipe_it_is_a_table_however_wide() -> None:
    """A file has no edge: a line for each trial can be compared and searched, and no verdict is cut."""
    into = StringIO()
    console = Console(width=100, file=into)
    print_results([result("violation", lease=False), result(damage=False)], console)
    heading, first, second, *below = into.getvalue().splitlines()
    assert heading.split()[:3] == ["system", "fault", "came"]
    assert first.split()[-1] == "violation"
    assert second.split()[-1] == "as-expected"
    assert " ".join(below).split()[0] == "as-expected"
    assert console.width == 100, "what follows is wrapped as before"
    narrow = StringIO()
    print_results([result("violation", lease=False)], Console(width=80, file=narrow, force_terminal=True))
    assert "system" not in narrow.getvalue()


def test_what_is_false_and_not_required_is_told_in_a_sentence() -> None:
    """The reasons of an outcome are silent on it, and its name alone says little to somebody new."""
    assert beside_lines(result("violation", lease=False, exclusion=False)) == [
        "exclusion is false, and not required: Two contenders believed at once that they held the lock."
    ]
    assert beside_lines(result(exclusion=False)) == [
        "exclusion: Two contenders believed at once that they held the lock."
    ], "the caption says the rest"
    assert beside_lines(result(expect={"exclusion": False}, exclusion=False, damage="unknown")) == []


def test_every_phase_of_a_trial_is_told_in_words() -> None:
    """And begins with the word by which the live table and trial.json know it."""
    sources = "".join(path.read_text() for path in (Path(__file__).parents[2] / "harness" / "trial").glob("*.py"))
    named = set(re.findall(r'\.phase\("([^"]+)"\)', sources))
    assert named == set(PHASES)
    assert all(told.startswith(f"{name}: ") for name, told in PHASES.items())
    assert phase_words("f1: clock on n1 begins: landed") == "f1: clock on n1 begins: landed"


def test_why_a_cell_was_expected_to_be_false_stands_beside_it() -> None:
    """Once: in its paragraph on a narrow screen, below the table on a wide one."""
    came = result(expect={"exclusion": False}, exclusion=False)
    config = from_mapping({**CELL, "expect": {"exclusion": False}, "expect_reason": "no lock at all"})
    told = TrialResult(came.folder, config, came.outcome, came.verdicts, None, REQUIRED)
    for width, place in ((80, 1), (200, 2)):
        into = StringIO()
        print_results([told], Console(width=width, file=into, force_terminal=True, color_system=None))
        lines = into.getvalue().splitlines()
        assert "no lock at all" in lines[place]
        assert into.getvalue().count("no lock at all") == 1


def test_what_led_to_a_violation_is_shown_by_the_finding_that_was_told(tmp_path: Path) -> None:
    """The gravest of the first required verdict that is false, which isn't the first in time."""
    judged = judge(read(Path(__file__).parents[2] / "cases" / "etcd-15247-recorded-3.5.16.jsonl"))
    kinds = [finding.kind for finding in judged.verdicts["lease"].findings]
    (tmp_path / "verdict.json").write_text(json.dumps(judged.to_json()))
    came = result("violation", lease=False)
    told = TrialResult(tmp_path, came.config, came.outcome, came.verdicts, None, REQUIRED)
    assert look(told) == f"fencepost check {tmp_path} --explain {kinds.index('early-grant') + 1}"
    assert look(TrialResult(tmp_path, came.config, came.outcome, {}, None, ("progress",))) is None
    assert look(came) is None, "there is no verdict.json"
