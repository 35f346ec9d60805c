"""Doing things that stand on each other: each after the one below it, the rest side by side."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from harness.images.halting import STEP_ENDS_SECONDS, Halt

Item = TypeVar("Item")

# Two keep two cores busy; the third uses what they leave while they wait for the network.
_PARALLEL = 3

# What runs leaves within a second of being told; its files take a moment to remove, as a build's step does.
_STOP_SECONDS = STEP_ENDS_SECONDS + 5.0


def in_order(
    items: Mapping[str, Item], below: Mapping[str, str | None], work: Callable[[Item], None], halt: Halt
) -> None:
    """Does the work for each item, in threads. After a failure those that are at work end, none is begun, and its error
    is raised. The same after the halt, which ends them early.

    Args:
        below: the key of the item that has to be done before; one that isn't among the items is done already.
    """
    waiting = dict(items)
    running: dict[str, threading.Thread] = {}
    ended: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()
    failure: BaseException | None = None

    def begin(key: str, item: Item) -> threading.Thread:
        def do() -> None:
            try:
                halt.check()
                work(item)
            except BaseException as error:  # noqa: BLE001 (handed to the thread that waits, which raises it)
                ended.put((key, error))
            else:
                ended.put((key, None))

        thread = threading.Thread(target=do, name=f"making-{key}", daemon=True)
        thread.start()
        return thread

    try:
        while running or (waiting and failure is None):
            for key in list(waiting):
                if failure is None and below[key] not in {*waiting, *running} and len(running) < _PARALLEL:
                    running[key] = begin(key, waiting.pop(key))
            key, error = ended.get()
            del running[key]
            failure = failure or error
    finally:
        # Only an exception from outside (Ctrl-C where nobody listens for signals) leaves any running.
        if running:
            halt.stop()
            for thread in running.values():
                thread.join(_STOP_SECONDS)
    if failure is not None:
        raise failure
