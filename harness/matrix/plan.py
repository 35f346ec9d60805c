"""Many trials from one TOML file: which cells there are.

The file (all tables but `axes` or `cells` are optional):

    [defaults]            # any key of a trial (`harness.trial.config.TrialConfig`)
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

Besides the keys of a trial a cell has `repeat` and `until`, which say how many runs it gets (`harness.runs.rule`):
everywhere where a key of a trial may stand, as an axis too.

    repeat = 20
    until = { violations = 1, minutes = 30 }
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness import documents, registry, secrets
from harness.errors import ConfigError, UsageError
from harness.runs.rule import MOST_RUNS, Rule
from harness.trial.arriving import told_apart
from harness.trial.attaching import not_offered
from harness.trial.config import (
    TrialConfig,
    check_expectation,
    check_key,
    check_marks,
    from_mapping,
    resolve,
    take_version,
)
from harness.trial.holders import take_holder
from nemesis import faults

DEFAULT = Path(__file__).with_name("default.toml")
BUILT_IN = sorted(path.stem for path in DEFAULT.parent.glob("*.toml"))
"""Matrices that come with Fencepost, by the names that `named` takes."""
TABLES = {
    "defaults": dict,
    "axes": dict,
    "cells": list,
    "leave_out": list,
    "override": list,
    "expect": list,
}
RULES = {"leave_out": ("when", "rule"), "override": ("when", "set"), "expect": ("when", "verdicts", "reason")}
STOPS = ("repeat", "until")
"""The keys of a cell that are none of a trial."""

MOST_CELLS = 10_000
"""Before anything is left out: a matrix of so many takes days."""
MOST_BYTES = 4 << 20
"""Of a matrix file."""


def named(file: Path | None) -> Path:
    """The matrix file that a user means: one of his own, or the name of a built-in one; None is the default."""
    if file is None:
        return DEFAULT
    return DEFAULT.with_name(f"{file}.toml") if str(file) in BUILT_IN and not file.exists() else file


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
    rules: Sequence[Rule] = ()
    """How many runs each cell gets; one for each where it isn't given."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """What the file says, and what was given over it: two plans with the same are one."""
    same: Sequence[str] = ()
    """What tells each cell apart wherever it is run (`same`)."""

    def __post_init__(self) -> None:
        if not self.rules:
            object.__setattr__(self, "rules", tuple(Rule(runs=1) for _ in self.cells))
        if not self.same:
            object.__setattr__(self, "same", tuple(map(same, self.cells)))

    @property
    def shortest(self) -> float:
        """How many seconds the shortest run of any cell takes at least."""
        return min(map(least_seconds, self.cells))

    @property
    def repeated(self) -> bool:
        """Whether any cell gets more than one run."""
        return not all(rule.single for rule in self.rules)

    def config(self, cell: int, run: int) -> TrialConfig:
        """What a run of a cell is asked to do: the cell's own, with a seed that follows from the cell's."""
        config = self.cells[cell]
        assert config.seed is not None
        return msgspec.structs.replace(config, seed=run_seed(config.seed, run))


def run_seed(seed: int, run: int) -> int:
    """The seed of a run (from 1) of a cell: the first has the cell's own, each other one its own draw from it.

    The draw is the first 31 bits of SHA-256 over "SEED/RUN", so anybody can make it again.
    """
    if run == 1:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}/{run}".encode()).digest()[:4], "big") >> 1


