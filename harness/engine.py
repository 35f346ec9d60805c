"""The Docker engine: reaching it, naming its refusals in a sentence, and opening raw streams to it.

Everything that talks to Docker goes through `Engine`: one client with a timeout on each call, and `telling`, which
turns whatever goes wrong into the two errors of this project. A refusal by the place itself (not running, no image,
disk full) is `RuntimeUnavailable` with the remedy; anything else is a `HarnessError` with the engine's own words.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import docker
import requests
from docker.constants import MINIMUM_DOCKER_API_VERSION
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from harness.errors import HarnessError, RuntimeUnavailable

API_TIMEOUT_SECONDS = 60
"""For one call; a loaded machine was seen to take 14 s for one start, a hanging daemon takes for ever."""
CONNECT_TIMEOUT_SECONDS = 10
POOL_SIZE = 32
"""Connections that are kept for calls from several threads; more threads open more, at a cost, and nothing breaks."""
NO_SSH = (
    "a Docker engine over ssh:// can't be used: its streams can't be half closed, which the agents need. Forward its "
    "socket instead: `ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST`, then set "
    "DOCKER_HOST=unix:///tmp/docker.sock"
)


def connect() -> docker.DockerClient:
    """A client for the engine that the `docker` command would use (DOCKER_HOST, else the current context).

    Its API version is negotiated. Raises RuntimeUnavailable with the reason and the remedy.
    """
    try:
        version = _client(MINIMUM_DOCKER_API_VERSION).api.version(api_version=False)["ApiVersion"]
        client = _client(str(version))
    except (DockerException, requests.exceptions.RequestException, OSError) as error:
        reason = _innermost(error)
        if os.environ.get("DOCKER_HOST", "").startswith("ssh://") or "SSHHTTPAdapter" in reason:
            raise RuntimeUnavailable(NO_SSH) from error
        raise RuntimeUnavailable(
            f"Docker can't be reached: {reason}. Is it running, may this user use it, and is DOCKER_HOST right? "
            "`fencepost doctor` tells more."
        ) from error
    if urlsplit(client.api.base_url).netloc == "ssh":
        raise RuntimeUnavailable(NO_SSH)
    client.api.timeout = API_TIMEOUT_SECONDS
    return client


def _client(api_version: str) -> docker.DockerClient:
    """Not `version="auto"`: that asks before the session can be told to leave the environment alone.

    The environment's proxies are not for this address, and its REQUESTS_CA_BUNDLE would win over the engine's own
    certificate.
    """
    client = docker.DockerClient.from_env(version=api_version, timeout=CONNECT_TIMEOUT_SECONDS, max_pool_size=POOL_SIZE)
    client.api.trust_env = False
    return client


@contextmanager
def telling(doing: str) -> Iterator[None]:
    """Give errors of the Docker client their meaning; `doing` completes the sentence "Docker failed in ...".

    Raises RuntimeUnavailable (engine gone, image missing, disk full) or HarnessError, both from the original.
    """
    try:
        yield
    except APIError as error:
        words = str(error.explanation or error)
        if isinstance(error, ImageNotFound) or "No such image" in words:
            raise RuntimeUnavailable(
                f"{doing}: {words}. `fencepost images` builds or pulls what trials need."
            ) from error
        if "no space left on device" in words:
            raise RuntimeUnavailable(
                f"{doing}: the disk of the Docker engine is full ({words}). `docker system df` shows what fills it; "
                "`fencepost clean` removes what earlier runs left."
            ) from error
        if "No such image" in words:
            raise RuntimeUnavailable(
                f"{doing}: {words}. `fencepost images` builds or pulls what trials need."
            ) from error
        raise HarnessError(f"Docker failed in {doing}: {words}") from error
    except requests.exceptions.Timeout as error:
        raise HarnessError(
            f"Docker gave no answer within {API_TIMEOUT_SECONDS} s in {doing}; does `docker ps` still answer?"
        ) from error
    except (requests.exceptions.ConnectionError, ConnectionError) as error:
        raise RuntimeUnavailable(
            f"the connection to Docker broke in {doing}: {_innermost(error)}. Is the engine still running? "
            "`fencepost doctor` tells more."
        ) from error
    except DockerException as error:
        raise HarnessError(f"Docker failed in {doing}: {error}") from error


class Engine:
    """One Docker engine, used from several threads at once."""

    def __init__(self, client: docker.DockerClient | None = None) -> None:
        self.client = client or connect()
        self.api = self.client.api

    def describe(self) -> dict[str, str]:
        """Versions and limits of the engine and its host."""
        with telling("asking for its version"):
            info: dict[str, Any] = self.api.info()
            version: dict[str, Any] = self.api.version()
        security = [word.removeprefix("name=") for word in info.get("SecurityOptions") or []]
        return {
            "engine": f"{version.get('Platform', {}).get('Name') or 'Docker'} {version['Version']}",
            "api": f"{self.api.api_version} (engine: {version['ApiVersion']})",
            "kernel": str(info["KernelVersion"]),
            "os": str(info["OperatingSystem"]),
            "architecture": str(info["Architecture"]),
            "cgroup": f"v{info.get('CgroupVersion', '1')} ({info['CgroupDriver']})",
            "storage": str(info["Driver"]),
            "runtime": str(info.get("DefaultRuntime", "unknown")),
            "cpus": str(info["NCPU"]),
            "memory_bytes": str(info["MemTotal"]),
            "security": ", ".join(security) or "none",
        }

    def containers(self, *labels: str) -> list[dict[str, Any]]:
        """All containers that carry these labels (`key` or `key=value`), as the engine lists them."""
        with telling("listing containers"):
            found: list[dict[str, Any]] = self.api.containers(all=True, filters={"label": list(labels)})
        return found

    def networks(self, *labels: str) -> list[dict[str, Any]]:
        """All networks that carry these labels."""
        with telling("listing networks"):
            found: list[dict[str, Any]] = self.api.networks(filters={"label": list(labels)})
        return found

    def volumes(self, *labels: str) -> list[dict[str, Any]]:
        """All volumes that carry these labels."""
        with telling("listing volumes"):
            answer: dict[str, Any] = self.api.volumes(filters={"label": list(labels)})
        return answer.get("Volumes") or []

    def inspect(self, container: str, what: str) -> dict[str, Any] | None:
        """The container's full state, or None when there is none of this name or id."""
        with telling(f"looking at {what}"):
            try:
                found: dict[str, Any] = self.api.inspect_container(container)
            except NotFound:
                return None
        return found

    def upgrade(self, path: str, body: dict[str, Any], doing: str) -> Transport:
        """POST to a path that answers by turning the connection into a raw stream, and return that stream.

        Written on a bare socket because the client hides what is needed here: it may have read the first bytes of the
        stream into a buffer of its own, and can't half-close a TLS connection.
        """
        try:
            transport = self._dial()
            payload = json.dumps(body).encode()
            head = (
                f"POST /v{self.api.api_version}{path} HTTP/1.1\r\nHost: docker\r\nUser-Agent: fencepost\r\n"
                "Content-Type: application/json\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                f"Content-Length: {len(payload)}\r\n\r\n"
            )
            transport.send(head.encode() + payload, API_TIMEOUT_SECONDS)
            return _after_upgrade(transport, doing)
        except OSError as error:
            raise RuntimeUnavailable(f"the connection to Docker broke in {doing}: {error}") from error

    def listen(self, path: str, doing: str) -> Transport:
        """GET a path that answers with a stream without end (events), and return that stream.

        In HTTP/1.0, to which the engine answers with the bare lines: no chunks to take apart. Raises as `upgrade` does.
        """
        try:
            transport = self._dial()
            head = f"GET /v{self.api.api_version}{path} HTTP/1.0\r\nHost: docker\r\nUser-Agent: fencepost\r\n\r\n"
            transport.send(head.encode(), API_TIMEOUT_SECONDS)
            return _after_upgrade(transport, doing)
        except OSError as error:
            raise RuntimeUnavailable(f"the connection to Docker broke in {doing}: {error}") from error

    def wall_ns(self) -> int:
        """What the wall clock of the engine's machine reads now, in ns since 1970."""
        with telling("asking for its time"):
            said = str(self.api.info()["SystemTime"])
        return wall_ns(said)

    def _dial(self) -> Transport:
        url = urlsplit(self.api.base_url)
        if url.scheme == "http+docker":
            plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            plain.settimeout(CONNECT_TIMEOUT_SECONDS)
            adapter: Any = self.api.get_adapter(self.api.base_url)
            plain.connect(adapter.socket_path)
            return PlainTransport(plain)
        assert url.hostname, f"an engine address without a host: {self.api.base_url}"
        secure = url.scheme == "https"
        tcp = socket.create_connection((url.hostname, url.port or (2376 if secure else 2375)), CONNECT_TIMEOUT_SECONDS)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not secure:
            return PlainTransport(tcp)
        return TlsTransport(tcp, self._tls_context(), url.hostname)

    def _tls_context(self) -> ssl.SSLContext:
        verify, certificate = self.api.verify, self.api.cert
        context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
        if verify is False:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if isinstance(certificate, tuple):
            context.load_cert_chain(*certificate)
        elif certificate:
            context.load_cert_chain(certificate)
        return context


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


