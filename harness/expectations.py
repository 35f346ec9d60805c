"""What was expected of a verdict: one answer for a trial's outcome and for the pages that speak of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

Verdict = bool | str
"""True, False or "unknown"; in an expectation also "any"."""
RANK = ("violation", "harness-error", "unknown", "inconclusive", "as-expected")
"""In which order the words of outcomes outrank each other over a matrix (`harness.trial.outcome`)."""


def wanted(name: str, expect: Mapping[str, Verdict]) -> Verdict:
    """What a verdict had to be: what `expect` says, else true. "any" where that leaves it open.

    `linearizable` is false exactly when `lease` or `fencing` is, so whoever expects those, or nothing of them, has said
    nothing of it.
    """
    if name in expect:
        return expect[name]
    if name == "linearizable" and any(expect.get(other) in (False, "any") for other in ("lease", "fencing")):
        return "any"
    return True


def surprising(name: str, value: Verdict, required: Collection[str], expect: Mapping[str, Verdict]) -> bool:
    """Whether a verdict is another than was expected: one that `expect` names, or a required one that is false.

    A required one that is unknown surprises nobody: it is told as what it is.
    """
    expected = wanted(name, expect)
    if expected == "any" or value == expected:
        return False
    return name in expect or (name in required and value is False)
