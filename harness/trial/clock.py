"""Time of a history: nanoseconds since its epoch, by the boot clock of the kernel that the nodes run on."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from nemesis.base import AgentLink


class HistoryClock:
    """Reads that time on this machine, once a node was asked for its own. Before that it stands at 0."""

    def __init__(self) -> None:
        self.epoch_ns = 0
        """Time 0 of the history on the nodes' boot clock; 0 = not set yet."""
        self.started = ""
        """The wall-clock time of time 0 by this machine's clock (ISO 8601 with its offset), for people to hold against
        their logs."""
        self._offset_ns = 0

    def start(self, agent: AgentLink) -> dict[str, Any]:
        """Now is 0. Returns what trial.json says of it: `{"boottime_ns", "offset_ns", "utc"}`.

        The nodes' kernel need not be this machine's.
        """
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        theirs = int(agent.call("hello")["boottime_ns"])
        after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        # On one machine the two clocks are one; then the offset is only the time that the question took.
        self._offset_ns = 0 if before <= theirs <= after else theirs - (before + after) // 2
        self.epoch_ns = theirs
        began = datetime.now(UTC) - timedelta(microseconds=self.now() // 1000)
        self.started = began.isoformat(timespec="milliseconds")
        return {"boottime_ns": theirs, "offset_ns": self._offset_ns, "utc": self.started}

    def now(self) -> int:
        """Time of the history in ns."""
        if not self.epoch_ns:
            return 0
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._offset_ns - self.epoch_ns
