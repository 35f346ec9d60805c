"""The interval model: what each grant was believed, promised and proven to be. All verdicts stand on this one reading.

The definitions are those of the contract ("Derived intervals"), one array for each, rows being grants in order of their
`ok` (ties by line). Nothing here loops over events: the events of one process and one lock are laid side by side by a
radix sort, where "the last acquire before me" and "the next acquire after me" are neighbours.

Row numbers of the history order the events of one process exactly (by time, ties by line), so that whatever the
contract says of one process ("invoked before ended(g)") compares rows; times meet only across processes, where u
counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from harness.history.events import (
    ACQUIRE,
    EXPIRED,
    FAIL,
    INFO,
    INVOKE,
    LOST,
    NONE,
    OK,
    RELEASE,
    RENEW,
    UNSEEN,
    Bools,
    Fault,
    Floats,
    History,
    Ints,
    crash_epochs,
    group_order,
)

T = TypeVar("T")
D = TypeVar("D", bound=np.generic)

#: A time after all others: an end that never comes. Above any time + u, below overflow (see `events.LIMIT`).
INF = 2**62 + 2**61 + 1
_MOST_U = 2**61

SECOND = 1_000_000_000

_FELT = 1 << 16


def nanoseconds(seconds: float, most: int = INF) -> int:
    """Seconds as ns, rounded to the nearest, at most `most`."""
    return int(min(round(min(seconds, 1e18) * SECOND), most))


@dataclass(frozen=True, eq=False)
class Model:
    """The grants of a history and their intervals. Times are int64 ns, `NONE` where there is none, `INF` for never.

    Names that end in `_row` are rows of the history (`len(history)` where there is no such event). Nothing here is
    written to: an array in which all are the same may be one number that is shown many times.
    """

    history: History
    owners: bool
    certificates: bool
    end: int
    """Time of the last event, whatever event it is save an audit."""
    u: int
    """The uncertainty, ns."""
    ok_row: Ints
    invoke_row: Ints
    ok: Ints
    invoke: Ints
    process: Ints
    lock: Ints
    token: Ints
    next_acquire_row: Ints
    """That process's next acquire invoke on that lock."""
    crash_row: Ints
    """That process's next crash."""
    release_row: Ints
    """The first own release invoke, whatever became of it."""
    standing_release_row: Ints
    """The first own release invoke that didn't fail."""
    given_row: Ints
    """The completion of the first own release that returned ok."""
    lost_row: Ints
    """The first own `lost`."""
    ended_row: Ints
    """ended(g): the event by which the service said that it isn't held."""
    proven_row: Ints
    """The invoke whose success is proven(g); -1 where there is none."""
    revived_row: Ints
    """The first own renew or release that returned ok and proves something, invoked after ended(g)."""
    promise_row: Ints
    """The invoke that the promise counts from; -1 where that is the acquire."""
    renewed: Ints
    """The last completion of the acquire and of the own renews that didn't fail (the invoke of one without)."""
    longest: Floats
    """The greatest ttl among these, seconds; NaN when one is unknown."""
    promise: Ints
    promise_then: Ints
    """The promise as it stood at ended(g); meaningless without one."""
    proven: Ints
    ended: Ints
    """INF where the service never said so."""
    L: Ints
    """The earliest instant at which the hold can have ended; NONE when unknown."""
    E: Ints
    """max(invoke, L)."""
    _memo: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ok)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """A value that several verdicts need, made by the first that asks."""
        if name not in self._memo:
            self._memo[name] = make()
        value: T = self._memo[name]
        return value

    def when(self, rows: Ints) -> Ints:
        """The times of rows, INF for row `len(history)`: never."""
        return _when(self.history.time, rows)

    @cached_property
    def ttl(self) -> Floats:
        """Seconds, of the acquire: its own, else the meta's; NaN when unknown."""
        return _ttl(self.history, self.ok_row)

    @cached_property
    def belief_end_row(self) -> Ints:
        """The event that ended the belief; `len(history)` where it lasted to the end."""
        own: Ints = np.minimum(self.release_row, self.lost_row)
        return np.minimum(own, np.minimum(self.crash_row, self.next_acquire_row))

    @cached_property
    def belief_end(self) -> Ints:
        return np.minimum(self.when(self.belief_end_row), self.end)

    @cached_property
    def E_proven(self) -> Ints:
        """E with all promises left out."""
        return np.maximum(self.invoke, self.proven)

    @cached_property
    def until(self) -> Ints:
        """E - u: the grants of others that precede this one are those with an ok before that."""
        return self.E - self.u

    @cached_property
    def latest(self) -> Ints:
        """When the lease can have run out by itself at the latest; INF for never, NONE when nobody can tell."""
        meta = self.history.meta
        if not meta.expires:
            return np.full(len(self), INF, dtype=np.int64)
        last = np.maximum(self.renewed, np.where(self.unseen, self.belief_end, NONE))
        known = ~np.isnan(self.longest)
        length = lengths(np.where(known, self.longest, 0.0), 1.0 + meta.rate_tolerance)
        return np.where(known, last + length, np.where(self.unseen, INF, NONE))

    @cached_property
    def unseen(self) -> Bools:
        """Grants whose renewals don't stand in the history: whether their lease still ran nobody can tell."""
        unseen: Bools = self.history.renewals[self.ok_row] == UNSEEN
        return unseen

    @cached_property
    def solid(self) -> Bools:
        """Grants whose core [ok, L] was held for certain, and for long enough that stamps can tell."""
        known: Bools = self.L != NONE
        return known & (self.ok + self.u <= self.L)

    @cached_property
    def late(self) -> Bools:
        """Grants that arrived after their own lease."""
        known: Bools = self.L != NONE
        return known & (self.ok > self.L)

    @cached_property
    def has_token(self) -> Bools:
        known: Bools = self.token != NONE
        return known

    @cached_property
    def by_lock(self) -> list[Ints]:
        """The grants of each lock that has any, in order of their ok, ordered by lock."""
        if len(self.history.locks) == 1 or not len(self):
            return [np.arange(len(self))] if len(self) else []
        order = group_order(self.lock.astype(np.int64), len(self.history.locks))
        return np.split(order, np.flatnonzero(np.diff(self.lock[order])) + 1)

    def of(self, group: Ints, values: npt.NDArray[D]) -> npt.NDArray[D]:
        """The values of a group of `by_lock`, or of one picked from it in order; not copied when that is all grants."""
        return values if len(group) == len(self) else values[group]

    def lock_name(self, grant: int) -> str:
        return self.history.locks[int(self.lock[grant])]

    def process_id(self, grant: int) -> int:
        """The id of the contender of a grant."""
        return self.history.processes[int(self.process[grant])]

    def line(self, row: int) -> int:
        return int(self.history.line[row])

    def precedes(self, a: int, b: int) -> bool:
        """Whether b's hold ended after a's had begun in every account (for grants of different processes)."""
        return int(self.E[b]) > int(self.ok[a]) + self.u

    def frozen(self, process: int) -> list[tuple[int, int]]:
        """frozen(p) as disjoint [start, end] in order; `process` is a contender's id."""

        def spans() -> list[tuple[int, int]]:
            return union(
                [
                    (fault.start, self.end if fault.stop is None else fault.stop)
                    for fault in self.history.faults
                    if fault.landed and fault.freezes and process in fault.processes
                ]
            )

        return self.once(f"frozen {process}", spans)

    def clock_faults(self, process: int) -> list[Fault]:
        """The landed faults of kind `clock` that list a contender."""
        return [
            fault
            for fault in self.history.faults
            if fault.landed and fault.kind == "clock" and process in fault.processes
        ]


