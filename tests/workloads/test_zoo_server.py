"""The zoo's server on a real socket with its right client: what goes over the wire, and what outlives a kill."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workloads.clients.base import Checked, ClientConfig
from workloads.clients.zoo.queued import QueuedLock
from workloads.clocks import Flag
from workloads.zoo.asking import AskError, Asking
from workloads.zoo.server import LOOK_SECONDS, Journal, Server

TTL = 30.0
"""So long that nothing runs out on a busy machine; what time does is tried in test_zoo_rules.py."""


@contextmanager
def serving(path: Path, bug: str | None = None) -> Iterator[int]:
    """A server on this journal, and its port; killed at the end."""
    server = Server(0, Journal(path), bug)
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            server.step(LOOK_SECONDS)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield server.port
    finally:
        over.set()
        thread.join()
        server.close()


@pytest.fixture
def never() -> Iterator[Flag]:
    flag = Flag()
    yield flag
    flag.close()


def client(port: int, process: int = 0) -> Checked:
    settings = {"endpoints": [["127.0.0.1", port]]}
    return Checked(QueuedLock(ClientConfig(settings, "lock", TTL, process, 10.0, lambda reason: None)))


def test_a_lock_is_taken_kept_given_back_and_taken_by_who_waits(tmp_path: Path, never: Flag) -> None:
    """By a client whose every answer is checked; tokens rise."""
    with serving(tmp_path / "journal") as port:
        first, second = client(port), client(port, 1)
        one = first.acquire(10.0, never)
        assert (one.type, one.token, one.ttl_seconds) == ("ok", 1, TTL)
        assert second.acquire(0.05, never).error == "wait limit: held by another"
        assert second.renew().held is False
        assert first.renew().proves
        later = []
        waiting = threading.Thread(target=lambda: later.append(second.acquire(20.0, never)))
        waiting.start()
        assert first.release().type == "ok"
        waiting.join()
        assert (later[0].type, later[0].token) == ("ok", 2)
        assert first.release().held is False
        first.close()
        second.close()


def test_what_was_granted_is_known_to_the_server_that_is_started_again(tmp_path: Path, never: Flag) -> None:
    """A grant is in the journal before its answer is on the wire; half a line of one that was killed counts as none."""
    path = tmp_path / "deep" / "journal"
    with serving(path) as port:
        mine = Asking("127.0.0.1", port)
        assert mine.ask(10, do="acquire", lock="lock", owner="me", ttl=TTL, wait=0)["granted"] == 1
    with path.open("ab") as file:
        file.write(b'{"lock": "lock", "ended"')
    with serving(path) as port:
        mine = Asking("127.0.0.1", port)
        assert mine.ask(10, do="renew", lock="lock", owner="me", ttl=TTL) == {"renewed": True}
        assert mine.ask(10, do="release", lock="lock", owner="me") == {"released": True}
        other = client(port)
        assert other.acquire(10.0, never).token == 2
    assert [json.loads(line) for line in path.read_bytes().splitlines()][-1]["granted"] == 2


def test_a_server_without_memory_counts_tokens_from_one_again(tmp_path: Path, never: Flag) -> None:
    """The bug that is in reading the journal, and in nothing else."""
    path = tmp_path / "journal"
    for _ in range(2):
        with serving(path, "forgets-tokens") as port:
            mine = client(port)
            assert mine.acquire(10.0, never).token == 1
            assert mine.release().type == "ok"
            mine.close()


def test_what_makes_no_sense_is_answered_so_and_a_flood_is_cut_off(tmp_path: Path) -> None:
    """The server goes on for everybody else."""
    with serving(tmp_path / "journal") as port:
        for said in (b"x\n", b"[]\n", b'{"do": "fly", "lock": "a", "owner": "b"}\n', b'{"do": "renew"}\n'):
            with socket.create_connection(("127.0.0.1", port), 10) as rude:
                rude.sendall(said)
                assert "not understood" in json.loads(rude.recv(4096))["error"]
        with socket.create_connection(("127.0.0.1", port), 10) as flood:
            flood.sendall(b"x" * 10_000)
            with pytest.raises((ConnectionError, AssertionError)):
                assert flood.recv(1) != b""
        assert Asking("127.0.0.1", port).ask(10, do="hello")["checked"]


def test_an_error_says_whether_the_request_was_sent(tmp_path: Path, never: Flag) -> None:
    """Nobody listens: it was not, so an acquire has certainly failed. Nobody answers: nobody knows."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        with pytest.raises(AskError, match="timeout: ") as told:
            Asking("127.0.0.1", port).ask(0.05, do="hello")
        assert told.value.sent
    with pytest.raises(AskError, match="connect: ") as told:
        Asking("127.0.0.1", port).ask(1.0, do="hello")
    assert not told.value.sent
    assert client(port).acquire(0.01, never).type == "fail"
