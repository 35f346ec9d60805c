"""The in-memory form of a history: one numpy array for each key, rows sorted by time, ties by line.

Every reader ends here. A reader hands over `Columns`, the events in the order of the file, and `finish` does what
needs them all: sorts, pairs completions with their invokes, and refuses what the contract calls malformed. For a
history that is in memory already, `from_events` takes plain dicts and says which line is wrong and why:

    >>> history = from_events(
    ...     {"ttl": 5.0},
    ...     [(2, {"time": 0, "process": 0, "type": "invoke", "f": "acquire"}),
    ...      (3, {"time": 10, "process": 0, "type": "ok", "f": "acquire", "token": 7})],
    ...     "example",
    ... )
    >>> history.mate.tolist(), history.token.tolist()[1]
    ([1, 0], 7)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.errors import HistoryError

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

#: Stands for "absent" in the integer columns.
NONE = -(2**63)
#: Integers in a history are at most so much either way, and times so much (73 years of ns, or a Unix time up to 2043):
#: twice a time plus an uncertainty still fits into 64 bits.
LIMIT = 2**62
TIME_LIMIT = 2**61

#: Process ids that are not contenders, as they stand in `Columns.process`.
NEMESIS, HARNESS = NONE + 1, NONE + 2
PROCESS_NAMES = {"nemesis": NEMESIS, "harness": HARNESS}

TYPES = ("invoke", "ok", "fail", "info")
INVOKE, OK, FAIL, INFO = range(4)

#: The `f` that verdicts look at. Codes from `len(KNOWN_F)` on are others, kept and ignored.
KNOWN_F = ("acquire", "renew", "release", "write", "lost", "crash", "fault")
ACQUIRE, RENEW, RELEASE, WRITE, LOST, CRASH, FAULT = range(7)
PAIRED_F = (ACQUIRE, RENEW, RELEASE, WRITE)

RESOURCES = ("fenced", "unfenced")
FENCED, UNFENCED = range(2)

#: `reason` of a `lost`: only `expired` is the word of the service; all others are the client's own doubt.
NO_REASON, EXPIRED, OTHER_REASON = range(3)

DEFAULT_LOCK = "lock"
START_RECEIPTS = ("landed", "unproven", "skipped")
STOP_RECEIPTS = ("undone", "unproven")


@dataclass(frozen=True)
class Meta:
    """The first line of a history, with the contract's defaults where it is silent. Durations are seconds."""

    system: str | None = None
    ttl: float | None = None
    """Time to live of a lease; None when unknown."""
    expires: bool = True
    """False when a hold ends only by its release."""
    uncertainty: float = 0.0
    """u: how far the stamps of two processes may disagree."""
    rate_tolerance: float = 0.0
    """The share by which the clocks of two hosts may run apart."""
    min_grants: int = 0
    progress_bound: float | None = None
    require: tuple[str, ...] | None = None
    owners: bool = True
    """False in imported histories where any process may release."""
    line: int = 0
    """The line of the meta, 0 when there is none."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys that the contract doesn't name, as they were read."""


@dataclass(frozen=True)
class Fault:
    """One fault, its start and its stop joined by their id. Times are ns; `stop` is None when it never came."""

    id: str | int
    kind: str | None
    targets: tuple[str, ...]
    processes: tuple[int, ...]
    start: int
    start_line: int
    receipt: str | None
    stop: int | None = None
    stop_line: int | None = None
    stop_receipt: str | None = None

    @property
    def landed(self) -> bool:
        return self.receipt == "landed"

    @property
    def skipped(self) -> bool:
        return self.receipt == "skipped"

    @property
    def undone(self) -> bool:
        return self.stop_receipt == "undone"


