"""What a resource held when it was read at the end: acknowledged writes that are gone, refused ones that are there.

`gone-write`: a write that returned ok early enough, whose `id` the audit of its resource lacks. `ghost-write`: a write
that failed, whose `id` the audit has. A write of unknown outcome may be there or not, one without an `id` is not looked
for, and an id that no write has, or that stands there twice, says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from checkers import standing, words
from checkers.findings import LISTED, Finding
from checkers.intervals import Model
from harness.history.events import FAIL, NONE, OK, RESOURCES, STRING_ID, Audit, Bools, Ints


@dataclass(frozen=True)
class Audited:
    """What the audits of one resource told of its writes."""

    looked_for: int = 0
    """Writes held against an audit: accepted ones that had been answered when it was sent, and refused ones."""
    gone: int = 0
    ghosts: int = 0
    findings: Sequence[Finding] = ()
    """At most `LISTED` of either kind in each lock."""


def look(model: Model, resource: int, invoke: Ints, done: Ints, outcome: Ints) -> Audited:
    """Holds the writes of a resource (rows of their invokes and completions, and what became of them) against its
    audits, one a lock."""
    history = model.history
    audits = [audit for audit in history.audits if audit.resource == resource]
    closed = np.flatnonzero(done >= 0)
    if not audits or not len(closed):
        return Audited()
    invoke, done, outcome = invoke[closed], done[closed], outcome[closed]
    answered = history.id[done]
    identity = np.where(answered != NONE, answered, history.id[invoke])
    looked_for = gone = ghosts = 0
    findings: list[Finding] = []
    for audit in audits:
        mine = (history.lock[invoke] == audit.lock) & (identity != NONE)
        early = history.time[done] + model.u <= history.time[audit.row]
        accepted, refused = mine & (outcome == OK) & early, mine & (outcome == FAIL)
        there = np.isin(identity, _codes(model, audit))
        lacking, haunting = done[accepted & ~there], done[refused & there]
        looked_for += _count(accepted) + _count(refused)
        gone, ghosts = gone + len(lacking), ghosts + len(haunting)
        findings += [_gone(model, audit, row) for row in _first(lacking)]
        findings += [_ghost(model, audit, row) for row in _first(haunting)]
    return Audited(looked_for, gone, ghosts, findings)


def _codes(model: Model, audit: Audit) -> Ints:
    """The ids that an audit found, as codes; without those that no write has."""
    codes = model.once("codes of ids", lambda: {name: STRING_ID + at for at, name in enumerate(model.history.ids)})
    known = [codes.get(name) if isinstance(name, str) else name for name in audit.ids]
    return np.array([code for code in known if code is not None], dtype=np.int64)


def _count(chosen: Bools) -> int:
    return int(np.count_nonzero(chosen))


def _first(rows: Ints) -> list[int]:
    """The first that will be listed. Where the audit comes last they all end with it, and the order is that of rows."""
    return [int(row) for row in np.sort(rows)[:LISTED]]


def _gone(model: Model, audit: Audit, row: int) -> Finding:
    later = words.after(int(model.history.time[audit.row]), int(model.history.time[row]))
    held, _ = standing.held(model, int(model.history.mate[row]))
    text = (
        f"the {RESOURCES[audit.resource]} resource of lock {model.history.locks[audit.lock]!r} accepted "
        f"{_write(model, row)}; {later} it was read as a whole, and that write was gone: whatever was written after "
        f"it, the resource lost what it had acknowledged. Contender {model.history.process_name(row)} {held}"
    )
    text = words.sentence(text)
    text += words.meanwhile(model, int(model.history.time[row]), int(model.history.time[audit.row]))
    events, time = words.lines(model, (row, audit.row))
    return Finding("gone-write", model.history.locks[audit.lock], events, text, time)


def _ghost(model: Model, audit: Audit, row: int) -> Finding:
    sent, refused = int(model.history.time[audit.row]), int(model.history.time[row])
    resource = f"the {RESOURCES[audit.resource]} resource of lock {model.history.locks[audit.lock]!r}"
    write = _write(model, row)
    if sent < refused:
        text = f"{resource} was read as a whole, and had {write}; {words.after(refused, sent)} that write was refused"
    else:
        when = words.after(sent, refused)
        text = f"{resource} refused {write}; {when} it was read as a whole, and that write was there"
    events, time = words.lines(model, (row, audit.row))
    return Finding("ghost-write", model.history.locks[audit.lock], events, words.sentence(text), time)


def _write(model: Model, row: int) -> str:
    """A write by its completion: whose, and its id."""
    history = model.history
    answered = int(history.id[row])
    identity = history.id_name(answered if answered != NONE else int(history.id[history.mate[row]]))
    return f"write {identity!r} of contender {history.process_name(row)}"
