"""Ctrl-C and SIGTERM: the first asks all trials to undo everything and leave; the second leaves at once.

Even then no fault stays: the agents see their stdin end and undo what they hold. Containers may stay; `fencepost
clean` removes them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SAME_SECONDS = 1.0
"""A signal that comes twice in so short a time is one: `timeout` sends it to the process, and to its group again."""


@contextmanager
def cancel_on_signal(cancel: threading.Event) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM set the event instead of raising somewhere."""

    first: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if first and time.monotonic() - first[0] < SAME_SECONDS:
            return
        first.append(time.monotonic())
        if cancel.is_set():
            print("leaving at once; `fencepost clean` removes what stays", file=sys.stderr, flush=True)
            os._exit(130)
        cancel.set()
        print(
            "\nstopping: undoing faults, keeping history and logs (again to leave at once)", file=sys.stderr, flush=True
        )

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
