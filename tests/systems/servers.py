"""Servers with answers of their own, for what a system makes of them; no network, no processes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import AgentError
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
    ) -> None:
        self.name, self.address = name, address
        self.settings = Settings(2.0, 1, "image", options or {})
        self._http, self._tcp = http or {}, tcp or {}

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


class Hung(Scripted):
    """A server that never answers, whatever the deadline: what a paused node is to its agent's caller."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.release = threading.Event()

    def http(self, method: str, path: str, *, port: int, body: bytes = b"", timeout_seconds: float = 1.0) -> HttpReply:
        """Nothing until the test is over."""
        self.release.wait(30)
        raise AgentError("too late")

    def tcp(self, payload: bytes, *, port: int, read_bytes: int = 65536, timeout_seconds: float = 1.0) -> bytes:
        """Nothing until the test is over."""
        self.release.wait(30)
        raise AgentError("too late")
