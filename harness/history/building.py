"""Making a `History` of events: collected one by one, or as columns by a faster reader.

    >>> history = from_events(
    ...     {"ttl": 5.0},
    ...     [(2, {"time": 0, "process": 0, "type": "invoke", "f": "acquire"}),
    ...      (3, {"time": 10, "process": 0, "type": "ok", "f": "acquire", "token": 7})],
    ...     "example",
    ... )
    >>> history.mate.tolist(), history.token.tolist()[1]
    ([1, 0], 7)

`finish` does what needs all events: it sorts, pairs completions with their invokes, and refuses what the contract calls
malformed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import HistoryError
from harness.history.columns import Sparse, fitting, narrowed
from harness.history.events import (
    COLUMN_TYPES,
    DEFAULT_LOCK,
    HARNESS,
    INVOKE,
    KNOWN_F,
    NEMESIS,
    NONE,
    OK,
    PAIRED_F,
    RESOURCES,
    STRING_ID,
    WHOLE,
    WRITE,
    Audit,
    AuditRow,
    Bools,
    Columns,
    End,
    Epochs,
    Fault,
    FaultRow,
    History,
    Ints,
    Meta,
    crash_epochs,
    group_order,
)
from harness.history.parsing import Malformed, is_end, parse_end, parse_event, parse_meta

#: So many entries are looked at together where a whole column would need a copy of another width.
_AT_ONCE = 1 << 16
_PAIRED_AT_ONCE = 1 << 20


def from_events(
    meta: Mapping[str, Any] | None, events: Iterable[tuple[int, Mapping[str, Any]]], path: str | Path
) -> History:
    """A history from plain dicts, each with its line number (from 1, ascending).

    `meta` is the meta line as a dict (`{"type": "meta", …}`, the type may be left out), or None when there is none. It
    is named as line 1 in errors. Raises `HistoryError` with the line and the reason.
    """
    parsed = parse_meta(meta, 1, path) if meta is not None else Meta()
    builder = Builder(path)
    for line, event in events:
        builder.add(line, event)
    return finish(parsed, builder.columns(), path)


class Builder:
    """Collects events one by one, checking each. The slow, exact way; `native.py` has the fast one.

    `locks`, `fs` and `ids` are the codes of the names met so far, when others share them.
    """

    def __init__(
        self,
        path: str | Path,
        locks: dict[str, int] | None = None,
        fs: dict[str, int] | None = None,
        ids: dict[str, int] | None = None,
    ) -> None:
        self.path = path
        self.data: dict[str, list[Any]] = {name: [] for name in COLUMN_TYPES if name != "role"}
        self.locks: dict[str, int] = {} if locks is None else locks
        self.fs: dict[str, int] = {name: code for code, name in enumerate(KNOWN_F)} if fs is None else fs
        self.ids: dict[str, int] = {} if ids is None else ids
        self.faults: dict[int, FaultRow] = {}
        self.audits: dict[int, AuditRow] = {}
        self.end: End | None = None

    def add(self, line: int, event: object) -> None:
        """Takes one event as a dict, or the end line. Raises `HistoryError` when it is malformed."""
        self.expect_more()
        try:
            if is_end(event):
                self.end = parse_end(event, line)
                return
            row = parse_event(event)
        except Malformed as error:
            raise HistoryError(self.path, line, str(error)) from None
        data = self.data
        if row.fault is not None:
            self.faults[len(data["time"])] = row.fault
        if row.audit is not None:
            self.audits[len(data["time"])] = row.audit
        data["id"].append(_id_code(row.id, self.ids))
        data["line"].append(line)
        data["lock"].append(self.locks.setdefault(row.lock, len(self.locks)) if row.lock is not None else 0)
        data["f"].append(self.fs.setdefault(row.f, len(self.fs)))
        for name, value in row.values.items():
            data[name].append(value)

    def expect_more(self) -> None:
        """Raises `HistoryError` when the line before was the last."""
        if self.end is not None:
            raise not_last(self.end, self.path)

    def arrays(self) -> dict[str, Any]:
        """What was collected, as the arrays of `Columns`."""
        process = np.array(self.data["process"], dtype=np.int64)
        whole: dict[str, Any] = {"role": split_roles(process), "process": process}
        for name, (dtype, absent) in COLUMN_TYPES.items():
            column = whole[name] if name in whole else np.array(self.data[name], dtype=dtype)
            if name in WHOLE:
                whole[name] = column if name == "time" else narrowed(column)
            else:
                whole[name] = Sparse.of(column, absent)
        return whole

    def columns(self) -> Columns:
        return Columns(
            **self.arrays(),
            locks=list(self.locks),
            fs=list(self.fs),
            faults=self.faults,
            ids=list(self.ids),
            audits=self.audits,
            end=self.end,
        )


def split_roles(process: Ints) -> Ints:
    """The role of each event, by its process: -1 nemesis, -2 harness, else 0. In `process` those become 0."""
    role = np.where(process == NEMESIS, np.int8(-1), np.where(process == HARNESS, np.int8(-2), np.int8(0)))
    process[role != 0] = 0
    return role


def not_last(end: End, path: str | Path) -> HistoryError:
    """The error of an end line that something follows."""
    return HistoryError(path, end.line, "an end line that isn't the last one")


def _id_code(identity: int | str | None, ids: dict[str, int]) -> int:
    """The code of an id; a string that is new gets the next one."""
    if isinstance(identity, str):
        return STRING_ID + ids.setdefault(identity, len(ids))
    return NONE if identity is None else identity


def finish(meta: Meta, columns: Columns, path: str | Path) -> History:
    """Sorts, pairs and checks what needs all events. Raises `HistoryError` for the earliest event that is wrong."""
    arrays: dict[str, Any] = {name: getattr(columns, name) for name in COLUMN_TYPES}
    faults, audits = columns.faults, columns.audits
    if not ascends(arrays["time"]):
        place = _sort(arrays)
        faults = {int(place[index]): row for index, row in faults.items()}
        audits = {int(place[index]): row for index, row in audits.items()}
        del place
    process, processes = _process_codes(arrays.pop("process"), arrays.pop("role"))
    lock, line = arrays["lock"], arrays["line"]
    names = History(
        path=str(path),
        meta=meta,
        process=process,
        mate=np.empty(0, dtype=np.int32),
        processes=processes,
        locks=tuple(columns.locks) or (DEFAULT_LOCK,),
        fs=tuple(columns.fs),
        faults=_join_faults(faults, arrays["time"], line, path),
        ids=tuple(columns.ids),
        audits=tuple(Audit(index, int(lock[index]), row.resource, row.ids) for index, row in sorted(audits.items())),
        counted=None if columns.end is None else columns.end.events,
        **arrays,
    )
    mate = _pair(names, path)
    _check_seqs(names, path)
    _check_ids(names, mate, path)
    if columns.end is not None and not meta.end:
        raise HistoryError(path, columns.end.line, "an end line that the meta doesn't promise")
    object.__setattr__(names, "mate", mate)
    for array in (process, mate, *(arrays[name] for name in arrays if name in WHOLE)):
        array.flags.writeable = False
    return names


def ascends(values: Ints) -> bool:
    """Whether no value is less than the one before."""
    step = _AT_ONCE
    return all(
        bool((values[at + 1 : at + step + 1] >= values[at : at + step][: len(values) - at - 1]).all())
        for at in range(0, len(values) - 1, step)
    )


def _sort(arrays: dict[str, Any]) -> Ints:
    """Brings columns into the order of their times, ties as they stood, and says where each row went."""
    order = np.argsort(arrays["time"], kind="stable")
    order = narrowed(order)
    for name in WHOLE:
        arrays[name] = arrays[name][order]
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=order.dtype)
    del order
    for name in set(arrays) - set(WHOLE):
        arrays[name] = arrays[name].moved(place)
    return place


def _process_codes(ids: Ints, role: Sparse) -> tuple[Ints, tuple[int, ...]]:
    """Codes for process ids: the index among the contenders' ids in order, -1 nemesis, -2 harness."""
    own = ids
    if len(role.rows):
        contender = np.ones(len(ids), dtype=bool)
        contender[role.rows] = False
        own = ids[contender]
    if not len(own):
        return np.asarray(role).astype(np.int8), ()
    low, high = int(own.min()), int(own.max())
    unique: Ints
    if high - low < 1_000_000:  # a table instead of a sort: ids are small as a rule
        seen = np.zeros(high - low + 1, dtype=bool)
        for at in range(0, len(own), _AT_ONCE):
            seen[own[at : at + _AT_ONCE].astype(np.int64) - low] = True
        unique = np.flatnonzero(seen) + low
    else:
        unique = np.unique(own)
    del own
    codes = np.empty(len(ids), dtype=fitting(-2, len(unique)))
    for at in range(0, len(ids), _AT_ONCE):  # what is none of theirs gets any code here, and its own below
        codes[at : at + _AT_ONCE] = np.searchsorted(unique, ids[at : at + _AT_ONCE].astype(np.int64))
    codes[role.rows] = role.values
    return codes, tuple(unique.tolist())


