"""Speaking with the pid 1s: one socket to each, requests that are answered, and events; one thread hears them all."""

from __future__ import annotations

import itertools
import logging
import select
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from harness.errors import HarnessError
from harness.runtime.local.inside import wire

log = logging.getLogger(__name__)

ANSWER_SECONDS = 30.0
"""How long a pid 1 may take to an answer. They take milliseconds; a machine that is very busy is not broken."""

EventHandler = Callable[[dict[str, Any], int], None]
"""Called with each message that answers nothing, and its sender's process id as seen from here. Must not block."""


class Channel:
    """The harness's end of a socket to a pid 1. `what` names that in errors: "node n1". Safe for several threads."""

    def __init__(self, sock: socket.socket, what: str, on_event: EventHandler, on_end: Callable[[], None]) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.sock, self._what, self._on_event, self._on_end = sock, what, on_event, on_end
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._pending: dict[int, Future[dict[str, Any]]] = {}
        self._ended = False

    def number(self) -> int:
        """A number for a request, where it must be known before that is sent."""
        return next(self._numbers)

    def ask(
        self,
        op: str,
        doing: str,
        descriptors: Sequence[int] = (),
        *,
        number: int | None = None,
        timeout_seconds: float = ANSWER_SECONDS,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Send a request and return its answer. HarnessError, which begins with `doing`, when there is none."""
        number = self.number() if number is None else number
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._ended:
                raise HarnessError(f"{doing}: {self._what} is gone")
            self._pending[number] = future
            try:
                # Never waits: who hears the answers of all others takes this lock, too.
                wire.send(self.sock, {"id": number, "op": op, **arguments}, descriptors, wait=False)
            except BlockingIOError as error:
                del self._pending[number]
                raise HarnessError(f"{doing}: {self._what} takes no requests (is it stopped?)") from error
            except OSError as error:
                del self._pending[number]
                raise HarnessError(f"{doing}: {self._what} is gone ({error})") from error
        try:
            answer = future.result(timeout_seconds)
        except FutureTimeout:
            with self._lock:
                self._pending.pop(number, None)
            raise HarnessError(f"{doing}: {self._what} gave no answer within {timeout_seconds:g} s") from None
        if "error" in answer:
            raise HarnessError(f"{doing}: {answer['error']}")
        found: dict[str, Any] = answer["ok"]
        return found

    def hear(self) -> bool:
        """Take one message from the socket; False when there will be none any more, and it is to be ended."""
        received = wire.receive(self.sock)
        if received is None:
            return False
        message, _, sender = received
        if "id" in message:
            with self._lock:
                future = self._pending.pop(message["id"], None)
            if future is not None:
                future.set_result(message)
        else:
            self._on_event(message, sender)
        return True

    def end(self) -> None:
        """Close the socket, and tell whoever waits for an answer."""
        with self._lock:
            self._ended = True
            pending, self._pending = list(self._pending.values()), {}
            self.sock.close()
        for future in pending:
            future.set_result({"error": f"{self._what} is gone"})
        self._on_end()


class Switchboard:
    """The thread that hears all channels of a site, until the last of them has ended."""

    def __init__(self, site_id: str) -> None:
        self._poll = select.epoll()
        self._channels: dict[int, Channel] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"hears site {site_id}", daemon=True)

    def add(self, channel: Channel) -> None:
        """Hear this one, too. The first one begins it, and is the site's own: it outlives all others."""
        descriptor = channel.sock.fileno()
        with self._lock:
            first = not self._channels
            self._channels[descriptor] = channel
            self._poll.register(descriptor, select.EPOLLIN)
        if first:
            self._thread.start()

    def _run(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                with self._lock:
                    channel = self._channels[descriptor]
                try:
                    if not channel.hear() and self._ended(descriptor, channel):
                        return
                except Exception:  # what one handler can't bear must not make the harness deaf to all others
                    log.exception("hearing a pid 1 failed")

    def _ended(self, descriptor: int, channel: Channel) -> bool:
        """One has ended; whether it was the last."""
        with self._lock:  # before it is closed: from then on its number may be another's, whom somebody adds
            self._poll.unregister(descriptor)
            del self._channels[descriptor]
            last = not self._channels
            if last:
                self._poll.close()
        try:
            channel.end()
        except Exception:
            log.exception("the end of a pid 1 could not be told")
        return last
