"""A program that is kept running in a service's container, and gets one question after the other.

Who leads is asked every 20 ms while a fault waits for somebody to. A fresh process for each question would take longer
than that, and half a processor; over a stream that stays open a question takes a millisecond.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from harness.errors import AgentError, HarnessError
from harness.runtime.base import Node, Process
from nemesis.agent import roles

ASKING = dict([roles.ASKING])
"""The environment of whatever is run to ask a service something: no fault on the service means it."""


class Conversation:
    """One program on one node. Safe from several threads: whoever finds it talking waits for its turn, in his time."""

    def __init__(self, node: Node, service: str | None, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._node, self._service, self._argv, self._env = node, service, list(argv), dict(env)
        self._turn = threading.Lock()
        self._heard = threading.Condition()
        self._process: Process | None = None
        self._closed = threading.Event()
        self._lines: list[str] = []
        self._said: list[str] = []

    def ask(self, question: str, until: str, timeout_seconds: float) -> list[str]:
        """See `Server.ask`."""
        end = time.monotonic() + timeout_seconds
        if not self._turn.acquire(timeout=max(0.0, timeout_seconds)):
            raise AgentError(f"{self._what()} has not answered an earlier question yet")
        try:
            return self._ask(question, until, end, timeout_seconds)
        except HarnessError as error:
            self._drop()
            raise error if isinstance(error, AgentError) else AgentError(str(error)) from error
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the program, if there is one; nothing is asked any more. Whoever waits for an answer gets AgentError."""
        self._closed.set()
        self._drop()

    def _ask(self, question: str, until: str, end: float, timeout_seconds: float) -> list[str]:
        process = self._process
        if process is None or process.wait(0.0) is not None:
            process = self._start()
        with self._heard:
            self._lines.clear()
        try:
            process.send(question.encode())
        except HarnessError:
            if process.wait(max(0.0, end - time.monotonic())) is None:
                raise
            raise self._ended() from None
        with self._heard:
            while until not in self._lines:
                left = end - time.monotonic()
                if left <= 0:
                    raise AgentError(f"no answer from {self._what()} within {timeout_seconds:g} s")
                if process.wait(0.0) is not None and until not in self._lines:
                    raise self._ended()
                self._heard.wait(min(left, 0.1))
            return self._lines[: self._lines.index(until)]

    def _start(self) -> Process:
        self._drop()
        if self._closed.is_set():
            raise AgentError(f"{self._what()} is asked nothing any more")
        lines: list[str] = []
        said: list[str] = []
        self._lines, self._said = lines, said

        def heard(line: bytes, into: list[str]) -> None:
            with self._heard:
                into.append(line.decode(errors="replace").rstrip("\r"))
                self._heard.notify_all()

        process = self._process = self._node.spawn(
            self._argv,
            on_line=lambda line: heard(line, lines),
            on_error_line=lambda line: heard(line, said),
            env={**self._env, **ASKING},
            service=self._service,
        )
        if self._closed.is_set():  # while it was started: whoever closes may have found nothing to end
            raise AgentError(f"{self._what()} is asked nothing any more")
        return process

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.abandon()

    def _ended(self) -> AgentError:
        with self._heard:
            return AgentError(f"{self._what()} has ended: {' '.join(self._said[-3:]) or 'without a word'}")

    def _what(self) -> str:
        return f"{self._argv[0]} on {self._node.name}"