@dataclass(frozen=True, eq=False)
class History:
    """A history, one array for each key, rows sorted by time (ties by line). `NONE` stands for an absent integer.

    The arrays are shared, never written to. Columns that a row's `f` doesn't use hold their "absent".
    """

    path: str
    meta: Meta
    time: Ints
    """int64, ns since the trial began."""
    line: Ints
    """Line number in the file, from 1."""
    process: Ints
    """Index into `processes`; -1 nemesis, -2 harness."""
    type: Ints
    """INVOKE, OK, FAIL or INFO."""
    f: Ints
    """Index into `fs`, whose first entries are `KNOWN_F`."""
    lock: Ints
    """Index into `locks`; 0 (without a meaning) for events that aren't about a lock."""
    resource: Ints
    """FENCED or UNFENCED for writes, else -1."""
    token: Ints
    ttl: Floats
    """Seconds; NaN when absent."""
    lease_from: Ints
    """ns; only on an acquire that returned ok."""
    held: Ints
    """-1 absent, 0 false, 1 true."""
    reason: Ints
    """NO_REASON, EXPIRED or OTHER_REASON."""
    read: Ints
    version: Ints
    seq: Ints
    mate: Ints
    """Index of the other half of an operation: an invoke's completion, a completion's invoke; -1 when there is none."""
    processes: tuple[int, ...]
    """The contenders' ids, ascending."""
    locks: tuple[str, ...]
    fs: tuple[str, ...]
    faults: tuple[Fault, ...]
    """In order of their start."""

    def __len__(self) -> int:
        return len(self.time)

    def process_name(self, index: int) -> int | str:
        """The id of the process of row `index`: an int for a contender, else "nemesis" or "harness"."""
        code = int(self.process[index])
        return self.processes[code] if code >= 0 else ("nemesis" if code == -1 else "harness")


@dataclass
class Columns:
    """Events in the order of the file, as a reader found them. All arrays have one entry for each event.

    `process` holds ids (`NEMESIS` and `HARNESS` for those two); `lock` and `f` index `locks` and `fs`; the rest as in
    `History`. `faults` holds the parsed rows of `f: fault` by their index.
    """

    time: Ints
    line: Ints
    process: Ints
    type: Ints
    f: Ints
    lock: Ints
    resource: Ints
    token: Ints
    ttl: Floats
    lease_from: Ints
    held: Ints
    reason: Ints
    read: Ints
    version: Ints
    seq: Ints
    locks: list[str]
    fs: list[str]
    faults: dict[int, FaultRow]


#: dtype and value for "absent" of each array of `Columns`, in the order of its fields.
COLUMN_TYPES: dict[str, tuple[str, Any]] = {
    "time": ("i8", 0),
    "line": ("i8", 0),
    "process": ("i8", 0),
    "type": ("i1", 0),
    "f": ("i4", 0),
    "lock": ("i4", 0),
    "resource": ("i1", -1),
    "token": ("i8", NONE),
    "ttl": ("f8", np.nan),
    "lease_from": ("i8", NONE),
    "held": ("i1", -1),
    "reason": ("i1", NO_REASON),
    "read": ("i8", NONE),
    "version": ("i8", NONE),
    "seq": ("i8", NONE),
}


@dataclass(frozen=True)
class FaultRow:
    """What one `fault` event says, checked."""

    phase: str
    id: str | int
    kind: str | None
    targets: tuple[str, ...]
    processes: tuple[int, ...]
    receipt: str | None


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


# -- one event at a time: the exact reading, which decides what every faster one must say ------------------------------


class Builder:
    """Collects events one by one, checking each. The slow, exact way; `native.py` has the fast one.

    `locks` and `fs` are the codes of the names met so far, when others share them.
    """

    def __init__(self, path: str | Path, locks: dict[str, int] | None = None, fs: dict[str, int] | None = None) -> None:
        self.path = path
        self.data: dict[str, list[Any]] = {name: [] for name in COLUMN_TYPES}
        self.locks: dict[str, int] = {} if locks is None else locks
        self.fs: dict[str, int] = {name: code for code, name in enumerate(KNOWN_F)} if fs is None else fs
        self.faults: dict[int, FaultRow] = {}

    def add(self, line: int, event: object) -> None:
        """Takes one event as a dict. Raises `HistoryError` when it is malformed."""
        try:
            row = parse_event(event)
        except Malformed as error:
            raise HistoryError(self.path, line, str(error)) from None
        data = self.data
        if row.fault is not None:
            self.faults[len(data["time"])] = row.fault
        data["line"].append(line)
        data["lock"].append(self.locks.setdefault(row.lock, len(self.locks)) if row.lock is not None else 0)
        data["f"].append(self.fs.setdefault(row.f, len(self.fs)))
        for name, value in row.values.items():
            data[name].append(value)

    def arrays(self) -> dict[str, Any]:
        """What was collected, one array for each column."""
        return {name: np.array(self.data[name], dtype=dtype) for name, (dtype, _) in COLUMN_TYPES.items()}

    def columns(self) -> Columns:
        return Columns(**self.arrays(), locks=list(self.locks), fs=list(self.fs), faults=self.faults)


