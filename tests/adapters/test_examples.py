"""The complete examples, each in its language, at a real Redis on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import workloads
from tests.adapters.test_client import DOCS
from tests.attached import redis
from tests.attached.redis import Redis
from workloads.adapters.examine import Examination, Subject

EXAMPLES = Path(workloads.__file__).parent / "adapters" / "examples"
LANGUAGES = {
    "python": ("python3", [], [sys.executable, "-u", "lock.py"]),
    "shell": ("bash", [], ["./lock.sh"]),
    "go": ("go", ["go", "build", "-o", "lock", "."], ["./lock"]),
    "node": ("node", [], ["node", "lock.mjs"]),
    "java": (
        "javac",
        ["javac", "-d", ".", "Lock.java"],
        ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", ".", "Lock"],
    ),
    "rust": ("rustc", ["rustc", "-o", "lock", "lock.rs"], ["./lock"]),
}
"""Language -> the tool without which it is not tried, how its example is built, and how it is run."""


def test_the_page_shows_the_example_that_is_tested() -> None:
    """Whoever copies it from there has what keeps the rules."""
    assert f"```python\n{(EXAMPLES / 'python' / 'lock.py').read_text()}```" in DOCS.read_text()


class Service:
    """A Redis that can be frozen."""

    def __init__(self, running: Redis) -> None:
        told = str(running.ask("INFO", "server"))
        [self._pid] = [int(line.partition(":")[2]) for line in told.splitlines() if line.startswith("process_id:")]

    def freeze(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Redis]:
    (tmp_path / "redis").mkdir()
    with redis.running(tmp_path / "redis") as running:
        yield running


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_keeps_the_rules_at_a_real_redis(tmp_path: Path, served: Redis, language: str) -> None:
    """That it locks, keeps its lease and gives its stamps and errors their types, also while Redis is frozen."""
    tool, build, run = LANGUAGES[language]
    if shutil.which(tool) is None:
        pytest.skip(f"this machine has no {tool}")
    folder = shutil.copytree(EXAMPLES / language, tmp_path / "example")
    if build:
        cached = {"GOCACHE": str(Path.home() / ".cache" / "go-build"), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
        built = subprocess.run(
            build, cwd=folder, env={**os.environ, **cached}, capture_output=True, text=True, check=False
        )
        assert built.returncode == 0, built.stdout + built.stderr
    subject = Subject(
        {"command": run, "directory": str(folder), "patience_seconds": 5.0},
        1.0,
        [["127.0.0.1", served.port]],
        operation=1.0,
    )
    rules = {
        "gets-the-lock",
        "counts-from-the-request",
        "doubts-what-was-sent",
        "claims-no-proof",
        "leaves-others-alone",
    }
    Examination(subject, Service(served)).run(only=rules)