def wall_ns(said: str) -> int:
    """A time as the engine writes it ("2026-11-30T08:45:08.538908388Z"), in ns since 1970."""
    found = _TIME.fullmatch(said)
    if found is None:
        raise HarnessError(f"Docker wrote {said!r} where a time was expected")
    whole, fraction, zone = found.groups()
    seconds = int(datetime.fromisoformat(whole + zone.replace("Z", "+00:00")).timestamp())
    return seconds * 10**9 + int((fraction or "0").ljust(9, "0"))


class Transport(Protocol):
    """A byte stream to the engine. One thread receives; any may send, half-close and shut."""

    def receive(self, size: int, timeout_seconds: float | None = None) -> bytes:
        """Some bytes; empty at the end of the stream. Raises TimeoutError, or OSError when the connection broke."""

    def send(self, data: bytes, timeout_seconds: float) -> None:
        """All of the bytes, or TimeoutError when the other end doesn't take them, or OSError when it is gone."""

    def end_sending(self) -> None:
        """Half-close: the other end reads the end of its input, and may still send."""

    def shut(self) -> None:
        """End both directions at once; wakes a thread that receives. The descriptor stays until `close`."""

    def close(self) -> None:
        """Free the descriptor. For the receiving thread, when nobody uses it any more."""


def _ready(sock: socket.socket, event: int, deadline: float | None) -> None:
    waiting = select.poll()
    waiting.register(sock, event)
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    if not waiting.poll(None if left is None else left * 1000):
        raise TimeoutError("timed out")