class Malformed(ValueError):
    """A reason why one event can't be read; becomes a `HistoryError` where its line is known."""


@dataclass(slots=True)
class Row:
    """One event, checked; `values` has every column but line, f and lock."""

    f: str
    lock: str | None
    values: dict[str, Any]
    fault: FaultRow | None


_ABSENT: dict[str, Any] = {
    name: value for name, (_, value) in COLUMN_TYPES.items() if name not in ("line", "f", "lock")
}

#: Which keys an event uses, by its f and type ("" for any type); the others hold their "absent".
_USED = {
    ("acquire", "ok"): ("token", "ttl", "lease_from"),
    ("renew", ""): ("ttl", "held"),
    ("release", ""): ("held",),
    ("lost", ""): ("reason",),
    ("write", ""): ("resource", "token", "read", "version", "seq"),
}


def parse_event(event: object) -> Row:
    """Checks one event against the contract. Raises `Malformed` with the reason.

    Keys that the contract names must have its type wherever they stand on an event of a known `f`, even one that
    doesn't use them; of an event with another `f` only time, process, type and f are looked at.
    """
    if not isinstance(event, Mapping):
        raise Malformed(f"an event must be an object, not {_kind(event)}")
    if event.get("type") == "meta":
        raise Malformed("a meta that isn't the first line")
    time = _integer(event, "time", required=True)
    process = _process(event)
    kind = _choice(event, "type", TYPES, required=True)
    f = _string(event, "f", required=True)
    assert f is not None
    values = {
        **_ABSENT,
        "time": time,
        "process": process,
        "type": TYPES.index(kind or ""),
    }
    if f == "fault":
        return Row(f, None, values, parse_fault(event))
    if f not in KNOWN_F:
        return Row(f, None, values, None)
    if process in (NEMESIS, HARNESS):
        raise Malformed(f"{f} needs the integer of a contender as its process, not {event['process']!r}")
    if f in ("lost", "crash") and kind != "info":
        raise Malformed(f"{f} is a single event of type info, not {kind}")
    lock = _string(event, "lock")
    resource = _choice(event, "resource", RESOURCES, required=True) if f == "write" else None
    keys: dict[str, Any] = {name: _integer(event, name) for name in ("token", "lease_from", "read", "version", "seq")}
    keys["ttl"] = _duration(event, "ttl")
    keys["held"] = _boolean(event, "held")
    reason = _string(event, "reason")
    keys["reason"] = None if reason is None else (EXPIRED if reason == "expired" else OTHER_REASON)
    keys["resource"] = None if resource is None else RESOURCES.index(resource)
    for key in _USED.get((f, kind or ""), ()) + _USED.get((f, ""), ()):
        if keys[key] is not None:
            values[key] = keys[key]
    assert time is not None
    if values["lease_from"] != NONE and values["lease_from"] > time:
        raise Malformed(f"lease_from ({values['lease_from']}) after the time of its ok ({time})")
    return Row(f, None if f == "crash" else (DEFAULT_LOCK if lock is None else lock), values, None)


