"""HTTP with one deadline and no retries, against real sockets that misbehave."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from workloads.clients.http import HttpClient, TransportError

Behaviour = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue"


class Listener:
    """A server on loopback that does one thing with each connection, and counts them."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.accepted = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._behaviour = behaviour
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def endpoint(self) -> tuple[str, int]:
        return "127.0.0.1", self._socket.getsockname()[1]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        with connection:
            self._behaviour(connection)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listen() -> Iterator[Callable[[Behaviour], Listener]]:
    made: list[Listener] = []

    def listener(behaviour: Behaviour) -> Listener:
        made.append(Listener(behaviour))
        return made[-1]

    yield listener
    for each in made:
        each.close()


def whole_request(connection: socket.socket) -> bytes:
    """One request with its body, which may come in pieces of their own; empty when the client has left."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        if not (piece := connection.recv(65536)):
            return b""
        heard += piece
    head, _, body = heard.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        if not (piece := connection.recv(65536)):
            return b""
        body += piece
    return head + body


def answering(*answers: bytes) -> Behaviour:
    """Reads a request and sends the answer, as often as there are any; then ends the connection."""

    def behave(connection: socket.socket) -> None:
        for answer in answers:
            if not whole_request(connection):
                return
            connection.sendall(answer)

    return behave


def silent(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def refused() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return "127.0.0.1", taken.getsockname()[1]


def test_a_connection_is_kept(listen: Callable[[Behaviour], Listener]) -> None:
    """Two requests, one connection, no switch."""
    server = listen(answering(OK, OK))
    counters: Counter[str] = Counter()
    client = HttpClient([server.endpoint], counters)
    assert client.json("PUT", "/", {"a": 1}, 2.0) == (200, True)
    assert client.json("GET", "/", None, 2.0) == (200, True)
    assert client.connected
    assert (server.accepted, counters["endpoint_switches"]) == (1, 0)
    client.close()
    assert not client.connected


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (silent, "timeout"),
        (answering(b""), "disconnect"),
        (answering(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ntru"), "disconnect"),
        (answering(b"220 mail.example ESMTP\r\n\r\n"), "garbage"),
        (answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<p>"), "garbage"),
    ],
)
def test_an_answer_that_does_not_come_is_told_by_how_far_it_got(
    listen: Callable[[Behaviour], Listener], behaviour: Behaviour, kind: str
) -> None:
    """And the next request goes to the next server, over a new connection."""
    bad, good = listen(behaviour), listen(answering(OK))
    counters: Counter[str] = Counter()
    client = HttpClient([bad.endpoint, good.endpoint], counters)
    with pytest.raises(TransportError) as raised:
        client.json("PUT", "/", {}, 0.3)
    assert raised.value.kind == kind
    assert (bad.accepted, counters["endpoint_switches"]) == (1, 1)
    assert client.json("PUT", "/", {}, 2.0) == (200, True)
    client.close()


def test_nothing_was_sent_without_a_connection(listen: Callable[[Behaviour], Listener]) -> None:
    """Refused is `connect`, the one kind that is a certain failure."""
    client = HttpClient([refused()], Counter())
    with pytest.raises(TransportError) as raised:
        client.json("PUT", "/", {}, 1.0)
    assert raised.value.kind == "connect"


def test_the_deadline_is_one_for_the_whole_request(listen: Callable[[Behaviour], Listener]) -> None:
    """However the time is spent, a request to a silent server ends in time."""
    client = HttpClient([listen(silent).endpoint], Counter())
    began = time.monotonic()
    with pytest.raises(TransportError, match=r"no whole answer within 0\.40 s"):
        client.json("PUT", "/", {}, 0.4)
    assert time.monotonic() - began < 30


LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


@pytest.mark.parametrize(
    "begins", [b"", LONG, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n", b"HTTP/1.1 200 OK\r\nX: "]
)
def test_a_server_that_drips_holds_nobody_past_the_deadline(
    listen: Callable[[Behaviour], Listener], begins: bytes
) -> None:
    """Each byte comes in time, in the head as in the body; the whole answer would take for ever. It is given up while
    the server still sends, and the next request goes to the next server.
    """
    over, left = threading.Event(), threading.Event()

    def drip(connection: socket.socket) -> None:
        whole_request(connection)
        connection.sendall(begins)
        with suppress(OSError):
            while not over.wait(0.02):
                connection.sendall(b"x")
        left.set()

    bad, good = listen(drip), listen(answering(OK))
    client = HttpClient([bad.endpoint, good.endpoint], Counter())
    said: list[TransportError] = []

    def ask() -> None:
        try:
            client.json("PUT", "/", {}, 0.3)
        except TransportError as error:
            said.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(60)
    ended = not asking.is_alive()
    over.set()
    assert ended, "it waits for as long as the server drips"
    assert said
    assert left.wait(60)
    assert client.json("PUT", "/", {}, 2.0) == (200, True)
    client.close()


def test_an_answer_without_end_is_cut_off(listen: Callable[[Behaviour], Listener]) -> None:
    """Nobody's memory grows with what a server sends."""

    def pour(connection: socket.socket) -> None:
        whole_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError):
            while True:
                connection.sendall(bytes(65536))

    client = HttpClient([listen(pour).endpoint], Counter(), most_bytes=1 << 20)
    with pytest.raises(TransportError, match="too long: more than 1048576 bytes") as raised:
        client.json("GET", "/", None, 30.0)
    assert raised.value.kind == "garbage"
    with pytest.raises(TransportError, match="too long"):
        HttpClient([listen(answering(LONG + bytes(10**6))).endpoint], Counter(), most_bytes=10**5).json(
            "GET", "/", None, 30.0
        )


def test_an_error_in_plain_text_is_passed_on(listen: Callable[[Behaviour], Listener]) -> None:
    """As Consul answers refusals."""
    server = listen(answering(b"HTTP/1.1 500 Oops\r\nContent-Length: 15\r\n\r\ninvalid session"))
    client = HttpClient([server.endpoint], Counter())
    assert client.json("PUT", "/", None, 2.0) == (500, "invalid session")
    client.close()


def test_a_server_that_closes_after_its_answer_costs_nothing(listen: Callable[[Behaviour], Listener]) -> None:
    """`Connection: close` is honoured: the next request doesn't run into the dead connection."""
    closing = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntrue"
    server = listen(answering(closing))
    client = HttpClient([server.endpoint], Counter())
    for _ in range(2):
        assert client.json("PUT", "/", {}, 2.0) == (200, True)
    assert server.accepted == 2
