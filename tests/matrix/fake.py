"""Trials that take no time: what they find follows from their seed, and what they leave are the files of real ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from checkers import RULES
from harness.matrix import MatrixRun, Plan, load
from harness.runtime.base import Runtime
from harness.trial import Progress, TrialResult
from harness.trial.config import TrialConfig
from harness.trial.outcome import Outcome
from nemesis.bite import Tally

Script = Callable[[TrialConfig], str]
"""What a run comes to: the word of its outcome, or "false" for one whose lease is false as expected."""


TALLY = Tally(landed=2, bit=1, missed=1, missed_by=("nobody held anything",))
"""What the two faults of each run came to."""


def odd_seeds_violate(config: TrialConfig) -> str:
    """About every second run."""
    assert config.seed is not None
    return "violation" if config.seed % 2 else "as-expected"


class Nowhere:
    """Takes the place of a runtime, which such trials make no use of."""

    name = "docker"


NOWHERE = cast(Runtime, Nowhere())


@dataclass
class FakeTrial:
    """Takes the place of `harness.trial.Trial`."""

    config: TrialConfig
    folder: Path
    runtime: object
    lane: object = None
    cancel: threading.Event | None = None
    progress: Progress | None = None
    script: Script = odd_seeds_violate
    before: Callable[[TrialConfig], None] = lambda config: None
    """Called when the folder is there and nothing has ended."""

    def run(self) -> TrialResult:
        self.folder.mkdir()
        (self.folder / "harness.log").write_text("begun\n")
        self.before(self.config)
        came_to = self.script(self.config)
        false = came_to in ("violation", "false")
        word = "as-expected" if came_to == "false" else came_to
        verdicts: dict[str, bool | str] = {"exclusion": not false, "lease": not false, "faults": True}
        outcome = Outcome(word, [] if word == "as-expected" else [f"{word}, as told"], not false, 20, 10, TALLY)
        return leave(self.folder, self.config, outcome, verdicts)


def leave(folder: Path, config: TrialConfig, outcome: Outcome, verdicts: dict[str, bool | str]) -> TrialResult:
    """Writes what a trial leaves: two faults, 5 s after the start and 15 s after it, and a finding at 12 s."""
    second = 1_000_000_000
    fault = {"process": "nemesis", "type": "info", "f": "fault", "kind": "freeze"}
    history: list[dict[str, Any]] = [
        {"type": "meta", "format": 1},
        {**fault, "time": 5 * second, "id": "f1", "phase": "start", "receipt": "landed"},
        {**fault, "time": 9 * second, "id": "f1", "phase": "stop", "receipt": "undone"},
        {"time": 12 * second, "process": 0, "type": "ok", "f": "acquire"},
        {**fault, "time": 15 * second, "id": "f2", "phase": "start", "receipt": "landed"},
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(event) + "\n" for event in history))
    stats = {
        "exclusion": {"unsafe_seconds": 0.0 if verdicts["exclusion"] is True else 1.0 + (config.seed or 0) % 7},
        "faults": {"faults": 2, "landed": 2, "bit": 1, "missed": 1, "immune": 0},
    }
    parts = {
        name: {
            "valid": value,
            "count": int(value is False),
            "findings": [{"kind": "early-grant", "events": [4], "text": "too early"}] if value is False else [],
            "stats": stats.get(name, {}),
        }
        for name, value in verdicts.items()
    }
    required = ["lease", "faults"]
    verdict = {"rules": RULES, "valid": True, "required": required, "verdicts": parts, "events": 4, "grants": 20}
    (folder / "verdict.json").write_text(json.dumps(verdict))
    trial = {
        "format": 1,
        "id": folder.name,
        "cell": config.cell(),
        "config": msgspec.to_builtins(config),
        "phases": [
            {"name": "warm-up", "start": second, "end": 4 * second},
            {"name": "faults", "start": 4 * second, "end": 24 * second},
            {"name": "check", "start": 24 * second, "end": 26 * second},
        ],
        "outcome": outcome.to_json(),
        "error": None,
    }
    (folder / "trial.json").write_text(json.dumps(trial))
    return TrialResult(folder, config, outcome, verdicts, None, required)


def plan_of(tmp_path: Path, text: str, **given: Any) -> Plan:
    """The plan of a matrix file with this text."""
    path = tmp_path / "m.toml"
    path.write_text(text)
    return load(path, given.pop("given", None), **given)


def matrix(plan: Plan, folder: Path, *, jobs: int = 1, trial: Callable[..., Any] = FakeTrial, **more: Any) -> MatrixRun:
    """A matrix of fake trials in a folder, which is made."""
    folder.mkdir(exist_ok=True)
    return MatrixRun(plan, folder, jobs, trial=trial, **more)
