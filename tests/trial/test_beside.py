"""A whole trial with a service beside each contender: it is hit alone, and the contender is not taken for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import cli

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

MATRIX = """
[defaults]
system = "consul"
system_options = { client_agents = true }
contenders = 2
warmup = 0.5
duration = 6.0
fault_on = 6.0
recovery = 0.5
min_grants = 1
min_handovers = 0

[[cells]]
fault = "freeze-holder"
fault_options = { service = "client-agent" }

[[cells]]
fault = "kill-holder"
fault_options = { service = "client-agent" }
"""


def test_the_agent_beside_a_holder_is_hit_and_the_holder_is_not(tmp_path: Path) -> None:
    """Frozen, and killed: the holder loses its lease by it, no pause of its is told, and the next trial has nodes of
    its own.
    """
    (tmp_path / "beside.toml").write_text(MATRIX)
    words = ["matrix", str(tmp_path / "beside.toml"), "--results", str(tmp_path), "--name", "m", "-j", "1"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    folders = sorted(path.parent for path in tmp_path.glob("m/*/history.jsonl"))
    assert len(folders) == 2
    for folder, kind in zip(folders, ("freeze", "kill"), strict=True):
        told = json.loads((folder / "trial.json").read_text())
        assert {service for node in ("c0", "c1") for service in told["services"][node]} == {"client-agent"}
        lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
        begin, end = [line for line in lines if line.get("kind") == kind]
        assert (begin["receipt"], end["receipt"]) == ("landed", "undone")
        assert (begin["targets"][0][0], begin["processes"]) == ("c", []), "no contender was paused"
        assert end["bit"] is True, end
        assert not [line for line in lines if line.get("kind") == "outside"]
        (journal, _) = map(json.loads, (folder / "faults.jsonl").read_text().splitlines())
        assert journal["evidence"]["service"] == "client-agent"
        assert b"client" in (folder / "logs" / "c0" / "service.log").read_bytes(), "its log is kept"
