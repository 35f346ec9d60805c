"""The intervals of k of n contain the true rate as often as they say, also where a violation chose n."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from scipy import stats

from harness.runs.intervals import LEVEL, binomial, inverse


@pytest.mark.parametrize("n", [1, 2, 7, 20, 500])
def test_a_fixed_n_has_the_limits_of_clopper_and_pearson(n: int) -> None:
    """As scipy's own exact test has them."""
    for k in {0, 1, n // 3, n - 1, n}:
        exact = stats.binomtest(k, n).proportion_ci(confidence_level=LEVEL, method="exact")
        assert binomial(k, n) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_no_run_says_nothing() -> None:
    """Any rate is possible."""
    assert binomial(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 7), (3, 10), (5, 400)])
def test_an_n_by_chance_has_the_limits_of_the_negative_binomial(k: int, n: int) -> None:
    """At each limit, what was seen or something further off has a chance of 2.5 %. (scipy counts failures.)"""
    low, high = inverse(k, n)
    assert stats.nbinom.cdf(n - k, k, low) == pytest.approx(0.025, abs=1e-9)  # the k-th so soon, or sooner
    if n > k:
        assert stats.nbinom.sf(n - k - 1, k, high) == pytest.approx(0.025, abs=1e-9)  # so late, or later
    else:
        assert high == 1.0


def stopped(rate: float, violations: int, most: int, draw: random.Random) -> tuple[int, int]:
    """Runs until so many violations, at most so many: (violations, runs)."""
    seen = 0
    for number in range(1, most + 1):
        seen += draw.random() < rate
        if seen == violations:
            return seen, number
    return seen, most


def coverage(rate: float, interval: Callable[[int, int], tuple[float, float]], violations: int, most: int) -> float:
    """How often the interval contains the rate, over 2,000 cells that were stopped so."""
    draw = random.Random(f"{rate}/{violations}/{most}")
    hits = 0
    for _ in range(2000):
        low, high = interval(*stopped(rate, violations, most, draw))
        hits += low <= rate <= high
    return hits / 2000


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.35, 0.5, 0.9])
@pytest.mark.parametrize(("violations", "most"), [(1, 20), (1, 10_000), (3, 20), (5, 10_000)])
def test_cells_that_violations_stop_are_covered(rate: float, violations: int, most: int) -> None:
    """By the inverse interval when they stopped the cell, by that of a fixed n when it went on to its last run.

    2,000 cells tell 95 % from 93.5 %: three standard errors.
    """

    def interval(k: int, n: int) -> tuple[float, float]:
        return inverse(k, n) if k == violations else binomial(k, n)

    assert coverage(rate, interval, violations, most) >= LEVEL - 0.015


def test_the_interval_of_a_fixed_n_would_be_too_wide() -> None:
    """Below the inverse one's upper limit it never lies: what the other is good for."""
    for k, n in [(1, 2), (1, 7), (3, 10)]:
        assert inverse(k, n)[0] == pytest.approx(binomial(k, n)[0])
        assert inverse(k, n)[1] < binomial(k, n)[1]