def union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of closed intervals as disjoint ones, in order; those that touch are joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


@dataclass(frozen=True, eq=False)
class _Own:
    """The own renews, releases and losses of grants, each grant's side by side and in order."""

    grant: Ints
    row: Ints
    """Of the invoke, or of the `lost`."""
    f: Ints
    done: Ints
    """Row of the completion, -1 where it never came."""
    outcome: Ints
    """OK, FAIL or INFO; INFO too for one that completed only after the next acquire invoke, and for a renew that
    returned ok and proves nothing."""

    def where(self, chosen: Bools) -> _Own:
        if chosen.all():  # as it is for most kinds of history, and dear to copy
            return self
        at = np.flatnonzero(chosen)  # once, not for each array
        return _Own(self.grant[at], self.row[at], self.f[at], self.done[at], self.outcome[at])

    @cached_property
    def starts(self) -> Ints:
        """Index of the first of each grant's."""
        if not len(self.grant):
            return np.empty(0, dtype=np.int64)
        changes: Ints = np.flatnonzero(self.grant[1:] != self.grant[:-1]) + 1
        return np.concatenate(([0], changes))

    @cached_property
    def ends(self) -> Ints:
        """Index of the last of each grant's."""
        return np.append(self.starts[1:], len(self.grant))[: len(self.starts)] - 1

    @cached_property
    def holders(self) -> Ints:
        """The grants that have any."""
        return self.grant[self.starts]


