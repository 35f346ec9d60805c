"""Pairs of grants that overlap: counted exactly without looking at all of them, and listed as far as anybody reads.

Both `lease` and `exclusion` ask for the pairs (a, b) with t[a] > s[b] and t[b] > s[a]: with s = ok, t = E - u these
are the grants that precede each other; with s = belief's start, t = belief's end - u those whose beliefs overlap by
more than u. There can be n²/2 of them, and `count` must give them all.

Call a grant *long* when t > s. Two that aren't never make a pair (t[a] > s[b] >= t[b] > s[a] >= t[a] can't be). Two
long ones do when the open intervals (s, t) overlap: counted by one binary search each. A short one b and a long one a
do when s[a] < t[b] and t[a] > s[b]: a dominance count, needed only where the running maximum of t over s says that
there is any.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.history.events import Bools, Ints


def count(s: Ints, t: Ints) -> int:
    """The number of pairs. `s` must be ascending."""
    if none_reaches(s, t):
        return 0
    longs: Bools = t > s
    ls, lt = s[longs], t[longs]
    places = np.arange(1, len(ls) + 1)
    total = int((np.searchsorted(ls, lt, "left") - places).sum())
    if len(ls) < len(s) and len(ls):
        ss, st = s[~longs], t[~longs]
        prefix = np.searchsorted(ls, st, "left")
        highest = np.maximum.accumulate(lt)
        met = prefix > 0
        met[met] = highest[prefix[met] - 1] > ss[met]
        if met.any():
            total += count_dominating(lt, prefix[met], ss[met])
    return total


def none_reaches(s: Ints, t: Ints) -> bool:
    """Whether no `t` lies beyond a later `s`: then there is no pair. So it is where nothing is wrong, and soon seen: as
    `s` is ascending, one that reaches any later `s` reaches the next."""
    return not bool((t[:-1] > s[1:]).any())


def count_dominating(values: Ints, prefix: Ints, bound: Ints) -> int:
    """The sum over queries q of the number of i < prefix[q] with values[i] > bound[q].

    By halving: at each level the values lie sorted in blocks of 2^k, and a prefix is at most one block of each size.
    """
    total, size, n = 0, 1, len(values)
    ranks = np.unique(np.concatenate((values, bound)), return_inverse=True)[1].astype(np.int64)
    value, limit = ranks[:n], ranks[n:]
    span = int(ranks.max()) + 1
    ordered = value.copy()
    place = np.arange(n)
    while size <= n:
        # Sorted within blocks: the block's number leads in the key.
        key = np.sort((place // size) * span + ordered)
        ordered = key % span
        taken = np.flatnonzero(prefix & size)
        block = (prefix[taken] & ~(2 * size - 1)) // size
        inside = np.searchsorted(key, block * span + limit[taken], "right")
        total += int(((block + 1) * size - inside).sum())
        size *= 2
    return total


def listed(s: Ints, t: Ints) -> Iterator[tuple[int, int]]:
    """The pairs (i, j), i before j in order of `s` (ascending), by ascending j. Lazy: as far as the caller reads."""
    n = len(s)
    if n < 2 or none_reaches(s, t):
        return
    prefix = np.minimum(np.searchsorted(s, t, "left"), np.arange(n))
    highest = np.maximum.accumulate(t)
    met = prefix > 0
    met[met] = highest[prefix[met] - 1] > s[met]
    later = np.flatnonzero(met)
    if not len(later):
        return
    tree = _MaxTree(t)
    for j in later.tolist():
        for i in tree.above(int(prefix[j]), int(s[j])):
            yield i, j


class _MaxTree:
    """Finds the entries of a prefix that are greater than a bound, in time proportional to how many there are."""

    def __init__(self, values: Ints) -> None:
        self.levels = [values]
        while len(self.levels[-1]) > 1:
            level = self.levels[-1]
            if len(level) % 2:
                level = np.append(level, level[-1])
            self.levels.append(np.maximum(level[0::2], level[1::2]))

    def above(self, prefix: int, bound: int) -> Iterator[int]:
        stack = [(len(self.levels) - 1, 0)]
        while stack:
            depth, at = stack.pop()
            if at << depth >= prefix or at >= len(self.levels[depth]) or self.levels[depth][at] <= bound:
                continue
            if depth == 0:
                yield at
            else:
                stack.append((depth - 1, 2 * at + 1))
                stack.append((depth - 1, 2 * at))
