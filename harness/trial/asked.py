"""Every request of the contenders of a running trial, and what it came to: for faults that ask whom they touched.

A view of what was said so far, like `holds`; verdicts come from the history file alone. It is asked while events come,
in trials of any length, so what was over before the time in question costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemesis.bite import SeenRequest, SeenWait

REQUESTS = frozenset({"acquire", "renew", "release"})


@dataclass
class _Request:
    number: int
    """In which order it was heard of."""
    process: int
    f: str
    sent_ns: int
    done_ns: int | None = None
    came_to: str | None = None
    held: bool | None = None


def _done(request: _Request) -> int:
    assert request.done_ns is not None
    return request.done_ns


@dataclass
class Asked:
    """All requests so far. Not safe from several threads by itself."""

    _over: list[_Request] = field(default_factory=list)
    """Those that have ended, by when they did."""
    _open: dict[tuple[int, str], _Request] = field(default_factory=dict)

    def feed(self, process: int, type_: str, f: str, event: Mapping[str, Any]) -> None:
        """Take one event of a contender in."""
        if f == "crash":
            for key in [key for key in self._open if key[0] == process]:
                self._close(key, event["time"], "crash", None)
        elif f in REQUESTS and type_ == "invoke":
            number = len(self._over) + len(self._open)
            self._open[process, f] = _Request(number, process, f, event["time"])
        elif (process, f) in self._open:
            self._close((process, f), event["time"], type_, event.get("held"))

    def _close(self, key: tuple[int, str], at_ns: int, came_to: str, held: bool | None) -> None:
        request = self._open.pop(key)
        request.done_ns, request.came_to, request.held = at_ns, came_to, held
        insort(self._over, request, key=_done)

    def _between(self, since_ns: int, until_ns: int) -> list[_Request]:
        recent = self._over[bisect_left(self._over, since_ns, key=_done) :]
        return [request for request in (*recent, *self._open.values()) if request.sent_ns <= until_ns]

    def between(self, since_ns: int, until_ns: int, nodes: Mapping[int, str]) -> list[SeenRequest]:
        """Those that were under way at some moment from one to the other, by when they were sent."""
        found = sorted(self._between(since_ns, until_ns), key=lambda r: (r.sent_ns, r.number))
        return [SeenRequest(nodes[r.process], r.process, r.f, r.sent_ns, r.done_ns, r.came_to, r.held) for r in found]

    def answered(self, since_ns: int, until_ns: int) -> int:
        """How many were sent and answered ok from one moment to the other."""
        return sum(
            request.came_to == "ok" and request.sent_ns >= since_ns and _done(request) <= until_ns
            for request in self._between(since_ns, until_ns)
        )

    def wait_of(self, process: int, at_ns: int) -> SeenWait | None:
        """The acquire of a process that was under way at a moment."""
        waits = (
            SeenWait(process, request.sent_ns, request.done_ns, request.came_to)
            for request in self._between(at_ns, at_ns)
            if request.process == process and request.f == "acquire"
        )
        return next((wait for wait in waits if wait.open(at_ns)), None)
