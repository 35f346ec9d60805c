"""The history's writes against the resource's own record of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.trial.ledger import disagreements, lost_unheard
from harness.trial.resource import Write

ROW = Write("lock", "fenced", 1, 1, 0, 7, 0, 100, "2026-01-01T00:00:00+00:00")


def write(kind: str, **more: Any) -> dict[str, Any]:
    return {"time": 1, "process": 0, "type": kind, "f": "write", "resource": "fenced", **more}


def compare(tmp_path: Path, events: list[dict[str, Any]], rows: list[Write]) -> list[str]:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return disagreements(path, rows)


INVOKE = write("invoke", id=1, token=7, read=0, version=100)


def test_a_write_that_both_tell_agrees(tmp_path: Path) -> None:
    """Keys of invoke and completion together describe the write."""
    assert compare(tmp_path, [INVOKE, write("ok", seq=1)], [ROW]) == []


def test_a_write_of_unknown_outcome_may_stand_in_the_ledger_or_not(tmp_path: Path) -> None:
    """Info, or never closed: both accounts are possible."""
    assert compare(tmp_path, [INVOKE, write("info")], [ROW]) == []
    assert compare(tmp_path, [INVOKE], [ROW]) == []
    assert compare(tmp_path, [INVOKE], []) == []


def test_what_the_resource_did_is_left_to_the_verdicts(tmp_path: Path) -> None:
    """A write that is gone, or there though it was refused: no contender told anything that isn't so."""
    assert compare(tmp_path, [INVOKE, write("ok", seq=1)], []) == []
    assert compare(tmp_path, [INVOKE, write("fail")], [ROW]) == []


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "no contender told of: write 1 to fenced (lock 'lock'), seq 1"),
        ([{**INVOKE, "id": 2}, write("ok", seq=1)], "no contender told of: write 1"),
        ([INVOKE, write("ok", seq=2)], "write 1 to fenced (lock 'lock'): seq is 1 in the ledger and 2 in the hist"),
        ([INVOKE, write("ok", seq=1, token=8)], "token is 7 in the ledger and 8"),
        ([INVOKE, write("ok", seq=1, version=8)], "version is 100 in the ledger and 8"),
        ([{**INVOKE, "process": 1}, {**write("ok", seq=1), "process": 1}], "process is 0 in the ledger and 1"),
    ],
)
def test_a_disagreement_names_the_write(tmp_path: Path, events: list[dict[str, Any]], words: str) -> None:
    """Whoever lied, the trial proves nothing."""
    (found,) = compare(tmp_path, events, [ROW])
    assert words in found


def test_many_disagreements_are_cut_short(tmp_path: Path) -> None:
    """The first few, and how many more."""
    found = compare(tmp_path, [], [msgspec.structs.replace(ROW, id=number) for number in range(30)])
    assert len(found) == 6
    assert found[-1] == "and 25 more"


GONE = {"kind": "gone-write", "text": "write 1 is gone"}
STALE = {"kind": "stale-write", "text": "stale"}


@pytest.mark.parametrize(
    ("verdict", "findings", "required", "expect", "heard"),
    [
        ("fenced", [GONE], ["fenced"], {}, True),  # a violation
        ("fenced", [GONE], [], {}, False),  # a lock without tokens
        ("fenced", [GONE], ["fenced"], {"fenced": "any"}, False),
        ("damage", [STALE, GONE], [], {}, False),
        ("damage", [GONE], [], {"damage": False}, True),  # somebody asked for just that
        ("damage", [GONE], [], {"damage": "any"}, False),
        ("damage", [STALE], [], {}, True),  # not the resource's doing
        ("damage", [], [], {}, True),
    ],
)
def test_a_write_that_the_resource_lost_never_passes_unheard(
    verdict: str, findings: list[dict[str, str]], required: list[str], expect: dict[str, Any], heard: bool
) -> None:
    """Where no verdict speaks for it, it is a harness error: the ground truth of the trial is none."""
    judgement = {"required": required, "verdicts": {verdict: {"valid": False, "findings": findings}}}
    found = lost_unheard(judgement, expect)
    assert (found == []) is heard
    assert heard or "write 1 is gone" in found[0]
