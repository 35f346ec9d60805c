"""One module for each verdict, over one shared interval model.

`judge(history)` runs them all. A verdict of your own is a function `check(model: Model) -> Verdict`, registered as an
entry point of the group `fencepost.verdicts`; see docs/verdicts.md.
"""

from checkers import words
from checkers.findings import Finding, Verdict, Word
from checkers.intervals import Model, build
from checkers.judge import RULES, Judgement, judge

__all__ = ["RULES", "Finding", "Judgement", "Model", "Verdict", "Word", "build", "judge", "words"]
