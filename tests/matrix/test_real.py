"""Several runs of a cell on a real Redis, and going on with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.matrix.plan import run_seed

MATRIX = """
[defaults]
seed = 11
guarded = false
contenders = 3
ttl = 1.0
warmup = 1
duration = 3
recovery = 0
min_grants = 2
min_handovers = 1
[[cells]]
system = "redis"
fault = "clock-leader"
expect = { lease = "any" }
repeat = 3
"""


def fencepost(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=480, check=False)


@pytest.mark.nodes
@pytest.mark.timeout(600)  # where the machine is in use each of its runs may wait for its turn
def test_three_runs_of_a_redis_whose_clock_jumps(tmp_path: Path) -> None:
    """Seeds that follow from one, k of n as the three verdicts have it, their figures, and nothing left to do then.

    (Whether a jump finds anybody who holds the lock is chance in so short a run; one that doesn't is inconclusive.)
    """
    (tmp_path / "m.toml").write_text(MATRIX)
    done = fencepost("matrix", tmp_path / "m.toml", "-j", "2", "--results", tmp_path, "--name", "m")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    word = "as-expected" if done.returncode == 0 else "inconclusive"
    assert f"1 cells, 3 runs: {word}" in done.stdout
    folder = tmp_path / "m"
    repeats = json.loads((folder / "matrix.json").read_text())["cells"][0]["repeats"]
    assert repeats["faults"]["applied"] >= 3
    runs = [folder / f"redis-clock-leader-naive.r{run}" for run in (1, 2, 3)]
    false = [json.loads((run / "verdict.json").read_text())["verdicts"]["lease"]["valid"] is False for run in runs]
    assert repeats["verdicts"]["lease"]["false"]["k"] == sum(false)
    assert ("lease" in repeats["first"]) == any(false)
    if any(false):
        assert f"lease {sum(false)} of 3 (" in done.stdout
        assert 0 <= repeats["first"]["lease"]["median_seconds"] < 4
    trials = [json.loads((run / "trial.json").read_text()) for run in runs]
    assert [trial["config"]["seed"] for trial in trials] == [11, run_seed(11, 2), run_seed(11, 3)]
    assert all(f"--seed {trial['config']['seed']}" in trial["repeat"] for trial in trials)
    assert "redis-clock-leader-naive.r1/report.html" in (folder / "index.html").read_text()
    again = fencepost("matrix", "--resume", folder)
    assert again.returncode == done.returncode, again.stdout + again.stderr
    assert f"1 cells, 3 runs: {word}" in again.stdout
