"""What a report tells of one trial: its operations, grants, faults and verdicts, in seconds, ready to be drawn.

Everything that the contract defines (belief, promise, the certain part of a hold) comes from the shared interval
model, `harness.frames.grants`; everything that is judged comes from `verdict.json`. Here both are only put together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from checkers.intervals import INF, Model, build
from harness.errors import HistoryError
from harness.history import History
from harness.history import events as codes
from harness.report import files

NS = 1e9
TYPES = np.array(codes.TYPES)


@dataclass(frozen=True)
class Row:
    """One contender's row: one process on one lock."""

    process: int
    lock: str
    node: str | None
    kind: str | None
    """The kind of holder that its contender is, where that is known."""


@dataclass(frozen=True)
class FaultSpan:
    """One fault from its start to its stop (seconds); `stop` is None when it never came."""

    id: str
    kind: str
    target: str | None
    targets: Sequence[str]
    processes: Sequence[int]
    start: float
    stop: float | None
    receipt: str | None
    stop_receipt: str | None
    line: int
    stop_line: int | None
    bit: bool | str | None = None
    """Whether it had the chance to matter, as its stop says."""
    bit_reason: str | None = None
    """What was measured of that, and what to set where it missed."""
    reason: str | None = None
    stop_reason: str | None = None
    evidence: Any = None
    stop_evidence: Any = None


@dataclass(frozen=True)
class Overlap:
    """A stretch (seconds) in which two or more contenders believed that they held one lock."""

    lock: str
    start: float
    end: float
    processes: Sequence[int]


@dataclass(frozen=True)
class FoundEvent:
    """One event of a finding. `keys` is the line as it was written."""

    line: int
    time: float
    process: int | str
    lock: str | None
    keys: Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """One finding with the events that prove it, and its place in the page (`anchor`)."""

    anchor: str
    verdict: str
    number: int
    finding: files.Finding
    events: Sequence[FoundEvent]

    @property
    def span(self) -> tuple[float, float]:
        times = [event.time for event in self.events]
        return min(times), max(times)


@dataclass(frozen=True)
class Story:
    """One trial, put together. Frames are in order of time; all times are seconds on the history's clock.

    `operations`: `f process lock outcome invoke end line end_line token resource seq read version held`; `end` is NaN
    and `end_line` 0 when nothing closed it. `grants`: `process lock token invoke ok belief_end core_end promise late
    line ok_line ended_by lasting`; `core_end` is L of the contract (NaN when unknown), `promise` may be
    infinite. `marks`: `f process lock time line` of lost and crash.
    """

    path: Path
    meta: codes.Meta
    start: float
    end: float
    events: int
    rows: Sequence[Row]
    locks: Sequence[str]
    operations: pd.DataFrame
    grants: pd.DataFrame
    marks: pd.DataFrame
    faults: Sequence[FaultSpan]
    overlaps: Sequence[Overlap]
    found: Sequence[Found]
    trial: files.Trial | None
    checked: files.Checked | None

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def told(self) -> bool:
        """Whether any contender did anything: without that every verdict is empty, however true."""
        return len(self.operations) + len(self.marks) > 0


def tell(
    history: History, path: Path, trial: files.Trial | None, journal: files.Journal, checked: files.Checked | None
) -> Story:
    """Puts a trial's parts together. `path` is the history's file."""
    events = len(history)
    first = float(history.time[0]) / NS if events else 0.0
    last = float(history.time[-1]) / NS if events else 0.0
    if 0 < first < 0.2 * last:
        first = 0.0
    # A little air at the right, so that what happens last is seen.
    last += 0.01 * (last - first)
    grants = _grants(build(history))
    return Story(
        path=path,
        meta=history.meta,
        start=first,
        end=last if last > first else first + 1.0,
        events=events,
        rows=_rows(history, trial),
        locks=_locks(history),
        operations=_operations(history),
        grants=grants,
        marks=_marks(history),
        faults=_faults(history, journal),
        overlaps=[each for each in overlaps(grants) if each.end - each.start > history.meta.uncertainty]
        if history.meta.owners
        else [],
        found=_found(history, path, checked),
        trial=trial,
        checked=checked,
    )


