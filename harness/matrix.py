"""Many trials from one TOML file: which cells there are, running them side by side, and what they come to together.

The file (all tables but `axes` or `cells` are optional):

    [defaults]            # any key of a trial (`harness.config.TrialConfig`)
    ttl = 2.0
    [axes]                # every combination is a cell; any key of a trial can be an axis
    system = ["etcd", "redis"]
    fault = ["none", "freeze-holder"]
    [[cells]]             # single cells besides
    system = "etcd"
    servers = 5
    fault = "kill-leader"
    [[leave_out]]         # cells of the axes that shall not run, with the rule in words
    when = { system = "redis", fault = "kill-leader" }
    rule = "we know"
    [[override]]          # other values for some cells
    when = { system = "consul" }
    set = { duration = 40 }
    [[expect]]            # what is expected of some cells; what isn't named must be true where it is required
    when = { fault = "clock-leader", system = "redis" }
    verdicts = { lease = false }
    reason = "expires by the wall clock"
"""

from __future__ import annotations

import itertools
import queue
import secrets
import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.config import TrialConfig, check_expectation, check_key, from_mapping, resolve
from harness.errors import ConfigError, FencepostError, HarnessError, UsageError
from harness.lane import Lane
from harness.outcome import Outcome
from harness.recorder import write_json
from harness.runtime.base import Runtime
from harness.trial import Progress, Trial, TrialResult

DEFAULT = Path(__file__).parent / "matrices" / "default.toml"
TABLES = {
    "defaults": dict,
    "axes": dict,
    "cells": list,
    "leave_out": list,
    "override": list,
    "expect": list,
}
RULES = {"leave_out": ("when", "rule"), "override": ("when", "set"), "expect": ("when", "verdicts", "reason")}


@dataclass(frozen=True)
class LeftOut:
    """A combination of the axes that does not run, and the rule by which."""

    cell: Mapping[str, Any]
    rule: str


