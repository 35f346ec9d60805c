"""`fencepost adapter check`: on this machine, and at a real system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import workloads
from harness.commands.adapter import _rows
from tests.adapters.stage import paper
from workloads.adapters.examine import EVERY, SERVED

REDIS = (Path(workloads.__file__).parent / "adapters" / "examples" / "python" / "lock.py").read_text()
"""An adapter that keeps all rules."""


def check(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", "adapter", "check", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_it_says_which_rule_is_broken_and_how(tmp_path: Path) -> None:
    """In a table, and as data; nothing of what comes after is called kept."""
    script = Path(paper(tmp_path, 'say(hello={**HELLO, "protocol": 2})')[1])
    done = check(str(script))
    assert (done.returncode, done.stderr) == (1, "")
    assert "speaks-version-1           BROKEN  it speaks version 2 of the protocol, not 1" in done.stdout
    assert "kept" not in done.stdout
    told = json.loads(check(str(script), "--json").stdout)
    assert told["kept"] is False
    assert {row["rule"]: row["kept"] for row in told["rules"]} == {
        name: False if name == "speaks-version-1" else None for name in EVERY if name not in SERVED
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["'"], "can't be read as a command"),
        (["x", "--dir", "/nowhere"], "there is no such folder"),
        (["x", "--ttl", "0"], "--ttl must lie between"),
        (["x", "--system", "nothing"], "unknown system 'nothing'"),
    ],
)
def test_a_bad_command_line_is_told(words: list[str], said: str) -> None:
    """With exit code 2, before anything is started."""
    done = check(*words)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.nodes
def test_at_a_real_redis_a_time_out_that_is_called_a_failure_is_found(tmp_path: Path) -> None:
    """Its servers freeze while it is asked: the request may have been taken, and the table says that it was not.

    All that is looked at before, the same adapter keeps, at the same service.
    """
    (tmp_path / "lock.py").write_text(REDIS.replace('"busy": "fail",', '"busy": "fail", "TimeoutError": "fail",'))
    done = check("lock.py", "--dir", str(tmp_path), "--system", "redis", "--ttl", "1.5", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    told = json.loads(done.stdout)
    [broken] = [row for row in told["rules"] if row["kept"] is False]
    assert broken["rule"] == "doubts-what-was-sent", broken
    assert told["adapter"]["library"] == "redis"


def test_a_library_that_hangs_where_nobody_answers_is_told_with_what_it_keeps_at_a_service() -> None:
    """Hanging there too, nothing of what was looked at with the service is called kept."""
    hangs = ("answers-in-time", "it did not answer")
    kept = {row["rule"] for row in _rows([hangs], served=True) if row["kept"]}
    assert kept == set(SERVED)
    assert not [row for row in _rows([hangs], served=False) if row["kept"]]
    assert not [row for row in _rows([hangs, hangs], served=True) if row["kept"]]
    assert [row["rule"] for row in _rows([hangs, hangs], served=True) if row["kept"] is False] == [hangs[0]]
