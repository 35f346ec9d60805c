"""No fault: the control cell, which shows what a system does when nothing is broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from nemesis.base import Environment, Started, Stopped
from nemesis.parameters import Parameters


class NoFault:
    """Does nothing, and says so."""

    kind = "none"
    summary = "nothing is broken; what a system does when left alone"
    targets: Sequence[str] = ()

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        if target:
            raise UsageError(f"none takes no target, not {target!r}")
        Parameters(self.kind, parameters).done()

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """Always."""
        return None

    def start(self, env: Environment) -> Started:
        """Nothing; skipped, for there is nothing to prove."""
        return Started("skipped", (), reason="no fault was asked for")

    def stop(self, env: Environment) -> Stopped:
        """Nothing to undo."""
        return Stopped("undone")
