"""What a contender held of a lock at a moment, by its own account and by what the service had told it: for findings."""

from __future__ import annotations

import numpy as np

from checkers import words
from checkers.intervals import INF, Model
from harness.history.events import (
    ACQUIRE,
    CRASH,
    DEADLINE,
    DISCONNECTED,
    EXPIRED,
    FAIL,
    INFO,
    INVOKE,
    LOST,
    NONE,
    OK,
    RELEASE,
    RENEW_FAILED,
    History,
    Ints,
)


def keys(model: Model, rows: Ints) -> Ints:
    """A number for the process and lock of each row."""
    numbers: Ints = model.history.process[rows].astype(np.int64) * len(model.history.locks) + model.history.lock[rows]
    return numbers


def outcome(model: Model, invokes: Ints) -> Ints:
    """What became of some operations: OK, FAIL or INFO."""
    done = model.history.mate[invokes]
    if not len(done):
        return np.empty(0, dtype=np.int8)
    became: Ints = np.where(done >= 0, model.history.type[done], INFO)
    return became


def last_grant(model: Model, row: int) -> int:
    """The last grant of a row's process on its lock whose ok stands before that row; -1 where there is none."""

    def index() -> tuple[Ints, Ints]:
        numbers = keys(model, model.ok_row) * len(model.history) + model.ok_row
        order = np.argsort(numbers)
        return numbers[order], order

    if not len(model):
        return -1
    numbers, order = model.once("grants by process and lock", index)
    at = _before(model, numbers, row)
    return -1 if at < 0 else int(order[at])


def ungranted(model: Model, row: int) -> int:
    """The last invoke or completion before a row of an acquire of its process on its lock that did not return ok; -1
    where there is none."""

    def index() -> Ints:
        history = model.history
        invoked = np.flatnonzero((history.f == ACQUIRE) & (history.type == INVOKE))
        invoked = invoked[outcome(model, invoked) != OK]
        done = history.mate[invoked].astype(np.int64)
        rows = np.concatenate((invoked, done[done >= 0]))
        return np.sort(keys(model, rows) * len(history) + rows)

    numbers: Ints = model.once("acquires that got nothing", index)
    at = _before(model, numbers, row)
    return -1 if at < 0 else int(numbers[at]) % len(model.history)


def _before(model: Model, numbers: Ints, row: int) -> int:
    """The place of the last of some (key * n + row), ascending, that is of a row's process and lock and before it."""
    n = len(model.history)
    key = int(keys(model, np.array([row]))[0])
    at = int(np.searchsorted(numbers, key * n + row)) - 1
    return at if at >= 0 and int(numbers[at]) // n == key else -1


def believed(model: Model, row: int) -> int:
    """The grant that a row's contender believed in just before it, on the row's lock; -1 where there was none."""
    grant = last_grant(model, row)
    return grant if grant >= 0 and int(model.belief_end_row[grant]) > row else -1


def held(model: Model, row: int) -> tuple[str, int]:
    """What the contender of a write, sent in `row`, held of its lock then, in words that follow its name; and the row
    that says that it held nothing, -1 where it believed that it held it or had never asked."""
    grant = believed(model, row)
    if grant >= 0:
        granted = f"granted in line {model.line(int(model.ok_row[grant]))}"
        return f"held {words.lock(model, grant)} by its own account ({granted}){_doubt(model, grant, row)}", -1
    grant = last_grant(model, row)
    why = max(ungranted(model, row), -1 if grant < 0 else int(model.belief_end_row[grant]))
    if why < 0:
        return "held nothing, and had never asked for the lock", -1
    return f"held nothing: {ended(model, why, int(model.history.time[row]))}", why


def _doubt(model: Model, grant: int, row: int) -> str:
    """What speaks against a hold that is still believed in: the service's word, or a lease that must have run out."""
    time = int(model.history.time[row])
    if int(model.ended_row[grant]) < row:
        said = f"{_ago(time - int(model.ended[grant]))} (line {model.line(int(model.ended_row[grant]))})"
        return f", though the service had said {said} that it doesn't hold it"
    latest = int(model.latest[grant])
    if latest not in (NONE, INF) and latest < time and not model.unseen[grant]:
        return f", though by its ttl its lease had run out {_ago(time - latest)}"
    return ""


def _ago(ns: int) -> str:
    return f"{words.span(ns)} before that write" if ns else "at that instant"


def ended(model: Model, row: int, time: int) -> str:
    """The event because of which a contender held nothing when it wrote, at `time` (ns)."""
    history = model.history
    f, kind, line = int(history.f[row]), int(history.type[row]), model.line(row)
    ago = _ago(time - int(history.time[row]))
    if f == RELEASE:
        return f"it had given the lock back {ago} (line {line})"
    if f == LOST:
        return f"it had said {ago} (line {line}) that {lost_by(history, row) or 'it had lost the lock'}"
    if f == CRASH:
        return f"it had crashed {ago} (line {line})"
    if kind == FAIL:
        return f"its acquire of line {line} had failed"
    how = "had had no answer" if kind == INVOKE else "was of unknown outcome"
    return f"its acquire of line {line} {how}"


def lost_by(history: History, row: int) -> str | None:
    """What a contender said when it gave its hold up, by the reason of its `lost`; None where it gave none."""
    reason = int(history.reason[row])
    if reason == EXPIRED and not history.meta.expires:
        return "the service had told it that it doesn't hold it"
    return LOST_BY.get(reason)


#: What a contender said when it gave its hold up, by the reason of its `lost`.
LOST_BY = {
    EXPIRED: "the service had told it that its lease was over",
    DEADLINE: "its own deadline was over",
    DISCONNECTED: "it had lost its connection",
    RENEW_FAILED: "it could not renew",
}
