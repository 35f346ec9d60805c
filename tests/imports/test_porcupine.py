"""The histories on which Fencepost and Porcupine are compared, and what is said where Porcupine can't be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.porcupine.compare import Cell, ask_fencepost, build_porcupine, make_history
from tests.oracle.reading import read
from tests.oracle.verdicts import judge


@pytest.mark.parametrize("info", [0, 10])
@pytest.mark.parametrize("clients", [5, 20])
@pytest.mark.parametrize("corrupted", [False, True])
def test_a_made_history_is_what_it_says(tmp_path: Path, clients: int, info: int, corrupted: bool) -> None:
    """Valid ones are linearizable and corrupted ones aren't, says the oracle too."""
    path = tmp_path / "history.jsonl"
    make_history(Cell(20, clients, info, corrupted), 7, path)
    assert judge(read(path.read_bytes())).verdicts["linearizable"].valid is not corrupted
    make_history(Cell(1000, clients, info, corrupted), 7, path)
    assert ask_fencepost(path).word == ("illegal" if corrupted else "ok")


def test_without_go_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And goes on without Porcupine."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_porcupine(tmp_path) is None
    assert "apt-get install golang-go" in capsys.readouterr().out
