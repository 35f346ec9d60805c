"""kazoo's client of ZooKeeper on sockets of ours: TLS by a context of ours (kazoo's own takes files), and a limit for
what a server may announce, which kazoo would wait for, whatever it is.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import CREATOR_ALL_ACL

from workloads.clients.http import Tls
from workloads.clients.sockets import TooLong

MOST_BYTES = 16 << 20
"""Of one message. ZooKeeper's own limit is 1 MiB (`jute.maxbuffer`); the names of a folder's children may be more."""

ROOT = "fencepost"
"""The folder of everything that is ours."""
MARK = b"fencepost"
"""What is in it where a trial has made it at a cluster that exists. With the last trial there it goes."""


class _Socket:
    """A socket that a library has, with what it was told first."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.heard = b""
        self.error: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, size: int) -> bytes:
        """See `socket.recv`. TooLong where somebody has announced more than anybody would say."""
        try:
            if size > MOST_BYTES:
                raise TooLong(f"it announces an answer of {size} bytes")
            data = self._sock.recv(size)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self.error = str(error)
            raise
        self.heard = (self.heard + data)[:60] if len(self.heard) < 60 else self.heard
        return data


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Makes kazoo's connections. `names`: address -> the name that the certificate there must have."""

    def __init__(self, tls: Tls | None = None, names: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._context = None if tls is None else tls.context()
        self._names = names or {}
        self.last: _Socket | None = None
        """The newest connection."""
        self.error: str | None = None
        """Why there is none."""

    def create_connection(
        self, address: tuple[Any, ...], hostname: Any = None, timeout: float | None = None, **_: Any
    ) -> Any:
        """A socket; kazoo's own options of TLS are left out of account."""
        try:
            sock = socket.create_connection(address[:2], timeout)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    sock = self._context.wrap_socket(sock, server_hostname=self._names.get(address[0], str(hostname)))
            except (OSError, ValueError):
                sock.close()
                raise
        except (OSError, ValueError) as error:
            self.error = str(error)
            raise OSError(str(error)) from error
        self.last = _Socket(sock)
        return self.last

    def cut(self) -> None:
        """End the newest connection, whatever is read from it just now."""
        if self.last is not None:
            with suppress(OSError):
                socket.socket.shutdown(self.last._sock, socket.SHUT_RDWR)  # not TLS' own, which changes what is read by


def client(
    hosts: Sequence[str],
    ttl_seconds: float,
    handler: Handler,
    negotiated: Callable[[float], None],
    login: tuple[str, str] | None = None,
    **options: Any,
) -> Any:
    """A client of a session of its own, not started. kazoo negotiates the session's length and keeps it to itself: its
    read time-out is two thirds of it; `negotiated` is told it (in seconds), with each connection.

    Who logs in (a digest) keeps what he makes to himself.
    """
    if login is not None:
        options |= {"auth_data": [("digest", ":".join(login))], "default_acl": CREATOR_ALL_ACL}
    made: Any = KazooClient(
        hosts=",".join(hosts), timeout=ttl_seconds, randomize_hosts=False, handler=handler, **options
    )
    connect = made._connection._connect

    def connected(*arguments: Any) -> Any:
        read_timeout, connect_timeout = connect(*arguments)
        negotiated(read_timeout * 1.5 / 1000)
        return read_timeout, connect_timeout

    made._connection._connect = connected
    return made
