"""The history's writes against the resource's own record of them.

Verdicts come from the history alone, so a contender that told of a write what isn't so would not be noticed there. The
resource wrote down for itself what it accepted, in its own order; where a contender's account differs the trial proves
nothing, and is a harness error that names the write.

That is about contenders. What the *resource* did to a write, lost it after it had accepted it or kept one that it had
refused, is found by the verdicts `fenced` and `damage`, from the audits in the history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.trial.resource import Write

SHOWN = 5

Key = tuple[str, str, int]
"""Lock, resource, id of the write."""

FIELDS = ("seq", "process", "token", "read", "version")
"""What both tell of an accepted write."""


def disagreements(history: Path, ledger: Iterable[Write]) -> list[str]:
    """What the two say differently, a sentence each (the first few, and how many more); empty when they agree.

    A row of the ledger must belong to a write that somebody told of; and one that was told to be accepted must stand
    there as it was told.
    """
    told = _writes(history)
    found: list[str] = []
    for row in ledger:
        write = told.get((row.lock, row.resource, row.id))
        if write is None:
            found.append(f"the ledger holds a write that no contender told of: {_name(row)}, seq {row.seq}")
        elif write["type"] == "ok":
            found += [
                f"{_name(row)}: {field} is {getattr(row, field)} in the ledger and {write.get(field)} in the history"
                for field in FIELDS
                if write.get(field) != getattr(row, field)
            ]
    return _few(found)


def _writes(history: Path) -> dict[Key, dict[str, Any]]:
    """Each write that has an id; keys of the completion win, and one that never closed is info."""
    told: dict[Key, dict[str, Any]] = {}
    open_writes: dict[tuple[str, str, int], dict[str, Any]] = {}
    with history.open("rb") as lines:
        for line in lines:
            if b'"write"' not in line:
                continue
            event = json.loads(line)
            if event.get("f") != "write":
                continue
            lock, resource = event.get("lock") or "lock", event["resource"]
            place = (lock, resource, event["process"])
            if event["type"] == "invoke":
                write = open_writes[place] = {**event, "type": "info"}
            else:
                write = {**open_writes.pop(place, {}), **event}
            if isinstance(write.get("id"), int):
                told[lock, resource, write["id"]] = write
    return told


def _name(row: Write) -> str:
    return f"write {row.id!r} to {row.resource} (lock {row.lock!r})"


def _few(found: Sequence[str]) -> list[str]:
    more = len(found) - SHOWN
    return [*found[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


def lost_unheard(judgement: Mapping[str, Any], expect: Mapping[str, Any]) -> list[str]:
    """What the resource did to writes in a verdict that decides nothing in this trial, a sentence each.

    A verdict that is required, or expected to be false, speaks for itself. But one that nobody asked for, or of which
    anything is expected (the unfenced twin of naive contenders is damaged as a matter of course), would say in a
    passing trial that its ground truth lost an accepted write.
    """
    found = []
    for name in ("fenced", "damage"):
        verdict = judgement["verdicts"].get(name) or {}
        if expect.get(name) is False or (name in judgement["required"] and expect.get(name, True) is True):
            continue
        kinds = [finding for finding in verdict.get("findings", ()) if finding["kind"] in ("gone-write", "ghost-write")]
        found += [f"the resource itself can't be trusted ({name}: {finding['text']})" for finding in kinds[:1]]
    return found
