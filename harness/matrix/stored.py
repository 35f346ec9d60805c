"""A matrix that goes on: its plan as it was stored when it began, and what an end without warning left behind.

`plan.json` has every cell with everything resolved, seeds too, so that what goes on is what began, whatever became of
the file since. A run that ended but isn't in the book any more (its process was killed in between) is entered from its
folder; any other folder of a run goes to `unfinished/`, and the run is run again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness import documents, redaction
from harness.errors import ConfigError, UsageError
from harness.matrix.plan import LeftOut, Plan
from harness.runs.rule import Rule
from harness.trial.config import TrialConfig, from_mapping, resolve
from harness.trial.recorder import write_json

PLAN = "plan.json"
KEEP = ("all", "telling")
"""Which runs keep their folders: all, or those that tell something (docs/matrix.md)."""
UNFINISHED = "unfinished"
"""The folder for what runs left that did not end."""


@dataclass(frozen=True)
class Begun:
    """What a matrix began with."""

    plan: Plan
    budget: float | None
    """For how many seconds it shall go on; None where it ends by itself."""
    keep: str
    """Which runs keep their folders."""
    runtime: str
    """Where its nodes live."""


def write_plan(folder: Path, plan: Plan, budget: float | None, keep: str, runtime: str) -> None:
    """Store what a matrix begins with. Raises HarnessError when the disk doesn't take it."""
    record = {
        "format": 1,
        "file": plan.path.name,
        "source": plan.source,
        "for_seconds": budget,
        "keep": keep,
        "runtime": runtime,
        "cells": [
            {"config": msgspec.to_builtins(config), "rule": msgspec.to_builtins(rule), "same": same}
            for config, rule, same in zip(plan.cells, plan.rules, plan.same, strict=True)
        ],
        "left_out": [{"cell": dict(left.cell), "rule": left.rule} for left in plan.left_out],
    }
    write_json(folder / PLAN, record)


def read_plan(folder: Path) -> Begun:
    """What the matrix in this folder began with.

    Raises UsageError where none did, ConfigError (file, key, reason) for a plan that can't be read or whose cells can't
    be run by this version, or whose secrets aren't set.
    """
    path = folder / PLAN
    try:
        data = documents.read_json(path)
    except FileNotFoundError:
        raise UsageError(f"{folder} can't be resumed: there is no {PLAN} of a matrix in it") from None
    try:
        cells, rules, same = [], [], []
        for number, cell in enumerate(data["cells"], 1):
            cells.append(_config(cell["config"], path, f"cells[{number}].config"))
            rules.append(msgspec.convert(cell["rule"], Rule))
            same.append(str(cell["same"]))
        left_out = [LeftOut(dict(left["cell"]), str(left["rule"])) for left in data["left_out"]]
        plan = Plan(Path(str(data["file"])), cells, left_out, rules, data["source"], same)
        budget = None if data["for_seconds"] is None else float(data["for_seconds"])
        begun = Begun(plan, budget, str(data["keep"]), str(data.get("runtime", "docker")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # msgspec's own is a ValueError
        raise ConfigError(path, None, f"not the plan of a matrix: {type(error).__name__}: {error}") from None
    if not cells:
        raise ConfigError(path, "cells", "there are none")
    if begun.keep not in KEEP:
        raise ConfigError(path, "keep", f"must be one of {', '.join(KEEP)}, not {begun.keep!r}")
    return begun


def _config(data: Any, path: Path, key: str) -> TrialConfig:
    return resolve(from_mapping(data, path=path, key=key), path=path, key=key)


def check_same(folder: Path, stored: Plan, given: Plan) -> None:
    """UsageError unless a plan that is given again is the stored one: cells of two files never mix."""
    fresh = json.loads(json.dumps(redaction.data(given.source)))
    if fresh != stored.source:
        tables = {*fresh.get("file", {}), *stored.source.get("file", {})}
        differing = sorted(
            name for name in tables if fresh.get("file", {}).get(name) != stored.source.get("file", {}).get(name)
        )
        what = f"in {', '.join(differing)}" if differing else "in what was given besides"
        raise UsageError(
            f"{given.path} differs ({what}) from the file that {folder} began with; resume without a FILE, or begin "
            "a matrix of its own"
        )


def run_name(name: str, run: int, *, repeated: bool) -> str:
    """The folder of a run of the cell with this name."""
    return f"{name}.r{run}" if repeated else name


def left_behind(folder: Path, names: list[str], known: set[str]) -> list[tuple[int, int, str]]:
    """The folders of runs that the book doesn't know, as (cell, run, name), in that order.

    `names` are those of the cells, `known` the folders of the runs that ended.
    """
    cells = {name: number for number, name in enumerate(names)}
    found = []
    for path in folder.iterdir():
        if not path.is_dir() or path.name in known:
            continue
        match = re.fullmatch(r"(.+)\.r([1-9]\d{0,8})", path.name)
        if path.name in cells:
            found.append((cells[path.name], 1, path.name))
        elif match is not None and match[1] in cells:
            found.append((cells[match[1]], int(match[2]), path.name))
    return sorted(found)


def set_aside(folder: Path, name: str) -> Path:
    """Moves a run's folder to where those are kept that did not end. Nothing there is ever replaced."""
    aside = folder / UNFINISHED
    aside.mkdir(exist_ok=True)
    target = next(path for number in range(1, 10**9) if not (path := aside / f"{name}-{number}").exists())
    (folder / name).rename(target)
    return target


def ended_well(folder: Path, config: TrialConfig) -> dict[str, Any] | None:
    """The trial.json of a run that ended by itself with this configuration, though nobody entered it; None of others.

    A harness error without an entry may be an interrupt, so it isn't one: the run is run again.
    """
    try:
        trial = documents.read_json(folder / "trial.json")
        outcome = trial["outcome"]
        whole = outcome is not None and outcome["word"] != "harness-error" and trial["error"] is None
        asked = trial["config"] == json.loads(json.dumps(redaction.data(msgspec.to_builtins(config))))
    except (FileNotFoundError, ConfigError, KeyError, TypeError):
        return None
    return trial if whole and asked else None
