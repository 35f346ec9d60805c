"""fencing: did tokens strictly rise in grant order?

`duplicate`: the grant before b with the same token, in order of ok, is of another process. `regression`: some a with a
greater token was granted before b; that is, a is an earlier grant of the same process, or a.ok is before b.invoke (real
time), or a precedes b and b doesn't precede a (hold order).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers import pairs, words
from checkers.findings import LISTED, Finding, Verdict
from checkers.intervals import Model
from harness.history.events import Ints, group_order

#: Of so few fallen tokens each is looked at by itself, which costs one pass over the grants.
_FEW = 16


def check(model: Model) -> Verdict:
    """False with any finding; unknown when no grant, or fewer than half of them, has a token; else true."""
    return model.once("fencing", lambda: _check(model))


@dataclass(frozen=True, eq=False)
class Regressions:
    """Grants whose token is lower than that of one granted before, each with the a that the finding names."""

    grant: Ints
    before: Ints


def regressions(model: Model) -> Regressions:
    """One for each b that has an a with a greater token granted before it, with the a of the greatest token."""
    return model.once("regressions", lambda: _regressions(model))


def duplicates(model: Model) -> Regressions:
    """The grants with the token of another process's, each with the grant before it that has the same."""
    return model.once("duplicates", lambda: _duplicates(model))


def _check(model: Model) -> Verdict:
    with_token = int(model.has_token.sum())
    count, unordered, gaps = _figures(model)
    stats = {
        "pairs": count,
        "unordered_pairs": unordered,
        "without_token": len(model) - with_token,
        "gaps": gaps,
    }
    if not model.owners:
        return Verdict("unknown", stats=stats, note="a history without owners says nothing of who held the lock")
    twice, falls = duplicates(model), regressions(model)
    total = len(twice.grant) + len(falls.grant)
    if total:
        found = [_duplicate(model, int(a), int(b)) for a, b in zip(twice.before, twice.grant, strict=True)][:LISTED]
        # By b's ok, which is the last of a finding's events save when a was granted later in time but first in order.
        last = np.maximum(falls.grant, falls.before)
        for i in np.argsort(last, kind="stable")[:LISTED].tolist():
            found.append(_regression(model, int(falls.before[i]), int(falls.grant[i])))
        return Verdict(False, words.ordered(found), total, stats)
    if not with_token:
        return Verdict("unknown", stats=stats, note="no grant has a token")
    if 2 * with_token < len(model):
        return Verdict("unknown", stats=stats, note=f"only {with_token} of {len(model)} grants have a token")
    return Verdict(True, stats=stats)


def _tokened(model: Model) -> list[Ints]:
    """The grants with tokens of each lock that has any, in order of ok."""
    if bool(model.has_token.all()):
        return model.by_lock
    groups = (group[model.has_token[group]] for group in model.by_lock)
    return [group for group in groups if len(group)]


def _duplicates(model: Model) -> Regressions:
    grants: list[Ints] = [np.empty(0, dtype=np.int64)]
    before: list[Ints] = [np.empty(0, dtype=np.int64)]
    for group in _tokened(model):
        token = model.of(group, model.token)
        if bool((token[1:] > token[:-1]).all()):
            continue
        ascending = np.sort(token)  # far cheaper than to argsort, and mostly all that it takes
        if bool((ascending[1:] > ascending[:-1]).all()):
            continue
        order = np.argsort(token, kind="stable")
        group, token = group[order], token[order]
        process = model.process[group]
        twice = np.flatnonzero((token[1:] == token[:-1]) & (process[1:] != process[:-1]))
        grants.append(group[twice + 1])
        before.append(group[twice])
    grant, earlier = np.concatenate(grants), np.concatenate(before)
    order = np.argsort(grant)
    return Regressions(grant[order], earlier[order])


def _regressions(model: Model) -> Regressions:
    grants: list[Ints] = [np.empty(0, dtype=np.int64)]
    before: list[Ints] = [np.empty(0, dtype=np.int64)]
    for group in _tokened(model):
        best = _greatest_before(model, group)
        some = np.flatnonzero(best >= 0)
        some = some[model.token[group[best[some]]] > model.token[group[some]]]
        grants.append(group[some])
        before.append(group[best[some]])
    grant, earlier = np.concatenate(grants), np.concatenate(before)
    order = np.argsort(grant)
    return Regressions(grant[order], earlier[order])


