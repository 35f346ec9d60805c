"""Faults by name. A name is a kind and a target, "partition-leader"; kinds are entry points (`fencepost.faults`)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness import registry
from harness.errors import UsageError
from harness.systems import roles
from nemesis.base import Fault
from nemesis.targets import NAME, is_role


@dataclass(frozen=True)
class Listed:
    """One kind of fault, for `fencepost list`: its targets (the default first), and what it does in a line."""

    kind: str
    summary: str
    targets: tuple[str, ...]
    names: tuple[str, ...]


def name_of(kind: str, target: str) -> str:
    """The name that `parse` takes apart again."""
    return f"{kind}-{target}" if target else kind


def parse(name: str) -> tuple[str, str]:
    """(kind, target) of a fault's name; a kind alone means its first target, and "none" has none.

    Raises UsageError with the near matches for an unknown kind or target.
    """
    kinds = registry.names("faults")
    kind = max((k for k in kinds if name == k or name.startswith(k + "-")), key=len, default=None)
    if kind is None:
        known = [each for listed in combinations() for each in listed.names]
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it is KIND-TARGET, kinds: {', '.join(kinds)}"
        raise UsageError(f"unknown fault {name!r}; {hint}")
    target = name[len(kind) + 1 :]
    allowed = tuple(registry.load("faults", kind).targets)
    if not allowed:
        if target:
            raise UsageError(f"{kind} takes no target, but {name!r} gives it {target!r}")
        return kind, ""
    if not target and name != kind:
        raise UsageError(f"{name!r} ends where a target should follow (one of {', '.join(allowed)})")
    if target and target not in allowed and not NAME.fullmatch(target) and not is_role(target, allowed):
        words = [*allowed, *(roles.known() if "leader" in allowed else ())]
        near = difflib.get_close_matches(target, words, n=1)
        hint = f"did you mean {name_of(kind, near[0])}?" if near else f"targets: {', '.join(allowed)}, or a node's name"
        raise UsageError(f"unknown target {target!r} of {kind}; {hint}")
    return kind, target or allowed[0]


def make(kind: str, target: str, parameters: Mapping[str, Any]) -> Fault:
    """A fault ready to be started, once. Raises UsageError naming the kind, the target or the parameter."""
    fault: Fault = registry.load("faults", kind)(target, parameters)
    return fault


def why_not(kind: str, target: str, *, system: str, servers: int) -> str | None:
    """None when the cell makes sense, else the rule by which it is left out, as a sentence."""
    if kind != "none" and (lacks := roles.why_not(system, target)) is not None:
        return lacks
    rule: str | None = registry.load("faults", kind).sensible(target, system=system, servers=servers)
    return rule


def combinations() -> list[Listed]:
    """Every kind with its targets and full names, in order of the kind's name."""
    found = []
    for kind in registry.names("faults"):
        fault = registry.load("faults", kind)
        targets = tuple(fault.targets)
        names = tuple(name_of(kind, target) for target in targets) or (kind,)
        found.append(Listed(kind, fault.summary, targets, names))
    return found
