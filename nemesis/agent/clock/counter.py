"""How often a process has read a clock that was moved.

The routine in the vDSO counts the readings that it has moved, each with one locked addition. It can't count where it
stands: the vDSO is mapped without the right to write. So each process is made to map a page of its own for that, whose
address the routine knows. What is not counted: the readings of the proof, which are ours.
"""

from __future__ import annotations

import os
import struct
from typing import Callable, Optional, TypeVar

from nemesis.agent.base import Refused
from nemesis.agent.clock.image import Image
from nemesis.agent.clock.ptrace import read_memory
from nemesis.agent.clock.tracing import Stopped

PAGE = 4096
Value = TypeVar("Value")


class Counter(object):
    """The counter of one process whose routine is at `routine` (an address). All but `value` need it stopped."""

    def __init__(self, image: Image, routine: int) -> None:
        self._image, self._routine = image, routine

    def _address(self, stopped: Stopped) -> int:
        where = self._routine + stopped.architecture.COUNTER
        return int(struct.unpack("<Q", read_memory(self._image.pid, where, 8))[0])

    def open(self, stopped: Stopped) -> Optional[str]:
        """Have the process map its page, and tell the routine. None, or why it goes uncounted."""
        try:
            address = self._call(stopped, stopped.architecture.MAP, 0)
        except Refused as error:
            return str(error)
        if address >= 2**64 - PAGE:
            return "it could map no page to count on: %s" % os.strerror(2**64 - address)
        stopped.write(self._routine + stopped.architecture.COUNTER, struct.pack("<Q", address))
        return None

    def value(self, stopped: Stopped) -> Optional[int]:
        """The count; None when nothing counts."""
        address = self._address(stopped)
        return int(struct.unpack("<Q", read_memory(self._image.pid, address, 8))[0]) if address else None

    def keeping(self, stopped: Stopped, read: Callable[[], Value]) -> Value:
        """What `read` returns; the count is afterwards as it was before, whatever `read` let the process do."""
        address = self._address(stopped)
        before = read_memory(self._image.pid, address, 8) if address else b""
        try:
            return read()
        finally:
            if address:
                stopped.write(address, before)

    def close(self, stopped: Stopped) -> None:
        """Have the process give its page back. No thread may be in the routine any more."""
        address = self._address(stopped)
        if address:
            stopped.write(self._routine + stopped.architecture.COUNTER, bytes(8))
            self._call(stopped, stopped.architecture.UNMAP, address)

    def _call(self, stopped: Stopped, stub: int, first: int) -> int:
        """Let the process call a stub with (first, PAGE), on a part of its stack that is then as it was before."""
        if self._image.stack is None:
            raise Refused("process %d has no main stack" % self._image.pid)
        landing, stack = self._routine + stopped.architecture.LANDING, self._image.stack + 1024 + 8
        saved = read_memory(self._image.pid, stack - 256, 512)
        try:
            stopped.write(stack, struct.pack("<Q", landing))
            return stopped.call(self._routine + stub, first, PAGE, landing, stack)
        finally:
            stopped.write(stack - 256, saved)