def _greatest_before(model: Model, group: Ints) -> Ints:
    """For each grant of one lock's (with tokens, in order of ok) the place of the one with the greatest token granted
    before it, -1 where there is none or none can be greater; ties go to the earliest ok."""
    token, ok, u = model.of(group, model.token), model.of(group, model.ok), model.u
    n = len(group)
    if not _any_before_later(model, group):
        # Whoever was granted before has an earlier ok: only tokens below an earlier one can have fallen.
        if bool((token[1:] >= token[:-1]).all()):
            return np.full(n, -1, dtype=np.int64)
        fell = np.flatnonzero(token[1:] < np.maximum.accumulate(token)[:-1]) + 1
        if len(fell) <= _FEW:
            return _greatest_before_each(model, group, fell)
    # A rank that orders by token, ties by the earlier ok: one maximum then names the a of the finding.
    rank = np.empty(n, dtype=np.int64)
    rank[np.lexsort((-np.arange(n), token))] = np.arange(n)
    place_of_rank = np.empty(n, dtype=np.int64)
    place_of_rank[rank] = np.arange(n)

    best = _by_own_order(model.process[group], rank)
    highest = np.maximum.accumulate(rank)

    def upto(limit: Ints) -> Ints:
        """The greatest rank of those with ok < limit."""
        prefix = np.searchsorted(ok, limit, "left")
        return np.where(prefix > 0, highest[prefix - 1], -1)

    best = np.maximum(best, upto(model.invoke[group] - u))
    # Hold order: a precedes b and b doesn't precede a. The second half matters only where some pair does both.
    E = model.E[group]
    held = upto(E - u)
    a = place_of_rank[held]
    both = (held >= 0) & (E[a] > ok + u) & (a != np.arange(n))
    if both.any():
        asked = np.flatnonzero(both)
        held[asked] = _greatest_under(rank, E, np.searchsorted(ok, E[asked] - u, "left"), ok[asked] + u)
    best = np.maximum(best, held)
    # A grant may come out as its own "before" (E(b) > b.ok): never greater than itself, so it does no harm.
    return np.where(best >= 0, place_of_rank[best], -1)


def _greatest_before_each(model: Model, group: Ints, asked: Ints) -> Ints:
    """`_greatest_before` for some grants only, each by looking at all before it; -1 for the others."""
    token, ok, u = model.of(group, model.token), model.of(group, model.ok), model.u
    process, E = model.of(group, model.process), model.of(group, model.E)
    best = np.full(len(group), -1, dtype=np.int64)
    for b in asked.tolist():
        a = np.flatnonzero(token[:b] > token[b])
        real_time = ok[a] + u < model.invoke[group[b]]
        hold_order = (ok[a] + u < E[b]) & (ok[b] + u >= E[a])
        a = a[(process[a] == process[b]) | real_time | hold_order]
        if len(a):
            best[b] = a[np.argmax(token[a])]  # the first of those with the greatest
    return best


def _any_before_later(model: Model, group: Ints) -> bool:
    """Whether some grant with a later ok precedes an earlier one that doesn't precede it: possible only with an E that
    reaches beyond a later ok, that is, when a grant is still held for certain at a later one's ok."""
    return not pairs.none_reaches(model.of(group, model.ok), model.of(group, model.until))


def _by_own_order(process: Ints, rank: Ints) -> Ints:
    """The greatest rank among the earlier grants of the same process, -1 where there are none."""
    n = len(rank)
    order = group_order(process.astype(np.int64), int(process.max(initial=0)) + 1)
    # Groups ascend by more than any rank, so that a maximum never carries over from the process before.
    group = np.cumsum(np.concatenate(([0], np.diff(process[order]) != 0)))
    lifted = np.maximum.accumulate(rank[order] + group * n)
    earlier = np.full(n, -1, dtype=np.int64)
    same = group[1:] == group[:-1]
    earlier[order[1:][same]] = (lifted[:-1] - group[1:] * n)[same]
    return earlier


