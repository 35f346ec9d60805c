"""How sure a rate is: the 95 % interval of *k of n*, where n was set beforehand and where it was left to chance.

Both intervals are exact: whatever the true rate, at least 95 of 100 such intervals contain it (in truth a little more,
since runs come in whole numbers). Both are quantiles of beta distributions, which scipy computes.

- `binomial`, for n that was set beforehand: C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits
  illustrated in the case of the binomial", Biometrika 26 (1934) 404-413.
- `inverse`, for runs that went on until the k-th violation: J. B. S. Haldane, "On a method of estimating frequencies",
  Biometrika 33 (1945) 222-225; its exact limits are those of the negative binomial, see K.-J. Lui, "Confidence limits
  for the population prevalence rate based on the negative binomial distribution", Statistics in Medicine 14 (1995)
  1471-1477. The k-th violation comes at run n or sooner exactly when n runs have k or more, and at run n or later
  exactly when n - 1 runs have fewer than k; so the limits follow from the binomial's tails:

      low:   P(Bin(n, p) >= k)    = 0.025   p = Beta(0.025; k, n - k + 1), the limit of Clopper and Pearson
      high:  P(Bin(n-1, p) <= k-1) = 0.025   p = Beta(0.975; k, n - k), below that limit; 1 where n = k

A rule with both (the k-th violation or m runs, whichever is first) needs no third: ordered by how much they speak for a
high rate (stopped sooner first, then more of m), the tails of a cell that was stopped by violations are those above,
those of one that went on to its m runs are Clopper and Pearson's.
"""

from __future__ import annotations

from functools import lru_cache

LEVEL = 0.95
"""Of both intervals."""
_TAIL = (1 - LEVEL) / 2


def binomial(k: int, n: int) -> tuple[float, float]:
    """The interval of k of n runs, n having been set beforehand. (0, 1) where there was no run.

    >>> [round(limit, 3) for limit in binomial(3, 10)]
    [0.067, 0.652]
    """
    assert 0 <= k <= n
    return (
        _beta(k, n - k + 1, _TAIL) if k else 0.0,
        _beta(k + 1, n - k, 1 - _TAIL) if k < n else 1.0,
    )


def inverse(k: int, n: int) -> tuple[float, float]:
    """The interval of k of n runs that were stopped by the k-th: run n was one of them.

    >>> [round(limit, 3) for limit in inverse(3, 10)]
    [0.067, 0.6]
    """
    assert 1 <= k <= n
    return _beta(k, n - k + 1, _TAIL), _beta(k, n - k, 1 - _TAIL) if k < n else 1.0


@lru_cache(maxsize=4096)
def _beta(a: int, b: int, share: float) -> float:
    """The quantile of a beta distribution: `scipy.stats.beta.ppf`, without the second that importing that takes."""
    from scipy.special import betaincinv

    return float(betaincinv(a, b, share))
