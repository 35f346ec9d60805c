"""Finding systems, clients, workloads, faults, verdicts and runtimes by name.

All of them, the built-in ones included, are entry points (groups `fencepost.systems`, `fencepost.clients`,
`fencepost.workloads`, `fencepost.faults`, `fencepost.verdicts`, `fencepost.runtimes`). Only what is asked for is
imported, so that a command that needs no Docker doesn't pay for it.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError

MEMBERS = {
    "systems": (
        *("name", "summary", "image", "server_counts", "client", "port", "healthy_within_seconds"),
        *("plan", "recorded", "healthy", "leadership", "version", "client_config"),
    ),
    "faults": ("kind", "summary", "targets", "sensible", "start", "stop"),
}
"""What each of a kind must have; its lack would else come out as an error of whoever happens to ask for it first."""

KINDS = ("systems", "clients", "workloads", "faults", "verdicts", "runtimes")


@cache
def _group(kind: str) -> dict[str, EntryPoint]:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, not {kind!r}")
    found = list(entry_points(group=f"fencepost.{kind}"))
    # Ours come last, so that no package takes the name of one of them.
    return {entry.name: entry for entry in sorted(found, key=lambda entry: _package(entry) == "fencepost")}


def _package(entry: EntryPoint) -> str | None:
    return None if entry.dist is None else entry.dist.name


def names(kind: str) -> list[str]:
    """The registered names of one kind, sorted."""
    return sorted(_group(kind))


def foreign(kind: str, name: str) -> str | None:
    """The top package, or module, that an entry of somebody else's lives in; None of one of ours."""
    entry = _entry(kind, name)
    return None if _package(entry) == "fencepost" else entry.module.partition(".")[0]


def reference(kind: str, name: str) -> str:
    """The import reference `module:attribute` of an entry, for a process that imports it elsewhere."""
    return _entry(kind, name).value


def load(kind: str, name: str) -> Any:
    """The object registered under a name. Unknown names are a UsageError that lists the near ones.

    One that fails to load is a HarnessError, whatever it fails of: a plug-in runs code of others at its import.
    """
    entry = _entry(kind, name)
    try:
        thing = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise HarnessError(
            f"{kind[:-1]} {name!r} is registered as {entry.value}, which fails to load: {type(error).__name__}: {error}"
        ) from error
    if lacking := [member for member in MEMBERS.get(kind, ()) if not hasattr(thing, member)]:
        raise HarnessError(
            f"{kind[:-1]} {name!r} is registered as {entry.value}, which has no {', no '.join(lacking)} "
            f"(docs/writing-a-{kind[:-1]}.md)"
        )
    return thing


def headline(kind: str, name: str) -> str | None:
    """The first line of the docstring of the module that an entry lives in, without its name before it.

    Read from the source: nothing of the module runs, whoever wrote it. None where that isn't to be found.
    """
    if name not in _group(kind):
        return None
    told = _docstring(_group(kind)[name].module)
    return told.strip().partition("\n")[0].removeprefix(f"{name}: ").replace("*", "").replace("`", "") or None


@cache
def _docstring(module: str) -> str:
    places, source, parts = None, "", module.split(".")
    try:
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            found = (finder.find_spec(name, places) for finder in sys.meta_path)
            spec = next((spec for spec in found if spec is not None), None)
            if spec is None:
                return ""
            places, source = spec.submodule_search_locations, spec.origin or ""
        return ast.get_docstring(ast.parse(Path(source).read_bytes())) or ""
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _entry(kind: str, name: str) -> EntryPoint:
    known = _group(kind)
    if name in known:
        return known[name]
    raise unknown(kind, name)


def unknown(kind: str, name: str, also: Iterable[str] = ()) -> UsageError:
    """The error of a name that isn't registered: which are, and which `also` may stand there; the near ones first."""
    known = sorted({*_group(kind), *also})
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UsageError(f"unknown {kind[:-1]} {name!r}{hint} (known: {', '.join(known) or 'none'})")