def overlaps(grants: pd.DataFrame) -> list[Overlap]:
    """Where two or more different contenders believe at once, one sweep for each lock, in order of time.

    Beliefs of one process never overlap (its next acquire ends the one before), so believers can be counted.
    """
    found: list[Overlap] = []
    for lock, of_lock in grants.groupby("lock", sort=True):
        edges: list[tuple[float, int, int]] = []
        for process, start, end in of_lock[["process", "ok", "belief_end"]].itertuples(index=False):
            if end > start:
                edges += [(float(start), 1, int(process)), (float(end), 0, int(process))]
        edges.sort()
        believing: list[int] = []
        since, present = 0.0, []
        for time, opens, process in edges:
            before = len(believing)
            if opens:
                believing.append(process)
            else:
                believing.remove(process)
            if before < 2 <= len(believing):
                since, present = time, list(believing)
            elif before >= 2 > len(believing):
                if time > since:
                    found.append(Overlap(str(lock), since, time, tuple(sorted(set(present)))))
            elif len(believing) >= 2:
                present.append(process)
    found.sort(key=lambda overlap: (overlap.start, overlap.lock))
    return found


def _seconds(values: Any) -> Any:
    """ns with `codes.NONE` for absent -> float seconds with NaN."""
    array = np.asarray(values)
    return np.where(array == codes.NONE, np.nan, array / NS)


def _optional(values: Any) -> pd.Series[Any]:
    """Integers with `codes.NONE` for absent -> a nullable column."""
    array = np.asarray(values, dtype="int64")
    return pd.Series(pd.arrays.IntegerArray(array, array == codes.NONE))


def _rows(history: History, trial: files.Trial | None) -> list[Row]:
    """One row for each pair of process and lock that the history knows, and for each contender that stayed silent."""
    told = history.process >= 0
    about = told & (history.f != codes.CRASH) & (history.f < len(codes.KNOWN_F))
    pairs = {
        (history.processes[int(process)], history.locks[int(lock)])
        for process, lock in np.unique(np.stack([history.process[about], history.lock[about]], axis=1), axis=0)
    }
    known = {int(name): contender for name, contender in (trial.contenders if trial else {}).items() if _is_int(name)}
    seen = {process for process, _ in pairs}
    locks = sorted({lock for _, lock in pairs}) or [codes.DEFAULT_LOCK]
    pairs |= {(process, locks[0]) for process in set(known) | set(history.processes) if process not in seen}
    rows = []
    for process, lock in sorted(pairs, key=lambda pair: (pair[1], pair[0])):
        contender = known.get(process)
        rows.append(Row(process, lock, contender.node if contender else None, contender.kind if contender else None))
    return rows