def _first(own: _Own, values: Ints, count: int, absent: int) -> Ints:
    """For each of `count` grants the value of its first own event, else `absent`."""
    return _spread(own, values, own.starts, count, absent)


def _last(own: _Own, values: Ints, count: int, absent: int) -> Ints:
    return _spread(own, values, own.ends, count, absent)


def _spread(own: _Own, values: Ints, places: Ints, count: int, absent: int) -> Ints:
    if not len(places):  # nobody has any: one number, shown many times
        return _same(absent, count, own.row.dtype)
    out: Ints = np.full(count, absent, own.row.dtype)
    out[own.holders] = values[places]
    return out


def _same(value: int, count: int, dtype: np.dtype[Any]) -> Ints:
    """One number many times, in the memory of one where that would be felt."""
    if count < _FELT:
        return np.full(count, value, dtype)
    return np.broadcast_to(np.array(value, dtype), (count,))


def _when(time: Ints, rows: Ints) -> Ints:
    """The times of rows, INF for row `len(time)`."""
    if not len(rows) or rows.strides == (0,):
        one = INF if not len(rows) or rows[0] == len(time) else time[rows[0]]
        return _same(one, len(rows), np.dtype(np.int64))
    if not len(time):
        return np.full(len(rows), INF, dtype=np.int64)
    out: Ints = time.take(rows, mode="clip")
    out[rows == len(time)] = INF
    return out


def _ttl(history: History, ok_row: Ints) -> Floats:
    ttl = history.ttl[ok_row]
    return ttl if history.meta.ttl is None else np.where(np.isnan(ttl), history.meta.ttl, ttl)


