"""The matrix of mistakes: each cell is told, expects its mistake to show, and does show it on real nodes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from harness import matrix
from harness.commands.view import system_words
from harness.errors import ConfigError
from harness.trial import Trial
from harness.trial.config import from_mapping, resolve
from tests import place


def test_every_mistake_says_what_it_is_and_which_verdict_tells_it() -> None:
    """One that expected nothing false would be as expected when nothing shows."""
    plan = matrix.load(matrix.named(Path("mistakes")))
    assert len(plan.cells) >= 5
    for cell in plan.cells:
        assert False in cell.expect.values(), cell.describe()
        assert cell.expect_reason
    assert len({cell.expect_reason for cell in plan.cells}) == len(plan.cells)


def test_a_name_means_a_built_in_matrix_unless_there_is_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's own file is passed over for one of ours."""
    monkeypatch.chdir(tmp_path)
    assert matrix.named(None) == matrix.named(Path("default")) == matrix.DEFAULT
    assert matrix.named(Path("mistakes")).parent == matrix.DEFAULT.parent
    assert matrix.named(Path("mine.toml")) == Path("mine.toml")
    (tmp_path / "mistakes").touch()
    assert matrix.named(Path("mistakes")) == Path("mistakes")


def test_a_client_is_chosen_by_its_name() -> None:
    """It is part of what the cell is: of its name, its record, and the command that repeats it."""
    cell = resolve(from_mapping({"system": "redis", "client": "zoo-late"}))
    assert cell.slug() == "redis-none-zoo-late-guarded"
    assert cell.cell()["parameters"]["client"] == "zoo-late"
    assert "--client zoo-late" in cell.repeat_command()
    assert system_words(cell) == "redis by zoo-late"
    assert "client" not in resolve(from_mapping({"system": "redis"})).cell()["parameters"]
    with pytest.raises(ConfigError, match="client: unknown client 'late'"):
        resolve(from_mapping({"system": "redis", "client": "late"}))


@pytest.mark.nodes
def test_two_buddies_lead_when_the_wire_between_them_is_cut(tmp_path: Path) -> None:
    """On real nodes, as the matrix runs it: a lock of the zoo, and contenders that are cut from each other alone."""
    plan = matrix.load(matrix.named(Path("mistakes")))
    [cell] = [cell for cell in plan.cells if cell.client == "zoo-buddies"]
    short = {"warmup": 1.0, "duration": 5.0, "fault_on": 5.0, "recovery": 0.5}
    result = Trial(msgspec.structs.replace(cell, **short), tmp_path / "t", place.runtime()).run()
    assert result.outcome.word == "as-expected", result.outcome.reasons
    assert result.tally is not None
    assert result.tally["counted"]["unfenced"]["twice"] > 0
    fault, *_ = (json.loads(line) for line in (tmp_path / "t" / "faults.jsonl").read_text().splitlines())
    assert sorted(fault["evidence"]["cut"]) == ["c0>c1", "c1>c0"]
    assert fault["receipt"] == "landed"
