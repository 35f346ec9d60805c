"""Looking at a place again and again, as a watch does that also hears of things by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

from harness.errors import FencepostError


def keep_looking(
    stopped: threading.Event, seconds: float, look: Callable[[], None], on_blind: Callable[[FencepostError], None]
) -> None:
    """Look every so many seconds until it is stopped. `on_blind` hears of the first of several looks that failed."""
    blind = False
    while not stopped.wait(seconds):
        try:
            look()
            blind = False
        except FencepostError as error:
            if not blind and not stopped.is_set():
                on_blind(error)
            blind = True
