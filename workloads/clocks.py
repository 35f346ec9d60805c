"""The two clocks of a contender, and waiting that no clock skew upsets.

Events are stamped with CLOCK_BOOTTIME, which no fault of ours moves. A contender's own deadline runs on
CLOCK_MONOTONIC, as that of any careful lock client does, so a skewed clock misleads it as it would mislead a real one.
"""

from __future__ import annotations

import os
import select
import time
from typing import NamedTuple


class Stamp(NamedTuple):
    """One instant on both clocks: take it just *before* a request is sent."""

    boot_ns: int
    """CLOCK_BOOTTIME in ns, for the history."""
    mono: float
    """CLOCK_MONOTONIC in seconds, for the contender's own deadline."""

    @classmethod
    def now(cls) -> Stamp:
        """This instant."""
        return cls(time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.monotonic())


class Flag:
    """An event that threads wait for; like `threading.Event`, on a pipe.

    Not `threading.Event`, whose waits (and `time.sleep`) hand the kernel an absolute time read from the process's own
    CLOCK_MONOTONIC: with that clock set forward by a fault a wait of 0.1 s would last as long as the skew. `poll` takes
    a relative time. `fileno` lets it stand in a `select` next to a socket.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._is_set = False

    def fileno(self) -> int:
        """Readable from the moment the flag is set."""
        return self._reader

    def is_set(self) -> bool:
        """Whether somebody set it."""
        return self._is_set

    def set(self) -> None:
        """Set it, for good. Any thread may; twice is harmless."""
        if not self._is_set:
            self._is_set = True
            os.write(self._writer, b"!")

    def wait(self, seconds: float) -> bool:
        """Wait for it, at most so long. Whether it is set."""
        if self._is_set or seconds <= 0:
            return self._is_set
        poller = select.poll()
        poller.register(self._reader, select.POLLIN)
        poller.poll(seconds * 1000)
        return self._is_set

    def close(self) -> None:
        """Give its two file descriptors back. Nobody may wait for it any more."""
        os.close(self._reader)
        os.close(self._writer)