def build(history: History, *, owners: bool | None = None, certificates: bool = False) -> Model:
    """The model of a history. `owners` overrides its meta."""
    n = len(history)
    meta = history.meta
    time = history.time
    # Rows are as narrow as can be, here and below: of so many arrays it is felt.
    narrow = history.mate.dtype
    ok_row = np.flatnonzero((history.f == ACQUIRE) & (history.type == OK)).astype(narrow)
    count = len(ok_row)
    invoke_row = history.mate[ok_row]
    invoke, ok = time[invoke_row], time[ok_row]

    own, next_acquire_row, crash_row = _own_events(history, ok_row, invoke_row)
    given = own.where((own.f == RELEASE) & (own.outcome == OK))
    given_row = _first(given, given.done, count, n)
    del given
    # From that completion on nothing is its own any more: a second release that returns ok says nothing.
    own = own.where(own.row < given_row[own.grant])
    is_lost = own.f == LOST
    succeeded, failed = own.outcome == OK, own.outcome == FAIL

    release = own.where(own.f == RELEASE)
    release_row = _first(release, release.row, count, n)
    standing = release.where(release.outcome != FAIL)
    standing_release_row = release_row if standing is release else _first(standing, standing.row, count, n)
    del release, standing
    lost = own.where(is_lost)
    lost_row = _first(lost, lost.row, count, n)

    expired = lost.where(history.reason[lost.row] == EXPIRED)
    ended_row = _first(expired, expired.row, count, n)
    refused = own.where(failed & ~is_lost)
    refused = refused.where(history.held[refused.done] == 0)
    if len(refused.grant):
        earliest = np.minimum.reduceat(refused.done, refused.starts)
        holders = refused.holders
        ended_row = ended_row.copy()
        ended_row[holders] = np.minimum(ended_row[holders], earliest)

    proof = own.where(succeeded & ~is_lost & _proves(history, own))
    before = proof.row < ended_row[proof.grant]
    earlier, later = proof.where(before), proof.where(~before)
    proven_row = _last(earlier, earlier.row, count, -1)
    revived_row = _first(later, later.row, count, n)
    del proof, earlier, later, before

    renews = own.where((own.f == RENEW) & ~failed)
    del own, succeeded, failed, is_lost
    ttls = _renew_ttls(history, renews, ok_row)
    promise, promise_row = _promise(history, renews, ttls, invoke, ok_row)
    if (ended_row < n).any():
        by_then = renews.row < ended_row[renews.grant]
        promise_then, _ = _promise(history, renews.where(by_then), ttls[by_then], invoke, ok_row)
    else:
        promise_then = promise
    renewed, longest = _longest(history, renews, ttls, ok, ok_row)
    del renews, ttls

    ended = _when(time, ended_row)
    proven = np.where(proven_row < 0, NONE, _when(time, proven_row))
    earliest_end = np.minimum(promise, _when(time, standing_release_row))
    earliest_end = np.minimum(np.minimum(earliest_end, ended), _when(time, next_acquire_row))
    earliest_end = np.where(promise != NONE, np.maximum(proven, earliest_end), proven)
    return Model(
        history=history,
        owners=meta.owners if owners is None else owners,
        certificates=certificates,
        end=int(time[history.last_row]) if history.last_row >= 0 else 0,
        u=nanoseconds(meta.uncertainty, _MOST_U),
        ok_row=ok_row,
        invoke_row=invoke_row,
        ok=ok,
        invoke=invoke,
        process=history.process[ok_row],
        lock=history.lock[ok_row],
        token=history.token[ok_row],
        next_acquire_row=next_acquire_row,
        crash_row=crash_row,
        release_row=release_row,
        standing_release_row=standing_release_row,
        given_row=given_row,
        lost_row=lost_row,
        ended_row=ended_row,
        proven_row=proven_row,
        revived_row=revived_row,
        promise_row=promise_row,
        renewed=renewed,
        longest=longest,
        promise=promise,
        promise_then=promise_then,
        proven=proven,
        ended=ended,
        L=earliest_end,
        E=np.maximum(invoke, earliest_end),
    )


def _own_events(history: History, ok_row: Ints, invoke_row: Ints) -> tuple[_Own, Ints, Ints]:
    """Which events are whose own, up to the next acquire invoke or crash (a release that returned ok cuts later), and
    for each grant that next acquire invoke and that crash."""
    n, count = len(history), len(ok_row)
    f, kind, narrow = history.f, history.type, ok_row.dtype
    locks = len(history.locks)
    rows: Ints = np.flatnonzero(((f <= RELEASE) & (kind == INVOKE)) | (f == LOST)).astype(narrow)
    key = history.process[rows]
    if locks > 1:
        key = key.astype(np.int64) * locks + history.lock[rows]
    order = group_order(key, max(1, len(history.processes)) * locks)
    rows, key = rows[order], key[order]
    del order
    is_attempt = f[rows] == ACQUIRE
    attempt_at, at = np.flatnonzero(is_attempt), np.flatnonzero(~is_attempt)
    attempt, attempt_key = rows[attempt_at], key[attempt_at]
    del attempt_at, is_attempt
    grant_of_row = np.full(n, -1, narrow)
    grant_of_row[invoke_row] = np.arange(count, dtype=narrow)
    grant_of_attempt = grant_of_row[attempt]  # -1 where it wasn't granted
    del grant_of_row

    # The next acquire invoke of the group: the next attempt, if it is of the same group.
    following = np.full(len(attempt), n, narrow)
    following[:-1][attempt_key[1:] == attempt_key[:-1]] = attempt[1:][attempt_key[1:] == attempt_key[:-1]]
    next_acquire_row: Ints = np.empty(count + 1, narrow)  # -1 is the last place, which is nobody's
    next_acquire_row[grant_of_attempt] = following
    next_acquire_row = next_acquire_row[:count]
    del attempt, following

    # An event is owned by the nearest attempt to the left, if it is of the same group and was granted by then. What
    # isn't an attempt has as many attempts to the left as its place is ahead of its number.
    nearest = (at - np.arange(1, len(at) + 1)).astype(narrow)
    orphans = int(np.searchsorted(nearest, 0))
    at, nearest = at[orphans:], nearest[orphans:]
    row, grant = rows[at], grant_of_attempt[nearest]
    granted_row = np.append(ok_row, narrow.type(n))[grant]  # n, which is -1's, is after all
    owned = (granted_row < row) & (attempt_key[nearest] == key[at])
    del at, nearest, rows, key, attempt_key
    crash_row = _same(n, count, narrow)
    epochs = crash_epochs(history)
    if epochs is not None:
        owned[owned] = epochs.of(row[owned]) == epochs.of(granted_row[owned])
        crash_row = epochs.next_crash(ok_row).astype(narrow)
    del granted_row
    if not owned.all():
        row, grant = row[owned], grant[owned]
    done = history.mate[row]
    outcome = np.where(done >= 0, kind[done] if n else np.int8(0), np.int8(INFO))
    outcome[done > next_acquire_row[grant]] = INFO
    own = _Own(grant, row, f[row], done, outcome)
    outcome[(own.f == RENEW) & (outcome == OK) & ~_proves(history, own)] = INFO
    return own, next_acquire_row, crash_row


