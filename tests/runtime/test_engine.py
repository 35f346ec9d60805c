"""What is said when the engine is not there, hangs, refuses, or answers nonsense.

The engine here is a socket that misbehaves on purpose; that real ones are understood is tested in test_docker.py.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from docker.errors import APIError, ImageNotFound

from harness import engine as engine_module
from harness.engine import Engine, TlsTransport, connect, telling
from harness.errors import HarnessError, RuntimeUnavailable

VERSION = b'{"ApiVersion": "1.41", "Version": "0"}'


def reply(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@pytest.fixture
def misbehaving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes | None], None]]:
    """A socket in DOCKER_HOST that tells its version, and answers everything else with these bytes, or never (None)."""
    path = tmp_path / "docker.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    monkeypatch.setattr(engine_module, "CONNECT_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(engine_module, "API_TIMEOUT_SECONDS", 0.5)
    answer: list[bytes | None] = []
    open_ones: list[tuple[socket.socket, threading.Thread]] = []

    def serve(connection: socket.socket) -> None:
        while True:
            request = connection.recv(65536)
            if not request:
                return
            if request.startswith(b"GET /version"):
                connection.sendall(reply(b"200 OK", VERSION))
            elif answer[0] is not None:
                connection.sendall(answer[0])
                connection.shutdown(socket.SHUT_RDWR)
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_ones.append((connection, threading.Thread(target=serve, args=(connection,), daemon=True)))
            open_ones[-1][1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    yield answer.append
    listener.shutdown(socket.SHUT_RDWR)
    accepting.join()
    listener.close()
    for connection, serving in open_ones:
        connection.shutdown(
            socket.SHUT_RDWR
        )  # which ends its thread; that has shut it down itself, or will read its end
        serving.join()
        connection.close()


def test_an_engine_that_never_answers_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that takes connections and hangs is found out within the time limit."""
    path = tmp_path / "hangs.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    monkeypatch.setattr(engine_module, "CONNECT_TIMEOUT_SECONDS", 0.3)
    with pytest.raises(RuntimeUnavailable, match=r"Docker can't be reached: timed out.*fencepost doctor"):
        connect()
    listener.close()


def test_a_call_that_hangs_is_named(misbehaving: Callable[[bytes | None], None]) -> None:
    """A daemon that hangs in the middle: the error says in what, for how long, and what to look at."""
    misbehaving(None)
    engine = Engine()
    with pytest.raises(HarnessError, match=r"no answer within 0\.5 s in listing containers; does `docker ps`"):
        engine.containers("fencepost=1")
    with pytest.raises(HarnessError, match=r"no answer within 0\.5 s in starting x"):
        engine.upgrade("/exec/1/start", {}, "starting x")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            reply(b"409 Conflict", b'{"message": "Container abc is paused"}'),
            "Docker failed in starting x: Container abc is",
        ),
        (reply(b"500 Oops", b"not json"), "HTTP/1.1 500 Oops not json"),
        (b"", "it closed the connection after b''"),
        (b"HTTP/1.1 101 UPG", "it closed the connection after b'HTTP/1.1 101 UPG'"),
        (b"nonsense\r\n\r\n", "Docker failed in starting x: nonsense"),
    ],
)
def test_a_stream_that_is_refused_says_why(
    misbehaving: Callable[[bytes | None], None], answer: bytes, words: str
) -> None:
    """Whatever comes instead of a stream ends up in the error."""
    misbehaving(answer)
    with pytest.raises(HarnessError, match="starting x") as error:
        Engine().upgrade("/exec/1/start", {}, "starting x")
    assert words in str(error.value)


