"""The accepted writes of a resource: stale ones, and updates that were lost. `fenced` and `damage` both judge by this.

Each lock by itself, in the resource's own order (`seq`); where some accepted write lacks its `seq`, the order in time
serves if it is certain, and else no stale and no lost ones are looked for in that lock. What an audit tells of a write
(`checkers.audits`) needs no order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from checkers import audits, fencing, standing, words
from checkers.findings import LISTED, Finding, Verdict, Word
from checkers.intervals import Model
from harness.history.columns import Sparse
from harness.history.events import FAIL, FENCED, INFO, INVOKE, NONE, OK, RESOURCES, History, Ints, group_order


@dataclass(frozen=True, eq=False)
class _Writes:
    """Some writes of one resource: rows of their invokes and completions (-1 without one).

    Their keys are looked up when they are asked for. Those of the completion win.
    """

    history: History
    invoke: Ints
    done: Ints

    def take(self, chosen: Ints) -> _Writes:
        return _Writes(self.history, self.invoke[chosen], self.done[chosen])

    def __len__(self) -> int:
        return len(self.invoke)

    @cached_property
    def token(self) -> Ints:
        return self._key(self.history.token)

    @cached_property
    def read(self) -> Ints:
        return self._key(self.history.read)

    @cached_property
    def version(self) -> Ints:
        return self._key(self.history.version)

    @cached_property
    def seq(self) -> Ints:
        """Of the completion alone."""
        return self._answered(self.history.seq)

    @cached_property
    def lock(self) -> Ints:
        return self.history.lock[self.invoke]

    @cached_property
    def process(self) -> Ints:
        return self.history.process[self.invoke]

    def _key(self, column: Sparse) -> Ints:
        answered = self._answered(column)
        absent = np.flatnonzero(answered == NONE)
        answered[absent] = column[self.invoke[absent]]
        return answered

    def _answered(self, column: Sparse) -> Ints:
        key: Ints = column[self.done]
        key[self.done < 0] = NONE
        return key


def judge(model: Model, resource: int) -> Verdict:
    """The verdict on one resource: false with any finding; unknown without accepted writes, or where their order isn't
    known; else true."""
    history = model.history
    every, outcome = _gather(history, resource)
    accepted, maybe = every.take(np.flatnonzero(outcome == OK)), every.take(np.flatnonzero(outcome == INFO))
    found: list[Finding] = []
    stale = lost = 0
    untold: list[str] = []
    for group in _by_lock(accepted, len(history.locks)):
        name = history.locks[int(accepted.lock[group[0]])]
        order = _order(model, accepted, group)
        if order is None:
            untold.append(name)
            continue
        whole = order is group and len(group) == len(accepted)  # as they stand
        writes = accepted if whole else accepted.take(order)
        old = _stale(writes)
        gone = _lost(model, writes, maybe.take(np.flatnonzero(maybe.lock == writes.lock[0])))
        stale, lost = stale + len(old), lost + len(gone)
        found += [_stale_finding(model, writes, i, j, resource) for i, j in _first(model, writes, old)]
        found += [_lost_finding(model, writes, i, j, resource) for i, j in _first(model, writes, gone)]
    audited = audits.look(model, resource, every.invoke, every.done, outcome)
    found += audited.findings
    stats = {
        "writes": len(accepted),
        "stale": stale,
        "lost": lost,
        "looked_for": audited.looked_for,
        "gone": audited.gone,
        "ghosts": audited.ghosts,
        "unknown_outcome": len(maybe),
    }
    fallen = _refusals(model, every.take(np.flatnonzero(outcome == FAIL))) if resource == FENCED else None
    if found:
        return Verdict(False, words.ordered(found), stale + lost + audited.gone + audited.ghosts, stats, note=fallen)
    note = None
    if not len(accepted):
        note = f"there is no write that the {RESOURCES[resource]} resource accepted"
    elif untold:
        locks = ", ".join(repr(name) for name in untold)
        note = f"in what order the writes under {locks} were accepted is not known"
    valid: Word = True if note is None else "unknown"
    return Verdict(valid, stats=stats, note="; ".join(part for part in (note, fallen) if part) or None)


def _refusals(model: Model, refused: _Writes) -> str | None:
    """What a fence refused, in words; None where that is nothing. It may have been those who held the lock, where their
    token was a fallen one: that is told by itself."""
    if not len(refused):
        return None
    wronged = _refused_holders(model, refused) if model.owners else None
    if wronged is not None:
        return wronged
    i = int(np.argmin(refused.done))
    token = "" if refused.token[i] == NONE else f" with token {int(refused.token[i])}"
    first = f"line {model.line(int(refused.done[i]))}: {_writer(model, refused, i)}{token}"
    return f"it refused {f'{len(refused):,} writes (the first in ' if len(refused) > 1 else 'a write ('}{first})"


def _refused_holders(model: Model, refused: _Writes) -> str | None:
    """The writes that were refused because the token of whoever held the lock had fallen; None where none were."""
    falls = fencing.regressions(model)
    before = dict(zip(falls.grant.tolist(), falls.before.tolist(), strict=True))
    suspects = np.flatnonzero(np.isin(refused.token, model.token[falls.grant]))
    told: list[tuple[int, int]] = []
    for i in suspects.tolist():
        grant = standing.believed(model, int(refused.invoke[i]))
        if grant in before and int(refused.token[i]) == int(model.token[grant]):
            told.append((i, grant))
    if not told:
        return None
    i, grant = told[0]
    shut_out = (
        f"{len(told):,} writes of contenders that held the lock were"
        if len(told) > 1
        else "a write of a contender that held the lock was"
    )
    first = (
        f"line {model.line(int(refused.done[i]))}: contender {model.process_id(grant)} with token "
        f"{int(refused.token[i])}, after token {int(model.token[before[grant]])}"
    )
    return f"no stale write got through, but {shut_out} refused, because tokens had fallen ({first})"


def _gather(history: History, resource: int) -> tuple[_Writes, Ints]:
    """The writes of a resource, and what became of each (OK, FAIL or INFO)."""
    mine = history.resource == resource
    mine &= history.type == INVOKE  # only a write has a resource
    invoke = np.flatnonzero(mine).astype(history.mate.dtype)
    done = history.mate[invoke]
    outcome = history.type[done] if len(done) else np.empty(0, np.int8)
    outcome[done < 0] = INFO
    return _Writes(history, invoke, done), outcome


def _by_lock(writes: _Writes, locks: int) -> list[Ints]:
    if not len(writes):
        return []
    if locks == 1:
        return [np.arange(len(writes), dtype=writes.invoke.dtype)]
    order = group_order(writes.lock.astype(np.int64), locks)
    return np.split(order, np.flatnonzero(np.diff(writes.lock[order])) + 1)


def _order(model: Model, writes: _Writes, group: Ints) -> Ints | None:
    """The order in which a lock's writes were accepted, None where it isn't known."""
    seq = writes.seq[group]
    if bool((seq != NONE).all()):
        if bool((seq[1:] > seq[:-1]).all()):
            return group
        return group[np.lexsort((writes.done[group], seq))]
    order = group[np.argsort(writes.done[group])]
    done, invoke = writes.done[order][:-1], writes.invoke[order][1:]
    process = writes.process[order]
    time = model.history.time
    # Each before the next makes each before all that follow: an invoke never comes after its own ok.
    certain = np.where(process[1:] == process[:-1], done < invoke, time[done] + model.u < time[invoke])
    return order if bool(certain.all()) else None


def _stale(writes: _Writes) -> list[tuple[int, int]]:
    """The stale writes, each with the one before it that has the greatest token (the earliest of them)."""
    token = writes.token
    if not len(token):
        return []
    highest = np.maximum.accumulate(token)
    stale = np.flatnonzero((token[1:] != NONE) & (token[1:] < highest[:-1])) + 1
    rises = np.flatnonzero(np.concatenate(([True], highest[1:] > highest[:-1])))
    before = rises[np.searchsorted(rises, stale, "left") - 1]
    return list(zip(before.tolist(), stale.tolist(), strict=True))


def _lost(model: Model, writes: _Writes, maybe: _Writes) -> list[tuple[int, int]]:
    """The writes that were not made on the version before them, each with the write before it."""
    read, made = writes.read[1:], writes.version[:-1]
    suspects = np.flatnonzero((read != NONE) & (made != NONE) & (read != made))
    if not len(maybe) or not len(suspects):
        return [(i, i + 1) for i in suspects.tolist()]
    explain = _Explainer(model, maybe)
    return [(i, i + 1) for i in suspects.tolist() if not explain(writes, i + 1, int(made[i]), int(read[i]))]


class _Explainer:
    """Whether writes of unknown outcome can lead from one version to another.

    Each goes from what it read to what it would have made, and counts for a write w unless it was invoked after w
    returned. One that gives no read or no version explains anything.
    """

    def __init__(self, model: Model, maybe: _Writes) -> None:
        self.model = model
        self.edges: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        times = model.history.time[maybe.invoke]
        wild = (maybe.read == NONE) | (maybe.version == NONE)
        for i in np.flatnonzero(~wild).tolist():
            edge = (int(times[i]), int(maybe.invoke[i]), int(maybe.process[i]), int(maybe.version[i]))
            self.edges[int(maybe.read[i])].append(edge)
        # Of the wild ones only the earliest matters: of one's own by row, of the others' by time. The two earliest of
        # different processes give the others' for any process.
        self.wild_row: dict[int, int] = {}
        self.wild_times: list[tuple[int, int]] = []
        for i in np.flatnonzero(wild)[np.argsort(maybe.invoke[wild])].tolist():
            process = int(maybe.process[i])
            if process not in self.wild_row:
                self.wild_row[process] = int(maybe.invoke[i])
                if len(self.wild_times) < 2:
                    self.wild_times.append((int(times[i]), process))

    def __call__(self, writes: _Writes, at: int, made: int, read: int) -> bool:
        row, process = int(writes.done[at]), int(writes.process[at])
        limit = int(self.model.history.time[row]) + self.model.u
        own = self.wild_row.get(process)
        if own is not None and own < row:
            return True
        if any(of != process and time <= limit for time, of in self.wild_times):
            return True
        seen, reached = {made}, [made]
        while reached:
            for time, invoke, of, version in self.edges.get(reached.pop(), ()):
                if (invoke > row if of == process else time > limit) or version in seen:
                    continue
                if version == read:
                    return True
                seen.add(version)
                reached.append(version)
        return False


def _first(model: Model, writes: _Writes, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The first that will be listed, by the time of the later event."""
    if len(found) <= LISTED:
        return found
    last = np.array([max(int(writes.done[i]), int(writes.done[j])) for i, j in found])
    return [found[k] for k in np.argsort(last, kind="stable")[:LISTED].tolist()]


