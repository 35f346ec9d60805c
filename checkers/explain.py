"""The events around a finding, in columns by contender: `fencepost check --explain N`.

A row is one event, at its time relative to the first event of the finding; the events of the finding are marked. A
bar in a contender's column says that it believed it held the lock then. Renewals that follow each other and all
succeeded are one row, from `_FOLDED` of them on. Events that only their user knows are shown as they stand in the file.
"""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

from checkers.findings import Finding
from checkers.intervals import Model, build
from harness import plain
from harness.history.events import (
    ACQUIRE,
    AUDIT,
    CRASH,
    FAIL,
    FAULT,
    INFO,
    INVOKE,
    KNOWN_F,
    LOST,
    NO_REASON,
    NONE,
    OK,
    OTHER_REASON,
    OUTSIDE,
    PAIRED_F,
    PAUSED,
    REASONS,
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
_FOLDED = 4
"""So many renewals in a row are told as one."""
_CLOCK = "wall clock"
_SAID = 60
"""Characters of a value that a file gives, at most."""

#: The keys of some lines of a file, by line number; lines that can't be read so are left out.
Lines: TypeAlias = Callable[[Iterable[int]], Mapping[int, Mapping[str, Any]]]


def explain(history: History, finding: Finding, width: int | None = None, lines: Lines = lambda wanted: {}) -> str:
    """The text for one finding of a history; `width` is that of the terminal (120 where the output is none). `lines`
    reads what the history doesn't keep: the keys of events that only their user knows, and what errors say.

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
    clock = _WallClock.of(history)
    head = f"{'time':>12}{f' {_CLOCK:>12}' if clock else ''} {'line':>8}  "
    columns = _columns(history, marked, shown, (width - len(head)) // (_NARROWEST + 1))
    shown = [row for row in shown if int(history.process[row]) in columns or history.process[row] < 0]
    model = build(history)
    own = set(marked.tolist())
    folds = _fold(history, shown, own, start)
    rows = _cut([row for row in shown if row not in folds or folds[row]], own)
    said = lines([int(history.line[row]) for row in rows if row is not None and _says_more(history, row)])
    words = _Words(history, folds, said)
    names = [_name(history, code) for code in columns]
    cells = {
        row: [words(row) if _is_of(history, row, code) else _bar(model, row, code, lock) for code in columns]
        for row in rows
        if row is not None
    }
    widths = _widths(
        [max(len(forms[0]) for forms in column) for column in zip(names, *cells.values(), strict=True)],
        [max(_NARROWEST, len(forms[-1])) for forms in names],
        width - len(head),
    )
    above = [_wrap(finding.text, width), *([_wrap(clock.note(start), width)] if clock else [])]
    told = [*above, "", (head + _row(names, widths)).rstrip()]
    for row in rows:
        if row is None:
            told.append(f"{'⋮':>12}")
            continue
        mark, time = "▶" if row in own else " ", int(history.time[row])
        at = f" {clock.at(time):>12}" if clock else ""
        told.append(
            f"{_relative(time - start):>12}{at} {int(history.line[row]):>8}{mark} {_row(cells[row], widths)}".rstrip()
        )
    return "\n".join(told)


@dataclass(frozen=True)
class _WallClock:
    """What a clock on the wall showed, where the meta says so of time 0."""

    started: datetime

    @classmethod
    def of(cls, history: History) -> _WallClock | None:
        """None where the meta doesn't say, or says what is no moment, or one so far out that not all times fit."""
        try:
            started = datetime.fromisoformat(history.meta.started or "")
            if started.utcoffset() is None:
                return None
            clock = cls(started)
            for time in history.time[[0, -1]].tolist() if len(history) else []:
                clock.at(time)
        except (ValueError, OverflowError):
            return None
        return clock

    def _moment(self, ns: int) -> datetime:
        return self.started + timedelta(microseconds=ns // 1000)

    def at(self, ns: int) -> str:
        """`21:25:13.204`, by the offset that the meta gives."""
        return f"{self._moment(ns):%H:%M:%S.%f}"[:-3]

    def note(self, ns: int) -> str:
        """Which day and which offset those are."""
        moment = self._moment(ns)
        return f"The wall clock is that of UTC{moment:%z}, from {moment:%Y-%m-%d} on, as the history's meta has it."


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
    """The rows to show: those that say something of the lock, from a little before the finding to a little after it,
    and between them the events that only their user knows, of whatever lock."""
    about = history.f < len(KNOWN_F)
    if lock is not None:
        about = about & ((history.lock == lock) | (history.f == CRASH) | (history.f == FAULT))
    else:
        about = about & ((history.f == FAULT) | np.isin(np.arange(len(history)), marked))
    rows = np.flatnonzero(about | np.isin(np.arange(len(history)), marked))
    first, last = np.searchsorted(rows, [marked[0], marked[-1]])
    rows = rows[max(0, int(first) - _AROUND) : int(last) + 1 + _AROUND]
    own = np.flatnonzero(history.f[rows[0] : rows[-1] + 1] >= len(KNOWN_F)) + rows[0]
    return [int(row) for row in np.union1d(rows, own)]


def _columns(history: History, marked: Ints, shown: list[int], room: int) -> list[int]:
    """The processes to show, by their code and so by their id: those of the finding, and as many others as fit; the
    faults last."""
    faults = [_NEMESIS] if any(history.process[row] < 0 for row in shown) else []
    mine = list(dict.fromkeys(int(history.process[row]) for row in marked if history.process[row] >= 0))
    others = [int(history.process[row]) for row in shown if history.process[row] >= 0]
    most = min(_MOST_COLUMNS, max(len(mine), room - len(faults)))
    return sorted(list(dict.fromkeys(mine + others))[:most]) + faults


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


def _is_of(history: History, row: int, code: int) -> bool:
    """Whether an event stands in the column of a process."""
    return int(history.process[row]) == code or (code == _NEMESIS and bool(history.process[row] < 0))


def _fold(history: History, rows: list[int], marked: set[int], start: int) -> dict[int, _Forms]:
    """Renewals of one contender that follow each other and all succeeded: what to say in the first of their rows, and
    nothing in the others. None of the finding's own events is among them."""
    folds: dict[int, _Forms] = {}
    run: list[int] = []

    def close() -> None:
        if len(run) >= 2 * _FOLDED:
            folds.update({row: [] for row in run})
            what = f"{len(run) // 2} renews, all ok"
            proof = ", which proves nothing" if history.proves[run[-1]] == 0 else ""
            end = _relative(int(history.time[run[-1]]) - start)
            folds[run[0]] = [f"{what}{proof}, to {end}", f"{what}{proof}…", f"{what}…"]
        run.clear()

    def like(pair: list[int]) -> list[Any]:
        return [history.process[pair[0]], *(_event(history, row) for row in pair)]

    at = 0
    while at < len(rows):
        pair = rows[at : at + 2]
        row, done = pair[0], int(history.mate[pair[0]])
        ok = history.f[row] == RENEW and history.type[row] == INVOKE and done >= 0 and history.type[done] == OK
        if not ok or pair[1:] != [done] or marked & set(pair):
            close()
            at += 1
            continue
        if run and like(run[:2]) != like(pair):
            close()
        run += pair
        at += 2
    close()
    return folds


def _bar(model: Model, row: int, code: int, lock: int | None) -> _Forms:
    history = model.history
    if code == _NEMESIS or lock is None:
        return [""]
    time = int(history.time[row])
    mine = (model.process == code) & (model.lock == lock)
    believes = mine & (model.ok_row < row) & ((model.belief_end > time) | (model.belief_end_row > row))
    return ["│" if bool((believes & (model.ok <= time) & (model.belief_end >= time)).any()) else ""]


def _says_more(history: History, row: int) -> bool:
    """Whether the file may say more of an event than the history keeps: one that only its user knows, a loss, or an
    operation that came to nothing."""
    f = int(history.f[row])
    return f >= len(KNOWN_F) or f == LOST or (f in PAIRED_F and history.type[row] in (FAIL, INFO))


class _Words:
    """Events in a few words, and in fewer."""

    def __init__(self, history: History, folds: Mapping[int, _Forms], lines: Mapping[int, Mapping[str, Any]]) -> None:
        self.history, self.folds, self.lines = history, folds, lines

    def __call__(self, row: int) -> _Forms:
        if row in self.folds:
            return self.folds[row]
        forms, more = _event(self.history, row), self._more(row)
        return [f"{forms[0]}: {more}", f"{forms[0]}…", *forms[1:]] if more else forms

    def _more(self, row: int) -> str:
        """What the file gives besides: the keys of an event that only its user knows, else an error, or a reason that
        the contract doesn't name."""
        keys = self.lines.get(int(self.history.line[row]), {})
        f = int(self.history.f[row])
        if f >= len(KNOWN_F):
            told = (f"{key}={_short(keys[key])}" for key in keys if key not in ("time", "process", "type", "f"))
            return ", ".join(told)
        if f == LOST:
            return _short(keys["reason"]) if self.history.reason[row] == OTHER_REASON and "reason" in keys else ""
        return _short(keys["error"]) if keys.get("error") is not None else ""


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SAID else text[: _SAID - 1].rstrip("0123456789") + "…"


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
        reason = int(history.reason[row])
        return ["lost"] if reason == NO_REASON else [f"lost ({REASONS[reason]})", "lost…"]
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
