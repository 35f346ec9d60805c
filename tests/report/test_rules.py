"""Verdicts that other rules made are never shown beside those of today: judged anew, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from checkers import RULES
from harness.errors import ConfigError
from harness.report import write_matrix, write_trial
from tests.report.pages import page_of
from tests.report.scenes import Scene, write_trial_folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trial_folder(tmp_path_factory.mktemp("made") / "t", Scene(seconds=20, freezes=()).run())


def change(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text())
    for key, value in changes.items():
        if value is ...:
            data.pop(key, None)
        else:
            data[key] = value
    path.write_text(json.dumps(data))


def of_then(folder: Path, rules: Any) -> None:
    """Makes verdict.json one of other rules, under which `lease` was false and had another sentence."""
    path = folder / "verdict.json"
    verdicts = json.loads(path.read_text())["verdicts"]
    verdicts["lease"] = {"valid": False, "count": 1, "findings": [{"kind": "of-then", "events": []}], "stats": {}}
    change(path, rules=rules, verdicts=verdicts)


@pytest.fixture
def matrix(made: Path, tmp_path: Path) -> Path:
    """A matrix of two cells, one judged by the rules of today, one by those of then."""
    cells = []
    for name in ("now", "then"):
        folder = shutil.copytree(made, tmp_path / name)
        if name == "then":
            of_then(folder, RULES - 1)
        verdicts = {
            each: part["valid"] for each, part in json.loads((folder / "verdict.json").read_text())["verdicts"].items()
        }
        outcome = json.loads((folder / "trial.json").read_text())["outcome"]
        cells.append(
            {"trial": name, "cell": {"system": f"of-{name}", "fault": "none"}, "outcome": outcome, "verdicts": verdicts}
        )
    (tmp_path / "matrix.json").write_text(json.dumps({"format": 1, "rules": RULES, "id": "m", "cells": cells}))
    return tmp_path


@pytest.mark.parametrize("rules", [RULES - 1, RULES + 1, ...])
def test_a_trial_of_other_rules_is_judged_anew(made: Path, tmp_path: Path, rules: Any) -> None:
    """Its page says so, and that its outcome is of then; the record stays as it is."""
    folder = shutil.copytree(made, tmp_path / "trial")
    of_then(folder, rules)
    before = (folder / "verdict.json").read_bytes()
    text = page_of(write_trial(folder)).text
    by = "rules older than any mark" if rules is ... else f"rules {rules}"
    assert f"Judged anew for this page: verdict.json was made by {by}, and today's are rules {RULES}" in text
    assert "by the rules of then" in text
    assert "of-then" not in text
    assert (folder / "verdict.json").read_bytes() == before


def test_a_trial_of_today_is_not(made: Path, tmp_path: Path) -> None:
    """What stands in verdict.json is shown."""
    folder = shutil.copytree(made, tmp_path / "trial")
    of_then(folder, RULES)
    text = page_of(write_trial(folder)).text
    assert "of-then" in text
    assert "rules of then" not in text


@pytest.mark.parametrize("marked", [True, False])
def test_a_matrix_never_mixes_rules(matrix: Path, marked: bool) -> None:
    """The cell of then is judged anew, whatever matrix.json says of its verdicts; the page tells."""
    if not marked:
        change(matrix / "matrix.json", rules=...)
    text = page_of(write_matrix(matrix)).text
    assert f"1 cell of 2 ended under other rules than today's (rules {RULES})" in text
    assert "by the rules of then" in text
    assert "Promises broken" not in text
    assert "of-then (" not in text


def test_a_matrix_of_older_rules_takes_no_verdict_from_its_own_file(matrix: Path) -> None:
    """Without any verdict.json there is only matrix.json, and that has no mark: both cells are judged anew."""
    change(matrix / "matrix.json", rules=...)
    for name in ("now", "then"):
        (matrix / name / "verdict.json").unlink()
    text = page_of(write_matrix(matrix)).text
    assert "2 cells of 2 ended under other rules than today's" in text
    assert "Promises broken" not in text


def test_a_cell_of_then_without_a_history_is_refused(matrix: Path) -> None:
    """Nothing is there to judge it by."""
    (matrix / "then" / "history.jsonl").unlink()
    with pytest.raises(
        ConfigError, match=rf"cells\[2\]: was judged by rules {RULES - 1}, today's are rules {RULES}, and there is no"
    ):
        write_matrix(matrix)


def test_a_cell_that_was_never_judged_needs_no_history(matrix: Path) -> None:
    """A trial that failed before it had one says so by its outcome."""
    shutil.rmtree(matrix / "then")
    data = json.loads((matrix / "matrix.json").read_text())
    data["cells"][1] |= {"verdicts": {}, "outcome": {"word": "harness-error"}}
    (matrix / "matrix.json").write_text(json.dumps(data))
    assert "harness error" in page_of(write_matrix(matrix)).text
