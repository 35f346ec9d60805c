"""Servers with answers of their own, for what a system makes of them; no network, no processes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import AgentError
from harness.runtime.base import Completed
from harness.systems.base import HttpReply, Settings

Answer = Callable[[], HttpReply]


def says(document: Any, status: int = 200) -> HttpReply:
    """An HTTP answer with JSON in it."""
    return HttpReply(status, json.dumps(document).encode())


class Scripted:
    """A server that answers HTTP by path, and TCP by what was sent; whatever isn't written down is no answer."""

    def __init__(
        self,
        name: str,
        address: str = "192.0.2.1",
        *,
        http: Mapping[str, HttpReply] | None = None,
        tcp: Mapping[bytes, bytes] | None = None,
        options: Mapping[str, Any] | None = None,
        asked: Mapping[str | None, str] | None = None,
    ) -> None:
        self.name, self.address = name, address
        self.settings = Settings(2.0, 1, "image", options or {})
        self._http, self._tcp, self._asked = http or {}, tcp or {}, asked or {}

    def http(self, method: str, path: str, *, port: int, body: bytes = b"", timeout_seconds: float = 1.0) -> HttpReply:
        """The answer for the path."""
        if path not in self._http:
            raise AgentError("connection refused")
        return self._http[path]

    def tcp(self, payload: bytes, *, port: int, read_bytes: int = 65536, timeout_seconds: float = 1.0) -> bytes:
        """The answer for the first word sent."""
        for sent, answer in self._tcp.items():
            if payload.startswith(sent):
                return answer
        raise AgentError("connection refused")

    def ask(
        self,
        argv: Sequence[str],
        question: str,
        until: str,
        *,
        service: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = 1.0,
    ) -> list[str]:
        """What the service's program says to anything."""
        if service not in self._asked:
            raise AgentError("its container does not run")
        return self._asked[service].splitlines()

    def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        service: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = 1.0,
    ) -> Completed:
        """Nothing can be run here."""
        raise AgentError("its container does not run")


class Hung(Scripted):
    """A server that never answers, whatever the deadline: what a paused node is to its agent's caller."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.release = threading.Event()

    def http(self, method: str, path: str, *, port: int, body: bytes = b"", timeout_seconds: float = 1.0) -> HttpReply:
        """Nothing until the test is over."""
        self.release.wait(60)
        raise AgentError("too late")

    def tcp(self, payload: bytes, *, port: int, read_bytes: int = 65536, timeout_seconds: float = 1.0) -> bytes:
        """Nothing until the test is over."""
        self.release.wait(60)
        raise AgentError("too late")