def parse_fault(event: Mapping[str, Any]) -> FaultRow:
    """Checks the keys of one `fault` event. Raises `Malformed`."""
    if event.get("process") != "nemesis" or event.get("type") != "info":
        raise Malformed('a fault event must have the process "nemesis" and the type "info"')
    phase = _choice(event, "phase", ("start", "stop"), required=True)
    assert phase is not None
    identity = event.get("id")
    if identity is None:
        raise Malformed("a fault without an id")
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise Malformed(f"id must be a string, not {_kind(identity)}")
    receipt = _choice(event, "receipt", START_RECEIPTS if phase == "start" else STOP_RECEIPTS)
    targets, processes = _list(event, "targets"), _list(event, "processes")
    for target in targets:
        if not isinstance(target, str):
            raise Malformed(f"targets must be a list of strings; it has {_kind(target)}")
    for process in processes:
        if isinstance(process, bool) or not isinstance(process, int):
            raise Malformed(f"processes must be a list of integers; it has {_kind(process)}")
    return FaultRow(phase, identity, _string(event, "kind"), tuple(targets), tuple(processes), receipt)


_META_KEYS = {
    "type", "format", "system", "ttl", "expires", "uncertainty", "rate_tolerance", "min_grants", "progress_bound",
    "require", "owners",
}  # fmt: skip


def parse_meta(meta: Mapping[str, Any], line: int, path: str | Path) -> Meta:
    """Checks the meta line. Raises `HistoryError`."""
    try:
        version = meta.get("format")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version != 1):
            raise Malformed(f"format {version!r} isn't one that this version reads (it reads 1)")
        rate = _duration(meta, "rate_tolerance", "a share")
        if rate is not None and rate > 1:
            raise Malformed(f"rate_tolerance is a share between 0 and 1, not {rate}")
        least = _integer(meta, "min_grants")
        if least is not None and least < 0:
            raise Malformed(f"min_grants must not be negative, and is {least}")
        require = meta.get("require")
        if require is not None and not (isinstance(require, list) and all(isinstance(name, str) for name in require)):
            raise Malformed("require must be a list of verdict names")
        expires, owners = _boolean(meta, "expires"), _boolean(meta, "owners")
        return Meta(
            system=_string(meta, "system"),
            ttl=_duration(meta, "ttl"),
            expires=True if expires is None else expires,
            uncertainty=_duration(meta, "uncertainty") or 0.0,
            rate_tolerance=rate or 0.0,
            min_grants=least or 0,
            progress_bound=_duration(meta, "progress_bound"),
            require=None if require is None else tuple(require),
            owners=True if owners is None else owners,
            line=line,
            extra={key: value for key, value in meta.items() if key not in _META_KEYS},
        )
    except Malformed as error:
        raise HistoryError(path, line, str(error)) from None


