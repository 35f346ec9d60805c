"""What a process reads on its clocks, by its own code path, and whether that moved as it should have."""

from __future__ import annotations

import struct
import time
from typing import Callable, Dict, List, Optional

from nemesis.agent.base import Refused
from nemesis.agent.clock.image import Image
from nemesis.agent.clock.ptrace import read_memory
from nemesis.agent.clock.tracing import Stopped

CLOCKS = {
    "realtime": 0,
    "monotonic": 1,
    "monotonic_raw": 4,
    "realtime_coarse": 5,
    "monotonic_coarse": 6,
    "boottime": 7,
    "realtime_alarm": 8,
    "tai": 11,
}
READ_BACK = ("realtime", "realtime_coarse", "monotonic", "monotonic_coarse", "monotonic_raw", "boottime")
COARSE_TICK_NS = 20 * 1000 * 1000
"""A coarse clock lags by up to one kernel tick (10 ms at 100 Hz); twice that."""
READ_TRIES, READ_NARROW_NS, READ_WIDEST_SECONDS = 8, 2 * 10**6, 0.5
READ_PATIENCE_SECONDS, READ_USEFUL_NS = 0.25, 10**8
"""How long a process is kept stopped at most for the sake of narrower readings: that is a fault of its own, too."""


def read_clocks(stopped: Stopped, image: Image, landing: int) -> Dict[str, Dict[str, int]]:
    """What the process itself would read now, by its own code path, next to what this agent reads.

    Source -> {"value", "low", "high"} in ns: the process' value, and the agent's clock right before and after.
    """
    if image.stack is None:
        raise Refused("process %d has no main stack" % image.pid)
    scratch, length = image.stack, 2048
    saved = read_memory(image.pid, scratch, length)
    architecture, functions = stopped.architecture, image.functions
    stack, buffer = scratch + 1024 + 8, scratch + 1536
    found: Dict[str, Dict[str, int]] = {}
    patience = time.monotonic() + READ_PATIENCE_SECONDS
    try:
        stopped.write(stack, struct.pack("<Q", landing))
        for name in READ_BACK:

            def value(name: str = name) -> Optional[int]:
                entry = functions[architecture.CLOCK_GETTIME][0]
                if stopped.call(entry, CLOCKS[name], buffer, landing, stack) != 0:
                    return None
                seconds, nanos = struct.unpack("<qq", read_memory(image.pid, buffer, 16))
                return int(seconds * 10**9 + nanos)

            _keep(found, name, CLOCKS[name], value, patience)
        if architecture.GETTIMEOFDAY in functions:

            def of_day() -> int:
                stopped.call(functions[architecture.GETTIMEOFDAY][0], buffer, 0, landing, stack)
                seconds, micros = struct.unpack("<qq", read_memory(image.pid, buffer, 16))
                return int(seconds * 10**9 + micros * 1000)

            _keep(found, "gettimeofday", 0, of_day, patience)
        if architecture.TIME in functions:

            def seconds_only() -> int:
                return stopped.call(functions[architecture.TIME][0], 0, 0, landing, stack) * 10**9

            _keep(found, "time", CLOCKS["realtime_coarse"], seconds_only, patience)
    finally:
        stopped.write(scratch, saved)
    return found


def _keep(
    found: Dict[str, Dict[str, int]], name: str, clock: int, value: Callable[[], Optional[int]], patience: float
) -> None:
    """Read one source between two looks at the agent's own clock, and keep the narrowest of a few such readings.

    On a busy machine the process can wait for a CPU in the middle of one (0.2 s was seen); such a reading says little.
    """
    for _ in range(READ_TRIES):
        low = time.clock_gettime_ns(clock)
        read = value()
        high = time.clock_gettime_ns(clock)
        if read is None:
            return
        best = found.get(name)
        if best is None or high - low < best["high"] - best["low"]:
            found[name] = {"value": read, "low": low, "high": high}
        width = found[name]["high"] - found[name]["low"]
        if width <= READ_NARROW_NS or (time.monotonic() > patience and width <= READ_USEFUL_NS):
            return


def moved_by(before: Dict[str, Dict[str, int]], after: Dict[str, Dict[str, int]]) -> Dict[str, float]:
    """Source -> by how many seconds the process' clock moved against the agent's between two readings."""

    def lead(reading: Dict[str, int]) -> float:
        return (reading["value"] - (reading["low"] + reading["high"]) / 2) / 1e9

    return {name: round(lead(after[name]) - lead(before[name]), 6) for name in after if name in before}


def agrees(before: Dict[str, Dict[str, int]], after: Dict[str, Dict[str, int]], offset_ns: int, mask: int) -> List[str]:
    """Which sources did not move as they should have; none when all did.

    A source may be off by a tick of the coarse clocks and by what its two readings leave open, the halves of the times
    that they took.
    """
    wrong = []
    moved = moved_by(before, after)
    for name, seconds in sorted(moved.items()):
        bit = CLOCKS.get(name, 0)  # gettimeofday and time go with the wall clock
        expected = offset_ns / 1e9 if mask >> bit & 1 else 0.0
        open_seconds = sum(reading[name]["high"] - reading[name]["low"] for reading in (before, after)) / 2e9
        slack = (1.1 if name == "time" else COARSE_TICK_NS / 1e9) + open_seconds
        if open_seconds > READ_WIDEST_SECONDS:
            wrong.append("%s could only be read to within %.3f s" % (name, open_seconds))
        if abs(seconds - expected) > slack:
            wrong.append("%s moved by %.6f s, not %.6f s" % (name, seconds, expected))
    return wrong
