"""The parts that count and lay out: ticks, shares of time, overlaps, numbers in words."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report import files, words
from harness.report.canvas import ticks
from harness.report.figures import Spread, histogram, stats
from harness.report.selection import coverage
from harness.report.story import overlaps
from harness.report.svg import tag


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(3, 20))
def test_ticks_are_round_and_inside(start: float, length: float, most: int) -> None:
    """Never more than asked for (and the one at the edge), all within the axis, equally far apart."""
    end = start + length
    at = ticks(start, end, most)
    assert len(at) <= most + 1
    slack = length * 1e-6
    assert all(start - slack <= each <= end + slack for each in at)
    if len(at) > 2:
        steps = np.diff(at)
        assert steps == pytest.approx(np.full(len(steps), steps[0]), rel=1e-4)


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)


@given(spans, st.integers(1, 12))
def test_coverage_is_the_share_of_each_bin(pairs: list[tuple[int, int]], bins: int) -> None:
    """Against counting quarter seconds one by one."""
    covered = np.zeros(160, dtype=bool)
    for a, b in pairs:
        covered[min(a, b) * 4 : max(a, b) * 4] = True
    change = np.flatnonzero(np.diff(np.concatenate([[0], covered.astype(int), [0]])))
    starts, ends = change[::2] / 4, change[1::2] / 4
    edges = np.arange(bins + 1) * (40 // bins)
    expected = [covered[a * 4 : b * 4].mean() for a, b in itertools.pairwise(edges)]
    assert coverage(starts, ends, edges.astype(float)) == pytest.approx(np.array(expected))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 12), st.sampled_from("ab")), max_size=12)
)
def test_overlaps_are_where_two_contenders_believe(grants: list[tuple[int, int, int, str]]) -> None:
    """Against asking at every half second who believes. Beliefs of one contender don't overlap, as in a history."""
    kept: list[tuple[int, int, int, str]] = []
    for process, start, length, lock in grants:
        if all(p != process or k != lock or start >= s + n or s >= start + length for p, s, n, k in kept):
            kept.append((process, start, length, lock))
    frame = pd.DataFrame(
        [{"process": p, "lock": k, "ok": float(s), "belief_end": float(s + n)} for p, s, n, k in kept],
        columns=["process", "lock", "ok", "belief_end"],
    )
    found = overlaps(frame)
    for lock in "ab":
        for half in range(90):
            at = half / 2 + 0.25
            believing = {p for p, s, n, k in kept if k == lock and s < at < s + n}
            inside = [each for each in found if each.lock == lock and each.start < at < each.end]
            assert len(inside) == (len(believing) > 1)
            if inside:
                assert believing <= set(inside[0].processes)


def test_tags_escape_what_they_are_given() -> None:
    """Text and attributes alike; None leaves an attribute out."""
    assert tag("text", "<b>&", x=1.0, class_='"', dy=None) == '<text x="1" class="&#34;">&lt;b&gt;&amp;</text>'


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (0.0, "0 s"),
        (0.0000004, "0 µs"),
        (0.0123, "12 ms"),
        (0.00123, "1.2 ms"),
        (0.00996, "10 ms"),
        (0.00099999, "1.0 ms"),
        (0.9999, "1.00 s"),
        (12.345, "12.35 s"),
        (1234.5, "1,234.5 s"),
    ],
)
def test_seconds_in_words(value: float | None, said: str) -> None:
    """With as many digits as the size deserves, and no "1000 ms"."""
    assert words.seconds(value) == said


def test_stats_of_any_shape_are_told() -> None:
    """Numbers, spreads, lists, by fault, and what nobody foresaw; None and empty ones are left out."""
    told = dict(
        stats(
            {
                "grants": 1200,
                "unsafe_seconds": 2.5,
                "availability": 0.5,
                "handover_seconds": {"count": 3, "min": 0.1, "median": 0.2, "p99": 0.3, "max": 0.4, "mean": 0.2},
                "first_grant_after": {"f1": 0.25, "f2": None},
                "longest_gap": None,
                "gaps": [],
                "odd": [1, "two", {"three": True}],
            }
        )
    )
    assert told == {
        "grants": "1,200",
        "unsafe time": "2.50 s",
        "availability": "50.0 %",
        "hand-over": "count 3, median 200 ms, p99 300 ms, max 400 ms",
        "first grant after": "f1 250 ms, f2 –",
        "odd": "1, two and three yes",
    }


def test_a_histogram_counts_every_value() -> None:
    """All values stand in some bin, also one alone and one of zero."""
    assert histogram([]) is None
    for values in ([0.0], [1.0], [0.001, 0.01, 0.0100001, 9.99], [10.0, 10.0, 0.1]):
        drawn = str(histogram(values))
        assert sum(int(part.split(" hand-over")[0].split(": ")[1]) for part in drawn.split("<title>")[1:]) == len(
            values
        )


def test_spread_of_nothing_is_nothing() -> None:
    assert Spread.of([]) is None
    assert Spread.of([1.0, 3.0]) == Spread(2, 2.0, pytest.approx(2.9), 3.0)


def test_events_in_words() -> None:
    """Whatever an event lacks or has too much of."""
    assert words.event({}) == "? ?"
    assert words.event({"f": "release", "type": "fail", "held": False, "error": "gone"}) == (
        "could not give the lock up, the service says: not held, gone"
    )
    assert words.event({"f": "release", "type": "ok", "proves": False}) == (
        "has given the lock up, which proves nothing"
    )
    assert words.event({"f": "acquire", "type": "ok", "token": 7, "renewals": "unseen"}) == (
        "is granted the lock, token 7, its renewals are unseen"
    )
    assert words.event({"f": "audit", "type": "info", "resource": "fenced", "ids": [1]}) == (
        "the fenced resource was read as a whole, 1 write found"
    )
    stop = {"f": "fault", "phase": "stop", "id": "o", "kind": "outside", "what": None, "bit": "immune"}
    assert words.event(stop) == "fault o ends: outside (paused), by design it can't matter"
    assert words.event({"f": "election", "type": "ok"}) == "election ok"
    assert words.event({"f": "fault", "phase": "start", "id": 3, "kind": "kill", "targets": ["n1"]}) == (
        "fault 3 begins: kill, on n1"
    )


def test_lines_are_read_by_number(tmp_path: Path) -> None:
    """Only those asked for; lines that aren't events are left out."""
    path = tmp_path / "history.jsonl"
    path.write_text(json.dumps({"a": 1}) + "\n\nnonsense\n[1]\n" + json.dumps({"b": 2}) + "\n")
    assert files.read_lines(path, [1, 2, 3, 4, 5, 99]) == {1: {"a": 1}, 5: {"b": 2}}
    packed = tmp_path / "history.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes().rstrip()))  # without an end of its last line
    assert files.read_lines(packed, [1, 2, 3, 4, 5, 99]) == {1: {"a": 1}, 5: {"b": 2}}