def _kind(value: object) -> str:
    """A value's JSON type in words, with the value where it is short."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value!r}" if len(repr(value)) <= 40 else "a huge number"
    if isinstance(value, str):
        return f"the string {value!r}" if len(value) <= 40 else "a string"
    return "an array" if isinstance(value, Sequence) else "an object"


def _required(event: Mapping[str, Any], key: str) -> Any:
    value = event.get(key)
    if value is None:
        what = f"a {event['f']}" if event.get("f") in KNOWN_F and key != "f" else "an event"
        raise Malformed(f"{what} without a {key}")
    return value


def _integer(event: Mapping[str, Any], key: str, required: bool = False) -> int | None:
    value = _required(event, key) if required else event.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(f"{key} must be an integer, not {_kind(value)}")
    limit = TIME_LIMIT if key in ("time", "lease_from") else LIMIT
    if not -limit <= value <= limit:
        shown = value if abs(value) < 10**40 else "a huge number"
        raise Malformed(f"{key} is too great: {shown} (at most 2**{limit.bit_length() - 1})")
    return value


def _process(event: Mapping[str, Any]) -> int:
    value = _required(event, "process")
    if isinstance(value, str):
        if value not in PROCESS_NAMES:
            raise Malformed(f'process must be an integer, "nemesis" or "harness", not {_kind(value)}')
        return PROCESS_NAMES[value]
    number = _integer(event, "process")
    assert number is not None
    return number


def _string(event: Mapping[str, Any], key: str, required: bool = False) -> str | None:
    value = _required(event, key) if required else event.get(key)
    if value is not None and not isinstance(value, str):
        raise Malformed(f"{key} must be a string, not {_kind(value)}")
    return value


def _boolean(event: Mapping[str, Any], key: str) -> bool | None:
    value = event.get(key)
    if value is not None and not isinstance(value, bool):
        raise Malformed(f"{key} must be true or false, not {_kind(value)}")
    return value


def _choice(event: Mapping[str, Any], key: str, choices: tuple[str, ...], required: bool = False) -> str | None:
    value = _string(event, key, required)
    if value is not None and value not in choices:
        raise Malformed(f"{key} must be one of {', '.join(choices)}, not {_kind(value)}")
    return value


def _duration(event: Mapping[str, Any], key: str, what: str = "a number of seconds") -> float | None:
    value = event.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{key} must be {what}, not {_kind(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise Malformed(f"{key} is a huge number") from None
    if not np.isfinite(number):
        raise Malformed(f"{key} must be finite, not {number}")
    if number < 0:
        raise Malformed(f"a negative {key}: {value}")
    return number


def _list(event: Mapping[str, Any], key: str) -> list[Any]:
    value = event.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise Malformed(f"{key} must be a list, not {_kind(value)}")
    return list(value)


# -- all events together ----------------------------------------------------------------------------------------------


def finish(meta: Meta, columns: Columns, path: str | Path) -> History:
    """Sorts, pairs and checks what needs all events. Raises `HistoryError` for the earliest event that is wrong."""
    arrays = {name: getattr(columns, name) for name in COLUMN_TYPES}
    time = arrays["time"]
    faults = columns.faults
    if len(time) > 1 and bool((time[1:] < time[:-1]).any()):
        order = np.argsort(time, kind="stable")
        if faults:
            rank = np.empty(len(order), dtype=np.int64)
            rank[order] = np.arange(len(order))
            faults = {int(rank[index]): row for index, row in faults.items()}
        for name in arrays:
            arrays[name] = arrays[name][order]
        del order
    process, processes = _process_codes(arrays.pop("process"))
    f, lock, line = arrays["f"], arrays["lock"], arrays["line"]
    names = History(
        path=str(path),
        meta=meta,
        process=process,
        mate=np.empty(0, dtype=np.int32),
        processes=processes,
        locks=tuple(columns.locks) or (DEFAULT_LOCK,),
        fs=tuple(columns.fs),
        faults=_join_faults(faults, arrays["time"], line, path),
        **arrays,
    )
    mate = _pair(names, path)
    _check_seqs(names, path)
    object.__setattr__(names, "mate", mate)
    for array in (process, mate, f, lock, *arrays.values()):
        array.flags.writeable = False
    return names


def _process_codes(ids: Ints) -> tuple[Ints, tuple[int, ...]]:
    """Codes for process ids: the index among the contenders' ids in order, -1 nemesis, -2 harness."""
    codes = np.empty(len(ids), dtype=np.int32)
    contender = ids > HARNESS
    everyone = bool(contender.all())
    own = ids if everyone else ids[contender]
    unique: Ints
    inverse: Ints
    if not len(own):
        codes[:] = np.where(ids == NEMESIS, -1, -2)
        return codes, ()
    low, high = int(own.min()), int(own.max())
    if high - low < 1_000_000:  # a table instead of a sort: ids are small as a rule
        seen = np.zeros(high - low + 1, dtype=bool)
        seen[own - low] = True
        unique = np.flatnonzero(seen)
        table = np.zeros(high - low + 1, dtype=np.int32)
        table[unique] = np.arange(len(unique), dtype=np.int32)
        inverse = table[own - low]
        unique = unique + low
    else:
        unique, inverse = np.unique(own, return_inverse=True)
    if everyone:
        codes[:] = inverse
    else:
        codes[contender] = inverse
        codes[~contender] = np.where(ids[~contender] == NEMESIS, -1, -2)
    return codes, tuple(unique.tolist())


