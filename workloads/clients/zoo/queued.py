"""The right client of the zoo's server (`workloads/zoo/rules.py` has the rules): a place in the queue, and a grant for
whoever asks when it is his turn.

The lease counts from the very request that was granted. One that got no answer is asked again, as the same owner: had
it been granted, the same grant comes back.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping
from typing import Any

from workloads.clients.base import Acquired, Answered, ClientConfig, Outcome, classify
from workloads.clocks import Flag, Stamp
from workloads.zoo import asking
from workloads.zoo.asking import AskError, Asking
from workloads.zoo.rules import PLACE_TTLS

AGAIN_SECONDS = 0.05
"""The pause after a request without an answer."""


class QueuedLock:
    """See the module. `settings`: endpoints."""

    name = "zoo"
    library = f"sockets of Python {platform.python_version()}"
    errors: Mapping[str, Outcome] = {**asking.ERRORS, "wait limit": "fail", "cancelled": "fail"}  # type: ignore[dict-item]

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._asking = Asking(*config.endpoints()[0])
        self._owner = ""
        self._polls = 0
        self.renew_every_seconds = config.ttl_seconds / 3

    @property
    def counters(self) -> Counter[str]:
        """See `LockClient.counters`."""
        return Counter(polls=self._polls, reconnects=max(0, self._asking.reconnects))

    def connect(self, timeout_seconds: float) -> str | None:
        """Nothing to do before the first request."""
        return None

    def _ask(self, do: str, more_seconds: float = 0.0, **keys: Any) -> dict[str, Any]:
        seconds = self._config.operation_seconds + more_seconds
        return self._asking.ask(seconds, do=do, lock=self._config.lock, owner=self._owner, **keys)

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """See `LockClient.acquire`."""
        ttl, until = self._config.ttl_seconds, Stamp.now().mono + wait_seconds
        self._owner = f"c{self._config.process}-{os.urandom(8).hex()}"
        why, doubt = "", False
        while True:
            sent = Stamp.now()
            left = until - sent.mono
            if left <= 0 or cancelled.is_set():
                break
            wait = min(left, ttl * PLACE_TTLS / 2)
            try:
                answer = self._ask("acquire", wait, ttl=ttl, wait=wait)
            except AskError as error:
                why, doubt = str(error), doubt or error.sent
                cancelled.wait(AGAIN_SECONDS)
                continue
            self._polls += 1
            if "granted" in answer:
                return Acquired("ok", answer["granted"], answer["ttl"], sent)
        return self._leave(why, doubt, "cancelled" if cancelled.is_set() else "wait limit: held by another")

    def _leave(self, why: str, doubt: bool, limit: str) -> Acquired:
        """Give the place up; once the server has heard of it nothing that was asked for can be granted any more."""
        try:
            self._ask("release")
        except AskError as error:
            return Acquired("info" if doubt or error.sent else "fail", error=f"{why or error}")
        return Acquired("fail", error=limit)

    def renew(self) -> Answered:
        """See `LockClient.renew`."""
        return self._answered("renew", "renewed", ttl=self._config.ttl_seconds)

    def release(self) -> Answered:
        """See `LockClient.release`."""
        return self._answered("release", "released")

    def _answered(self, do: str, done: str, **keys: Any) -> Answered:
        try:
            answer = self._ask(do, **keys)
        except AskError as error:
            return Answered(classify(self.errors, str(error)), error=str(error))
        return Answered("ok") if done in answer else Answered("fail", held=False, error="another owner, or none")

    @property
    def doubtful(self) -> bool:
        """See `LockClient.doubtful`."""
        return not self._asking.is_connected

    def close(self) -> None:
        """See `LockClient.close`."""
        self._asking.drop()
