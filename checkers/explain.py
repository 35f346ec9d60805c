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
from harness import plain
from harness.history.events import (
    ACQUIRE,
    AUDIT,
    CRASH,
    EXPIRED,
    FAULT,
    INVOKE,
    KNOWN_F,
    LOST,
    NONE,
    OK,
    OUTSIDE,
    PAUSED,
    RELEASE,
    RENEW,
    RESOURCES,
    TYPES,
    UNSEEN,
    WRITE,
    Fault,
    History,
    Ints,
)

_AROUND = 4
"""Events shown before the first and after the last of a finding's."""
_MOST_ROWS = 60
_MOST_COLUMNS = 6
_NARROWEST = 14
"""Characters that a column needs to say anything."""
_NEMESIS = -1


def explain(history: History, finding: Finding, width: int | None = None) -> str:
    """The text for one finding of a history; `width` is that of the terminal (120 where the output is none).

    What doesn't fit loses words first, then whole figures, and ends in `…`: never a part of a number, which would read
    as another one.
    """
    width = (shutil.get_terminal_size((120, 24)).columns if width is None else width) or 120
    marked = np.flatnonzero(np.isin(history.line, finding.events))
    if not len(marked):
        return plain.line(finding.text)
    lock = history.locks.index(finding.lock) if finding.lock is not None else None
    shown = _shown(history, marked, lock)
    start = int(history.time[marked[0]])
    head = f"{'time':>12} {'line':>8}  "
    columns = _columns(history, marked, shown, (width - len(head)) // (_NARROWEST + 1))
    shown = [row for row in shown if int(history.process[row]) in columns or history.process[row] < 0]
    model = build(history)
    own = set(marked.tolist())
    rows = _cut(shown, own)
    names = [_name(history, code) for code in columns]
    cells = {row: [_cell(history, model, row, code, lock) for code in columns] for row in rows if row is not None}
    widths = _widths(
        [max(len(forms[0]) for forms in column) for column in zip(names, *cells.values(), strict=True)],
        [max(_NARROWEST, len(forms[-1])) for forms in names],
        width - len(head),
    )
    lines = [_wrap(finding.text, width), "", (head + _row(names, widths)).rstrip()]
    for row in rows:
        if row is None:
            lines.append(f"{'⋮':>12}")
            continue
        mark = "▶" if row in own else " "
        when = _relative(int(history.time[row]) - start)
        lines.append(f"{when:>12} {int(history.line[row]):>8}{mark} {_row(cells[row], widths)}".rstrip())
    return "\n".join(lines)


#: What a cell says, in full and then in ever fewer words.
_Forms = list[str]


def _row(cells: list[_Forms], widths: list[int]) -> str:
    return " ".join(_fit(forms, width).ljust(width) for forms, width in zip(cells, widths, strict=True))


def _fit(forms: _Forms, width: int) -> str:
    """The fullest form that fits; else as much of the last as does, with `…` at its end and no number cut."""
    forms = [plain.line(form) for form in forms]
    for form in forms:
        if len(form) <= width:
            return form
    text = forms[-1][: width - 1]
    if text[-1:].isdigit() and forms[-1][width - 1].isdigit():
        text = text.rstrip("0123456789").rstrip("-")
    return text.rstrip().removesuffix("…") + "…"


def _widths(wanted: list[int], least: list[int], room: int) -> list[int]:
    """How wide the columns are: what each wants where there is room for it, else the widest give way first."""
    widths = [max(want, low) for want, low in zip(wanted, least, strict=True)]
    too_much = sum(widths) + len(widths) - 1 - room
    while too_much > 0 and (wide := [n for n, low in enumerate(least) if widths[n] > low]):
        widths[max(wide, key=lambda n: widths[n])] -= 1
        too_much -= 1
    return widths


def _name(history: History, code: int) -> _Forms:
    if code == _NEMESIS:
        return ["faults, harness", "faults"]
    return [f"contender {history.processes[code]}", f"c{history.processes[code]}"]


def _wrap(text: str, width: int) -> str:
    return textwrap.fill(plain.line(text), max(40, min(width, 110)))


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


def _columns(history: History, marked: Ints, shown: list[int], room: int) -> list[int]:
    """The processes to show, by their code: those of the finding, then as many others as fit; the faults last."""
    faults = [_NEMESIS] if any(history.process[row] < 0 for row in shown) else []
    mine = list(dict.fromkeys(int(history.process[row]) for row in marked if history.process[row] >= 0))
    others = [int(history.process[row]) for row in shown if history.process[row] >= 0]
    most = min(_MOST_COLUMNS, max(len(mine), room - len(faults)))
    return list(dict.fromkeys(mine + others))[:most] + faults


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


def _cell(history: History, model: Model, row: int, code: int, lock: int | None) -> _Forms:
    if int(history.process[row]) == code or (code == _NEMESIS and history.process[row] < 0):
        return _event(history, row)
    if code == _NEMESIS or lock is None:
        return [""]
    time = int(history.time[row])
    mine = (model.process == code) & (model.lock == lock)
    believes = mine & (model.ok_row < row) & ((model.belief_end > time) | (model.belief_end_row > row))
    return ["│" if bool((believes & (model.ok <= time) & (model.belief_end >= time)).any()) else ""]


def _event(history: History, row: int) -> _Forms:
    """One event in a few words, and in fewer."""
    f, kind = int(history.f[row]), int(history.type[row])
    if f == FAULT:
        return _fault(history, row)
    if f == AUDIT:
        return _audit(history, row)
    if f == CRASH:
        return ["crash"]
    if f == LOST:
        return ["lost (expired)"] if history.reason[row] == EXPIRED else ["lost"]
    what = f"{history.fs[f]}{'…' if kind == INVOKE else ' ' + TYPES[kind]}"
    if f == ACQUIRE and kind == OK:
        if history.token[row] == NONE:
            return _shorter(what, [_ttl(history, row), _unseen(history, row)])
        token = int(history.token[row])
        more = [_ttl(history, row), _unseen(history, row)]
        full = _shorter(what, [f"token {token}", *more])
        return [full[0], *_shorter(what, [f"t{token}", *more])]
    if f == RENEW:
        return _shorter(what, [_held(history, row), _proves(history, row), _ttl(history, row)])
    if f == RELEASE:
        return _shorter(what, [_held(history, row), _proves(history, row)])
    if f == WRITE:
        figures = [
            f"{name[0]}{value}"
            for name in ("token", "read", "version", "seq")
            if (value := int(getattr(history, name)[row])) != NONE
        ]
        if history.id[row] != NONE:
            figures.append(f"id {history.id_name(int(history.id[row]))}")
        whole = " ".join([what, RESOURCES[int(history.resource[row])], *figures])
        return [whole, *(form if form.endswith("…") else form + "…" for form in _shorter(what, figures))]
    return [what]


def _shorter(what: str, more: list[str]) -> _Forms:
    """A text with all that is to be said, and with less and less of it, each with `…` for what is left out."""
    more = [part for part in more if part]
    forms = [" ".join([what, *more[:count]]) for count in range(len(more), -1, -1)]
    return forms[:1] + [form if form.endswith("…") else form + "…" for form in forms[1:]]


def _ttl(history: History, row: int) -> str:
    value = float(history.ttl[row])
    return "" if np.isnan(value) else f"ttl {value:g}"


def _held(history: History, row: int) -> str:
    return ("", "not held", "held")[int(history.held[row]) + 1]


def _proves(history: History, row: int) -> str:
    return "proves nothing" if history.proves[row] == 0 else ""


def _unseen(history: History, row: int) -> str:
    return "renewals unseen" if history.renewals[row] == UNSEEN else ""


def _audit(history: History, row: int) -> _Forms:
    audit = next(audit for audit in history.audits if audit.row == row)
    what = f"audit {RESOURCES[audit.resource]}"
    return [f"{what}: {len(audit.ids)} writes", f"{what}…", "audit…"]


def _fault(history: History, row: int) -> _Forms:
    line = int(history.line[row])
    fault: Fault
    for fault in history.faults:
        for at, verb, receipt in (
            (fault.start_line, "starts", fault.receipt),
            (fault.stop_line, "stops", fault.stop_receipt),
        ):
            if line == at:
                kind = fault.kind or "fault"
                if fault.outside:
                    kind = f"{OUTSIDE} ({fault.what or PAUSED})"
                return [
                    f"{kind} {fault.id} {verb} ({receipt or 'no receipt'})",
                    f"{kind} {fault.id} {verb}…",
                    f"{kind} {verb}…",
                ]
    return ["fault"]
