"""The history's writes against the resource's own record of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.trial.ledger import disagreements

ROW = {"lock": "lock", "resource": "fenced", "seq": 1, "process": 0, "token": 7, "read": 0, "version": 100}


def write(kind: str, **more: Any) -> dict[str, Any]:
    return {"time": 1, "process": 0, "type": kind, "f": "write", "resource": "fenced", **more}


def compare(tmp_path: Path, events: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[str]:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return disagreements(path, rows)


INVOKE = write("invoke", token=7, read=0, version=100)


def test_a_write_that_both_tell_agrees(tmp_path: Path) -> None:
    """Keys of invoke and completion together describe the write."""
    assert compare(tmp_path, [INVOKE, write("ok", seq=1)], [ROW]) == []


def test_a_write_of_unknown_outcome_may_stand_in_the_ledger_or_not(tmp_path: Path) -> None:
    """Info, or never closed: both accounts are possible."""
    assert compare(tmp_path, [INVOKE, write("info")], [ROW]) == []
    assert compare(tmp_path, [INVOKE], [ROW]) == []
    assert compare(tmp_path, [INVOKE], []) == []


@pytest.mark.parametrize(
    ("events", "rows", "words"),
    [
        ([], [ROW], "no contender told of"),
        ([INVOKE, write("fail")], [ROW], "told to have failed"),
        ([INVOKE, write("ok", seq=2)], [ROW], "seq is 1 in the ledger and 2 in the history"),
        ([INVOKE, write("ok", seq=1, token=8)], [ROW], "token is 7 in the ledger and 8"),
        ([INVOKE, write("ok", seq=1)], [], "the ledger doesn't hold: version 100 of fenced"),
    ],
)
def test_a_disagreement_names_the_write(
    tmp_path: Path, events: list[dict[str, Any]], rows: list[dict[str, Any]], words: str
) -> None:
    """Whoever lied, the trial proves nothing."""
    (found,) = compare(tmp_path, events, rows)
    assert words in found


def test_many_disagreements_are_cut_short(tmp_path: Path) -> None:
    """The first few, and how many more."""
    found = compare(tmp_path, [], [{**ROW, "version": number} for number in range(30)])
    assert len(found) == 6
    assert found[-1] == "and 25 more"
