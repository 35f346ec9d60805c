"""One connection to a Redis or a Sentinel, by redis-py's own connection class and parser.

Below redis-py's client: that one retries, pools and health-checks behind one's back. And on a socket with a deadline
and a limit for a whole exchange (workloads/clients/sockets.py), where redis-py has a time-out for each read.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from redis.connection import Connection
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    InvalidResponse,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from workloads.clients.http import TransportError, connect
from workloads.clients.sockets import MOST_BYTES, Bounded

if TYPE_CHECKING:
    import ssl

# redis-py cuts the code off the texts of the refusals that it has a class for.
CODES: Mapping[type[RedisError], str] = {
    AuthenticationError: "NOAUTH",
    BusyLoadingError: "LOADING",
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
    NoPermissionError: "NOPERM",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
}


class Resp(Connection):
    """See the module. It connects with the first `ask` after `begin`, and again when it was given up."""

    def __init__(
        self,
        target: tuple[socket.AddressFamily, tuple[Any, ...]],
        *,
        user: str | None = None,
        password: str | None = None,
        context: ssl.SSLContext | None = None,
        server_name: str | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`target` as `resolve` gives it: a look-up has no deadline. With `context` in TLS, by that name."""
        self._target, self._most_bytes = target, most_bytes
        self._who = () if user is None else (user,)
        self._secret, self._context, self._server_name = password, context, server_name
        self._seconds = self._until = 0.0
        super().__init__(  # type: ignore[no-untyped-call]
            host=target[1][0], port=target[1][1], protocol=2, driver_info=None, redis_connect_func=_greet
        )

    def begin(self, seconds: float) -> None:
        """From now on one exchange, a connection and all, with so much time."""
        self._seconds, self._until = seconds, time.monotonic() + seconds
        bounded: Any = self._sock
        if bounded is not None:
            bounded.begin(seconds, self._until)

    def open(self) -> None:
        """Connect and log in, within what `begin` has left. RedisError."""
        with _understood():
            self.connect()  # type: ignore[no-untyped-call]

    def send(self, *words: str | bytes | int) -> None:
        """One command. RedisError; then its connection is over."""
        self.send_command(*words, check_health=False)  # type: ignore[no-untyped-call]

    def read(self) -> Any:
        """Its answer. RedisError, of which `refusal` tells Redis' own; after any other the connection is over."""
        with _understood():
            return self.read_response()

    def ask(self, *words: str | bytes | int) -> Any:
        """Both of these, on a connection that is made where there is none."""
        if not self.is_connected:
            self.open()
        self.send(*words)
        return self.read()

    def drop(self) -> None:
        """Close the connection, if there is one. Idempotent."""
        self.disconnect()  # type: ignore[no-untyped-call]

    def _connect(self) -> Any:
        try:
            sock = connect(self._target, self._left())
        except TransportError as error:
            raise OSError(error.detail) from error
        try:
            if self._context is not None:
                sock.settimeout(self._left())  # one for the whole of a handshake
                sock = self._context.wrap_socket(sock, server_hostname=self._server_name or str(self.host))
            return Bounded(sock, self._seconds, self._most_bytes, self._until)
        except (OSError, ValueError):
            sock.close()
            raise

    def _left(self) -> float:
        return max(self._until - time.monotonic(), 0.001)


@contextmanager
def _understood() -> Iterator[None]:
    """What the parser stumbles over in an answer that is none is an error of redis-py's own, too."""
    try:
        yield
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InvalidResponse(f"{type(error).__name__}: {error}") from error


def _greet(connection: Any) -> None:
    """On a fresh connection: the password, and nothing else that redis-py would say. Raises RedisError."""
    connection._parser.on_connect(connection)
    if connection._secret:
        connection.ask("AUTH", *connection._who, connection._secret)


def refusal(error: RedisError) -> str | None:
    """What Redis says, with its code, where it has refused a command; None for what is no answer of it."""
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), None)
    if code is not None:
        return f"{getattr(error, 'status_code', None) or code} {error}"
    return str(error) if isinstance(error, ResponseError) else None


def words_of(error: Exception) -> str:
    """What happened to a connection, in the socket's words: redis-py puts its own in their place."""
    told = error.__context__
    return str(told if isinstance(told, OSError) and str(told) else error)
