"""Stop: a server is told to end (SIGTERM), as a deployment or an operator does, and later started again.

It may say good-bye: hand leadership over, write what it has not written, close connections. What it takes for that it
gets, up to `grace` seconds. So this shows what a planned interruption costs, where a kill shows an accident; and it
shows the bugs that are in the good-bye.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.systems.base import LeaseTerms
from nemesis import targets
from nemesis.kill import Kill
from nemesis.parameters import Parameters

GRACE_SECONDS = 10.0
"""What Docker, too, gives a container before it kills it."""
MARGIN_SECONDS = 2.0


class Stop(Kill):
    """SIGTERM to the main processes of the service; started again at the end. `down` as for a kill.

    `grace`: how long it may take to end, in s. One that takes longer isn't killed: the receipt is unproven then.

    Receipt: none of the old processes is there; at the end, a process runs that none of them is.
    """

    kind = "stop"
    summary = "tell a server to end (SIGTERM), later start it again"
    targets: Sequence[str] = targets.SERVERS
    order, done = "stop", "stopped"

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(target, parameters)
        if targets.on_contender(self.target) and self.service is None:
            raise UsageError(
                f"{self.kind} means a service: one of a server, or, with 'service', what is beside a contender "
                "(a contender itself: kill-holder)"
            )

    def _take_more(self, taken: Parameters) -> None:
        self.grace = taken.number("grace", GRACE_SECONDS, 0.1, 600)
        self.order_seconds = self.grace + MARGIN_SECONDS

    def _arguments(self) -> dict[str, Any]:
        return {"timeout": self.grace}

    def _survives(self, terms: LeaseTerms) -> tuple[bool, str]:
        if terms.survives_stop is None:
            return super()._survives(terms)
        return terms.survives_stop, terms.survives_stop_reason
