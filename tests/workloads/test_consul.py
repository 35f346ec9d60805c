"""Consul's lock client against a server that answers as told: what a renewal's "not found" is worth."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.waiting import until
from workloads.clients.base import Answered, ClientConfig
from workloads.clients.consul import MIN_ATTEMPT_SECONDS, ConsulLock
from workloads.clients.http import TransportError
from workloads.clocks import Stamp

GONE = (404, b"Session id 'one' not found")
RENEWED = (200, b'[{"ID": "one"}]')
LIVES = (200, b'[{"ID": "one"}]')
NONE_FOUND = (200, b"[]")
NO_LEADER = (500, b"No cluster leader")

TAKEN = {
    "/v1/session/create": (200, b'{"ID": "one"}'),
    "/v1/kv/fencepost/lock?acquire=one": (200, b"true"),
    "/v1/kv/fencepost/lock?consistent": (200, b'[{"Session": "one", "ModifyIndex": 7, "LockIndex": 1}]'),
}
RENEWAL, LOOK = "/v1/session/renew/one", "/v1/session/info/one?consistent"


class Server:
    """A server on loopback: for each path what it says, the first answers one after the other and the last for ever."""

    def __init__(self) -> None:
        self.answers = {path: [answer] for path, answer in TAKEN.items()}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append(self.path)
                left = outer.answers[self.path]
                status, body = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = answer

            def log_message(self, format: str, *args: object) -> None:
                """Nothing to standard error."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = list(self._http.server_address[:2])
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def holder(server: Server, **settings: object) -> ConsulLock:
    """A client that has just got the lock."""
    config = ClientConfig(
        settings={"endpoints": [server.endpoint], **settings},
        lock="lock",
        ttl_seconds=2.0,
        process=0,
        operation_seconds=2.0,
        on_lost=lambda reason: None,
    )
    client = ConsulLock(config)
    got = client.acquire(5.0, threading.Event())
    assert (got.type, got.token) == ("ok", 7)
    server.asked.clear()
    return client


def test_a_session_that_a_new_leader_does_not_know_yet_is_renewed_again(server: Server) -> None:
    """One 404 from a server that isn't caught up, and the session is there: the hold goes on, and it is counted."""
    server.answers |= {RENEWAL: [GONE, RENEWED], LOOK: [LIVES]}
    client = holder(server)
    assert client.renew() == Answered("ok")
    assert server.asked == [RENEWAL, LOOK, RENEWAL]
    assert client.counters["denied_alive"] == 1


def test_a_session_that_is_over_ends_the_hold(server: Server) -> None:
    """A look through the log finds none: that is Consul's word that it isn't held."""
    server.answers |= {RENEWAL: [GONE], LOOK: [NONE_FOUND]}
    client = holder(server)
    said = client.renew()
    assert (said.type, said.held) == ("fail", False)
    assert str(said.error).startswith("status 404")
    assert server.asked == [RENEWAL, LOOK]
    assert client.counters["denied_alive"] == 0


def test_a_session_that_is_denied_all_the_time_is_not_called_over(server: Server) -> None:
    """It was certainly not renewed, and yet nobody said that it isn't held."""
    server.answers |= {RENEWAL: [GONE], LOOK: [LIVES]}
    client = holder(server)
    said = client.renew()
    assert (said.type, said.held) == ("fail", None)
    assert str(said.error).startswith("denied while it lives: status 404")
    assert server.asked == [RENEWAL, LOOK, RENEWAL, LOOK]


def test_a_look_without_an_answer_leaves_it_open(server: Server) -> None:
    """Neither over nor renewed: unknown."""
    server.answers |= {RENEWAL: [GONE], LOOK: [NO_LEADER]}
    said = holder(server).renew()
    assert (said.type, said.held) == ("info", None)
    assert str(said.error).startswith("not looked up: status 500: No cluster leader, after status 404")


def test_told_to_believe_it_asks_nobody(server: Server) -> None:
    """`believe_404`: as most libraries do."""
    server.answers |= {RENEWAL: [GONE, RENEWED], LOOK: [LIVES]}
    said = holder(server, believe_404=True).renew()
    assert (said.type, said.held) == ("fail", False)
    assert server.asked == [RENEWAL]


def test_a_release_is_one_operation(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it asks has one deadline, also where the first of it took all of the time; the session is ended later."""
    client = holder(server)
    asked: list[tuple[str, float, float]] = []

    def unanswered(method: str, path: str, document: object, timeout_seconds: float) -> tuple[int, object]:
        asked.append((path, Stamp.now().mono, timeout_seconds))
        until(lambda: Stamp.now().mono >= asked[-1][1] + timeout_seconds, "the deadline of the request")
        raise TransportError("timeout", "nothing came")

    monkeypatch.setattr(client._http, "json", unanswered)
    assert client.release().type == "info"
    (release, began, seconds), (destroy, later, rest) = asked
    assert (release, destroy) == ("/v1/kv/fencepost/lock?release=one", "/v1/session/destroy/one")
    assert seconds <= 2.0
    assert later >= began + seconds
    assert rest == MIN_ATTEMPT_SECONDS
    monkeypatch.undo()
    server.answers |= {"/v1/session/destroy/one": [(200, b"true")]}
    server.asked.clear()
    assert client.acquire(5.0, threading.Event()).type == "ok"
    assert server.asked[:2] == ["/v1/session/destroy/one", "/v1/session/create"]
