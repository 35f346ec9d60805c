"""linearizable without owners: a plain mutex that any process may release (Jepsen's `mutex`), with unknown outcomes.

Acquire ok needs it free, release ok needs it held; one of unknown outcome takes effect at some instant from its
invoke on, or never; a failed one did nothing. No expiry. Decided by one sweep over the returns: an operation is
placed when it returns, not before, save where it needs one of the other kind to go first; then the one that returns
earliest goes. Placing lazily dominates, and operations of one kind are interchangeable, so earliest deadline first is
exact.

One thing the sweep can't see: where stamps tie, or with an uncertainty, the windows of two operations of *one*
process can meet, and they still come in their own order. An answer of "no order" stands all the same (it was given
with that order left out). An order that was found is checked, and tried again by taking only operations whose own
predecessor is placed; only when that fails too a bounded search decides, and says "unknown" beyond its bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from checkers import words
from checkers.findings import Finding, Verdict, Word
from checkers.intervals import Model
from harness.history.events import ACQUIRE, FAIL, INFO, INVOKE, OK, RELEASE, Ints, group_order

#: Configurations that the search looks at before it says "unknown".
BUDGET = 50_000

_FREE, _HELD = 0, 1


@dataclass(frozen=True)
class _Operations:
    """The acquires and releases of one lock that took effect or may have, in order of their invokes."""

    needs: list[int]
    """The state that it needs, and it makes the other one: _FREE for an acquire."""
    invoke: list[int]
    """Twice the ns at which its window opens, less u."""
    ret: list[float]
    """Twice the ns at which it closes, plus u; infinity when it never does."""
    invoke_row: list[int]
    done_row: list[int]
    before: list[int]
    """The last operation of the same process that returned ok before this one was invoked; -1 for none."""
    events: list[tuple[int, int, int, int]]
    """(twice the time, 0 invoke or 1 return, row, operation), ascending: at equal times invokes come first."""


@dataclass
class _Outcome:
    """An order of operations with twice the instants at which each took effect, or the one that had no place."""

    order: list[tuple[int, int]] = field(default_factory=list)
    stuck: int = -1
    holder: int = -1
    """The last operation placed before the stuck one."""


def check(model: Model) -> Verdict:
    """The verdict on each lock as a mutex without owners."""
    found: list[Finding] = []
    answers: list[Word] = []
    orders: list[dict[str, Any]] = []
    for lock, rows in _by_lock(model):
        operations = _operations(model, rows)
        answer, outcome = decide(operations)
        answers.append(answer)
        if answer is False:
            found.append(_finding(model, lock, operations, outcome))
        elif answer is True and model.certificates and operations.needs:
            orders.append(_certificate(model, lock, operations, outcome))
    stats = {"locks": len(answers), "decided_by": [3]}
    if found:
        return Verdict(False, words.ordered(found), len(found), stats)
    if "unknown" in answers:
        return Verdict(
            "unknown", stats=stats, note=f"the search for an order was given up after {BUDGET} configurations"
        )
    certificate = {"uncertainty": model.u, "locks": orders} if model.certificates else None
    return Verdict(True, stats=stats, certificate=certificate)


def _by_lock(model: Model) -> list[tuple[int, Ints]]:
    """The invokes of the acquires and releases of each lock that has any, in order."""
    history = model.history
    rows = np.flatnonzero(((history.f == ACQUIRE) | (history.f == RELEASE)) & (history.type == INVOKE))
    if not len(rows):
        return []
    rows = rows[group_order(history.lock[rows].astype(np.int64), len(history.locks))]
    parts = np.split(rows, np.flatnonzero(np.diff(history.lock[rows])) + 1)
    return [(int(history.lock[part[0]]), part) for part in parts]


def _operations(model: Model, rows: Ints) -> _Operations:
    """The operations of one lock, from the rows of their invokes."""
    history, u = model.history, model.u
    done = history.mate[rows].astype(np.int64)
    outcome = np.where(done >= 0, history.type[done] if len(history) else INFO, INFO)
    rows, done, outcome = rows[outcome != FAIL], done[outcome != FAIL], outcome[outcome != FAIL]
    certain = outcome == OK
    invoke = 2 * history.time[rows] - u
    ret = 2 * history.time[done] + u if len(history) else np.empty(0, dtype=np.int64)
    before = _own_predecessors(history.process[rows].tolist(), rows.tolist(), np.where(certain, done, -1).tolist())
    place = np.arange(len(rows))
    kinds = np.concatenate((np.zeros(len(rows), dtype=np.int64), np.ones(int(certain.sum()), dtype=np.int64)))
    times = np.concatenate((invoke, ret[certain]))
    at_row = np.concatenate((rows, done[certain]))
    of = np.concatenate((place, place[certain]))
    order = np.lexsort((at_row, kinds, times))
    return _Operations(
        needs=(history.f[rows] == RELEASE).astype(int).tolist(),
        invoke=invoke.tolist(),
        ret=[at if sure else float("inf") for at, sure in zip(ret.tolist(), certain.tolist(), strict=True)],
        invoke_row=rows.tolist(),
        done_row=np.where(certain, done, -1).tolist(),
        before=before,
        events=list(
            zip(times[order].tolist(), kinds[order].tolist(), at_row[order].tolist(), of[order].tolist(), strict=True)
        ),
    )


def _own_predecessors(process: Sequence[int], row: Sequence[int], done: Sequence[int]) -> list[int]:
    """For each operation the last one of its process that returned before it was invoked."""
    last: dict[int, int] = {}
    open_: dict[int, list[tuple[int, int]]] = {}
    before = []
    for i, own in enumerate(process):
        pending = open_.setdefault(own, [])
        returned = [(at, j) for at, j in pending if at < row[i]]
        if returned:
            last[own] = max(returned)[1]
            open_[own] = pending = [entry for entry in pending if entry[0] > row[i]]
        before.append(last.get(own, -1))
        if done[i] >= 0:
            pending.append((done[i], i))
    return before


def decide(operations: _Operations) -> tuple[Word, _Outcome]:
    """Whether there is an order, and the order or the operation that has no place in any."""
    outcome = _sweep(operations, own_order=False)
    if outcome.stuck >= 0:
        return False, outcome
    place = {i: number for number, (i, _) in enumerate(outcome.order)}
    before = operations.before
    if all(before[i] < 0 or place[before[i]] < number for i, number in place.items()):
        return True, outcome
    outcome = _sweep(operations, own_order=True)
    return (True, outcome) if outcome.stuck < 0 else _search(operations)


def _sweep(operations: _Operations, own_order: bool) -> _Outcome:
    needs, ret, before = operations.needs, operations.ret, operations.before
    pending: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])
    placed = [False] * len(needs)
    outcome = _Outcome()
    state = _FREE
    for time, returns, _, i in operations.events:
        if not returns:
            heapq.heappush(pending[needs[i]], (ret[i], i))
            continue
        if placed[i]:
            continue
        if needs[i] != state:
            # One of the other kind has to go first: of those that are open, the one that returns earliest.
            other = _earliest(pending[state], placed, before if own_order else None)
            if other < 0:
                outcome.stuck = i
                outcome.holder = outcome.order[-1][0] if outcome.order else -1
                return outcome
            placed[other] = True
            outcome.order.append((other, time))
            state = 1 - state
        placed[i] = True
        outcome.order.append((i, time))
        state = 1 - state
    return outcome


def _earliest(heap: list[tuple[float, int]], placed: list[bool], before: list[int] | None) -> int:
    """Takes the operation that returns earliest from a heap, -1 when there is none. With `before`, only one whose own
    predecessor is placed."""
    passed: list[tuple[float, int]] = []
    found = -1
    while heap:
        entry = heapq.heappop(heap)
        if placed[entry[1]]:
            continue
        if before is not None and before[entry[1]] >= 0 and not placed[before[entry[1]]]:
            passed.append(entry)
            continue
        found = entry[1]
        break
    for entry in passed:
        heapq.heappush(heap, entry)
    return found


def _search(operations: _Operations) -> tuple[Word, _Outcome]:
    """Just-in-time linearization (Lowe 2017): all states that the mutex can be in, return by return.

    A configuration is the state with the open operations that were placed already. Gives no instants: they are found by
    walking back through what each configuration came from.
    """
    needs, before = operations.needs, operations.before
    open_: list[int] = []
    closed: set[int] = set()
    Config = tuple[int, frozenset[int]]
    configs: dict[Config, Any] = {(_FREE, frozenset()): None}
    spent = 0
    for time, returns, _, x in operations.events:
        if not returns:
            open_.append(x)
            continue
        reached: dict[Config, Any] = {}
        stack = list(configs.items())
        seen = set(configs)
        while stack:
            (state, placed), trace = stack.pop()
            spent += 1
            if spent > BUDGET:
                return "unknown", _Outcome()
            if x in placed:
                reached.setdefault((state, placed - {x}), trace)
                continue
            for y in open_:
                if needs[y] != state or y in placed:
                    continue
                if before[y] >= 0 and before[y] not in closed and before[y] not in placed:
                    continue
                config = (1 - state, placed | {y})
                if config not in seen:
                    seen.add(config)
                    stack.append((config, (trace, y, time)))
        if not reached:
            trace = next(iter(configs.values()))
            return False, _Outcome(stuck=x, holder=-1 if trace is None else trace[1])
        configs = reached
        open_.remove(x)
        closed.add(x)
    outcome = _Outcome()
    trace = next(iter(configs.values()))
    while trace is not None:
        trace, y, time = trace
        outcome.order.append((y, time))
    outcome.order.reverse()
    return True, outcome


def _finding(model: Model, lock: int, operations: _Operations, outcome: _Outcome) -> Finding:
    history = model.history
    i, y = outcome.stuck, outcome.holder
    rows = [operations.invoke_row[i], operations.done_row[i]]
    first = operations.invoke_row[y] if y >= 0 else rows[0]
    if y >= 0:
        rows.append(operations.done_row[y] if operations.done_row[y] >= 0 else operations.invoke_row[y])
    start = int(history.time[min(first, rows[0])])
    me = f"contender {history.process_name(rows[0])}"
    what = "release" if operations.needs[i] else "acquire"
    when = words.after(int(history.time[rows[1]]), start)
    if y < 0:
        why = "but nobody had acquired it"
    else:
        other = f"contender {history.process_name(operations.invoke_row[y])}"
        line = model.line(operations.invoke_row[y])
        if operations.needs[i]:
            why = (
                f"but it was free: {other} had released it (line {line}), and no acquire was open that could go before"
            )
        else:
            why = (
                f"but it was held: {other} had acquired it (line {line}), and no release was open that could go before"
            )
    name = history.locks[lock]
    text = f"the {what} of lock {name!r} by {me} returned ok {when}, {why}"
    events, time = words.lines(model, rows)
    certificate = None
    if model.certificates:
        certificate = {
            "uncertainty": model.u,
            "operations": [
                {
                    "line": model.line(operations.invoke_row[j]),
                    "f": "release" if operations.needs[j] else "acquire",
                    "process": history.process_name(operations.invoke_row[j]),
                    "invoke": int(history.time[operations.invoke_row[j]]),
                    "ok": int(history.time[operations.done_row[j]]) if operations.done_row[j] >= 0 else None,
                }
                for j in ([y] if y >= 0 else []) + [i]
            ],
        }
    return Finding("no-order", name, events, words.sentence(text), time, certificate=certificate)


def _certificate(model: Model, lock: int, operations: _Operations, outcome: _Outcome) -> dict[str, Any]:
    """The operations in an order that explains them, each with its instant (ns, shifted by u/2: it lies in
    [invoke, ok + u])."""
    return {
        "lock": model.history.locks[lock],
        "order": [
            {
                "line": model.line(operations.invoke_row[i]),
                "f": "release" if operations.needs[i] else "acquire",
                "at": (time + model.u) // 2,
            }
            for i, time in outcome.order
        ],
    }