def _writer(model: Model, writes: _Writes, i: int) -> str:
    return f"contender {model.history.processes[int(writes.process[i])]}"


def _what_they_held(model: Model, writes: _Writes, pair: tuple[int, int]) -> tuple[str, list[int]]:
    """What each of two writers held of the lock when it wrote, in sentences, and the rows that say: nothing."""
    told, rows = dict[str, None](), []
    for i in pair:
        held, why = standing.held(model, int(writes.invoke[i]))
        told[words.sentence(f"{_writer(model, writes, i)} {held}")] = None
        rows.append(why)
    return " ".join(told), rows


def _stale_finding(model: Model, writes: _Writes, i: int, j: int, resource: int) -> Finding:
    rows = (int(writes.done[i]), int(writes.done[j]))
    first, second = (int(model.history.time[row]) for row in rows)
    held, why = _what_they_held(model, writes, (i, j))
    text = (
        f"a write of {_writer(model, writes, i)} with token {int(writes.token[i])} was accepted by the "
        f"{RESOURCES[resource]} resource; {words.after(second, first)} one of {_writer(model, writes, j)} with the "
        f"older token {int(writes.token[j])} was accepted after it. {held}"
    )
    events, time = words.lines(model, (*rows, *why))
    return Finding("stale-write", model.history.locks[int(writes.lock[j])], events, words.sentence(text), time)


def _lost_finding(model: Model, writes: _Writes, i: int, j: int, resource: int) -> Finding:
    rows = (int(writes.done[i]), int(writes.done[j]))
    first, second = (int(model.history.time[row]) for row in rows)
    (one, why), (other, reason) = (standing.held(model, int(writes.invoke[each])) for each in (i, j))
    text = (
        f"{_writer(model, writes, i)} made version {int(writes.version[i])} of the {RESOURCES[resource]} resource. It "
        f"{one}. The next write that was accepted, of {_writer(model, writes, j)}, answered "
        f"{words.after(second, first)}, had been made from version {int(writes.read[j])}: what lay between was lost"
    )
    if (writes.process[i], one) != (writes.process[j], other):
        text += f". {words.sentence(_writer(model, writes, j))[:-1]} {other}"
    events, time = words.lines(model, (writes.invoke[j], *rows, why, reason))
    return Finding("lost-update", model.history.locks[int(writes.lock[j])], events, words.sentence(text), time)