def _greatest_under(rank: Ints, E: Ints, prefix: Ints, limit: Ints) -> Ints:
    """For each query the greatest rank among the first `prefix` grants with E <= limit, -1 where there is none.

    By halving, as `pairs.count_dominating`: blocks of 2^k sorted by E, each with its running maximum of ranks.
    """
    n = len(rank)
    out = np.full(len(prefix), -1, dtype=np.int64)
    together = np.unique(np.concatenate((E, limit)), return_inverse=True)[1].astype(np.int64)
    value, bound = together[:n], together[n:]
    span = int(together.max()) + 1
    size = 1
    while size <= n:
        block = np.arange(n) // size
        order = np.argsort(block * span + value)
        key = (block * span + value)[order]
        best = np.maximum.accumulate(rank[order] + block[order] * n) - block[order] * n
        taken = np.flatnonzero(prefix & size)
        mine = (prefix[taken] & ~(2 * size - 1)) // size
        inside = np.searchsorted(key, mine * span + bound[taken], "right")
        some = inside > mine * size
        out[taken[some]] = np.maximum(out[taken[some]], best[inside[some] - 1])
        size *= 2
    return out


def _figures(model: Model) -> tuple[int, int, int]:
    """The pairs of grants with tokens in one lock, those in no certain order, and the numbers that tokens left out."""
    total = unordered = gaps = 0
    for group in _tokened(model):
        n = len(group)
        total += n * (n - 1) // 2
        unordered += _unordered(model, group)
        token = np.sort(model.token[group])
        distinct = 1 + int((token[1:] != token[:-1]).sum())
        gaps += int(token[-1]) - int(token[0]) + 1 - distinct
    return total, unordered, gaps


def _unordered(model: Model, group: Ints) -> int:
    """Pairs of different processes neither of which precedes the other.

    Say that x fails y when E(x) <= y.ok + u. With both, one and none failing in z, y and m pairs: fails = y + 2z and
    pairs = y + z + m, so z = fails - pairs + m; and m is counted by `pairs.count`. Those of one process are taken out:
    they come in their own order, and m of them is 0.
    """
    ok, until = model.ok[group], model.E[group] - model.u
    n = len(group)
    fails = int((n - np.searchsorted(ok, until, "left")).sum()) - int((until <= ok).sum())
    neither = fails - n * (n - 1) // 2 + pairs.count(ok, until)
    process = model.process[group]
    order = group_order(process.astype(np.int64), len(model.history.processes))
    for own in np.split(order, np.flatnonzero(np.diff(process[order])) + 1):
        k = len(own)
        own_fails = int((k - np.searchsorted(ok[own], until[own], "left")).sum()) - int((until[own] <= ok[own]).sum())
        neither -= own_fails - k * (k - 1) // 2
    return neither


def _duplicate(model: Model, a: int, b: int) -> Finding:
    text = (
        f"{words.who(model, a)} was granted {words.lock(model, a)} with token {int(model.token[a])}; "
        f"{words.after(int(model.ok[b]), int(model.ok[a]))} {words.who(model, b)} was granted it with the same token. "
        f"{words.BLAME}: it gave one token out twice"
    )
    text = words.sentence(text) + words.meanwhile(model, int(model.ok[a]), int(model.ok[b]))
    events, time = words.lines(model, (model.ok_row[a], model.ok_row[b]))
    return Finding("duplicate", model.lock_name(b), events, text, time)


def _regression(model: Model, a: int, b: int) -> Finding:
    start = int(model.ok[a])
    text = (
        f"{words.who(model, a)} was granted {words.lock(model, a)} with token {int(model.token[a])}; "
        f"{words.who(model, b)}, granted it {words.after(int(model.ok[b]), start)}, got the lower token "
        f"{int(model.token[b])}, though {why_before(model, a, b)}. {words.BLAME}: its tokens fell"
    )
    text = words.sentence(text) + words.meanwhile(model, start, int(model.ok[b]))
    events, time = words.lines(model, (model.ok_row[a], model.invoke_row[b], model.ok_row[b]))
    return Finding("regression", model.lock_name(b), events, text, time)


def why_before(model: Model, a: int, b: int) -> str:
    """Why a was granted before b, in words."""
    if model.process[a] == model.process[b] and model.ok_row[a] < model.ok_row[b]:
        return "it was the same contender's next grant"
    if int(model.invoke[b]) > int(model.ok[a]) + model.u:
        return f"it asked for it {words.span(int(model.invoke[b] - model.ok[a]))} after the first grant"
    still = words.at(int(model.E[b]), int(model.ok[a]))
    return f"its hold cannot have ended before {still}: the other came first"
