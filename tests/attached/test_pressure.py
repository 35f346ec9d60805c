"""What passes through a relay fills nobody's memory: both its ends as they are, the node's a process of this host."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from harness.systems.attached import Endpoint
from harness.trial import relays
from harness.trial.relays import Relay, Relays
from tests.attached.etcd import free_ports
from tests.waiting import until
from workloads.relay import CHUNK, WINDOW

MUCH = 32 << 20
"""Bytes; several times what windows and the kernel's buffers hold."""
HELD = WINDOW + 2 * CHUNK
"""What the harness may hold of one connection and direction: a window, and what its stream has read ahead."""


class Program:
    """The node's end, on this host."""

    def __init__(self, argv: Sequence[str], on_line: Callable[[bytes], None]) -> None:
        self._process = subprocess.Popen([sys.executable, *argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._on_line = on_line
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._on_line(line.rstrip(b"\n"))

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, timeout_seconds: float) -> int | None:
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def abandon(self) -> None:
        self._process.kill()


class Host:
    """This host, as a node on which the relay listens."""

    name, addresses = "e1", ("127.0.0.1",)

    def spawn(self, argv: Sequence[str], *, on_line: Callable[[bytes], None], on_error_line: object) -> Program:
        return Program(argv, on_line)


@contextmanager
def relay() -> Iterator[tuple[Relay, Callable[[], tuple[socket.socket, socket.socket]]]]:
    """A relay, and how to connect through it: the contender's end and the endpoint's."""
    (port,) = free_ports(1)
    host: Any = Host()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Relays([host], [Endpoint("127.0.0.1", listener.getsockname()[1])], port)
        made.start()

        def connect() -> tuple[socket.socket, socket.socket]:
            contender = socket.create_connection(("127.0.0.1", port), timeout=60)
            listener.settimeout(60)
            endpoint, _ = listener.accept()
            endpoint.settimeout(60)
            return contender, endpoint

        try:
            yield made.all[0], connect
        finally:
            made.close()


class Pouring:
    """Sends MUCH into a socket, and counts what it took."""

    def __init__(self, sock: socket.socket) -> None:
        self.sent, self.ended = 0, threading.Event()
        self._before, self._same = -1, 0
        self._sock = sock
        threading.Thread(target=self._pour, daemon=True).start()

    def _pour(self) -> None:
        self._sock.settimeout(None)
        for _ in range(MUCH // 65536):
            self._sock.sendall(bytes(65536))
            self.sent += 65536
        self.ended.set()

    def stuck(self) -> bool:
        """Whether it is all gone, or nothing more was taken since this was asked ten times."""
        writable = select.select([], [self._sock], [], 0)[1]
        self._same = self._same + 1 if self.sent == self._before and not writable else 0
        self._before = self.sent
        return self.ended.is_set() or self._same >= 10


def drained(sock: socket.socket) -> int:
    """How much comes until MUCH has come, or the end."""
    came = 0
    while came < MUCH and (data := sock.recv(1 << 20)):
        came += len(data)
    return came


@pytest.mark.parametrize("who", ["an endpoint that streams", "a contender that floods"])
def test_what_nobody_reads_stays_with_who_sends_it(who: str) -> None:
    """The harness holds a window of it, whoever sends; another connection goes on; and all of it comes in the end."""
    with relay() as (carrying, connect):
        contender, endpoint = connect()
        sender, reader = (endpoint, contender) if "streams" in who else (contender, endpoint)
        pouring = Pouring(sender)
        until(pouring.stuck, "the sender can't get rid of it, or has")
        assert not pouring.ended.is_set(), "it all went somewhere, though nobody reads"
        other, its = connect()
        other.sendall(b"hello")
        assert its.recv(100) == b"hello"
        its.sendall(b"you too")
        assert other.recv(100) == b"you too"
        assert drained(reader) == MUCH
        assert pouring.ended.wait(60)
        assert carrying.most_held <= HELD
        for each in (contender, endpoint, other, its):
            each.close()


def test_what_was_sent_before_the_end_arrives() -> None:
    """Whoever closes first: the other one reads all that it was sent, and then the end."""
    with relay() as (_, connect):
        for closing in (0, 1):
            ends = connect()
            ends[closing].sendall(bytes(10**6))
            ends[closing].close()
            came = 0
            while data := ends[1 - closing].recv(65536):
                came += len(data)
            assert came == 10**6
            ends[1 - closing].close()


def test_more_connections_than_anybody_needs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are open go on, and there is room again when one of them has closed."""
    monkeypatch.setattr(relays, "MOST_WAYS", 2)
    with relay() as (carrying, connect):
        first, second = connect(), connect()
        with socket.create_connection(first[0].getpeername(), timeout=60) as third:
            assert third.recv(1) == b"", "it is closed without an answer"
        assert (carrying.connections, carrying.refused) == (3, 1)
        assert carrying.last_error == "more than 2 connections at once"
        second[0].sendall(b"hello")
        assert second[1].recv(100) == b"hello"
        first[0].close()
        assert first[1].recv(1) == b""
        until(lambda: len(carrying._ways) == 1, "the harness has forgotten the one that closed")
        fourth = connect()
        for each in (*first, *second, *fourth):
            each.close()
