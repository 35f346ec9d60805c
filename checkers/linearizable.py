"""linearizable: is there one order of each lock's grants that explains everything that was seen?

An order, and for each grant an instant in [invoke, ok] at which it began and one at or after it at which it ended, so
that no hold begins before the one before it ended, none ends before L, the grants of one process come in their own
order, tokens never fall along it, and no two processes share one. Every stamp may be off by u/2 either way.

A given order works exactly when E(i) <= ok(j) + u for all i before j in it: begin each hold as early as the one before
allows, and end it as early as L allows. So j must come before i whenever E(i) > ok(j) + u (that is: j precedes i), and
also when its token is lower, or when it is an earlier grant of the same process; an order exists exactly when these
three kinds of edges have no cycle. That is decided without a search:

1. *All tokens known, or none.* Any cycle contains one of two holds (the lemma of `Model`'s relation: in a cycle let m
   have the greatest ok; whoever m precedes ends after all oks of the cycle), so `lease` and `fencing` have found it
   already.
2. *Some tokens missing.* Longer cycles can exist. The order of oks is tried first, for it mostly serves; else grants
   are taken away one by one, each when nothing that must come before it is left.
3. *No owners*: `checkers.mutex`.

With `certificates`, `true` comes with the order and the two instants of each hold, and every finding with the holds and
stamps that make a cycle, each next to the reason why it must come before the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from checkers import fencing, lease, mutex, pairs, words
from checkers.findings import Finding, Verdict
from checkers.intervals import INF, Model
from harness.history.events import NONE, Ints


def check(model: Model) -> Verdict:
    """False when some lock has no order, or on an early-expiry or revived; else unknown when `lease` is; else true."""
    if not model.owners:
        return mutex.check(model)
    words_of_lease = lease.check(model).valid
    single = lease.count_single(model)
    found = [_as_lease_says(finding) for finding in lease.single_findings(model)]
    stats: dict[str, Any] = {"locks": len(model.by_lock), "decided_by": _deciders(model)}
    orders: list[Ints] = []
    cycles = 0
    for group in model.by_lock:
        cycle = _cycle(model, group)
        if cycle is None:
            if model.certificates:
                orders.append(_order(model, group))
        else:
            cycles += 1
            found.append(_no_order(model, cycle))
    if single or cycles:
        return Verdict(False, words.ordered(found), single + cycles, stats)
    if words_of_lease == "unknown":
        return Verdict("unknown", stats=stats, note="lease is unknown")
    return Verdict(True, stats=stats, certificate=_certificate(model, orders) if model.certificates else None)


def _deciders(model: Model) -> list[int]:
    """Which of the deciders above the locks of this history needed."""
    used = set()
    for group in model.by_lock:
        with_token = np.count_nonzero(model.of(group, model.has_token))
        used.add(2 if 0 < with_token < len(group) else 1)
    return sorted(used)


def _cycle(model: Model, group: Ints) -> list[int] | None:
    """Grants each of which must come before the next and the last before the first; None when the lock has an order.

    A cycle of one lock is enough; of those of two holds the earliest is given.
    """
    some: list[tuple[int, int, list[int]]] = []
    pair = next(pairs.listed(model.of(group, model.ok), model.of(group, model.until)), None)
    if pair is not None:
        a, b = int(group[pair[0]]), int(group[pair[1]])
        some.append((max(a, b), 0, [a, b]))
    for number, first in enumerate((_first_clashes(model, "duplicates"), _first_clashes(model, "regressions")), 1):
        clash = first.get(int(model.lock[group[0]]))
        if clash is not None:
            some.append((max(clash), number, list(clash)))
    if some:
        return min(some)[2]
    with_token = np.count_nonzero(model.of(group, model.has_token))
    if with_token in (0, len(group)) or _is_order(model, group):
        return None
    order, left = _take_away(model, group)
    return None if order is not None else _find_cycle(model, left)


def _first_clashes(model: Model, kind: str) -> dict[int, tuple[int, int]]:
    """For each lock the first pair of grants whose tokens are at odds: `duplicates` or `regressions` of fencing."""

    def first() -> dict[int, tuple[int, int]]:
        clashes = fencing.duplicates(model) if kind == "duplicates" else fencing.regressions(model)
        locks, places = np.unique(model.lock[clashes.grant], return_index=True)
        return {
            lock: (int(clashes.before[place]), int(clashes.grant[place]))
            for lock, place in zip(locks.tolist(), places.tolist(), strict=True)
        }

    return model.once(f"first {kind}", first)


def _is_order(model: Model, order: Ints) -> bool:
    """Whether grants of one lock can have come in this order (that of one process's own grants is taken to hold)."""
    if len(order) < 2:
        return True
    ends = np.maximum.accumulate(model.E[order])[:-1]
    if bool((ends > model.ok[order][1:] + model.u).any()):
        return False
    tokened = order[model.has_token[order]]
    token, process = model.token[tokened], model.process[tokened]
    return bool(((token[1:] > token[:-1]) | ((token[1:] == token[:-1]) & (process[1:] == process[:-1]))).all())


def _order(model: Model, group: Ints) -> Ints:
    """An order of the grants of a lock that has one."""
    with_token = int(model.has_token[group].sum())
    if with_token == len(group):
        order = group[np.argsort(model.token[group], kind="stable")]
    elif with_token == 0:
        # Not by E alone: a late grant can end before one that it must follow. By min(E, ok + u), at equal keys those
        # first that may end there (proof: i before j needs E(i) <= ok(j) + u; where the key of i is E(i) that follows
        # at once, and where it is ok(i) + u < E(i), a violation would mean that j precedes i and, as no two precede
        # each other, E(j) <= ok(i) + u, so j's key is no greater, and j came first).
        until, E = model.ok[group] + model.u, model.E[group]
        order = group[np.lexsort((until < E, np.minimum(E, until)))]
    elif _is_order(model, group):
        order = group
    else:
        taken, _ = _take_away(model, group)
        if taken is None:
            raise AssertionError("a lock without an order was asked for one")
        order = np.array(taken)
    if not _is_order(model, order):
        raise AssertionError(f"the order found for lock {model.lock_name(int(group[0]))!r} does not hold")
    return order


def _take_away(model: Model, group: Ints) -> tuple[list[int] | None, list[int]]:
    """Kahn's algorithm on the three kinds of edges, of which only the nearest of each are looked at.

    A grant may go when it is the first that is left of its process, has the least token that is left (or none), and
    ends no later than the ok (+ u) of all others that are left. Gives the order, or None and what couldn't go.
    """
    grants = group.tolist()
    n = len(grants)
    ok = (model.ok[group] + model.u).tolist()
    end = model.E[group].tolist()
    by_end = np.argsort(model.E[group], kind="stable").tolist()
    after_own, blocked = _chains(model, group)
    gone = [False] * n
    order: list[int] = []
    ready = [i for i in range(n) if blocked[i] == 0]
    waiting: set[int] = set()  # those that only their end keeps
    freed = [False] * n
    first = second = ends = 0
    while True:
        while first < n and gone[first]:
            first += 1
        if first == n:
            return [grants[i] for i in order], []
        second = max(second, first + 1)
        while second < n and gone[second]:
            second += 1
        while ends < n and end[by_end[ends]] <= ok[first]:
            freed[by_end[ends]] = True
            if by_end[ends] in waiting:
                waiting.discard(by_end[ends])
                ready.append(by_end[ends])
            ends += 1
        take = -1
        while ready:
            i = ready.pop()
            if freed[i]:
                take = i
                break
            waiting.add(i)
        if take < 0 and first in waiting and (second == n or end[first] <= ok[second]):
            take = first  # its own ok doesn't bind it
            waiting.discard(first)
        if take < 0:
            return None, [grants[i] for i in range(n) if not gone[i]]
        gone[take] = True
        order.append(take)
        for i in after_own[take]:
            blocked[i] -= 1
            if blocked[i] == 0:
                ready.append(i)


def _chains(model: Model, group: Ints) -> tuple[list[list[int]], list[int]]:
    """For each grant those that come next in its process's and in its token's chain, and how many chains hold it up."""
    n = len(group)
    following: list[list[int]] = [[] for _ in range(n)]
    blocked = [0] * n
    tokened = np.flatnonzero(model.has_token[group])
    chains = [tokened[np.argsort(model.token[group][tokened], kind="stable")]]
    order = np.argsort(model.process[group], kind="stable")
    chains += np.split(order, np.flatnonzero(np.diff(model.process[group][order])) + 1)
    for chain in chains:
        for a, b in zip(chain[:-1].tolist(), chain[1:].tolist(), strict=True):
            following[a].append(b)
            blocked[b] += 1
    return following, blocked


def _find_cycle(model: Model, left: list[int]) -> list[int]:
    """A short cycle among grants of which each has another that must come before it."""
    at = left[0]
    path: list[int] = []
    place: dict[int, int] = {}
    while at not in place:
        place[at] = len(path)
        path.append(at)
        at = next(other for other in _must_come_before(model, at, left))
    cycle = path[place[at] :][::-1]
    shorter = True
    while shorter and len(cycle) > 2:
        shorter = False
        for i in range(len(cycle)):
            for j in range(2, len(cycle)):
                if reason(model, cycle[i], cycle[(i + j) % len(cycle)]) is not None:
                    # Straight from i to i + j: what lies between can be left out.
                    cycle = [cycle[(i + j + k) % len(cycle)] for k in range(len(cycle) - j + 1)]
                    shorter = True
                    break
            if shorter:
                break
    start = cycle.index(min(cycle))
    return cycle[start:] + cycle[:start]


def _must_come_before(model: Model, grant: int, left: list[int]) -> Iterator[int]:
    for other in left:
        if other != grant and reason(model, other, grant) is not None:
            yield other


def reason(model: Model, a: int, b: int) -> str | None:
    """Why grant a must come before grant b: `process`, `hold`, `token`, `shared-token`, or None when it need not."""
    if model.process[a] == model.process[b]:
        if a < b:
            return "process"
    elif model.precedes(a, b):
        return "hold"
    if model.token[a] != NONE and model.token[b] != NONE:
        if model.token[a] < model.token[b]:
            return "token"
        if model.token[a] == model.token[b] and model.process[a] != model.process[b]:
            return "shared-token"
    return None


def _as_lease_says(finding: Finding) -> Finding:
    """A finding of `lease` about one grant, told by pointing there."""
    line = finding.events[0]
    why = "the service took back that it was over" if finding.kind == "revived" else "it ended inside its promise"
    return replace(finding, text=f"No order explains the grant of line {line}: {why}, as lease says ({finding.kind}).")


def _said_elsewhere(model: Model, a: int, b: int) -> str:
    """Why there is no order of two grants, by the verdict that has said so."""
    if model.precedes(a, b) and model.precedes(b, a):
        kind = "double" if lease.is_double(model, a, b) else "early"
        return f"by what the service answered both were held at once, as lease says ({kind}-grant)"
    if "shared-token" in (reason(model, a, b), reason(model, b, a)):
        return "two contenders have the same token, as fencing says (duplicate)"
    return "the later one has the lower token, as fencing says (regression)"


def _no_order(model: Model, cycle: list[int]) -> Finding:
    """Of a cycle of two, which lease or fencing have found too, no more is said than that."""
    lock = words.lock(model, cycle[0])
    if len(cycle) == 2:
        one, other = sorted(model.line(int(model.ok_row[g])) for g in cycle)
        text = f"no order explains the grants of lines {one} and {other} of {lock}: {_said_elsewhere(model, *cycle)}"
    else:
        text = f"no order explains these grants of {lock}: {_around(model, cycle)}"
    events, time = words.lines(model, model.ok_row[cycle])
    certificate = _cycle_certificate(model, cycle) if model.certificates else None
    return Finding("no-order", model.lock_name(cycle[0]), events, words.sentence(text), time, certificate=certificate)


def _around(model: Model, cycle: list[int]) -> str:
    """The grants of a cycle, and why each comes before the next."""
    start = min(int(model.ok[g]) for g in cycle)
    steps = []
    for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        steps.append(_step(model, a, b, start))
        if reason(model, a, b) == "shared-token":
            break  # says all
    names = ", ".join(
        f"{words.who(model, g)}{words.token(model, g)} at {words.at(int(model.ok[g]), start)}" for g in cycle
    )
    return f"{names}; for {', and '.join(steps)}"


def _step(model: Model, a: int, b: int, start: int) -> str:
    """Why a comes before b, in words."""
    first, then = (f"that of line {model.line(int(model.ok_row[g]))}" for g in (a, b))
    why = reason(model, a, b)
    if why == "shared-token":
        return f"{first} and {then} are of two processes and have the same token"
    if why == "token":
        return f"{first} must come before {then}, whose token is greater"
    if why == "process":
        return f"{first} must come before {then}, a later one of the same contender"
    end = int(model.E[b])
    until = "at all" if end >= INF else f"before {words.at(end, start)}"
    return f"{first} must come before {then}, which can't have ended {until}"


def _cycle_certificate(model: Model, cycle: list[int]) -> dict[str, Any]:
    """What a person can check by hand: the holds, their stamps, and why each must come before the next."""
    return {
        "uncertainty": model.u,
        "holds": [
            {
                "line": model.line(int(model.ok_row[a])),
                "process": model.process_id(a),
                "token": _stamp(model.token[a]),
                "invoke": int(model.invoke[a]),
                "ok": int(model.ok[a]),
                "earliest_end": _stamp(model.E[a]),
                "before_next": reason(model, a, b),
            }
            for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)
        ],
    }


def _stamp(value: Any) -> int | None:
    """A time or token for people: None for an absent one and for an end that never comes."""
    number = int(value)
    return None if number == NONE or number >= INF else number


def _certificate(model: Model, orders: list[Ints]) -> dict[str, Any]:
    """For each lock its grants in an order that explains them, with an instant of grant and one of end (ns).

    All instants are shifted by u/2, so that they are integers: a grant lies in [invoke, ok + u], an end at or after L.
    An end of null is one that never comes.
    """
    locks = []
    for order in orders:
        ends = np.maximum.accumulate(model.E[order])
        starts = np.maximum(model.invoke[order], np.concatenate(([NONE], ends[:-1])))
        locks.append(
            {
                "lock": model.lock_name(int(order[0])),
                "order": [
                    {"line": line, "start": start, "end": _stamp(end)}
                    for line, start, end in zip(
                        model.history.line[model.ok_row[order]].tolist(), starts.tolist(), ends.tolist(), strict=True
                    )
                ],
            }
        )
    return {"uncertainty": model.u, "locks": locks}
