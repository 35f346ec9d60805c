"""One trial: what it is asked to do, what it is made of, and its life from the start to the verdict.

`trial` is the order of it all: `bringup`, `disturb`, `wayout`, `judging`. What these share is `running` (what there is
by now, and looking after it) and `record` (what is written down of it). The other modules are what a trial is made of.
"""

from harness.trial.judging import TrialResult
from harness.trial.record import Progress
from harness.trial.trial import Trial

__all__ = ["Progress", "Trial", "TrialResult"]
