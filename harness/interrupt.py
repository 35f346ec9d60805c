"""Ctrl-C and SIGTERM: the first asks all trials to undo everything and leave; the second leaves at once.

Even then no fault stays: the agents see their stdin end and undo what they hold. Containers may stay; `fencepost
clean` removes them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def cancel_on_signal(cancel: threading.Event) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM set the event instead of raising somewhere."""

    def handle(number: int, frame: FrameType | None) -> None:
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
