"""What of a history is drawn one by one, when it is too long to draw it all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.report.story import Story

MARKS = 6000
"""At most so many operations are drawn one by one."""
FINDINGS = 300
"""At most so many findings of a verdict have their flag and their pins on the timeline."""


@dataclass(frozen=True)
class Selection:
    """What is drawn one by one. When a history has more than `MARKS` operations, those near findings come first.

    `windows` are the stretches (seconds) drawn in full; everywhere else the rows show shares and counts per bin.
    """

    operations: pd.DataFrame
    grants: pd.DataFrame
    marks: pd.DataFrame
    whole: bool
    windows: Sequence[tuple[float, float]] = ()
    findings: int = 0
    """How many findings lie in the windows."""


def select(story: Story, limit: int = MARKS) -> Selection:
    """Chooses what is drawn one by one: all, or what lies around the findings, the first of each verdict first."""
    operations, grants, marks = story.operations, story.grants, story.marks
    if len(operations) + len(grants) + len(marks) <= limit:
        return Selection(operations, grants, marks, whole=True)
    ends = operations["end"].fillna(operations["invoke"]).to_numpy()
    invokes = operations["invoke"].to_numpy()
    margin = max(0.5, (story.meta.ttl or 0.0) / 2)
    chosen = np.zeros(len(operations), dtype=bool)
    windows: list[tuple[float, float]] = []
    for found in sorted(story.found, key=lambda each: each.number):
        a, b = found.span
        # Operations are in order of their invokes, and few of them last long: only those nearby are looked at.
        low, high = np.searchsorted(invokes, (a - margin - _LONG, b + margin))
        near = np.flatnonzero(ends[low:high] >= a - margin) + low
        if chosen.sum() + np.count_nonzero(~chosen[near]) > limit:
            continue  # a shorter one may still fit
        chosen[near] = True
        windows.append((a - margin, b + margin))
        if len(windows) >= FINDINGS:
            break
    merged = _merge(windows)
    times = marks["time"].to_numpy()
    return Selection(
        operations[chosen],
        grants[_within(merged, grants["invoke"].to_numpy(), grants["belief_end"].to_numpy())],
        marks[_within(merged, times, times)],
        whole=False,
        windows=merged,
        findings=len(windows),
    )


_LONG = 60.0
"""Seconds; an operation that was invoked earlier than this before a window isn't drawn in it."""


def coverage(starts: Any, ends: Any, edges: Any) -> Any:
    """For each bin between two edges the share of it that lies in the intervals, which must not overlap.

    >>> coverage(np.array([1.0]), np.array([2.5]), np.array([0.0, 1.0, 2.0, 3.0])).tolist()
    [0.0, 1.0, 0.5]
    """
    if not len(starts):
        return np.zeros(len(edges) - 1)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum(ends[order], starts[order])
    lengths = np.concatenate([[0.0], np.cumsum(ends - starts)])
    at = np.searchsorted(starts, edges, side="right")
    covered = lengths[at]
    inside = at > 0
    covered[inside] -= np.maximum(0.0, ends[at[inside] - 1] - edges[inside])
    return np.clip(np.diff(covered) / np.diff(edges), 0.0, 1.0)


def _within(windows: Sequence[tuple[float, float]], start: Any, end: Any) -> Any:
    inside = np.zeros(len(start), dtype=bool)
    for a, b in windows:
        inside |= (end >= a) & (start <= b)
    return inside


def _merge(windows: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for a, b in sorted(windows):
        if merged and a <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return merged
