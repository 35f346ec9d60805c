"""fenced: did the resource that checks tokens accept a stale write, or lose an update?"""

from __future__ import annotations

from checkers import writes
from checkers.findings import Verdict
from checkers.intervals import Model
from harness.history.events import FENCED


def check(model: Model) -> Verdict:
    """The verdict on the accepted writes of resource `fenced`; see `checkers.writes`."""
    return writes.judge(model, FENCED)