def _join_faults(rows: Mapping[int, FaultRow], time: Ints, line: Ints, path: str | Path) -> tuple[Fault, ...]:
    joined: dict[str | int, Fault] = {}
    for index in sorted(rows):
        row, at, where = rows[index], int(time[index]), int(line[index])
        known = joined.get(row.id)
        if row.phase == "start":
            if known is not None:
                raise HistoryError(path, where, f"fault {row.id!r} started twice (first in line {known.start_line})")
            joined[row.id] = Fault(row.id, row.kind, row.targets, row.processes, at, where, row.receipt, what=row.what)
        elif known is None:
            raise HistoryError(path, where, f"fault {row.id!r} stopped without a start")
        elif known.stop is not None:
            raise HistoryError(path, where, f"fault {row.id!r} stopped twice (first in line {known.stop_line})")
        else:
            joined[row.id] = Fault(
                known.id, known.kind, known.targets, known.processes, known.start, known.start_line, known.receipt,
                at, where, row.receipt, known.what, row.bit,
            )  # fmt: skip
    return tuple(joined.values())


def _pair(history: History, path: str | Path) -> Ints:
    """The pairing of invokes and completions. A completion closes the open invoke of the same process, lock, f and
    resource; there is at most one, and a crash closes all of its process.

    So many rows at a time: each time with the invokes that are open by then in front of them.
    """
    n = len(history)
    mate: Ints = np.full(n, -1, dtype=np.int32 if n < 2**31 else np.int64)
    still_open: Ints = np.empty(0, dtype=np.int64)
    epoch_of = crash_epochs(history)
    start = 0
    while start < n:
        end = min(n, start + max(_PAIRED_AT_ONCE, 2 * len(still_open)))  # never the same many for a few new ones
        rows = start + np.flatnonzero(history.f[start:end] < len(PAIRED_F))
        if len(rows):
            still_open = _pair_some(history, np.concatenate((still_open, rows)), epoch_of, mate, path)
        start = end
    return mate


