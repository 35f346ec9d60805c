"""Which number a node has in the networks of its site: each only once while others are left.

A server of the next trial so never gets the address, nor the half-open connections, of one before it.
"""

from __future__ import annotations

import threading

from harness.errors import HarnessError

FIRST_HOST, LAST_HOST = 11, 250
"""The numbers that nodes get in both subnets; below are the engine's own and room for what a person attaches."""


class Addresses:
    """Hands out host numbers of one site, round and round, never one that is in use. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: set[int] = set()
        self._next = FIRST_HOST

    def take(self) -> int:
        """A number that was used longest ago, or never. Raises HarnessError when all are in use."""
        with self._lock:
            for _ in range(FIRST_HOST, LAST_HOST + 1):
                number = self._next
                self._next = FIRST_HOST if number == LAST_HOST else number + 1
                if number not in self._used:
                    self._used.add(number)
                    return number
        raise HarnessError(f"a site has room for {LAST_HOST - FIRST_HOST + 1} nodes at once, and all are in use")

    def give_back(self, number: int) -> None:
        """Its node is gone. Idempotent."""
        with self._lock:
            self._used.discard(number)
