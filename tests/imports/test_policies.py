"""The verdict on an imported history can hang on how a failed release is read, and then the output says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.commands.check import command

# What happened in a public recording of etcd's lock: the lease of process 3 was gone, 0 was let in, and only then did
# the release of 3 fail. That of 0 failed in the same way.
LEASE_GONE = """\
[{:type :invoke, :f :acquire, :process 3, :time 10}
{:type :invoke, :f :acquire, :process 0, :time 20}
{:type :ok, :f :acquire, :process 3, :time 30}
{:type :invoke, :f :release, :process 1, :time 40}
{:type :fail, :f :release, :process 1, :time 50, :error :not-held}
{:type :invoke, :f :release, :process 3, :time 60}
{:type :ok, :f :acquire, :process 0, :time 70}
{:type :fail, :f :release, :process 3, :time 80, :error [:not-found "requested lease not found"]}]
"""


def checked(path: Path, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(command, [str(path), "--json", *arguments])
    (found,) = json.loads(result.output)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "history.edn"
    path.write_text(LEASE_GONE)
    return path


@pytest.mark.parametrize("owners", [(), ("--no-owners",)])
@pytest.mark.parametrize(("policy", "word"), [("held", False), ("released", True), ("unknown", True)])
def test_the_policy_decides(path: Path, policy: str, word: bool, owners: tuple[str, ...]) -> None:
    """Held: the second acquire found it taken (as line 7 proves). Released: nothing is wrong."""
    found = checked(path, "--release-fail", policy, *owners)
    linearizable = found["verdicts"]["linearizable"]
    assert linearizable["valid"] is word
    assert all(7 in finding["events"] for finding in linearizable["findings"])
    assert found["release_fail"]["policy"] == policy


@pytest.mark.parametrize("owners", [(), ("--no-owners",)])
def test_the_output_says_what_another_policy_would(path: Path, owners: tuple[str, ...]) -> None:
    """By itself, in both forms; and the default accuses nobody."""
    found = checked(path, *owners)
    assert found["valid"] is True
    assert found["release_fail"]["policy"] == "unknown"
    assert found["release_fail"]["differs"]["held"]["valid"] is False
    assert found["release_fail"]["differs"]["released"] == {}
    told = CliRunner().invoke(command, [str(path), *owners]).output
    assert "--release-fail unknown" in told
    assert "By --release-fail held it would be otherwise: valid FALSE" in told
    assert "By --release-fail released" not in told


def test_nothing_is_said_where_no_release_failed(tmp_path: Path) -> None:
    """There is one reading then."""
    path = tmp_path / "history.edn"
    path.write_text("\n".join(LEASE_GONE.splitlines()[:3]) + "]")
    assert "release_fail" not in checked(path)