def _pair_some(history: History, rows: Ints, epochs: Epochs | None, mate: Ints, path: str | Path) -> Ints:
    """Pairs rows that are in order within each group, and gives the invokes that stay open."""
    locks = max(1, len(history.locks))
    size = len(history.processes) * locks * 4 * 3
    narrow: Any = np.uint16 if size <= 1 << 16 else np.int64  # a quarter of the memory to walk through
    process, lock, f, resource = (
        column[rows].astype(narrow) for column in (history.process, history.lock, history.f, history.resource)
    )
    # Of what is no write, whose resource is -1, the last term wraps in uint16, and is 0 all the same.
    key: Ints = ((process * narrow(locks) + lock) * narrow(4) + f) * narrow(3) + (resource + narrow(1))
    order = group_order(key, size)
    rows, key = rows[order], key[order]
    group = key[1:] == key[:-1]
    same = group
    if epochs is not None:
        epoch = epochs.of(rows)
        same = group & (epoch[1:] == epoch[:-1])
    invoke = history.type[rows] == INVOKE
    wrong = np.empty(len(rows), dtype=bool)
    wrong[0] = not invoke[0]
    # An invoke must not follow an invoke of its own group; a completion must.
    wrong[1:] = np.where(invoke[1:], same & invoke[:-1], ~(same & invoke[:-1]))
    if wrong.any():
        raise _pairing_error(history, rows, wrong, invoke, path)
    closed = ~invoke[1:]
    done, begun = rows[1:][closed], rows[:-1][closed]
    mate[done] = begun
    mate[begun] = done
    still_open: Ints = rows[np.append(~group, True) & invoke]
    return still_open


