"""A workload without a resource, for trying the process of a contender alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.contender import Contender


class Idle:
    """Takes the lock and gives it back, until stopped."""

    def __init__(self, contender: Contender, parameters: Mapping[str, Any]) -> None:
        self.contender, self.resolved = contender, dict(parameters)

    def prepare(self, timeout_seconds: float) -> str | None:
        """Ready, or what the parameters say."""
        return self.resolved.get("problem")

    def run(self) -> None:
        """Until stopped."""
        while not self.contender.stopping.is_set():
            hold = self.contender.acquire(1.0)
            self.contender.stopping.wait(0.01)
            if hold is not None:
                hold.release()

    def counts(self) -> dict[str, int]:
        """Nothing."""
        return {}