def test_what_comes_with_the_head_belongs_to_the_stream(misbehaving: Callable[[bytes | None], None]) -> None:
    """The first bytes of a stream may arrive in one piece with the head of the answer; none of them is lost."""
    misbehaving(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\nearly bytes")
    transport = Engine().upgrade("/exec/1/start", {}, "starting x")
    received = b""
    while piece := transport.receive(4):
        received += piece
    transport.close()
    assert received == b"early bytes"


def test_ssh_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams over ssh can't be half closed; the message says how to forward the socket."""
    monkeypatch.setenv("DOCKER_HOST", "ssh://nobody@localhost:1")
    with pytest.raises(RuntimeUnavailable, match=r"over ssh:// can't be used.*Forward its socket"):
        Engine()


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ImageNotFound("404", explanation="No such image: x:1"), RuntimeUnavailable, "x:1. `fencepost images`"),
        (APIError("404", explanation="No such image: x:1"), RuntimeUnavailable, "x:1. `fencepost images`"),
        (
            APIError("500", explanation="mkdir /var/lib/docker/overlay2/1: no space left on device"),
            RuntimeUnavailable,
            "the disk of the Docker engine is full (mkdir",
        ),
        (
            APIError("409", explanation="Conflict. The name is in use"),
            HarnessError,
            "Docker failed in making y: Conflict.",
        ),
        (requests.exceptions.ReadTimeout("read"), HarnessError, "no answer within 60 s in making y"),
        (requests.exceptions.ConnectionError("refused"), RuntimeUnavailable, "broke in making y: refused"),
        (ConnectionResetError("reset"), RuntimeUnavailable, "broke in making y: reset"),
    ],
)
def test_errors_have_their_meaning(error: Exception, kind: type[Exception], words: str) -> None:
    """The place itself failing is RuntimeUnavailable with a remedy, everything else a HarnessError."""
    with pytest.raises(kind) as told, telling("making y"):
        raise error
    assert words in str(told.value)


def test_errors_of_our_own_pass() -> None:
    """A bug of ours is not blamed on Docker."""
    with pytest.raises(ZeroDivisionError), telling("dividing"):
        _ = 1 / 0


@pytest.fixture
def tls_pair(tmp_path: Path) -> Iterator[tuple[TlsTransport, ssl.SSLSocket]]:
    """Our end of a TLS connection, and the other end as the standard library has it."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl command here to make a certificate with")
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(certificate))
    theirs.load_cert_chain(certificate, key)
    one, other = socket.socketpair()
    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(theirs.wrap_socket, other, server_side=True)
        transport = TlsTransport(one, ours, "localhost")
        peer = accepted.result(10)
    yield transport, peer
    transport.close()
    peer.close()


def test_ending_the_input_over_tls_loses_no_output(tls_pair: tuple[TlsTransport, ssl.SSLSocket]) -> None:
    """Half a close: the peer reads its end only after all that was sent, and all that it wrote and writes arrives.

    `SSLSocket.unwrap` threw away what was on its way in that moment; found with 20 MB through `cat`.
    """
    transport, peer = tls_pair
    output, sent = b"o" * 100_000, b"i" * 3_000_000
    read: list[bytes] = []

    def engine() -> None:
        while piece := peer.recv(65536):
            read.append(piece)
        peer.sendall(b"after the end")
        peer.shutdown(socket.SHUT_RDWR)

    writer = threading.Thread(target=peer.sendall, args=(output,))  # on its way when the input ends
    writer.start()
    writer.join(60)
    reader = threading.Thread(target=engine)
    reader.start()
    transport.send(sent, 10)
    transport.end_sending()
    received = b""
    while piece := transport.receive(65536, 10):
        received += piece
    reader.join(60)
    assert b"".join(read) == sent
    assert received == output + b"after the end"


def test_a_tls_peer_that_does_not_read_is_a_timeout(tls_pair: tuple[TlsTransport, ssl.SSLSocket]) -> None:
    """Sending is bounded over TLS too, and so is receiving."""
    transport, _ = tls_pair
    with pytest.raises(TimeoutError):
        transport.send(b"x" * 30_000_000, 0.3)
    with pytest.raises(TimeoutError):
        transport.receive(1, 0.1)


def test_shutting_wakes_who_receives_over_tls(tls_pair: tuple[TlsTransport, ssl.SSLSocket]) -> None:
    """`abandon` ends the reading thread at once."""
    transport, _ = tls_pair
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(transport.receive, 10, 20)
        transport.shut()
        assert receiving.result(5) == b""