def same(config: TrialConfig) -> str:
    """What cells have in common that are asked to do the same, wherever they are run: a digest of all but the seed.

    What is at its default is left out, so that a key that a later version adds doesn't make all cells others. A client
    of the user's own is known by its digest, wherever its files are.
    """
    usual = {field.name: field.default for field in msgspec.structs.fields(TrialConfig)}
    if config.client_digest is not None:
        config = msgspec.structs.replace(config, client=None, client_dir=None, client_image=None, client_name=None)
    asked = {
        name: value
        for name, value in msgspec.to_builtins(config).items()
        if name != "seed" and value not in (usual[name], {}, [])
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def least_seconds(config: TrialConfig) -> float:
    """How long a run of this resolved cell takes at least, nodes and judging not counted."""
    assert config.duration is not None
    return config.warmup + config.duration + config.recovery


def single(config: TrialConfig, rule: Rule) -> Plan:
    """The plan of one resolved cell that gets several runs."""
    return Plan(Path(config.slug()), [config], [], [rule])


def take_rule(keys: dict[str, Any], *, path: Path | None, key: str | None, soak: bool = False) -> Rule:
    """Takes `repeat` and `until` out of a cell's keys, and returns the rule that they make.

    In a `soak`, which ends by its time, `repeat` doesn't count, and a rule need not end by itself. Raises ConfigError
    that names the key.
    """
    repeat, until = keys.pop("repeat", None), keys.pop("until", None)
    if repeat is not None:
        _check_whole(repeat, path, secrets.dotted(key, "repeat"))
    if not isinstance(until, dict | None):
        raise ConfigError(path, secrets.dotted(key, "until"), f"must be a table, not {until!r}")
    for name, value in (until or {}).items():
        place = secrets.dotted(key, f"until.{name}")
        if name not in ("violations", "runs", "minutes"):
            raise ConfigError(path, place, "unknown key; known: violations, runs, minutes")
        if name != "minutes":
            _check_whole(value, path, place)
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise ConfigError(path, place, f"must be a number of minutes, more than 0, not {value!r}")
    rule = Rule(**until) if until else Rule(runs=None if soak else repeat or 1)
    if until and repeat is not None and not soak:
        rule = msgspec.structs.replace(rule, runs=min(repeat, rule.runs or repeat))
    if not soak and rule.runs is None and rule.minutes is None:
        raise ConfigError(
            path, secrets.dotted(key, "until"), "may never come true: give runs or minutes in it, or repeat beside it"
        )
    return rule


def _check_whole(value: Any, path: Path | None, key: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RUNS:
        raise ConfigError(path, key, f"must be a whole number between 1 and {MOST_RUNS:,}, not {value!r}")


def load(path: Path, overrides: Mapping[str, Any] | None = None, *, soak: bool = False) -> Plan:
    """Read and resolve a matrix file. `overrides` go over its defaults (flags of the command line).

    With `soak` the rounds go on until a time is over, whatever `repeat` says; `until` holds.

    Raises ConfigError naming file, key and reason: not TOML, an unknown key or name, a wrong type, a rule that fits
    no cell, an impossible combination that is written out as a cell (in `axes` it is left out, and listed).
    """
    try:
        data = tomllib.loads(documents.read_bytes(path, MOST_BYTES).decode())
    except FileNotFoundError as error:
        raise ConfigError(path, None, "no such file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(path, None, f"can't be read: {error}") from error
    except ValueError as error:  # TOML's own, and numbers of thousands of digits
        raise ConfigError(path, None, f"not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(path, None, "nested too deeply") from error
    overrides = take_holder(secrets.seal(overrides or {}))
    data = secrets.seal(data, marks=overrides.get("secrets", ()), path=path)
    _check_shape(path, data)
    _name_holders(path, data)

    defaults = {**data.get("defaults", {}), **overrides}
    used: set[tuple[str, int]] = set()
    cells: list[TrialConfig] = []
    rules: list[Rule] = []
    left_out: list[LeftOut] = []

    def settle(cell: dict[str, Any], key: str, *, by_hand: bool) -> None:
        for number, rule in enumerate(data.get("leave_out", [])):
            if _fits(rule["when"], take_version(cell, path=path, key=key)):
                used.add(("leave_out", number))
                merged, _ = _overridden(data, {**defaults, **cell})
                left_out.append(LeftOut(_placed(cell, merged), str(rule.get("rule", "left out by the file"))))
                return
        merged, fitting = _overridden(data, take_version({**defaults, **cell}, path=path, key=key))
        used.update(("override", number) for number in fitting)
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
        stop = take_rule(merged, path=path, key=key, soak=soak)
        for name in merged:
            _check_key(name, path, secrets.dotted(key, name))
        config = from_mapping(merged, path=path, key=key)
        senseless = _impossible(config)
        if senseless is not None and not by_hand:
            left_out.append(LeftOut(_placed(cell, merged), senseless))
            return
        cells.append(resolve(config, path=path, key=key))
        rules.append(stop)

    axes = data.get("axes", {})
    planned = (math.prod(len(values) for values in axes.values()) if axes else 0) + len(data.get("cells", []))
    if planned > MOST_CELLS:
        raise ConfigError(path, "axes", f"make {planned:,} cells, and a matrix has at most {MOST_CELLS:,}")
    for values in itertools.product(*axes.values()) if axes else ():
        settle(dict(zip(axes, values, strict=True)), "axes", by_hand=False)
    for number, cell in enumerate(data.get("cells", []), 1):
        settle(dict(cell), f"cells[{number}]", by_hand=True)

    if not cells:
        raise ConfigError(path, "axes", "no cell is left to run")
    check_marks(cells, path=path)
    for place, name in told_apart(cells).items():
        cells[place] = msgspec.structs.replace(cells[place], client_name=name)
    for table in RULES:
        for number, rule in enumerate(data.get(table, [])):
            if (table, number) not in used:
                raise ConfigError(path, f"{table}[{number + 1}].when", f"fits no cell: {rule['when']}")
    source = {"file": msgspec.to_builtins(data), "given": msgspec.to_builtins(overrides), "soak": soak}
    return Plan(path, cells, left_out, rules, source)


def _overridden(data: Mapping[str, Any], cell: Mapping[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """A cell with what the overrides that fit it set, one after the other; and which those are."""
    merged, fitting = dict(cell), []
    for number, rule in enumerate(data.get("override", [])):
        if _fits(rule["when"], merged):
            fitting.append(number)
            merged.update(rule["set"])
    return merged, fitting


def _placed(cell: Mapping[str, Any], merged: Mapping[str, Any]) -> dict[str, Any]:
    """A cell that is left out as it is told: with its system, which may stand under `defaults` or in an override."""
    return {**({"system": merged["system"]} if "system" in merged else {}), **cell}


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
                if key not in STOPS:
                    _check_key(key, path, f"{where}.when.{key}")
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


def _name_holders(path: Path, data: dict[str, Any]) -> None:
    """`holder` in the place of its older form, in every table that has keys of a trial."""
    for table in ("defaults", "axes"):
        if table in data:
            data[table] = take_holder(data[table], path=path, key=table)
    data["cells"] = [take_holder(cell, path=path, key=f"cells[{n}]") for n, cell in enumerate(data.get("cells", []), 1)]
    for table in RULES:
        for number, rule in enumerate(data.get(table, []), 1):
            for part in ("when", "set"):
                if part in rule:
                    rule[part] = take_holder(rule[part], path=path, key=f"{table}[{number}].{part}")


def _check_key(name: str, path: Path, key: str) -> None:
    near = difflib.get_close_matches(name, STOPS, n=1)
    try:
        check_key(name, path=path, key=key)
    except ConfigError:
        if near:
            raise ConfigError(path, key, f"unknown key; did you mean {near[0]!r}?") from None
        raise


def _fits(when: Mapping[str, Any], cell: Mapping[str, Any]) -> bool:
    """A rule fits a cell when every key has the value, or one of the values, that the rule names.

    `system = "etcd"` fits all versions of it, `"etcd@3.4.23"` that one.
    """

    def fits(key: str, value: Any) -> bool:
        has = [cell.get(key)] + ([f"{cell.get('system')}@{cell['version']}"] if _versioned(key, cell) else [])
        return any(each in value for each in has) if isinstance(value, list) else value in has

    return all(fits(key, value) for key, value in when.items())


def _versioned(key: str, cell: Mapping[str, Any]) -> bool:
    return key == "system" and cell.get("version") is not None


def _impossible(config: TrialConfig) -> str | None:
    """The fault's own rule against this cell; None when it makes sense, or when `resolve` has better words."""
    try:
        kind, target = faults.parse(config.fault)
        if config.endpoints:
            return not_offered(kind, target, config.fault_options)
        servers = config.servers or registry.load("systems", config.system).server_counts[0]
        return faults.why_not(kind, target, system=config.system, servers=servers)
    except UsageError:
        return None
