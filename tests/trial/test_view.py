"""What a person reads below the table of a run: what its words leave out."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.commands.view import left_out, results_table
from harness.trial import TrialResult
from harness.trial.config import from_mapping
from harness.trial.outcome import Outcome

REQUIRED = ("lease", "progress")


def result(word: str = "as-expected", expect: dict[str, Any] | None = None, **verdicts: Any) -> TrialResult:
    """A trial of which lease and progress are required."""
    config = from_mapping({"system": "redis", "fault": "freeze-holder", "expect": expect or {}})
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
