"""What both kinds of a first process do alike, a site's and a node's: hear of their children, answer the harness."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness.runtime.local.inside import kernel

Operation = Callable[[dict[str, Any], list[int]], dict[str, Any] | None]


def woken_by_children() -> int:
    """A descriptor that is readable once a child has ended; whoever reads it empty waits for the next."""
    woken, wake = os.pipe()
    for descriptor in (woken, wake):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return woken


def answer(operation_of: Callable[[str], Operation], request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    """What the harness gets for a request: `ok` with what its operation returned, or `error` in words.

    The descriptors that came with it are closed.
    """
    try:
        told: dict[str, Any] = {"ok": operation_of(request["op"])(request, descriptors) or {}}
    except Exception as error:  # noqa: BLE001 - told; a pid 1 that ends takes all with it
        told = {"error": kernel.said(error)}
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return {"id": request["id"], **told}


def ended_children() -> Iterator[tuple[int, dict[str, int]]]:
    """The children that have ended since: process id, and how and when, as the harness is told of it."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        yield pid, {"code": code if code >= 0 else 128 - code, "wall_ns": time.time_ns()}
