"""A client that a user brings, on real nodes: sent, started, judged, recorded; and what it says when it can't start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import cli

pytestmark = [pytest.mark.nodes, pytest.mark.slow]

ADAPTER = """
import sys
from pathlib import Path

import redis
from fencepost_adapter import Adapter, Fail, ok, run

from words import BUSY  # of the folder that is sent


class Mine(Adapter):
    library, version = "redis-py of mine", redis.__version__
    errors = {BUSY: "fail", "LockNotOwnedError": "fail", "*": "info"}

    def open(self, config):
        print("options:", config.options, file=sys.stderr)
        host, port = config.endpoints[0]
        self.redis, self.config = redis.Redis(host=host, port=port, socket_timeout=config.operation_seconds), config

    def acquire(self, wait):
        self.lock = self.redis.lock(self.config.lock, timeout=self.config.ttl, blocking_timeout=wait)
        if not self.lock.acquire():
            raise Fail(BUSY)
        return ok()

    def renew(self):
        self.lock.extend(self.config.ttl, replace_ttl=True)
        return ok(proves=True)

    def release(self):
        self.lock.release()
        return ok(proves=True)


run(Mine)
"""


def _brought(folder: Path, adapter: str = ADAPTER) -> Path:
    folder.mkdir()
    (folder / "lock.py").write_text(adapter)
    (folder / "words.py").write_text('BUSY = "held by another"\n')
    return folder


def test_a_folder_of_python_is_sent_run_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its contenders trust it, its options reach it without their secrets in any record, and its kill is survived."""
    monkeypatch.setenv("MY_WORD", "Sesame-99-open")
    folder = _brought(tmp_path / "mine")
    arguments = ["run", "redis", "--client", "lock.py", "--client-dir", str(folder), "--results", str(tmp_path)]
    arguments += ["--client-option", "word=env:MY_WORD", "--name", "one", "--fault", "kill-holder", "--ttl", "1"]
    arguments += ["--duration", "8", "--warmup", "1", "--recovery", "1", "--min-grants", "1", "--min-handovers", "0"]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    trial = json.loads((tmp_path / "one" / "trial.json").read_text())
    assert trial["error"] is None, trial["error"]
    assert trial["client"] == {
        "name": "lock",
        "command": ["python3", "-u", "lock.py"],
        "digest": trial["config"]["client_digest"],
        "files": 2,
        "bytes": trial["client"]["bytes"],
        "packages": [],
        "image": "contender",
    }
    assert trial["contenders"]["0"]["hello"]["client"]["library"].startswith("redis-py of mine")
    assert "by lock" in " ".join(done.output.split())
    assert trial["cell"]["parameters"]["holder"] == "trusting"
    log = "".join(path.read_text() for path in (tmp_path / "one" / "logs").glob("c*/contender.log"))
    assert "options: {'word': " in log
    every = "".join(path.read_text(errors="replace") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert "Sesame-99-open" not in every + done.output


@pytest.mark.parametrize(
    ("adapter", "arguments", "words"),
    [
        ("import nosuch\n", ["lock.py"], "No module named 'nosuch'"),
        ("import nosuch\n", ["lock.py"], "or a requirements.txt beside it"),
        ("print('hi')\n", ["lock.py"], "it printed what is not JSON"),
        ("print()\n", ["nosuch lock.py"], "there is no program 'nosuch' there"),
    ],
)
def test_one_that_can_t_start_is_told_before_the_trial(
    adapter: str, arguments: list[str], words: str, tmp_path: Path
) -> None:
    """With its last words, exit code 2, and no folder of results."""
    folder = _brought(tmp_path / "mine", adapter)
    results = tmp_path / "results"
    asked = ["run", "redis", "--client", *arguments, "--client-dir", str(folder), "--results", str(results)]
    done = CliRunner().invoke(cli, asked)
    assert words in str(done.exception)
    assert getattr(done.exception, "exit_code", None) == 2
    assert not results.exists()
