"""`fencepost new client`: what it writes works as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.client import brought
from harness.errors import UsageError


def test_a_skeleton_is_written_once_under_a_name_that_hides_no_module(tmp_path: Path) -> None:
    """Both files are Python; a second time, and names that would break its imports, are refused."""
    done = CliRunner().invoke(cli, ["new", "client", "mylock", "--dir", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    for file in ("mylock.py", "test_mylock.py"):
        compile((tmp_path / "new" / file).read_text(), file, "exec")
    assert brought.read(f"{tmp_path}/new/mylock.py").packages == ()
    for name, words in [
        ("mylock", "is there already"),
        ("redis", "is a module"),
        ("json", "is a module"),
        ("A", "can't"),
    ]:
        again = CliRunner().invoke(cli, ["new", "client", name, "--dir", str(tmp_path / "new")])
        assert isinstance(again.exception, UsageError)
        assert words in str(again.exception)


@pytest.mark.nodes
@pytest.mark.slow
def test_what_it_writes_passes_its_own_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a newcomer would run it: one trial without faults, on the nodes that there are."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["new", "client", "mylock"]).exit_code == 0
    words = ["run", "redis", "--client", "./mylock.py", "--name", "one", "--duration", "4", "--min-grants", "1"]
    done = CliRunner().invoke(cli, [*words, "--min-handovers", "0"])
    assert done.exit_code == 0, done.output
    trial = json.loads((tmp_path / "results" / "one" / "trial.json").read_text())
    assert trial["client"]["name"] == "mylock"
