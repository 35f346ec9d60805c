"""An adapter that is a few lines of Python, and a contender around it in this process."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

from tests.workloads.scripted import Heard
from workloads.clients.adapter import Adapter

HELLO = {
    "protocol": 1,
    "library": "paper",
    "version": "1",
    "language": "Python",
    "renewals": "told",
    "tokens": True,
    "expires": True,
    "errors": {"busy": "fail", "*": "info"},
}

PAPER = f"""
import json, os, sys, time
HELLO = {HELLO!r}
def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)
def say(**keys):
    os.write(1, json.dumps(keys).encode() + b"\\n")
config = json.loads(sys.stdin.readline())
def commands():
    for line in sys.stdin:
        yield json.loads(line)
"""
"""The beginning of each: what every adapter written by hand has."""


class Broken(Exception):
    """What the contender would have ended with."""


def paper(folder: Path, body: str, name: str = "adapter.py") -> list[str]:
    """The command of an adapter made of `PAPER` and this body."""
    path = folder / name
    path.write_text(PAPER + textwrap.dedent(body))
    return [sys.executable, str(path)]


class Stage(Heard):
    """A contender in this process with an adapter of its own."""

    def __init__(self, command: list[str], *, ttl: float = 2.0, holder: str = "trusting", **own: Any) -> None:
        settings = {"adapter": {"command": command, **own}}
        super().__init__("workloads.clients.adapter:Adapter", settings, ttl=ttl, holder=holder)
        self.died: list[str] = []
        self.contender.die = self.died.append  # type: ignore[method-assign]
        adapter: Any = self.contender.client.client
        self.adapter: Adapter = adapter

    def events(self) -> list[dict[str, Any]]:
        """All events; ends the adapter, and the contender's voice."""
        self.adapter.close()
        return super().events()
