"""The trial's own acts on its services, so that what they cause is not taken for somebody else's doing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from harness.runtime.base import MAIN
from nemesis.base import AgentLink

ENDING = ("kill", "stop")
"""What an agent does that ends processes."""


class OwnActs:
    """When the trial itself had a service down. A span is opened *before* the act, and closed once it runs again.

    `now` is the time of the history (ns). Safe from several threads.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], int] = {}
        self._closed: list[tuple[tuple[str, str], int, int]] = []

    def begin(self, node: str, part: str = MAIN) -> None:
        """A service on this node is about to be ended by us. Within an open span nothing changes.

        `part` as in `harness.runtime.base.Seen`: MAIN, or the name of another service.
        """
        with self._lock:
            self._open.setdefault((node, part), self._now())

    def end(self, node: str, part: str = MAIN) -> None:
        """It runs again: what ends it from now on isn't us. Nothing happens without an open span."""
        with self._lock:
            began = self._open.pop((node, part), None)
            if began is not None:
                self._closed.append(((node, part), began, self._now()))

    def opened(self) -> list[tuple[str, str]]:
        """The nodes and parts on which a span is open."""
        with self._lock:
            return sorted(self._open)

    def covers(self, node: str, moment: int, part: str = MAIN) -> bool:
        """Whether what happened to the service on this node at this time (ns) was our doing."""
        with self._lock:
            began = self._open.get((node, part))
            if began is not None and began <= moment:
                return True
            return any(of == (node, part) and start <= moment <= stop for of, start, stop in self._closed)


class Notes(Protocol):
    """Who is told of an order to kill: `OwnActs` for services; for a contender, whoever listens to it."""

    def begin(self, node: str, part: str = MAIN) -> None:
        """What is to be killed on this node is about to be ended by us."""


class ActingLink:
    """The link to an agent, as a fault gets it: an order to end something is noted before it is sent.

    `services`: those of the node, the main one first; `contender` is told of orders that name processes.
    """

    def __init__(self, link: AgentLink, acts: Notes, services: Sequence[str] = (), contender: Notes | None = None):
        self._link, self._acts, self._services, self._contender = link, acts, list(services), contender

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
        self._note(op, arguments)
        return self._link.call(op, timeout_seconds=timeout_seconds, **arguments)

    def close(self) -> None:
        """End the agent."""
        self._link.close()

    def start(self, op: str, **arguments: Any) -> Any:
        """Send a command without waiting."""
        self._note(op, arguments)
        return self._link.start(op, **arguments)

    def _note(self, op: str, arguments: Mapping[str, Any]) -> None:
        if op not in ENDING:
            return
        if "pids" in arguments:
            if self._contender is not None:
                self._contender.begin(self.node)
            return
        for name in arguments.get("services") or self._services or [MAIN]:
            self._acts.begin(self.node, part_of(name, self._services))


def part_of(service: str, services: Sequence[str]) -> str:
    """What a service is called as a part of its node (`harness.runtime.base.Seen`)."""
    return MAIN if not services or service == services[0] else service
