"""Waiting for conditions, in tests that watch other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Wait for a condition, and return what it came to; fails with what was awaited."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"awaited in vain for {seconds:.0f} s: {what}"
        time.sleep(0.02)
    return found
