"""What every room of the agent uses: the refusal, a line for the logs, the clock of events, the reading of a file."""

from __future__ import annotations

import os
import sys
import time

CLOCK_BOOTTIME = 7


class Refused(Exception):
    """A command that can't be done, with the reason as a sentence; becomes the `error` of the answer."""


def now_ns() -> int:
    """CLOCK_BOOTTIME in ns."""
    return time.clock_gettime_ns(CLOCK_BOOTTIME)


def why(error: BaseException) -> str:
    """The reason that an error of the network gives, in the kernel's words where it has any."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def log(text: str) -> None:
    """A line for the harness' logs. Never fails: the reader may be gone, and the undoing must go on."""
    try:
        sys.stderr.write(text.rstrip() + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def read_at_once(path: str) -> bytes:
    """What one read gives of a file of /proc: a state of one instant, not of several."""
    with open(path, "rb", buffering=0) as file:
        return file.read(65536)


def read_all(path: str) -> bytes:
    """A whole file."""
    with open(path, "rb") as file:
        return file.read()
