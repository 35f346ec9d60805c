"""Finding systems, clients, workloads, faults, verdicts and runtimes by name.

All of them, the built-in ones included, are entry points (groups `fencepost.systems`, `fencepost.clients`,
`fencepost.workloads`, `fencepost.faults`, `fencepost.verdicts`, `fencepost.runtimes`). Only what is asked for is
imported, so that a command that needs no Docker doesn't pay for it.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from harness.errors import HarnessError, UsageError

KINDS = ("systems", "clients", "workloads", "faults", "verdicts", "runtimes")


@cache
def _group(kind: str) -> dict[str, EntryPoint]:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, not {kind!r}")
    return {entry.name: entry for entry in entry_points(group=f"fencepost.{kind}")}


def names(kind: str) -> list[str]:
    """The registered names of one kind, sorted."""
    return sorted(_group(kind))


def reference(kind: str, name: str) -> str:
    """The import reference `module:attribute` of an entry, for a process that imports it elsewhere."""
    return _entry(kind, name).value


def load(kind: str, name: str) -> Any:
    """The object registered under a name. Unknown names are a UsageError that lists the near ones.

    One that fails to load is a HarnessError, whatever it fails of: a plug-in runs code of others at its import.
    """
    entry = _entry(kind, name)
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise HarnessError(
            f"{kind[:-1]} {name!r} is registered as {entry.value}, which fails to load: {type(error).__name__}: {error}"
        ) from error


def _entry(kind: str, name: str) -> EntryPoint:
    known = _group(kind)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"unknown {kind[:-1]} {name!r}{hint} (known: {', '.join(sorted(known)) or 'none'})")
