"""The trial's own acts on its services, so that what they cause is not taken for somebody else's doing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from nemesis.base import AgentLink


class OwnActs:
    """When the trial itself had a service down. A span is opened *before* the act, and closed once it runs again.

    `now` is the time of the history (ns). Safe from several threads.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._open: dict[str, int] = {}
        self._closed: list[tuple[str, int, int]] = []

    def begin(self, node: str) -> None:
        """The service on this node is about to be ended by us. Within an open span nothing changes."""
        with self._lock:
            self._open.setdefault(node, self._now())

    def end(self, node: str) -> None:
        """It runs again: what ends it from now on isn't us. Nothing happens without an open span."""
        with self._lock:
            began = self._open.pop(node, None)
            if began is not None:
                self._closed.append((node, began, self._now()))

    def opened(self) -> list[str]:
        """The nodes on which a span is open."""
        with self._lock:
            return sorted(self._open)

    def covers(self, node: str, moment: int) -> bool:
        """Whether what happened to the service on this node at this time (ns) was our doing."""
        with self._lock:
            began = self._open.get(node)
            if began is not None and began <= moment:
                return True
            return any(name == node and start <= moment <= stop for name, start, stop in self._closed)


class Notes(Protocol):
    """Who is told of an order to kill: `OwnActs` for services; for a contender, whoever listens to it."""

    def begin(self, node: str) -> None:
        """What is to be killed on this node is about to be ended by us."""


class ActingLink:
    """The link to an agent, as a fault gets it: an order to kill is noted before it is sent."""

    def __init__(self, link: AgentLink, acts: Notes) -> None:
        self._link, self._acts = link, acts

    @property
    def node(self) -> str:
        """The node's name."""
        return self._link.node

    @property
    def alive(self) -> bool:
        """Whether commands still reach the agent."""
        return self._link.alive

    def call(self, op: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._note(op)
        return self._link.call(op, timeout_seconds=timeout_seconds, **arguments)

    def close(self) -> None:
        """End the agent."""
        self._link.close()

    def start(self, op: str, **arguments: Any) -> Any:
        """Send a command without waiting."""
        self._note(op)
        return self._link.start(op, **arguments)

    def _note(self, op: str) -> None:
        if op == "kill":
            self._acts.begin(self.node)
