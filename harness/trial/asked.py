"""Every request of the contenders of a running trial, and what it came to: for faults that ask whom they touched.

A view of what was said so far, like `holds`; verdicts come from the history file alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemesis.bite import SeenRequest

REQUESTS = frozenset({"acquire", "renew", "release"})


@dataclass
class _Request:
    process: int
    f: str
    sent_ns: int
    done_ns: int | None = None
    came_to: str | None = None
    held: bool | None = None


@dataclass
class Asked:
    """All requests so far. Not safe from several threads by itself."""

    _all: list[_Request] = field(default_factory=list)
    """In the order in which they were heard of, which is nearly that of their times."""
    _open: dict[tuple[int, str], _Request] = field(default_factory=dict)

    def feed(self, process: int, type_: str, f: str, event: Mapping[str, Any]) -> None:
        """Take one event of a contender in."""
        if f == "crash":
            for key in [key for key in self._open if key[0] == process]:
                self._close(self._open.pop(key), event["time"], "crash", None)
        elif f in REQUESTS and type_ == "invoke":
            self._open[process, f] = request = _Request(process, f, event["time"])
            self._all.append(request)
        elif f in REQUESTS and (asked := self._open.pop((process, f), None)) is not None:
            self._close(asked, event["time"], type_, event.get("held"))

    @staticmethod
    def _close(request: _Request, at_ns: int, came_to: str, held: bool | None) -> None:
        request.done_ns, request.came_to, request.held = at_ns, came_to, held

    def between(self, since_ns: int, until_ns: int, nodes: Mapping[int, str]) -> list[SeenRequest]:
        """Those that were under way at some moment from one to the other, by when they were sent."""
        found = [
            SeenRequest(nodes[r.process], r.process, r.f, r.sent_ns, r.done_ns, r.came_to, r.held)
            for r in self._all
            if r.sent_ns <= until_ns and (r.done_ns is None or r.done_ns >= since_ns)
        ]
        return sorted(found, key=lambda request: request.sent_ns)
