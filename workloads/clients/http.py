"""HTTP for lock clients: one request, one deadline, no retries, and errors that say how far the request got.

On `http.client` from the standard library, which does no more than was asked of it; a contender starts in a fraction of
the time that larger libraries take to import.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workloads.clients.sockets import MOST_BYTES, Bounded, TooLong

if TYPE_CHECKING:
    import ssl

Address = tuple[Any, ...]
CHUNK = 65536


class TransportError(Exception):
    """A request that got no answer. `kind` says how far it came, which is what decides between fail and info:

    connect     no connection was made: nothing was sent
    send        it broke while sending: the server may have read all of it
    timeout     sent, and no answer within the deadline
    disconnect  sent, and the connection ended before the answer was complete
    garbage     an answer that is no HTTP, or no JSON where JSON was due, or longer than any would be
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


@dataclass(frozen=True)
class Tls:
    """What it takes to speak TLS: texts in PEM, since files of the harness's machine are none of a contender's.

    `ca`: whom to trust, None for whomever this machine trusts. `cert` and `key`: a client's own, both or neither.
    `names`: host as it is connected to -> the name that its certificate must have, where that is another.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = field(default=None, repr=False)
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Mapping[str, Any] | None) -> Tls | None:
        """From a client's settings, where they have it."""
        return None if told is None else cls(told.get("ca"), told.get("cert"), told.get("key"), told.get("names") or {})

    def context(self) -> ssl.SSLContext:
        """For connections as a client. `ssl.SSLError` (or ValueError) for texts that are no certificate or key."""
        import ssl  # takes 20 ms, which only those pay who need it

        made = ssl.create_default_context(cadata=self.ca)
        # From Python 3.13 on it is set by default, and authorities that people made for themselves mostly lack what it
        # asks for: a contender's Python would refuse what the harness's took.
        made.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.cert is not None:
            both = os.memfd_create("certificate")  # the library takes files only; this one has no name on any disk
            try:
                os.write(both, f"{self.cert}\n{self.key or ''}\n".encode())
                # Without a word of ours OpenSSL would ask for a passphrase on the terminal, and wait for it.
                made.load_cert_chain(f"/proc/self/fd/{both}", password=_no_passphrase)
            finally:
                os.close(both)
        return made


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase, and must be given without one")


def wants_more(error: OSError) -> bool:
    """Whether a TLS connection that doesn't block has only not got a whole record yet."""
    import ssl

    return isinstance(error, ssl.SSLWantReadError)


class _Connection(http.client.HTTPConnection):
    """An HTTPConnection on a socket that is already there, which never connects by itself."""

    auto_open = 0

    def __init__(self, host: str, port: int, bounded: Bounded) -> None:
        super().__init__(host, port)
        self.bounded = bounded
        sock: Any = bounded  # which has all that the library asks of one
        self.sock = sock


def _body(response: http.client.HTTPResponse) -> bytes:
    """All of it, read in pieces: the length that it announces is only believed as it comes."""
    pieces = []
    while piece := response.read(CHUNK):
        pieces.append(piece)
    if response.length:  # read in pieces it ends without a word where the connection did
        raise http.client.IncompleteRead(b"".join(pieces), response.length)
    return b"".join(pieces)


class HttpClient:
    """Requests to one of several servers at a time, over a connection that is kept.

    After a request without an answer the connection is given up and the *next* request goes to the next server; each
    such switch is counted. `headers` go with each request. An answer may have `most_bytes`. Not safe for two threads at
    once.
    """

    def __init__(
        self,
        endpoints: Sequence[tuple[str, int]],
        counters: Counter[str],
        tls: Tls | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._endpoints = list(endpoints)
        self._targets = [resolve(host, port) for host, port in endpoints]
        self._at, self._most_bytes = 0, most_bytes
        self._connection: _Connection | None = None
        self._counters = counters
        self._names = {} if tls is None else tls.names
        self._context = None if tls is None else tls.context()
        self.headers: dict[str, str] = {}
        counters["endpoint_switches"] += 0  # listed also when there was none

    @property
    def endpoint(self) -> str:
        """The server that the next request goes to: "n1:2379"."""
        host, port = self._endpoints[self._at]
        return f"{host}:{port}"

    def open(self, timeout_seconds: float) -> socket.socket:
        """A connection of one's own to that server, or TransportError `connect`: nothing was sent."""
        deadline = time.monotonic() + timeout_seconds
        sock = connect(self._targets[self._at], timeout_seconds)
        if self._context is None:
            return sock
        host, port = self._endpoints[self._at]
        name = self._names.get(host, host)
        try:  # a socket's time-out is one for the whole of a handshake
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            return self._context.wrap_socket(sock, server_hostname=name)
        except (OSError, ValueError) as error:
            sock.close()
            raise TransportError("connect", f"{host}:{port}: TLS: {error}") from error

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
        """Status and body of the answer, all of it within one deadline. TransportError when none came."""
        deadline = time.monotonic() + timeout_seconds
        stage = "connect"
        try:
            if self._connection is None:
                host, port = self._endpoints[self._at]
                made = Bounded(self.open(timeout_seconds), timeout_seconds, self._most_bytes)
                self._connection = _Connection(host, port, made)
            connection = self._connection
            stage = "send"
            connection.bounded.begin(timeout_seconds, deadline)
            kind_of_body = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, {**kind_of_body, **self.headers})
            stage = "answer"
            response = connection.getresponse()
            payload = _body(response)
        except TransportError:
            self.next_endpoint()
            raise
        except TimeoutError as error:
            self.next_endpoint()
            kind = "send" if stage == "send" else "timeout"
            raise TransportError(kind, f"no whole answer within {timeout_seconds:.2f} s") from error
        except TooLong as error:
            self.next_endpoint()
            raise TransportError("garbage", str(error)) from error
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
