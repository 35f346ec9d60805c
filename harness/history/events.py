"""The in-memory form of a history: one numpy array for each key, rows sorted by time, ties by line.

Every reader ends here. A reader hands over `Columns`, the events in the order of the file, and `building.finish` does
what needs them all; `building.from_events` takes plain dicts. What one line must be is in `parsing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.history.columns import Sparse

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

#: Stands for "absent" in the integer columns.
NONE = -(2**63)
#: Integers in a history are at most so much either way, and times so much (73 years of ns, or a Unix time up to 2043):
#: twice a time plus an uncertainty still fits into 64 bits.
LIMIT = 2**62
TIME_LIMIT = 2**61
#: Ids of writes that are strings are numbered from here on, above all that are integers.
STRING_ID = LIMIT + 1

#: Process ids that are not contenders.
NEMESIS, HARNESS = NONE + 1, NONE + 2
PROCESS_NAMES = {"nemesis": NEMESIS, "harness": HARNESS}

TYPES = ("invoke", "ok", "fail", "info")
INVOKE, OK, FAIL, INFO = range(4)

#: The `f` that verdicts look at. Codes from `len(KNOWN_F)` on are others, kept and ignored.
KNOWN_F = ("acquire", "renew", "release", "write", "lost", "crash", "fault", "audit")
ACQUIRE, RENEW, RELEASE, WRITE, LOST, CRASH, FAULT, AUDIT = range(8)
PAIRED_F = (ACQUIRE, RENEW, RELEASE, WRITE)

RESOURCES = ("fenced", "unfenced")
FENCED, UNFENCED = range(2)

#: `reason` of a `lost`: only `expired` is the word of the service; all others are the client's own doubt. A reason that
#: the contract doesn't name is `OTHER_REASON`.
REASONS = ("", "expired", "deadline", "disconnected", "renew-failed", "other")
NO_REASON, EXPIRED, DEADLINE, DISCONNECTED, RENEW_FAILED, OTHER_REASON = range(6)

#: `renewals` of a grant: whether each renewal of its lease stands in the history.
SEEN, UNSEEN = range(2)

DEFAULT_LOCK = "lock"
START_RECEIPTS = ("landed", "unproven", "skipped")
STOP_RECEIPTS = ("undone", "unproven")
#: The kind of a fault that somebody other than the nemesis made.
OUTSIDE = "outside"
PAUSED = "paused"


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
    started: str | None = None
    """ISO 8601: the wall-clock time of time 0, for people; as it was written."""
    end: bool = False
    """Whether the last line is promised to be an `end` that counts the events."""
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
    what: str | None = None
    """Of one of kind `outside`: what was done to the node; None where it isn't said, which means `paused`."""
    bit: bool | Literal["immune"] | None = None
    """Whether it had the chance to matter, as its stop says; `immune` where by design it can't."""

    @property
    def outside(self) -> bool:
        """Whether somebody other than the nemesis did it."""
        return self.kind == OUTSIDE

    @property
    def landed(self) -> bool:
        return self.receipt == "landed" or (self.outside and not self.skipped)

    @property
    def freezes(self) -> bool:
        """Whether the processes that it lists stood still from its start to its stop."""
        return self.kind in ("freeze", "pause") or (self.outside and (self.what or PAUSED) == PAUSED)

    @property
    def skipped(self) -> bool:
        return self.receipt == "skipped"

    @property
    def undone(self) -> bool:
        return self.stop_receipt == "undone"


@dataclass(frozen=True)
class Audit:
    """What a resource held when it was read at the end."""

    row: int
    """Of the history."""
    lock: int
    resource: int
    ids: tuple[int | str, ...]
    """Of the writes found there, in the order of the file, doubles kept."""


