"""A workload without a resource: one hold, until stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.contender import Contender


class Holding:
    """Takes the lock once and keeps it."""

    def __init__(self, contender: Contender, parameters: Mapping[str, Any]) -> None:
        self.contender, self.resolved = contender, dict(parameters)

    def prepare(self, timeout_seconds: float) -> str | None:
        """Ready."""
        return None

    def run(self) -> None:
        """Until stopped."""
        hold = self.contender.acquire(60.0)
        self.contender.stopping.wait(600)
        if hold is not None:
            hold.release()

    def counts(self) -> dict[str, int]:
        """Nothing."""
        return {}
