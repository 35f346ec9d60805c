"""conduct: did each contender act only while it believed, and leave alone what it had given up?

What the contenders did, by their own account: no clock and no other process is looked at, only the events of one
process and one lock, in their order. `unheld-write`: a write that took effect, or may have, outside every belief of its
process in that lock. `stray-renew`: a renew that returned ok outside every belief, of a lock that the process had never
been granted, had given up (a release or a crash), or had lost more than a ttl before: somebody who gave the lock up
keeps it from everybody else. Unknown without owners, or with neither a finding nor a grant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers import words
from checkers.findings import LISTED, Finding, Verdict
from checkers.intervals import Model, lengths
from checkers.standing import keys, lost_by, outcome, ungranted
from harness.history.events import (
    ACQUIRE,
    CRASH,
    FAIL,
    INVOKE,
    LOST,
    OK,
    RELEASE,
    RENEW,
    RESOURCES,
    WRITE,
    Bools,
    Ints,
    group_order,
)


def check(model: Model) -> Verdict:
    """False with any finding; unknown without owners, or when nobody was granted anything; else true."""
    outside = _outside_of_belief(model)
    writes = outside.where(model.history.f[outside.row] == WRITE)
    acted = writes.where(outcome(model, writes.row) != FAIL)
    renews = _strays(model, outside.where(model.history.f[outside.row] == RENEW))
    stats = {"unheld_writes": len(writes.row), "stray_renews": len(renews.row)}
    if not model.owners:
        return Verdict("unknown", stats=stats, note="a history without owners says nothing of who held the lock")
    firsts, lasts = renews.groups()
    total = len(acted.row) + len(firsts)
    if total:
        found = _unheld(model, acted) + _stray(model, renews, firsts, lasts)
        return Verdict(False, words.ordered(found), total, stats)
    if not len(model):
        return Verdict("unknown", stats=stats, note="no grant")
    return Verdict(True, stats=stats)


@dataclass(frozen=True, eq=False)
class _Acts:
    """Writes and renews by the rows of their invokes: those of one process and lock side by side and in order."""

    row: Ints
    key: Ints
    """Of its process and lock."""
    grant: Ints
    """The last grant of that process and lock before it, -1 where there was none."""

    def where(self, chosen: Bools) -> _Acts:
        return _Acts(self.row[chosen], self.key[chosen], self.grant[chosen])

    def groups(self) -> tuple[Ints, Ints]:
        """The places of the first and of the last of those after one grant, or before any of its process and lock."""
        if not len(self.row):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        changes = (self.grant[1:] != self.grant[:-1]) | (self.key[1:] != self.key[:-1])
        firsts = np.concatenate(([0], np.flatnonzero(changes) + 1))
        return firsts, np.append(firsts[1:], len(self.row)) - 1


def _outside_of_belief(model: Model) -> _Acts:
    """The writes, and the renews that returned ok, invoked outside every belief of their process in their lock."""
    history = model.history
    narrow = model.ok_row.dtype
    told = (history.f == WRITE) & (history.type == INVOKE)
    told[history.mate[(history.f == RENEW) & (history.type == OK)]] = True
    told[model.ok_row] = True
    rows: Ints = np.flatnonzero(told).astype(narrow)
    del told
    locks = len(history.locks)
    key = keys(model, rows) if locks > 1 else history.process[rows]
    order = group_order(key, max(1, len(history.processes)) * locks)
    rows, key = rows[order], key[order]
    del order
    is_grant = history.f[rows] == ACQUIRE
    grant_at, at = np.flatnonzero(is_grant).astype(narrow), np.flatnonzero(~is_grant).astype(narrow)
    row, key_here = rows[at], key[at]
    if not len(model):
        return _Acts(row, keys(model, row), np.full(len(row), -1, narrow))
    # The last grant is the nearest to the left, if it is of the same group. What is no grant has as many grants to the
    # left as its place is ahead of its number.
    nearest = at - np.arange(1, len(at) + 1, dtype=narrow)
    granted = (nearest >= 0) & (key[grant_at][nearest] == key_here)
    grant = np.searchsorted(model.ok_row, rows[grant_at]).astype(narrow)[nearest]
    grant[~granted] = -1
    outside = np.flatnonzero(~granted | (row > model.belief_end_row[grant]))
    # Keys that are reckoned with are wide: what told the groups apart may be processes in 8 bits.
    return _Acts(row[outside], keys(model, row[outside]), grant[outside])


# -- renews -----------------------------------------------------------------------------------------------------------


def _strays(model: Model, renews: _Acts) -> _Acts:
    """Of renews outside of belief those of a lock that was never had, given up, or lost long before."""
    history, n = model.history, len(model.history)
    if not len(renews.row):
        return renews
    given = _given_up(model, renews)
    ended = np.where(renews.grant >= 0, model.belief_end_row[renews.grant] if len(model) else n, n)
    lost = np.zeros(len(renews.row), dtype=bool)
    known = ended < n
    lost[known] = history.f[ended[known]] == LOST
    ttl = model.ttl[renews.grant[lost]]
    since = history.time[renews.row[lost]] - history.time[ended[lost]]
    lost[lost] = ~np.isnan(ttl) & (since > lengths(np.where(np.isnan(ttl), 0.0, ttl), 1.0))
    return renews.where((renews.grant < 0) | (given < renews.row) | lost)


def _given_up(model: Model, renews: _Acts) -> Ints:
    """The first release invoke or crash since the last grant before each renew, `len(history)` where there is none."""
    history, n = model.history, len(model.history)
    given = np.full(len(renews.row), n, dtype=np.int64)
    if not len(model):
        return given
    released = np.flatnonzero((history.f == RELEASE) & (history.type == INVOKE))
    since = np.sort(keys(model, released) * n + released)
    had = np.flatnonzero(renews.grant >= 0)
    asked = renews.key[had] * n + model.ok_row[renews.grant[had]]
    at = np.searchsorted(since, asked)
    some = at < len(since)
    release = since[at[some]]
    # One of another process or lock is none.
    given[had[some]] = np.where(release // n == renews.key[had[some]], release % n, n)
    given[had] = np.minimum(given[had], model.crash_row[renews.grant[had]])
    return given


def _stray(model: Model, renews: _Acts, firsts: Ints, lasts: Ints) -> list[Finding]:
    """One finding for the renews after each grant, as many as are listed."""
    if not len(firsts):
        return []
    # Each ends with the ok of its first renew.
    first_of_all = np.argsort(model.history.mate[renews.row[firsts]], kind="stable")[:LISTED]
    firsts, lasts = firsts[first_of_all], lasts[first_of_all]
    leading = _Acts(renews.row[firsts], renews.key[firsts], renews.grant[firsts])
    given = _given_up(model, leading)
    found = []
    for k, (first, grant) in enumerate(zip(leading.row.tolist(), leading.grant.tolist(), strict=True)):
        since = int(given[k]) if given[k] < first else -1 if grant < 0 else int(model.belief_end_row[grant])
        more = int(lasts[k] - firsts[k])
        found.append(_stray_finding(model, first, int(renews.row[lasts[k]]), since, more))
    return found


def _stray_finding(model: Model, first: int, last: int, since: int, more: int) -> Finding:
    """Of the renews from row `first` to `last`, `more` after the first; `since` is what gave the lock up, or -1."""
    history = model.history
    who, name = f"contender {history.process_name(first)}", history.locks[int(history.lock[first])]
    sent, ended = int(history.time[first]), int(history.time[last])
    start = sent if since < 0 else int(history.time[since])
    again = f" (and {more} more, the last {words.span(ended - start)} after that)" if more else ""
    if since < 0:
        text = f"{who}, which had never been granted lock {name!r}, sent a renew of it that succeeded{again}"
    else:
        when = words.after(sent, start) + (", more than a ttl," if history.f[since] == LOST else "")
        gone = "said that it had lost" if history.f[since] == LOST else "given up"
        text = (
            f"{who} {_what(model, since, name)}; {when} it sent a renew all the same, which succeeded{again}: it "
            f"keeps from everybody else what it had {gone}"
        )
    events, time = words.lines(model, (int(history.mate[first]), since))
    text = words.sentence(text) + words.meanwhile(model, start, sent)
    return Finding("stray-renew", name, events, text, time, words.seconds(ended - start))


# -- writes -----------------------------------------------------------------------------------------------------------


def _unheld(model: Model, writes: _Acts) -> list[Finding]:
    """One finding a write, as many as are listed."""
    if not len(writes.row):
        return []
    done = model.history.mate[writes.row]
    last = np.where(done >= 0, done, writes.row)
    found = []
    for k in np.argsort(last, kind="stable")[:LISTED].tolist():
        row, grant = int(writes.row[k]), int(writes.grant[k])
        why = -1 if grant < 0 else int(model.belief_end_row[grant])
        why = max(why, ungranted(model, row))
        found.append(_unheld_finding(model, row, int(last[k]), why))
    return found


def _unheld_finding(model: Model, invoke: int, last: int, why: int) -> Finding:
    """Of the write invoked in row `invoke`; `why` is the row that says that it believed in nothing then, or -1."""
    history = model.history
    who, name = f"contender {history.process_name(invoke)}", history.locks[int(history.lock[invoke])]
    resource = RESOURCES[int(history.resource[invoke])]
    became = (
        "it was accepted" if last != invoke and history.type[last] == OK else "nobody knows whether it was accepted"
    )
    text = f"{who} sent a write to the {resource} resource under lock {name!r}"
    if why < 0:
        text = f"{text} without having asked for it: {became}"
    else:
        when = words.after(int(history.time[invoke]), int(history.time[why]))
        sent = f"{when} it sent a write to the {resource} resource under it all the same"
        text = f"{who} {_what(model, why, name)}; {sent}: {became}"
    events, time = words.lines(model, (last, why))
    return Finding("unheld-write", name, events, words.sentence(text), time)


def _what(model: Model, row: int, name: str) -> str:
    """The event because of which a contender didn't believe that it held a lock."""
    history = model.history
    f, kind = int(history.f[row]), int(history.type[row])
    if f == RELEASE:
        return f"released lock {name!r}"
    if f == LOST:
        by = lost_by(history, row)
        return f"noticed that it had lost lock {name!r}" + ("" if by is None else f" ({by})")
    if f == CRASH:
        return f"crashed, and with it its hold of lock {name!r}"
    if kind == INVOKE:
        return f"asked for lock {name!r}, and had no answer"
    return (
        f"was refused lock {name!r}"
        if kind == FAIL
        else f"asked for lock {name!r}, and never learned whether it got it"
    )