@dataclass(frozen=True, eq=False)
class History:
    """A history, one array for each key, rows sorted by time (ties by line). `NONE` stands for an absent integer.

    The arrays are shared, never written to, and their integers are as narrow as their values allow (but for `time`).
    Columns that a row's `f` doesn't use hold their "absent"; those in which most rows do are `Sparse`.
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
    token: Sparse
    ttl: Sparse
    """Seconds; NaN when absent."""
    lease_from: Sparse
    """ns; only on an acquire that returned ok."""
    held: Sparse
    """-1 absent, 0 false, 1 true."""
    reason: Sparse
    """Index into `REASONS`."""
    proves: Sparse
    """-1 absent, 0 false, 1 true; only on a renew or release that returned ok."""
    renewals: Sparse
    """SEEN or UNSEEN; only on an acquire that returned ok."""
    read: Sparse
    version: Sparse
    seq: Sparse
    id: Sparse
    """Of writes: the integer, or `STRING_ID` and more: that and an index into `ids`."""
    mate: Ints
    """Index of the other half of an operation: an invoke's completion, a completion's invoke; -1 when there is none."""
    processes: tuple[int, ...]
    """The contenders' ids, ascending."""
    locks: tuple[str, ...]
    fs: tuple[str, ...]
    faults: tuple[Fault, ...]
    """In order of their start."""
    ids: tuple[str, ...] = ()
    """The ids of writes that are strings."""
    audits: tuple[Audit, ...] = ()
    """In order of time."""
    counted: int | None = None
    """The number of events that the `end` line gives; None without that line."""

    def __len__(self) -> int:
        return len(self.time)

    @property
    def cut_off(self) -> bool:
        """Whether it lacks the end that its meta promises: events may be missing."""
        return self.meta.end and self.counted != len(self)

    @property
    def last_row(self) -> int:
        """The row of the last event that isn't an audit, with which beliefs and wants end; -1 when there is none."""
        row = len(self) - 1
        while row >= 0 and self.f[row] == AUDIT:
            row -= 1
        return row

    def id_name(self, code: int) -> int | str:
        """The id of a write, by its code."""
        return code if code < STRING_ID else self.ids[code - STRING_ID]

    def process_name(self, index: int) -> int | str:
        """The id of the process of row `index`: an int for a contender, else "nemesis" or "harness"."""
        code = int(self.process[index])
        return self.processes[code] if code >= 0 else ("nemesis" if code == -1 else "harness")


@dataclass
class Columns:
    """Events in the order of the file, as a reader found them. All arrays have one entry for each event.

    `process` holds the contenders' ids, and anything where `role` says that it is none: -1 nemesis, -2 harness, else 0.
    `lock` and `f` index `locks` and `fs`; the rest as in `History`. `faults` and `audits` hold the parsed rows of
    `f: fault` and `f: audit` by their index.
    """

    time: Ints
    line: Ints
    process: Ints
    type: Ints
    f: Ints
    lock: Ints
    resource: Ints
    token: Sparse
    ttl: Sparse
    lease_from: Sparse
    held: Sparse
    reason: Sparse
    proves: Sparse
    renewals: Sparse
    read: Sparse
    version: Sparse
    seq: Sparse
    id: Sparse
    role: Sparse
    locks: list[str]
    fs: list[str]
    faults: dict[int, FaultRow]
    ids: list[str] = field(default_factory=list)
    audits: dict[int, AuditRow] = field(default_factory=dict)
    end: End | None = None


#: dtype (of integers the widest that it may have) and value for "absent" of each array of `Columns`.
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
    "id": ("i8", NONE),
    "proves": ("i1", -1),
    "renewals": ("i1", SEEN),
    "role": ("i1", 0),
}

#: Those that every event has; all others are sparse.
WHOLE = ("time", "line", "process", "type", "f", "lock", "resource")


@dataclass(frozen=True)
class FaultRow:
    """What one `fault` event says, checked."""

    phase: str
    id: str | int
    kind: str | None
    targets: tuple[str, ...]
    processes: tuple[int, ...]
    receipt: str | None
    what: str | None = None
    bit: bool | Literal["immune"] | None = None


@dataclass(frozen=True)
class AuditRow:
    """What one `audit` event says, checked."""

    resource: int
    ids: tuple[int | str, ...]


@dataclass(frozen=True)
class End:
    """The last line of a history whose meta promises it."""

    line: int
    events: int


def reason_code(reason: str | None) -> int:
    """The index into `REASONS` of what a `lost` says; `NO_REASON` where it says nothing."""
    if reason is None:
        return NO_REASON
    return REASONS.index(reason) if reason in REASONS[EXPIRED:] else OTHER_REASON


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


@dataclass(frozen=True, eq=False)
class Epochs:
    """The crashes of a history: two rows of one process are of the same epoch exactly when no crash of that process
    lies between them."""

    crashes: Ints
    """As (process * len(history) + row), ascending."""
    process: Ints

    def of(self, rows: Ints) -> Ints:
        """The number of crashes below (process * len(history) + row), for each of some rows."""
        n = len(self.process)
        return np.searchsorted(self.crashes, self.process[rows].astype(np.int64) * n + rows)

    def next_crash(self, rows: Ints) -> Ints:
        """The row of the next crash of each row's process, `len(history)` where there is none."""
        n = len(self.process)
        epoch = self.of(rows)
        crash = np.full(len(rows), n, dtype=np.int64)
        known = epoch < len(self.crashes)
        # From n on it is another process's.
        crash[known] = self.crashes[epoch[known]] - self.process[rows[known]].astype(np.int64) * n
        return np.minimum(crash, n)


def crash_epochs(history: History) -> Epochs | None:
    """The crashes of a history; None when nobody crashed."""
    rows = np.flatnonzero(history.f == CRASH)
    if not len(rows):
        return None
    return Epochs(np.sort(history.process[rows].astype(np.int64) * len(history) + rows), history.process)
