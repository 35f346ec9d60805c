"""Two buddies and a heartbeat: the one that hears nothing of the other any more promotes itself.

No service at all, and nobody who could tell "he is dead" from "I can't hear him". The first one leads and sends a
heartbeat by UDP with each renewal; when the wire between the two is cut the second hears nothing for longer than the
ttl, and both lead. The first one never asks anybody whether it still does.

On the wire: `alive`, or `bye` with a release, so that the other needn't wait.
"""

from __future__ import annotations

import platform
import select
import socket
import time
from collections import Counter
from collections.abc import Mapping

from workloads.clients.base import Acquired, Answered, ClientConfig, Outcome
from workloads.clocks import Flag, Stamp

PORT = 7400
ALIVE, BYE = b"alive", b"bye"
SILENCE_TTLS = (1.0, 1.5)
"""How long each waits for a heartbeat before it promotes itself. Were both alike, both would at the very start."""


class BuddyLock:
    """See the module. `settings`: buddies, the host names of the two (c0 and c1 without it)."""

    name = "zoo-buddies"
    library = f"UDP of Python {platform.python_version()}"
    has_tokens = False
    errors: Mapping[str, Outcome] = {"*": "fail"}

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self.renew_every_seconds = config.ttl_seconds / 3
        self.counters: Counter[str] = Counter(heartbeats=0, unsent=0)
        self._names = [str(name) for name in config.settings.get("buddies", ("c0", "c1"))]
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._other: tuple[str, int] | None = None

    def connect(self, timeout_seconds: float) -> str | None:
        """Find the other one; it is started at the same time."""
        if self._config.process > 1:
            return f"there are two buddies, and this would be number {self._config.process + 1}"
        name, end = self._names[1 - self._config.process], time.monotonic() + timeout_seconds
        while self._other is None:
            try:
                self._other = (socket.gethostbyname(name), PORT)
            except OSError as error:
                if time.monotonic() > end:
                    return f"{name} can't be found: {error}"
                time.sleep(0.1)
        self._socket.bind(("0.0.0.0", PORT))
        return None

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """Listen for the other one; promoted when it has been silent for too long, or has said that it leaves."""
        until = Stamp.now().mono + wait_seconds
        silence = SILENCE_TTLS[self._config.process] * self._config.ttl_seconds
        heard = Stamp.now().mono
        while True:
            word = self._hear(min(0.02, silence))
            now = Stamp.now()
            if word == ALIVE:
                heard = now.mono
            elif word == BYE or now.mono - heard >= silence:
                self._say(ALIVE)
                return Acquired("ok", ttl_seconds=self._config.ttl_seconds, since=now)
            if now.mono >= until or cancelled.is_set():
                return Acquired("fail", error="cancelled" if cancelled.is_set() else "the other one is alive")

    def renew(self) -> Answered:
        """A heartbeat. Nobody answers, so it proves nothing."""
        self._say(ALIVE)
        return Answered("ok", proves=False)

    def release(self) -> Answered:
        """Leave it to the other."""
        self._say(BYE)
        return Answered("ok", proves=False)

    def _hear(self, seconds: float) -> bytes | None:
        """The last word that has come, waiting for one at most so long."""
        word: bytes | None = None
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        while poller.poll(0 if word is not None else round(seconds * 1000)):
            word = self._socket.recv(64)
        return word

    def _say(self, word: bytes) -> None:
        assert self._other is not None, "connect() comes first"
        self.counters["heartbeats"] += 1
        try:
            self._socket.sendto(word, self._other)
        except OSError:
            self.counters["unsent"] += 1  # it doesn't care, or it would be a better lock

    @property
    def doubtful(self) -> bool:
        """It doubts nothing."""
        return False

    def close(self) -> None:
        """See `LockClient.close`."""
        self._socket.close()
