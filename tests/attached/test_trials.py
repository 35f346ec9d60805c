"""A whole trial at an etcd that isn't its own, with TLS and users: the holder is cut off, and the rest is untouched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.attached.etcd import PASSWORD, USER, Etcd

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(300)]


def test_a_holder_is_cut_off_and_nothing_else_is_touched(guarded: Etcd, papers: Path, tmp_path: Path) -> None:
    """The contenders get there and back, the cut is proven from both ends, its keys go, and no password is left."""
    before = guarded.contents()
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "harness", "run", "etcd", "--fault", "partition-holder", "--contenders", "2"),
            *("--endpoints", guarded.endpoint, "--endpoint-option", f"ca_file={papers / 'ours.pem'}"),
            *("--endpoint-option", f"user={USER}", "--endpoint-option", "password=env:OWN_ETCD"),
            *("--warmup", "0.5", "--duration", "5", "--recovery", "0.5", "--min-grants", "1", "--min-handovers", "0"),
            *("--results", str(tmp_path), "--name", "t"),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "OWN_ETCD": PASSWORD},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    record: dict[str, Any] = json.loads((tmp_path / "t" / "trial.json").read_text())
    told = record["endpoints"]
    assert told["at"] == {"e1": guarded.endpoint}
    assert record["versions"]["system"].startswith("3.")
    assert record["nodes"]["e1"]["role"] == "endpoint"
    assert set(record["images"]) == {"node", "contender", "postgres"}
    assert told["relays"]["e1"]["connections"] >= 2
    assert f"--endpoints {guarded.endpoint}" in record["repeat"]
    assert "password=env:OWN_ETCD" in record["repeat"]

    faults = [json.loads(line) for line in (tmp_path / "t" / "faults.jsonl").read_text().splitlines()]
    assert [each["receipt"] for each in faults if each["kind"] == "partition"] == ["landed", "undone"]
    (cut,) = (each for each in faults if each["phase"] == "start")
    holder = cut["targets"][0]
    lines = {label for label in cut["evidence"]["after"] if label.startswith((f"{holder}>e1", f"e1>{holder}"))}
    assert len(lines) >= 2, "both ways between the holder and the way to the endpoint were probed"

    assert guarded.contents() == before
    assert told["prefix"].startswith("fencepost/")
    assert "unseen: who leads" in ran.stdout
    page = (tmp_path / "t" / "report.html").read_text()
    assert f"{guarded.endpoint} (TLS, as {USER})" in page
    assert "What could not be seen" in page
    secret = [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert not secret