def _deadline(timeout_seconds: float | None) -> float | None:
    return None if timeout_seconds is None else time.monotonic() + timeout_seconds


class PlainTransport:
    """Over a unix or TCP socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setblocking(False)

    def receive(self, size: int, timeout_seconds: float | None = None) -> bytes:
        deadline = _deadline(timeout_seconds)
        while True:
            _ready(self._socket, select.POLLIN, deadline)
            try:
                return self._socket.recv(size)
            except BlockingIOError:
                continue

    def send(self, data: bytes, timeout_seconds: float) -> None:
        deadline = _deadline(timeout_seconds)
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                _ready(self._socket, select.POLLOUT, deadline)

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def shut(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class TlsTransport:
    """Over TLS on a connected socket.

    Ending the sending side means a `close_notify`, as Go's `CloseWrite` sends it: with a bare FIN instead the engine
    takes the stream for broken and drops the program's output too. Python's own TLS socket can't send one without
    reading, and throws away what it reads (seen: an answer of 20 MB lost), so the TLS object here is apart from the
    socket, and is given nothing to read in that moment. Every call into it is short and under one lock: it is not made
    for two threads.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = threading.Lock()  # guards the three above and the one below
        self._early: list[bytes] = []
        self._transmitting = threading.Lock()  # records leave in the order in which they were made
        try:
            self._shake_hands()
        except BaseException:
            sock.close()
            raise
        sock.setblocking(False)

    def receive(self, size: int, timeout_seconds: float | None = None) -> bytes:
        deadline = _deadline(timeout_seconds)
        while True:
            with self._lock:
                if self._early:
                    return self._early.pop(0)
                data = self._decrypted(size)
            if data is not None:
                return data
            _ready(self._socket, select.POLLIN, deadline)
            try:
                received = self._socket.recv(65536)
            except BlockingIOError:
                continue
            with self._lock:
                self._take_in(received)

    def send(self, data: bytes, timeout_seconds: float) -> None:
        deadline = _deadline(timeout_seconds)
        left = memoryview(data)
        while left:
            with self._lock:
                left = left[self._tls.write(left[:65536]) :]
            self._transmit(deadline)

    def end_sending(self) -> None:
        with self._lock:
            while data := self._decrypted(65536):
                self._early.append(data)
            with suppress(ssl.SSLWantReadError):  # our close_notify is made; it would wait for theirs
                self._tls.unwrap()
        self._transmit(_deadline(API_TIMEOUT_SECONDS))

    def shut(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _shake_hands(self) -> None:
        done = False
        while not done:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            self._socket.sendall(self._outgoing.read())
            if not done:
                self._take_in(self._socket.recv(65536))

    def _take_in(self, received: bytes) -> None:
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    def _decrypted(self, size: int) -> bytes | None:
        """Some plain text, empty at the end, None when more has to come from the socket."""
        try:
            return self._tls.read(size)
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def _transmit(self, deadline: float | None) -> None:
        with self._transmitting:
            with self._lock:
                left = memoryview(self._outgoing.read())
            while left:
                try:
                    left = left[self._socket.send(left) :]
                except BlockingIOError:
                    _ready(self._socket, select.POLLOUT, deadline)


class _Prefixed:
    """A transport whose first bytes were already received."""

    def __init__(self, first: bytes, transport: Transport) -> None:
        self._first, self._transport = first, transport
        self.send, self.end_sending = transport.send, transport.end_sending
        self.shut, self.close = transport.shut, transport.close

    def receive(self, size: int, timeout_seconds: float | None = None) -> bytes:
        if self._first:
            first, self._first = self._first[:size], self._first[size:]
            return first
        return self._transport.receive(size, timeout_seconds)


def _after_upgrade(transport: Transport, doing: str) -> Transport:
    """Read the answer's head; what follows it is already the stream."""
    received = bytearray()
    deadline = time.monotonic() + API_TIMEOUT_SECONDS
    try:
        while b"\r\n\r\n" not in received:
            piece = transport.receive(65536, max(0.0, deadline - time.monotonic()))
            if not piece:
                raise HarnessError(f"Docker failed in {doing}: it closed the connection after {bytes(received)!r}")
            received += piece
        head, _, rest = bytes(received).partition(b"\r\n\r\n")
        words = head.split(None, 2)
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if status in (101, 200):  # 200 is what engines answer that don't see the request to upgrade
            return _Prefixed(rest, transport) if rest else transport
        reason = _error_body(transport, head, rest, deadline)
    except TimeoutError as error:
        transport.close()
        raise HarnessError(
            f"Docker gave no answer within {API_TIMEOUT_SECONDS} s in {doing}; does `docker ps` still answer?"
        ) from error
    except BaseException:
        transport.close()
        raise
    transport.close()
    raise HarnessError(f"Docker failed in {doing}: {reason}")


def _error_body(transport: Transport, head: bytes, body: bytes, deadline: float) -> str:
    length = 0
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        piece = transport.receive(65536, max(0.0, deadline - time.monotonic()))
        if not piece:
            break
        body += piece
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{head.splitlines()[0].decode(errors='replace')} {body.decode(errors='replace')}".strip()


def _innermost(error: BaseException) -> str:
    """The words of the cause at the bottom: the client wraps a refused connection five times."""
    seen: BaseException = error
    while True:
        below = seen.__cause__ or seen.__context__
        if below is None:
            return str(seen) or type(seen).__name__
        seen = below