def _join_faults(rows: Mapping[int, FaultRow], time: Ints, line: Ints, path: str | Path) -> tuple[Fault, ...]:
    joined: dict[str | int, Fault] = {}
    for index in sorted(rows):
        row, at, where = rows[index], int(time[index]), int(line[index])
        known = joined.get(row.id)
        if row.phase == "start":
            if known is not None:
                raise HistoryError(path, where, f"fault {row.id!r} started twice (first in line {known.start_line})")
            joined[row.id] = Fault(row.id, row.kind, row.targets, row.processes, at, where, row.receipt)
        elif known is None:
            raise HistoryError(path, where, f"fault {row.id!r} stopped without a start")
        elif known.stop is not None:
            raise HistoryError(path, where, f"fault {row.id!r} stopped twice (first in line {known.stop_line})")
        else:
            joined[row.id] = Fault(
                known.id, known.kind, known.targets, known.processes, known.start, known.start_line, known.receipt,
                at, where, row.receipt,
            )  # fmt: skip
    return tuple(joined.values())


def group_order(keys: Ints, size: int) -> Ints:
    """Stable argsort of keys in [0, size). Radix passes of 16 bits: ten times faster than a sort by comparison."""
    if size <= 1 << 8:
        return np.argsort(keys.astype(np.uint8), kind="stable")  # one pass of 8 bits
    if size <= 1 << 16:
        return np.argsort(keys.astype(np.uint16, copy=False), kind="stable")
    order: Ints = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    shift = 16
    while size > 1 << shift:
        digit = ((keys[order] >> shift) & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
        shift += 16
    return order


def crash_epochs(history: History) -> tuple[Ints, Ints] | None:
    """The crashes as (process * n + row), ascending, and for each row the number of those below its own such number.

    Two rows of one process have the same count exactly when no crash of that process lies between them. None when
    nobody crashed.
    """
    n = len(history)
    rows = np.flatnonzero(history.f == CRASH)
    if not len(rows):
        return None
    crashes = np.sort(history.process[rows].astype(np.int64) * n + rows)
    return crashes, np.searchsorted(crashes, history.process.astype(np.int64) * n + np.arange(n))


def _pair(history: History, path: str | Path) -> Ints:
    """The pairing of invokes and completions. A completion closes the open invoke of the same process, lock, f and
    resource; there is at most one, and a crash closes all of its process."""
    n = len(history)
    mate: Ints = np.full(n, -1, dtype=np.int32 if n < 2**31 else np.int64)
    rows: Ints = np.flatnonzero(history.f < len(PAIRED_F))
    if not len(rows):
        return mate
    every = len(rows) == n  # mostly; then nothing needs to be picked out
    locks = max(1, len(history.locks))
    size = len(history.processes) * locks * 4 * 3
    narrow: Any = np.uint16 if size <= 1 << 16 else np.int64  # a quarter of the memory to walk through
    process, lock, f, resource = (
        (column if every else column[rows]).astype(narrow)
        for column in (history.process, history.lock, history.f, history.resource + 1)
    )
    key: Ints = ((process * narrow(locks) + lock) * narrow(4) + f) * narrow(3) + resource
    order = group_order(key, size)
    rows, key = order if every else rows[order], key[order]
    same = key[1:] == key[:-1]
    epochs = crash_epochs(history)
    if epochs is not None:
        epoch = epochs[1][rows]
        same &= epoch[1:] == epoch[:-1]
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
    return mate


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
    """Two equal `seq` in one resource of one lock are an error; see docs/verdicts.md for what counts here."""
    rows = np.flatnonzero((history.seq != NONE) & (history.f == WRITE) & (history.type == OK))
    rows = rows[history.resource[rows] == FENCED]
    if len(rows) < 2:
        return
    lock, seq = history.lock[rows], history.seq[rows]
    order = np.lexsort((rows, seq, lock))
    lock, seq, rows = lock[order], seq[order], rows[order]
    twice = np.flatnonzero((lock[1:] == lock[:-1]) & (seq[1:] == seq[:-1]))
    if len(twice):
        at = int(twice[np.argmin(rows[twice + 1])])
        first, second = int(history.line[rows[at]]), int(history.line[rows[at + 1]])
        where = f"the fenced resource of lock {history.locks[lock[at]]!r}"
        raise HistoryError(path, second, f"seq {int(seq[at])} of {where} was given already in line {first}")
