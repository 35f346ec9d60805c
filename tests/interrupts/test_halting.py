"""Breaking off what an engine is at: until it says that it has given up, nobody looks for what is left."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import docker
import pytest

from harness.images import halting
from harness.images.halting import Halt, Halted

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
STEP = b'{"stream": "Step 1/1 : RUN sleep 60"}\r\n'


class SlowEngine:
    """One build that goes on until its client has gone, and ends `given_up` later, however long that is."""

    def __init__(self) -> None:
        self.left, self.given_up = threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        with connection:
            received = b""
            while b"0\r\n\r\n" not in received:  # the end of the build's context
                received += connection.recv(65536)
            connection.sendall(HEAD + b"%x\r\n%b\r\n" % (len(STEP), STEP))
            while connection.recv(65536):
                pass
            self.left.set()
            self.given_up.wait(60)
            ended = b'{"error": "context canceled"}\r\n'
            try:
                connection.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(ended), ended))
            except OSError:
                return  # the client's patience was shorter

    def close(self) -> None:
        self.given_up.set()
        self._listening.close()


@pytest.fixture
def engine() -> Iterator[SlowEngine]:
    """Closed after the test."""
    slow = SlowEngine()
    yield slow
    slow.close()


class Build(threading.Thread):
    """What a build does with the stream; `outcome` is what it ended with."""

    def __init__(self, halt: Halt, engine: SlowEngine) -> None:
        super().__init__(daemon=True)
        self._halt, self._client = halt, docker.DockerClient(engine.url, version="1.41")
        self.begun = threading.Event()
        self.outcome: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            with self._halt.streams(self._client, "/build?"):
                for event in self._client.api.build(path="docker/node", decode=True):
                    self.begun.set()
                    if "error" in event:
                        self._halt.check()
        except BaseException as error:  # noqa: BLE001 (the test looks at it)
            self.outcome = error


def test_a_build_that_is_broken_off_waits_for_the_engines_word(engine: SlowEngine) -> None:
    """A container that is created after the last look would stay: a busy engine took its time to notice."""
    halt = Halt()
    build = Build(halt, engine)
    assert build.begun.wait(60)
    halt.stop()
    assert engine.left.wait(60)
    build.join(0.5)
    assert build.is_alive(), "the engine has not said anything yet"
    engine.given_up.set()
    build.join(60)
    assert isinstance(build.outcome, Halted)


def test_an_engine_that_says_nothing_is_not_waited_for_for_ever(
    engine: SlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its word is bounded like any other answer."""
    monkeypatch.setattr(halting, "STEP_ENDS_SECONDS", 0.2)
    halt = Halt()
    build = Build(halt, engine)
    assert build.begun.wait(60)
    halt.stop()
    build.join(60)
    assert isinstance(build.outcome, Halted)


def test_nothing_is_begun_after_the_halt(engine: SlowEngine) -> None:
    """Not even asked."""
    halt = Halt()
    halt.stop()
    build = Build(halt, engine)
    build.join(60)
    assert isinstance(build.outcome, Halted)
    assert not build.begun.is_set()
