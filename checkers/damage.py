"""damage: did the resource that checks nothing accept a stale write, or lose an update? What no fencing cost."""

from __future__ import annotations

from checkers import writes
from checkers.findings import Verdict
from checkers.intervals import Model
from harness.history.events import UNFENCED


def check(model: Model) -> Verdict:
    """The verdict on the accepted writes of resource `unfenced`; see `checkers.writes`."""
    return writes.judge(model, UNFENCED)
