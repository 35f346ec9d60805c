"""The recorded histories say what the contract means: every word that cases.toml names must come out."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from checkers import judge
from harness.errors import HistoryError
from harness.history import read

CASES = Path(__file__).parents[2] / "cases"
SPEC: dict[str, dict[str, Any]] = tomllib.loads((CASES / "cases.toml").read_text())


def test_every_recorded_history_is_listed() -> None:
    """A history without a line in cases.toml would be tested by nothing."""
    assert {path.stem for path in CASES.glob("*.jsonl")} == set(SPEC)


@pytest.mark.parametrize("name", SPEC)
def test_case(name: str) -> None:
    """A recorded history gets the verdicts that its table lists, each of them."""
    want = {key: value for key, value in SPEC[name].items() if key not in ("source", "about")}
    path = CASES / f"{name}.jsonl"
    if want.pop("error", False):
        with pytest.raises(HistoryError) as caught:
            read(path)
        assert caught.value.line > 0
        assert caught.value.reason
        assert not want
        return
    judgement = judge(read(path), certificates=True)
    assert [verdict.note for verdict in judgement.verdicts.values() if "checker crashed" in (verdict.note or "")] == []
    blame = want.pop("blame", None)
    if blame is not None:
        assert blame in {finding.blame for finding in judgement.verdicts["exclusion"].findings}
    got = {name: judgement.valid if name == "valid" else judgement.verdicts[name].valid for name in want}
    assert got == want
