"""The events around a finding, in columns by contender: `fencepost check --explain N`.

A row is one event, at its time relative to the first event of the finding; the events of the finding are marked. A
bar in a contender's column says that it believed it held the lock then.
"""

from __future__ import annotations

import shutil
import textwrap

import numpy as np

from checkers.findings import Finding
from checkers.intervals import Model, build
from harness.history.events import (
    ACQUIRE,
    CRASH,
    EXPIRED,
    FAULT,
    INVOKE,
    KNOWN_F,
    LOST,
    NONE,
    OK,
    RELEASE,
    RENEW,
    RESOURCES,
    TYPES,
    WRITE,
    Fault,
    History,
    Ints,
)

_AROUND = 4
"""Events shown before the first and after the last of a finding's."""
_MOST_ROWS = 60
_MOST_COLUMNS = 6
_NEMESIS = -1


def explain(history: History, finding: Finding, width: int | None = None) -> str:
    """The text for one finding of a history; `width` is that of the terminal."""
    width = shutil.get_terminal_size((120, 24)).columns if width is None else width
    marked = np.flatnonzero(np.isin(history.line, finding.events))
    if not len(marked):
        return finding.text
    lock = history.locks.index(finding.lock) if finding.lock is not None else None
    shown = _shown(history, marked, lock)
    columns = _columns(history, marked, shown)
    shown = [row for row in shown if int(history.process[row]) in columns or history.process[row] < 0]
    start = int(history.time[marked[0]])
    model = build(history)
    head = f"{'time':>12} {'line':>8}  "
    each = max(14, min(34, (width - len(head)) // len(columns) - 1))
    lines = [_wrap(finding.text, width), ""]
    names = [("faults, harness" if code == _NEMESIS else f"contender {history.processes[code]}") for code in columns]
    lines.append((head + " ".join(name.ljust(each) for name in names)).rstrip())
    own = set(marked.tolist())
    for row in _cut(shown, own):
        if row is None:
            lines.append(f"{'⋮':>12}")
            continue
        mark = "▶" if row in own else " "
        cells = [_cell(history, model, row, code, lock).ljust(each)[:each] for code in columns]
        when = _relative(int(history.time[row]) - start)
        lines.append(f"{when:>12} {int(history.line[row]):>8}{mark} {' '.join(cells)}".rstrip())
    return "\n".join(lines)


def _wrap(text: str, width: int) -> str:
    return textwrap.fill(text, max(40, min(width, 110)))


def _relative(ns: int) -> str:
    sign = "-" if ns < 0 else "+"
    ns = abs(ns)
    if ns and ns < 1_000_000:
        return f"{sign}{ns / 1000:.3f} µs" if ns >= 1000 else f"{sign}{ns} ns"
    return f"{sign}{ns / 1e9:.3f} s"


def _shown(history: History, marked: Ints, lock: int | None) -> list[int]:
    """The rows to show: those that say something of the lock, from a little before the finding to a little after it."""
    about = history.f < len(KNOWN_F)
    if lock is not None:
        about = about & ((history.lock == lock) | (history.f == CRASH) | (history.f == FAULT))
    else:
        about = about & ((history.f == FAULT) | np.isin(np.arange(len(history)), marked))
    rows = np.flatnonzero(about | np.isin(np.arange(len(history)), marked))
    first, last = np.searchsorted(rows, [marked[0], marked[-1]])
    return [int(row) for row in rows[max(0, int(first) - _AROUND) : int(last) + 1 + _AROUND]]


def _columns(history: History, marked: Ints, shown: list[int]) -> list[int]:
    """The processes to show, by their code: those of the finding, then as many others as fit; the faults last."""
    mine = list(dict.fromkeys(int(history.process[row]) for row in marked if history.process[row] >= 0))
    others = [int(history.process[row]) for row in shown if history.process[row] >= 0]
    columns = list(dict.fromkeys(mine + others))[:_MOST_COLUMNS]
    if any(history.process[row] < 0 for row in shown):
        columns.append(_NEMESIS)
    return columns


def _cut(rows: list[int], marked: set[int]) -> list[int | None]:
    """Rows with None for what is left out: of a long stretch without marked ones only its ends are shown."""
    if len(rows) <= _MOST_ROWS:
        return list(rows)
    near: set[int] = set()
    for place, row in enumerate(rows):
        if row in marked:
            near.update(range(place - 8, place + 9))
    out: list[int | None] = []
    for place, row in enumerate(rows):
        if place in near:
            out.append(row)
        elif not out or out[-1] is not None:
            out.append(None)
    return out


def _cell(history: History, model: Model, row: int, code: int, lock: int | None) -> str:
    if int(history.process[row]) == code or (code == _NEMESIS and history.process[row] < 0):
        return _event(history, row)
    if code == _NEMESIS or lock is None:
        return ""
    time = int(history.time[row])
    mine = (model.process == code) & (model.lock == lock)
    believes = mine & (model.ok_row < row) & ((model.belief_end > time) | (model.belief_end_row > row))
    return "│" if bool((believes & (model.ok <= time) & (model.belief_end >= time)).any()) else ""


def _event(history: History, row: int) -> str:
    """One event in a few words."""
    f, kind = int(history.f[row]), int(history.type[row])
    if f == FAULT:
        return _fault(history, row)
    if f in (LOST, CRASH):
        if f == CRASH:
            return "crash"
        return "lost (expired)" if history.reason[row] == EXPIRED else "lost"
    what = f"{history.fs[f]}{'…' if kind == INVOKE else ' ' + TYPES[kind]}"
    if f == ACQUIRE and kind == OK:
        return what + (f" token {int(history.token[row])}" if history.token[row] != NONE else "") + _ttl(history, row)
    if f == RENEW:
        return what + _held(history, row) + _ttl(history, row)
    if f == RELEASE:
        return what + _held(history, row)
    if f == WRITE:
        what = f"{what} {RESOURCES[int(history.resource[row])]}"
        for name in ("token", "read", "version", "seq"):
            value = int(getattr(history, name)[row])
            if value != NONE:
                what += f" {name[0]}{value}"
    return what


def _ttl(history: History, row: int) -> str:
    value = float(history.ttl[row])
    return "" if np.isnan(value) else f" ttl {value:g}"


def _held(history: History, row: int) -> str:
    return ("", " not held", " held")[int(history.held[row]) + 1]


def _fault(history: History, row: int) -> str:
    line = int(history.line[row])
    fault: Fault
    for fault in history.faults:
        if line == fault.start_line:
            return f"{fault.kind or 'fault'} {fault.id} starts ({fault.receipt or 'no receipt'})"
        if line == fault.stop_line:
            return f"{fault.kind or 'fault'} {fault.id} stops ({fault.stop_receipt or 'no receipt'})"
    return "fault"
