"""The history's writes against the resource's own record of them.

Verdicts come from the history alone, so a contender that told of a write what isn't so would not be noticed there. The
resource wrote down for itself what it accepted, in its own order; where the two disagree the trial proves nothing, and
is a harness error that names the write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SHOWN = 5

Key = tuple[str, str, int, int]
"""Lock, resource, process, version: a version is made by one write of one process alone."""


def disagreements(history: Path, ledger: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the two say differently, a sentence each (the first few, and how many more); empty when they agree.

    An accepted write (ok) must stand in the ledger with the same seq and token. A row of the ledger must belong to a
    write that was ok or of unknown outcome: one that certainly failed can't have been accepted.
    """
    told = _writes(history)
    found: list[str] = []
    recorded: set[Key] = set()
    for row in ledger:
        key = (row["lock"], row["resource"], row["process"], row["version"])
        recorded.add(key)
        write = told.get(key)
        if write is None:
            found.append(f"the ledger holds a write that no contender told of: {_name(key)}, seq {row['seq']}")
        elif write["type"] == "fail":
            found.append(f"the ledger holds a write that was told to have failed: {_name(key)}, seq {row['seq']}")
        elif write["type"] == "ok":
            for field in ("seq", "token"):
                if write.get(field) != row[field]:
                    found.append(
                        f"{_name(key)}: {field} is {row[field]} in the ledger and {write.get(field)} in the history"
                    )
    for key, write in told.items():
        if write["type"] == "ok" and key not in recorded:
            found.append(f"a write was told to be accepted that the ledger doesn't hold: {_name(key)}")
    return _few(found)


def _writes(history: Path) -> dict[Key, dict[str, Any]]:
    """Each write that names its version; keys of the completion win, and one that never closed is info."""
    told: dict[Key, dict[str, Any]] = {}
    open_writes: dict[tuple[str, str, int], dict[str, Any]] = {}
    with history.open("rb") as lines:
        for line in lines:
            if b'"write"' not in line:
                continue
            event = json.loads(line)
            if event.get("f") != "write":
                continue
            place = (event.get("lock", "lock"), event["resource"], event["process"])
            if event["type"] == "invoke":
                write = open_writes[place] = {**event, "type": "info"}
            else:
                write = {**open_writes.pop(place, {}), **event}
            if isinstance(write.get("version"), int):
                told[(*place, write["version"])] = write
    return told


def _name(key: Key) -> str:
    lock, resource, process, version = key
    return f"version {version} of {resource} (lock {lock!r}) by contender {process}"


def _few(found: Sequence[str]) -> list[str]:
    more = len(found) - SHOWN
    return [*found[:SHOWN], *([f"and {more} more"] if more > 0 else [])]
