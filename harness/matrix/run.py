"""Running the cells of a plan side by side, and what they come to together."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checkers import RULES
from harness import redaction
from harness.errors import FencepostError, HarnessError
from harness.matrix.plan import Plan
from harness.results import held
from harness.runtime.base import Runtime
from harness.trial import Progress, Trial, TrialResult
from harness.trial.config import TrialConfig
from harness.trial.lane import Lane
from harness.trial.outcome import Outcome
from harness.trial.recorder import write_json
from harness.trial.running import giving_up


@dataclass
class MatrixRun:
    """A matrix on its way: what the live view reads, and what `run` leaves behind."""

    plan: Plan
    folder: Path
    jobs: int
    cancel: threading.Event = field(default_factory=threading.Event)
    active: dict[str, Progress] = field(default_factory=dict)
    results: dict[int, TrialResult] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    on_start: Callable[[str, Progress], None] = lambda name, progress: None
    on_result: Callable[[TrialResult], None] = lambda result: None
    started: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, runtime: Runtime) -> list[TrialResult]:
        """Run all cells on `jobs` lanes; returns the results in the plan's order. Never loses a finished cell.

        The folder must be there (`harness.results.make`). Raises UsageError when another process writes into it.
        """
        with held(self.folder):
            return self._run(runtime)

    def _run(self, runtime: Runtime) -> list[TrialResult]:
        self._names = _folder_names(self.plan.cells)
        work: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in _interleaved(self.plan.cells):
            work.put(number)
        with self._lock:
            self._write()
        threads = [
            threading.Thread(target=self._lane, args=(runtime, work, number), name=f"lane-{number}")
            for number in range(min(self.jobs, len(self.plan.cells)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        missing = len(self.plan.cells) - len(self.results)
        if missing and not self.cancel.is_set():
            self._tell(f"{missing} cells were not run")
        self._save()
        return [self.results[number] for number in sorted(self.results)]

    def _lane(self, runtime: Runtime, work: queue.SimpleQueue[int], lane_number: int) -> None:
        lane: Lane | None = None
        images: Mapping[str, str] = {}
        try:
            while not self.cancel.is_set():
                try:
                    number = work.get_nowait()
                except queue.Empty:
                    return
                config = self.plan.cells[number]
                if lane is not None and images != config.images:
                    self._close(lane, lane_number)
                    lane = None
                if lane is None:
                    images = config.images
                    lane = Lane(
                        runtime, f"m{secrets.token_hex(4)}-{lane_number}", images=images, check=giving_up(self.cancel)
                    )
                if self._cell(runtime, lane, number, config).outcome.word == "harness-error":
                    # Whatever it was, the next cell shall not inherit it.
                    self._close(lane, lane_number)
                    lane = None
        except BaseException as error:  # noqa: BLE001 - a lane that ends must be told, or its cells are missed by nobody
            self._tell(f"lane {lane_number} has ended: {type(error).__name__}: {error}")
        finally:
            if lane is not None:
                self._close(lane, lane_number)

    def _close(self, lane: Lane, number: int) -> None:
        try:
            lane.close()
        except FencepostError as error:
            self._tell(f"lane {number}: {error}; {lane.site.how_to_remove()} removes what stays")

    def _tell(self, error: str) -> None:
        error = redaction.text(error)
        with self._lock:
            if error not in self.errors:
                self.errors.append(error)

    def _cell(self, runtime: Runtime, lane: Lane, number: int, config: TrialConfig) -> TrialResult:
        name = self._names[number]
        progress = Progress(config.describe())
        with self._lock:
            self.active[name] = progress
        self.on_start(name, progress)
        try:
            result = Trial(config, self.folder / name, runtime, lane=lane, cancel=self.cancel, progress=progress).run()
        except (FencepostError, OSError) as error:
            # Not even its folder could be written: there is nothing to judge, and the matrix must say so.
            outcome = Outcome("harness-error", [redaction.text(str(error))], None, 0, 0)
            result = TrialResult(self.folder / name, config, outcome, {}, None)
        with self._lock:
            self.active.pop(name)
            self.results[number] = result
        self._save()
        self.on_result(result)
        return result

    def _save(self) -> None:
        """Write matrix.json; what the disk doesn't take is an error of the matrix, and the cells go on."""
        try:
            with self._lock:
                self._write()
        except HarnessError as error:
            self._tell(str(error))

    def _write(self) -> None:
        """matrix.json after every cell, so that a matrix that is cut short still has its page. Needs the lock."""
        record = {
            "format": 1,
            "rules": RULES,
            "id": self.folder.name,
            "file": self.plan.path.name,
            "cells": [
                {
                    "trial": result.folder.name,
                    "cell": result.config.cell(),
                    "outcome": result.outcome.to_json(),
                    "verdicts": dict(result.verdicts),
                    "expect": dict(result.config.expect),
                    "expect_reason": result.config.expect_reason,
                }
                for _, result in sorted(self.results.items())
            ],
            "left_out": [{"cell": dict(left.cell), "rule": left.rule} for left in self.plan.left_out],
            "planned": [config.cell() for config in self.plan.cells],
            "not_run": len(self.plan.cells) - len(self.results),
            "seconds": round(time.monotonic() - self.started, 1),
            "jobs": self.jobs,
            "errors": list(self.errors),
        }
        write_json(self.folder / "matrix.json", record)


def _interleaved(cells: Sequence[TrialConfig]) -> list[int]:
    """The order in which cells start: systems take turns, so that heavy and light ones run side by side."""
    rank: dict[str, int] = {}
    keys = []
    for number, cell in enumerate(cells):
        rank[cell.system] = rank.get(cell.system, -1) + 1
        keys.append((rank[cell.system], number))
    return [number for _, number in sorted(keys)]


def _folder_names(cells: Sequence[TrialConfig]) -> list[str]:
    """A folder name for each cell; cells that look alike get what differs, then a number."""
    names = [cell.slug() for cell in cells]
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return unique
