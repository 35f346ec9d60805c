"""`fencepost adapter check`: on this machine, and at a real system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.stage import paper
from workloads.adapters.examine import EVERY, SERVED

REDIS = """
import redis, redis.backoff, redis.retry
from fencepost_adapter import Adapter, Fail, ok, run

class RedisPy(Adapter):
    library, version = "redis", redis.__version__
    errors = {"busy": "fail", "LockNotOwnedError": "fail", "TimeoutError": "TIMEOUT", "*": "info"}

    def open(self, config):
        host, port = config.endpoints[0]
        once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        password = config.settings.get("password")
        self.redis = redis.Redis(host, port, password=password, socket_timeout=config.operation_seconds, retry=once)
        self.name, self.ttl = config.lock, config.ttl

    def acquire(self, wait):
        self.lock = self.redis.lock(self.name, timeout=self.ttl, blocking_timeout=wait)
        if not self.lock.acquire():
            raise Fail("busy")
        return ok()

    def renew(self):
        return self.owned(lambda: self.lock.extend(self.ttl, replace_ttl=True))

    def release(self):
        return self.owned(self.lock.release)

    def owned(self, do):
        try:
            do()
        except redis.exceptions.LockNotOwnedError as error:
            raise Fail("LockNotOwnedError: %s" % error, held=False)
        return ok(proves=True)

run(RedisPy)
"""


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
    (tmp_path / "lock.py").write_text(REDIS.replace('"TIMEOUT"', '"fail"'))
    done = check("lock.py", "--dir", str(tmp_path), "--system", "redis", "--ttl", "1.5", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    told = json.loads(done.stdout)
    [broken] = [row for row in told["rules"] if row["kept"] is False]
    assert broken["rule"] == "doubts-what-was-sent", broken
    assert told["adapter"]["library"] == "redis"