@dataclass(frozen=True)
class Plan:
    """The resolved cells of a matrix file, in order, and those left out."""

    path: Path
    cells: Sequence[TrialConfig]
    left_out: Sequence[LeftOut]


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> Plan:
    """Read and resolve a matrix file. `overrides` go over its defaults (flags of the command line).

    Raises ConfigError naming file, key and reason: not TOML, an unknown key or name, a wrong type, a rule that fits
    no cell, an impossible combination that is written out as a cell (in `axes` it is left out, and listed).
    """
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise ConfigError(path, None, "no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, None, f"can't be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, None, f"not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(path, None, "nested too deeply") from error
    _check_shape(path, data)

    defaults = {**data.get("defaults", {}), **(overrides or {})}
    used: set[tuple[str, int]] = set()
    cells: list[TrialConfig] = []
    left_out: list[LeftOut] = []

    def settle(cell: dict[str, Any], key: str, *, by_hand: bool) -> None:
        for number, rule in enumerate(data.get("leave_out", [])):
            if _fits(rule["when"], cell):
                used.add(("leave_out", number))
                left_out.append(LeftOut(cell, str(rule.get("rule", "left out by the file"))))
                return
        merged = {**defaults, **cell}
        for number, rule in enumerate(data.get("override", [])):
            if _fits(rule["when"], merged):
                used.add(("override", number))
                merged.update(rule["set"])
        if not isinstance(merged.get("expect", {}), dict):
            raise ConfigError(path, f"{key}.expect", f"must be a table of verdicts, not {merged['expect']!r}")
        expect = dict(merged.get("expect", {}))
        reasons = []
        for number, rule in enumerate(data.get("expect", [])):
            if _fits(rule["when"], merged):
                used.add(("expect", number))
                expect.update(rule["verdicts"])
                reasons += [str(rule["reason"])] if "reason" in rule else []
        merged |= {"expect": expect, **({"expect_reason": "; ".join(reasons)} if reasons else {})}
        config = from_mapping(merged, path=path, key=key)
        rule = _impossible(config)
        if rule is not None and not by_hand:
            left_out.append(LeftOut(cell, rule))
            return
        cells.append(resolve(config, path=path, key=key))

    axes = data.get("axes", {})
    for values in itertools.product(*axes.values()) if axes else ():
        settle(dict(zip(axes, values, strict=True)), "axes", by_hand=False)
    for number, cell in enumerate(data.get("cells", []), 1):
        settle(dict(cell), f"cells[{number}]", by_hand=True)

    if not cells:
        raise ConfigError(path, "axes", "no cell is left to run")
    for table in RULES:
        for number, rule in enumerate(data.get(table, [])):
            if (table, number) not in used:
                raise ConfigError(path, f"{table}[{number + 1}].when", f"fits no cell: {rule['when']}")
    return Plan(path, cells, left_out)


def _check_shape(path: Path, data: Mapping[str, Any]) -> None:
    for name, value in data.items():
        if name not in TABLES:
            raise ConfigError(path, name, f"unknown table; known: {', '.join(TABLES)}")
        if not isinstance(value, TABLES[name]):
            brackets = f"[[{name}]]" if TABLES[name] is list else f"[{name}]"
            raise ConfigError(path, name, f"must be written as {brackets}")
    for name, values in data.get("axes", {}).items():
        if not isinstance(values, list) or not values:
            raise ConfigError(path, f"axes.{name}", "must be a list with at least one value")
    for table, keys in RULES.items():
        for number, rule in enumerate(data.get(table, []), 1):
            where = f"{table}[{number}]"
            if not isinstance(rule, dict):
                raise ConfigError(path, where, "must be a table")
            for key in rule:
                if key not in keys:
                    raise ConfigError(path, f"{where}.{key}", f"unknown key; known: {', '.join(keys)}")
            for key in rule.get("when", {}) if isinstance(rule.get("when"), dict) else ():
                check_key(key, path=path, key=f"{where}.when.{key}")
            for key in keys[:2]:
                if key not in rule and key != "rule":
                    raise ConfigError(path, f"{where}.{key}", "is missing")
                if key != "rule" and not isinstance(rule[key], dict):
                    raise ConfigError(path, f"{where}.{key}", "must be a table")
    for number, rule in enumerate(data.get("expect", []), 1):
        for name, value in rule["verdicts"].items():
            check_expectation(name, value, path=path, key=f"expect[{number}].verdicts.{name}")
    for number, cell in enumerate(data.get("cells", []), 1):
        if not isinstance(cell, dict):
            raise ConfigError(path, f"cells[{number}]", "must be a table")


def _fits(when: Mapping[str, Any], cell: Mapping[str, Any]) -> bool:
    """A rule fits a cell when every key has the value, or one of the values, that the rule names."""
    return all(
        cell.get(key) in value if isinstance(value, list) else cell.get(key) == value for key, value in when.items()
    )


def _impossible(config: TrialConfig) -> str | None:
    """The fault's own rule against this cell; None when it makes sense, or when `resolve` has better words."""
    from harness import registry
    from nemesis import faults

    try:
        kind, target = faults.parse(config.fault)
        servers = config.servers or registry.load("systems", config.system).server_counts[0]
        return faults.why_not(kind, target, system=config.system, servers=servers)
    except UsageError:
        return None


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
        """Run all cells on `jobs` lanes; returns the results in the plan's order. Never loses a finished cell."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._names = _folder_names(self.plan.cells)
        work: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in _interleaved(self.plan.cells):
            work.put(number)
        self._write()
        threads = [
            threading.Thread(target=self._lane, args=(runtime, work, number), name=f"lane-{number}")
            for number in range(min(self.jobs, len(self.plan.cells)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # in slices, so that Ctrl-C reaches the main thread
        missing = len(self.plan.cells) - len(self.results)
        if missing and not self.cancel.is_set():
            self._tell(f"{missing} cells were not run")
        try:
            self._write()
        except HarnessError as error:
            self._tell(str(error))
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
                    lane = Lane(runtime, f"m{secrets.token_hex(4)}-{lane_number}", images=images)
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
            outcome = Outcome("harness-error", [str(error)], None, 0, 0)
            result = TrialResult(self.folder / name, config, outcome, {}, None)
        with self._lock:
            self.active.pop(name)
            self.results[number] = result
            try:
                self._write_locked()
            except HarnessError as error:
                if str(error) not in self.errors:
                    self.errors.append(str(error))
        self.on_result(result)
        return result

    def _write(self) -> None:
        with self._lock:
            self._write_locked()

    def _write_locked(self) -> None:
        """matrix.json after every cell, so that a matrix that is cut short still has its page."""
        record = {
            "format": 1,
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