def _pairing_error(history: History, rows: Ints, wrong: Bools, invoke: Bools, path: str | Path) -> HistoryError:
    at = int(np.flatnonzero(wrong)[np.argmin(rows[wrong])])
    row = int(rows[at])
    what = f"process {history.process_name(row)}: {history.fs[history.f[row]]}"
    where = f"on {history.locks[history.lock[row]]!r}"
    if history.resource[row] >= 0:
        where += f" ({RESOURCES[history.resource[row]]})"
    if invoke[at]:
        return HistoryError(
            path,
            int(history.line[row]),
            f"{what} {where} invoked while that of line {int(history.line[rows[at - 1]])} is still open",
        )
    return HistoryError(path, int(history.line[row]), f"{what} {where} completed without an open invoke")


def _check_seqs(history: History, path: str | Path) -> None:
    """Two equal `seq` of accepted writes in one resource of one lock are an error."""
    rows = history.seq.rows
    rows = rows[(history.f[rows] == WRITE) & (history.type[rows] == OK)]
    _refuse_twice(history, "seq", history.seq[rows], history.lock[rows], history.resource[rows], rows, path)


def _check_ids(history: History, mate: Ints, path: str | Path) -> None:
    """What is wrong with ids: two writes with one, two audits, in one resource of one lock; integers beside strings."""
    given = history.id.rows
    _check_kinds(history, given, path)
    audited: dict[tuple[int, int], int] = {}
    for audit in history.audits:
        first = audited.setdefault((audit.lock, audit.resource), audit.row)
        if first != audit.row:
            where = f"the {RESOURCES[audit.resource]} resource of lock {history.locks[audit.lock]!r}"
            before = int(history.line[first])
            raise HistoryError(path, int(history.line[audit.row]), f"{where} was audited already in line {before}")
    # Of the ids of an invoke those that its completion doesn't give anew.
    done = mate[given].astype(np.int64)
    kept = (history.type[given] != INVOKE) | (done < 0) | (history.id[done] == NONE)
    rows = given[kept]
    _refuse_twice(history, "id", history.id[rows], history.lock[rows], history.resource[rows], rows, path)


def _check_kinds(history: History, given: Ints, path: str | Path) -> None:
    """Refuses the first event with an integer as an id where those before it have strings, or the other way round."""
    is_string = history.id[given] >= STRING_ID
    kinds = [(int(given[at]), bool(is_string[at])) for at in _first_of_each(is_string.tolist())]
    for audit in history.audits:
        listed = [isinstance(name, str) for name in audit.ids]
        kinds += [(audit.row, listed[at]) for at in _first_of_each(listed)]
    kinds.sort(key=lambda entry: entry[0])
    for row, string in kinds:
        if string != kinds[0][1]:
            what, others = ("a string", "integers") if string else ("an integer", "strings")
            raise HistoryError(path, int(history.line[row]), f"{what} as an id, where others are {others}")


def _first_of_each(kinds: list[bool]) -> list[int]:
    """The places of the first of either kind, in order."""
    return sorted(kinds.index(kind) for kind in (False, True) if kind in kinds)


def _refuse_twice(
    history: History, key: str, value: Ints, lock: Ints, resource: Ints, rows: Ints, path: str | Path
) -> None:
    """Refuses a value that stands twice in one resource of one lock; `rows` are ascending."""
    if len(rows) < 2:
        return
    place = lock.astype(np.int64) * len(RESOURCES) + resource
    order = np.argsort(value, kind="stable")  # quick on what ascends, as both do as a rule
    order = order[group_order(place[order], len(history.locks) * len(RESOURCES))]
    value, place, rows = value[order], place[order], rows[order]
    twice = np.flatnonzero((value[1:] == value[:-1]) & (place[1:] == place[:-1]))
    if len(twice):
        at = int(twice[np.argmin(rows[twice + 1])])
        first, second = int(history.line[rows[at]]), int(history.line[rows[at + 1]])
        name = history.id_name(int(value[at])) if key == "id" else int(value[at])
        in_lock, of = divmod(int(place[at]), len(RESOURCES))
        where = f"the {RESOURCES[of]} resource of lock {history.locks[in_lock]!r}"
        raise HistoryError(path, second, f"{key} {name!r} of {where} was given already in line {first}")
