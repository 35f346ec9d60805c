"""Asking the zoo's server: one request, one answer, one deadline."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from workloads.clients.http import TransportError, connect, resolve
from workloads.clients.sockets import Bounded, TooLong

MOST_BYTES = 4096
ERRORS = {"connect": "fail", "timeout": "info", "disconnect": "info", "garbage": "info", "*": "info"}
"""What each means: without a connection nothing was sent, otherwise nobody knows what became of the request."""


class AskError(Exception):
    """There is no usable answer; begins with a kind of `ERRORS`."""

    @property
    def sent(self) -> bool:
        """Whether the request may have been taken."""
        return not str(self).startswith("connect")


class Asking:
    """A connection to the server, made when it is needed. Not safe for two threads at once."""

    def __init__(self, host: str, port: int) -> None:
        self._target = resolve(host, port)
        self._socket: socket.socket | None = None
        self.reconnects = -1  # the first connection is none

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that nothing has gone wrong with."""
        return self._socket is not None

    def ask(self, seconds: float, **request: Any) -> dict[str, Any]:
        """Send one request, once, and return its answer. AskError when there is none within so many seconds."""
        end = time.monotonic() + seconds
        if self._socket is None:
            try:
                self._socket = connect(self._target, seconds)
            except TransportError as error:
                raise AskError(str(error)) from error
            self.reconnects += 1
        try:
            bounded = Bounded(self._socket, seconds, MOST_BYTES, end)
            bounded.sendall(json.dumps(request).encode() + b"\n")
            heard = b""
            while not heard.endswith(b"\n"):
                data = bounded.recv(MOST_BYTES)
                if not data:
                    raise ConnectionResetError("the server closed the connection")
                heard += data
            answer = json.loads(heard)
        except TimeoutError as error:
            raise self._broken("timeout", error) from error
        except (ValueError, TooLong) as error:
            raise self._broken("garbage", error) from error
        except OSError as error:
            raise self._broken("disconnect", error) from error
        if not isinstance(answer, dict) or "error" in answer:
            raise self._broken("garbage", answer)
        return answer

    def _broken(self, kind: str, why: object) -> AskError:
        """Nothing that comes on this connection could be told from the answer to what was asked before."""
        self.drop()
        return AskError(f"{kind}: {why}")

    def drop(self) -> None:
        """Give the connection back. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