def _is_int(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdecimal() and len(name) < 20


def _locks(history: History) -> list[str]:
    return sorted(set(history.locks)) or [codes.DEFAULT_LOCK]


def _operations(history: History) -> pd.DataFrame:
    """Every acquire, renew, release and write, in order of its invoke."""
    invokes = np.flatnonzero(
        (history.type == codes.INVOKE) & np.isin(history.f, codes.PAIRED_F) & (history.process >= 0)
    )
    mate = history.mate[invokes]
    closed = mate >= 0
    last = np.where(closed, mate, invokes)  # keys of the completion win
    names = np.array(codes.KNOWN_F, dtype=object)
    locks = np.array(history.locks or (codes.DEFAULT_LOCK,), dtype=object)
    resources = np.array([*codes.RESOURCES, None], dtype=object)

    def either(column: Any) -> Any:
        return np.where(column[last] != codes.NONE, column[last], column[invokes])

    return pd.DataFrame(
        {
            "f": names[history.f[invokes]],
            "process": np.array(history.processes, dtype="int64")[history.process[invokes]]
            if len(invokes)
            else np.array([], dtype="int64"),
            "lock": locks[history.lock[invokes]],
            "outcome": np.where(closed, TYPES[history.type[last]], "info"),
            "invoke": history.time[invokes] / NS,
            "end": np.where(closed, history.time[last] / NS, np.nan),
            "line": history.line[invokes],
            "end_line": np.where(closed, history.line[last], 0),
            "token": _optional(either(history.token)),
            "resource": resources[history.resource[invokes]],
            "seq": _optional(either(history.seq)),
            "read": _optional(either(history.read)),
            "version": _optional(either(history.version)),
            "held": history.held[last],
        }
    )


def _marks(history: History) -> pd.DataFrame:
    """Every lost and crash. A crash is of the process, whatever the lock: its `lock` is None."""
    at = np.flatnonzero(np.isin(history.f, (codes.LOST, codes.CRASH)) & (history.process >= 0))
    locks = np.array(history.locks or (codes.DEFAULT_LOCK,), dtype=object)
    crash = history.f[at] == codes.CRASH
    return pd.DataFrame(
        {
            "f": np.where(crash, "crash", "lost"),
            "process": np.array(history.processes, dtype="int64")[history.process[at]]
            if len(at)
            else np.array([], dtype="int64"),
            "lock": pd.Series(locks[history.lock[at]], dtype=object).mask(crash, None),
            "time": history.time[at] / NS,
            "line": history.line[at],
        }
    )


def _grants(model: Model) -> pd.DataFrame:
    """The grants with the contract's intervals, as the verdicts saw them."""
    history = model.history
    rows = len(history)
    locks = np.array(history.locks or (codes.DEFAULT_LOCK,), dtype=object)
    ended_by = np.full(len(model), "the end of the history", dtype=object)
    stops = model.belief_end_row < rows
    ended_by[stops] = np.array(["its next acquire", "", "its release", "", "its own doubt", "its crash"], dtype=object)[
        history.f[model.belief_end_row[stops]]
    ]
    return pd.DataFrame(
        {
            "process": np.array(history.processes or (0,), dtype="int64")[model.process],
            "lock": locks[model.lock],
            "token": _optional(model.token),
            "invoke": model.invoke / NS,
            "ok": model.ok / NS,
            "belief_end": model.belief_end / NS,
            "core_end": _bounded(model.L),
            "promise": _bounded(model.promise),
            "late": model.late,
            "line": history.line[model.invoke_row],
            "ok_line": history.line[model.ok_row],
            "ended_by": ended_by,
            "lasting": ~stops,
        }
    )


def _bounded(values: Any) -> Any:
    """The model's ns -> seconds; NaN where there is none, infinite for never."""
    return np.where(values == INF, np.inf, _seconds(values))


def _faults(history: History, journal: files.Journal) -> list[FaultSpan]:
    """The faults of the history, with what the journal adds: the target's word, the reasons, the evidence."""
    spans = []
    for fault in history.faults:
        noted = journal.faults.get(str(fault.id), files.Injection())
        start, stop = noted.start, noted.stop
        spans.append(
            FaultSpan(
                id=str(fault.id),
                kind=f"{fault.kind} ({fault.what or codes.PAUSED})" if fault.outside else fault.kind or "?",
                target=start.target if start else None,
                targets=fault.targets,
                processes=fault.processes,
                start=fault.start / NS,
                stop=None if fault.stop is None else fault.stop / NS,
                receipt="landed" if fault.landed else fault.receipt,
                stop_receipt=fault.stop_receipt,
                line=fault.start_line,
                stop_line=fault.stop_line,
                bit=fault.bit,
                bit_reason=(stop.bit_reason + (f"; it takes {stop.remedy}" if stop.remedy else ""))
                if stop and stop.bit_reason
                else None,
                reason=start.reason if start else None,
                stop_reason=stop.reason if stop else None,
                evidence=start.evidence if start else None,
                stop_evidence=stop.evidence if stop else None,
            )
        )
    return spans


def _found(history: History, path: Path, checked: files.Checked | None) -> list[Found]:
    """Every listed finding with its events. Raises HistoryError when it names a line that the history doesn't have."""
    if checked is None:
        return []
    wanted = {line for part in checked.verdicts.values() for finding in part.findings for line in finding.events}
    if not wanted:
        return []
    place = np.argsort(history.line, kind="stable")
    lines = history.line[place]
    raw = files.read_lines(path, wanted)
    events: dict[int, FoundEvent] = {}
    for line in sorted(wanted):
        at = int(np.searchsorted(lines, line))
        if at >= len(lines) or int(lines[at]) != line:
            raise HistoryError(path, line, f"{files.VERDICT} names this line, but the history has no event there")
        index = int(place[at])
        about = history.f[index] < codes.CRASH or history.f[index] == codes.AUDIT
        lock = history.locks[int(history.lock[index])] if history.locks and about else None
        events[line] = FoundEvent(
            line=line,
            time=float(history.time[index]) / NS,
            process=history.process_name(index),
            lock=lock,
            keys=raw.get(line)
            or {"f": history.fs[int(history.f[index])], "type": codes.TYPES[int(history.type[index])]},
        )
    found = []
    for name, part in checked.verdicts.items():
        for number, finding in enumerate(part.findings, 1):
            if finding.events:
                proof = [events[line] for line in finding.events]
                found.append(Found(f"{name}-{number}", name, number, finding, proof))
    return found


def finite(value: float, otherwise: float) -> float:
    """`value`, or `otherwise` when it is infinite or NaN."""
    return value if math.isfinite(value) else otherwise
