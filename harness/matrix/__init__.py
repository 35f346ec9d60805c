"""Many trials from one TOML file: `plan` says which cells there are, `run` runs them side by side."""

from harness.matrix.plan import DEFAULT, LeftOut, Plan, load
from harness.matrix.run import MatrixRun

__all__ = ["DEFAULT", "LeftOut", "MatrixRun", "Plan", "load"]
