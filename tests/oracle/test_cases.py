"""The oracle is a right reading of the contract, as far as the recorded cases can tell."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.reading import Malformed, read
from tests.oracle.verdicts import judge

CASES = Path(__file__).parents[2] / "cases"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((CASES / "cases.toml").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_the_oracle_judges_the_case_rightly(name: str) -> None:
    """Every verdict, the overall word and the blame that cases.toml gives."""
    expected = EXPECTED[name]
    data = (CASES / f"{name}.jsonl").read_bytes()
    if expected.get("error"):
        with pytest.raises(Malformed):
            read(data)
        return
    judgement = judge(read(data))
    words = {key: verdict.valid for key, verdict in judgement.verdicts.items()} | {"valid": judgement.valid}
    said = {key: words[key] for key in expected if key in words}
    assert said == {key: expected[key] for key in expected if key in words}
    if "blame" in expected:
        assert expected["blame"] in {finding.blame for finding in judgement.verdicts["exclusion"].findings}
