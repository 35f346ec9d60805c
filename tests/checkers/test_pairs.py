"""Pairs are counted without looking at them, listed in order, and cut where nobody reads on."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers import judge, pairs
from checkers.findings import LISTED
from tests.checkers.make import grant, make


def brute(s: list[int], t: list[int]) -> list[tuple[int, int]]:
    return [(i, j) for j in range(len(s)) for i in range(j) if t[i] > s[j] and t[j] > s[i]]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-2, 14)), max_size=14))
def test_count_and_list_are_those_of_looking_at_all(rows: list[tuple[int, int]]) -> None:
    """Long and short ones, ties and all."""
    rows.sort(key=lambda row: row[0])
    s, t = [row[0] for row in rows], [row[1] for row in rows]
    expected = brute(s, t)
    assert pairs.count(np.array(s, dtype=np.int64), np.array(t, dtype=np.int64)) == len(expected)
    assert list(pairs.listed(np.array(s, dtype=np.int64), np.array(t, dtype=np.int64))) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.data())
def test_dominance_counts(values: list[int], data: st.DataObject) -> None:
    """How many of a prefix are above a bound."""
    queries = data.draw(st.lists(st.tuples(st.integers(0, len(values)), st.integers(-1, 10)), min_size=1, max_size=5))
    expected = sum(sum(value > bound for value in values[:prefix]) for prefix, bound in queries)
    prefix, bound = (np.array(column, dtype=np.int64) for column in zip(*queries, strict=True))
    assert pairs.count_dominating(np.array(values, dtype=np.int64), prefix, bound) == expected


def crowd(n: int, *, proofs_late: bool = False) -> list[tuple[object, ...]]:
    """n contenders who are all granted the lock, and give it back long after."""
    events: list[tuple[object, ...]] = []
    for i in range(n):
        events += grant(i, i + 0.5, i, i)
    for i in range(n):
        events += [(3 * n + i, i, "invoke release"), (3 * n + i + 0.5, i, "ok release")]
    return sorted(events, key=lambda event: float(str(event[0]))) if proofs_late else events


def test_all_are_counted_and_a_thousand_listed() -> None:
    """Every two of 300 hold it at once: 44,850 findings, of which the first 1,000 by their last event are given."""
    n = 300
    judgement = judge(make(*crowd(n), ttl=None, expires=False))
    for name in ("lease", "exclusion"):
        verdict = judgement.verdicts[name]
        assert verdict.count == n * (n - 1) // 2
        assert len(verdict.findings) == LISTED
        assert [finding.time for finding in verdict.findings] == sorted(finding.time for finding in verdict.findings)
    assert len(judgement.to_json()["verdicts"]["lease"]["findings"]) == LISTED


def test_the_first_thousand_are_the_first_of_all() -> None:
    """With few enough pairs to make them all: the listed ones are those that a sort of all puts first."""
    n = 60
    verdict = judge(make(*crowd(n), ttl=None)).verdicts["lease"]
    assert verdict.count == n * (n - 1) // 2 > LISTED
    # A pair ends with the ok of the earlier one's release: its first success after the later grant, which nobody else
    # had given back by then.
    last = sorted((3 * n + i) * 10**9 + 5 * 10**8 for i in range(n) for _ in range(i + 1, n))[:LISTED]
    assert [finding.time for finding in verdict.findings] == last


def test_a_crowd_of_thousands_is_no_matter() -> None:
    """Eight million pairs are counted, not made: this takes no longer than reading them would."""
    n = 4000
    history = make(*crowd(n), ttl=None, expires=False)
    began = time.process_time()
    judgement = judge(history)
    assert judgement.verdicts["lease"].count == judgement.verdicts["exclusion"].count == n * (n - 1) // 2
    assert time.process_time() - began < 20
