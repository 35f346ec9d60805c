"""Waiting until the whole service is well again, as an operator does before he goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

from nemesis.base import Environment

LOOK_SECONDS = 0.05


def await_well(
    env: Environment, seconds: float, in_vain: Callable[[], bool] = lambda: False
) -> tuple[bool, str, float]:
    """Whether it was in time, what was seen last, and how many seconds it took; `in_vain` may end the wait sooner."""
    began = time.monotonic()
    while True:
        well, seen = env.healthy()
        took = time.monotonic() - began
        if well or took > seconds or in_vain():
            return well, seen, took
        time.sleep(LOOK_SECONDS)
