"""What a site has asked the engine to create, from before the question until its answer: owned before it exists.

An engine goes on with what it was asked for, whoever has stopped listening: a network that was being created when its
site was closed stood there a moment after the site had looked for what to remove (seen in 9 of 170 interrupted
examinations). So every creation is announced here first, nothing is begun once the site is closing, and the last look
comes after the last answer.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from docker.errors import APIError

from harness.errors import HarnessError


class Creations:
    """The creations of one site, by name. For several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: Counter[str] = Counter()
        self._lost: set[str] = set()
        self._ended = False

    @contextmanager
    def asking(self, name: str) -> Iterator[None]:
        """Around the one call that creates a thing of this name. Raises HarnessError, before it, once `end` was called.

        A refusal of the engine's (APIError) is an answer. Whatever else the call raises is none: a time-out, a broken
        connection. The thing may come all the same, and its name is `lost`.
        """
        with self._changed:
            if self._ended:
                raise HarnessError(f"{name} is not created any more: its site is being removed")
            self._pending[name] += 1
        answered = False
        try:
            yield
            answered = True
        except APIError:
            answered = True
            raise
        finally:
            with self._changed:
                self._pending -= Counter([name])
                if not answered:
                    self._lost.add(name)
                self._changed.notify_all()

    def end(self) -> None:
        """From now on nothing is begun. Idempotent."""
        with self._changed:
            self._ended = True

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    @property
    def lost(self) -> list[str]:
        """Names of what was asked for without an answer: nobody can tell whether it will come."""
        with self._changed:
            return sorted(self._lost)

    def settle(self, timeout_seconds: float) -> list[str]:
        """Wait until every question has its answer; the names of those that still have none after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while self._pending and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return sorted(self._pending)
