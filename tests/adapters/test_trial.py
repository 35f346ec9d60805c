"""A real trial whose contenders have their lock by an adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.trial.config import TrialConfig, resolve
from harness.trial.trial import Trial, TrialResult
from tests import place
from tests.adapters.test_check import REDIS


def trial(folder: Path, source: str, **asked: Any) -> TrialResult:
    """A short trial at Redis whose contenders run this program."""
    program = folder.with_name("mine.py")
    program.write_text(source)
    short = {"contenders": 3, "warmup": 0.5, "duration": 4.0, "recovery": 0.5, "min_grants": 1, "min_handovers": 0}
    config = resolve(TrialConfig(system="redis", client=str(program), **{**short, **asked}))
    return Trial(config, folder, place.runtime()).run()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.nodes
def test_an_adapter_is_frozen_with_its_contender_and_a_careless_one_is_found(tmp_path: Path) -> None:
    """The freeze's receipt has both processes. Woken, the contender hears from its library that the lock is gone, and
    goes on writing; and one that is refused does its job all the same. `conduct` says so, and nobody else is accused.
    """
    jobs = {"wait_ttls": 0.3, "long_share": 1, "long_ttls": 4}  # who wakes has still much to do
    asked = {"fault": "freeze-holder", "fault_on": 3.1, "holder": "careless", "workload_options": jobs}
    result = trial(tmp_path / "t", REDIS, **asked)
    assert (result.outcome.word, result.outcome.exit_code) == ("violation", 1), result.outcome.reasons
    assert {name for name in result.required if result.verdicts[name] is False} == {"conduct"}
    [start] = [line for line in lines(tmp_path / "t" / "faults.jsonl") if line["phase"] == "start"][:1]
    [frozen] = start["evidence"]["frozen"].values()
    assert [each["comm"] for each in frozen["processes"]] == ["python3", "python3"]
    record = json.loads((tmp_path / "t" / "trial.json").read_text())
    assert {each["holder"] for each in record["contenders"].values()} == {"careless"}
    assert record["contenders"]["0"]["hello"]["client"]["adapter"]["language"].startswith("Python 3")
    events = lines(tmp_path / "t" / "history.jsonl")
    lost = next(event for event in events if event.get("f") == "lost")
    verdicts = json.loads((tmp_path / "t" / "verdict.json").read_text())["verdicts"]
    because = {events[number - 1]["f"] for finding in verdicts["conduct"]["findings"] for number in finding["events"]}
    assert lost["reason"] == "expired"
    assert {"lost", "acquire", "write"} <= because


@pytest.mark.nodes
def test_an_adapter_that_dies_ends_its_contender_and_the_history_is_kept(tmp_path: Path) -> None:
    """The message has its last words, the log all of them, and the history a crash."""
    source = REDIS.replace(
        "    def release(self):", "    def release(self):\n        import sys; print('chatting', file=sys.__stdout__)\n"
        "        sys.stderr.write('I give up\\n'); sys.stderr.flush(); __import__('os')._exit(9)\n",
    )  # fmt: skip
    result = trial(tmp_path / "t", source, fault="none")
    assert result.outcome.word == "harness-error"
    told = " ".join(result.outcome.reasons)
    assert "gave up: the adapter broke the protocol: it ended with exit code 9; its last words on stderr: " in told
    assert "I give up (rule stays: " in told
    crashed = {event["process"] for event in lines(tmp_path / "t" / "history.jsonl") if event.get("f") == "crash"}
    assert crashed
    for process in crashed:
        assert "I give up" in (tmp_path / "t" / "logs" / f"c{process}" / "contender.log").read_text()
