"""Many trials from one TOML file.

`plan` says which cells there are and how many runs each gets, `rounds` which is next, `run` runs them side by side,
`stored` lets a matrix go on that was broken off.
"""

from harness.matrix.plan import DEFAULT, LeftOut, Plan, load, named, single, take_rule
from harness.matrix.run import MatrixRun
from harness.matrix.stored import KEEP, check_same, read_plan

__all__ = [
    "DEFAULT", "KEEP", "LeftOut", "MatrixRun", "Plan", "check_same", "load", "named", "read_plan", "single",
    "take_rule",
]  # fmt: skip