def _proves(history: History, own: _Own) -> Bools:
    """Which answers prove something: all but those that say that they don't."""
    if not len(history):
        return np.ones(len(own.grant), dtype=bool)
    proves: Bools = history.proves[own.done] != 0  # of one without a completion it doesn't matter
    return proves


def _renew_ttls(history: History, renews: _Own, ok_row: Ints) -> Floats:
    """The ttl that each of some own renews asked for, seconds: its answer's, else its invoke's, else its acquire's."""
    own = history.ttl[renews.row]
    if len(history):
        answered = np.where((renews.done >= 0) & (history.type[renews.done] == OK), history.ttl[renews.done], np.nan)
        own = np.where(np.isnan(answered), own, answered)
    ttls: Floats = np.where(np.isnan(own), _ttl(history, ok_row)[renews.grant], own)
    return ttls


def lengths(seconds: Floats, rate: float) -> Ints:
    """Known durations as ns, by a clock of another rate, at most 2**62: from the earliest time that there is, that is
    as late as the latest (`events.TIME_LIMIT`)."""
    length = np.rint(np.minimum(np.minimum(seconds, 1e18) * rate * SECOND, 2.0**62))
    return length.astype(np.int64)


def _promise(history: History, renews: _Own, ttls: Floats, invoke: Ints, ok_row: Ints) -> tuple[Ints, Ints]:
    """promise(g) over the given own renews that didn't fail, and the row that it counts from (-1: the acquire)."""
    meta, count = history.meta, len(ok_row)
    certain = renews.outcome == OK
    good = renews.where(certain)
    promise_row = _last(good, good.row, count, -1)
    if not meta.expires:
        return np.full(count, INF, dtype=np.int64), promise_row
    lease_from = history.lease_from[ok_row]
    since = np.where(lease_from != NONE, lease_from, invoke)
    least = _ttl(history, ok_row).copy()
    if len(good.grant):
        since = np.where(promise_row >= 0, history.time[promise_row], since)
        least[good.holders] = ttls[certain][good.ends]
    maybe = renews.where(~certain)
    if len(maybe.grant):
        starts, holders = maybe.starts, maybe.holders
        # One of unknown outcome may have come last. A ttl that is unknown (NaN) makes the least unknown.
        least[holders] = np.minimum(least[holders], np.minimum.reduceat(ttls[~certain], starts))
    known = ~np.isnan(least)
    length = lengths(np.where(known, least, 0.0), 1.0 - meta.rate_tolerance)
    return np.where(known, since + length, NONE), promise_row


def _longest(history: History, renews: _Own, ttls: Floats, ok: Ints, ok_row: Ints) -> tuple[Ints, Floats]:
    """The last completion of each acquire and its own renews that didn't fail, and the greatest of their ttls."""
    last, greatest = ok.copy(), _ttl(history, ok_row).copy()
    if len(renews.grant):
        holders = renews.holders
        closed = history.time[np.where(renews.done >= 0, renews.done, renews.row)]
        last[holders] = np.maximum(last[holders], np.maximum.reduceat(closed, renews.starts))
        greatest[holders] = np.maximum(greatest[holders], np.maximum.reduceat(ttls, renews.starts))
    return last, greatest
