"""HTTP for lock clients: one request, one deadline, no retries, and errors that say how far the request got.

On `http.client` from the standard library, which does no more than was asked of it; a contender starts in a fraction of
the time that larger libraries take to import.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

Address = tuple[Any, ...]


class TransportError(Exception):
    """A request that got no answer. `kind` says how far it came, which is what decides between fail and info:

    connect     no connection was made: nothing was sent
    send        it broke while sending: the server may have read all of it
    timeout     sent, and no answer within the deadline
    disconnect  sent, and the connection ended before the answer was complete
    garbage     an answer that is no HTTP, or no JSON where JSON was due
    """

    def __init__(self, kind: str, detail: str) -> None:
        self.kind, self.detail = kind, detail
        super().__init__(f"{kind}: {detail}")


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, Address]:
    """The address to connect to, IPv4 before IPv6. Asked once, at the start: a look-up has no deadline."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(f"the server {host!r} has no address: {error}") from error
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address


def connect(target: tuple[socket.AddressFamily, Address], timeout_seconds: float) -> socket.socket:
    """A connected socket, or TransportError `connect`."""
    family, address = target
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(max(timeout_seconds, 0.001))
        sock.connect(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        sock.close()
        raise TransportError("connect", f"{address[0]}:{address[1]}: {error}") from error
    return sock


class _Connection(http.client.HTTPConnection):
    """An HTTPConnection on a socket that is already there, which never connects by itself."""

    auto_open = 0

    def __init__(self, host: str, port: int, sock: socket.socket) -> None:
        super().__init__(host, port)
        self.sock = sock


class HttpClient:
    """Requests to one of several servers at a time, over a connection that is kept.

    After a request without an answer the connection is given up and the *next* request goes to the next server; each
    such switch is counted. Not safe for two threads at once.
    """

    def __init__(self, endpoints: Sequence[tuple[str, int]], counters: Counter[str]) -> None:
        self._endpoints = list(endpoints)
        self._targets = [resolve(host, port) for host, port in endpoints]
        self._at = 0
        self._connection: _Connection | None = None
        self._counters = counters
        counters["endpoint_switches"] += 0  # listed also when there was none

    @property
    def endpoint(self) -> str:
        """The server that the next request goes to: "n1:2379"."""
        host, port = self._endpoints[self._at]
        return f"{host}:{port}"

    @property
    def target(self) -> tuple[socket.AddressFamily, Address]:
        """Its address, for a connection of one's own."""
        return self._targets[self._at]

    @property
    def connected(self) -> bool:
        """Whether the last request was answered."""
        return self._connection is not None

    def next_endpoint(self) -> None:
        """Give this server up."""
        self.close()
        if len(self._endpoints) > 1:
            self._at = (self._at + 1) % len(self._endpoints)
            self._counters["endpoint_switches"] += 1

    def request(self, method: str, path: str, body: bytes | None, timeout_seconds: float) -> tuple[int, bytes]:
        """Status and body of the answer, within one deadline. TransportError when none came."""
        deadline = time.monotonic() + timeout_seconds
        stage = "connect"
        try:
            if self._connection is None:
                host, port = self._endpoints[self._at]
                self._connection = _Connection(host, port, connect(self.target, timeout_seconds))
            connection = self._connection
            stage = "send"
            connection.sock.settimeout(max(deadline - time.monotonic(), 0.001))
            connection.request(method, path, body, {"Content-Type": "application/json"} if body is not None else {})
            stage = "answer"
            connection.sock.settimeout(max(deadline - time.monotonic(), 0.001))
            response = connection.getresponse()
            payload = response.read()
        except TransportError:
            self.next_endpoint()
            raise
        except TimeoutError as error:
            self.next_endpoint()
            kind = "send" if stage == "send" else "timeout"
            raise TransportError(kind, f"no answer within {timeout_seconds:.2f} s") from error
        except (OSError, http.client.HTTPException) as error:
            self.next_endpoint()
            closed = isinstance(error, OSError | http.client.IncompleteRead)
            kind = "send" if stage == "send" else "disconnect" if closed else "garbage"
            raise TransportError(kind, f"{type(error).__name__}: {error}") from error
        if response.will_close:
            self.close()
        return response.status, payload

    def json(self, method: str, path: str, document: Any, timeout_seconds: float) -> tuple[int, Any]:
        """Like `request`, with JSON both ways (None sends no body, an empty answer is None)."""
        body = None if document is None else json.dumps(document).encode()
        status, payload = self.request(method, path, body, timeout_seconds)
        if not payload.strip():
            return status, None
        try:
            return status, json.loads(payload)
        except ValueError:
            if status >= 400:  # plain text, as Consul answers errors
                return status, payload.decode(errors="replace").strip()
            self.next_endpoint()
            raise TransportError("garbage", f"status {status}, not JSON: {payload[:80]!r}") from None

    def close(self) -> None:
        """Drop the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
