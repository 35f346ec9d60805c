"""One trial: what it is asked to do, what it is made of, and its life from the start to the verdict.

`trial` is the order of it all; the other modules are what it is made of, one subject each.
"""

from harness.trial.trial import REQUIRED, Progress, Trial, TrialResult

__all__ = ["REQUIRED", "Progress", "Trial", "TrialResult"]
