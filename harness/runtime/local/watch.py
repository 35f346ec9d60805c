"""Watching the nodes of a site: what happens to them, whoever does it.

The pid 1s are the parents of all there is, so they tell at once, and with the time, what has ended. Looking, once a
second and when `look` is called, finds the rest: a node that is off the switch, and one whose pid 1 is stopped. What an
engine calls paused does not exist here; a program that somebody stops is seen by the agent on its node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from harness.errors import FencepostError
from harness.runtime.base import Seen, SeenHandler
from harness.runtime.local.channel import Channel
from harness.runtime.local.node import Ended, Happened, LocalNode
from harness.runtime.looking import keep_looking

LOOK_SECONDS = 1.0
"""How often all nodes are looked at."""
LEAVE_SECONDS = 2.0
KILLED = 137


@dataclass
class _Known:
    """What was told of one node."""

    ended: bool = False
    ended_as: dict[str, str] = field(default_factory=dict)
    """Of each service, as a part of the node: how it ended last."""
    paused: bool = False
    connected: bool = True


@dataclass
class LocalWatch:
    """A watched site (`harness.runtime.base.Watch`), as a context."""

    site_id: str
    channel: Channel
    nodes: Sequence[LocalNode]
    on_seen: SeenHandler
    on_note: Callable[[str], None]
    _known: dict[str, _Known] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _looked_ns: int = 0
    """When the last look began that has ended well."""
    _oom_kills: int = 0
    """The kernel's count of processes killed for want of memory, on the whole machine, at the last look."""

    def __enter__(self) -> Self:
        self._oom_kills = _oom_kills()
        self._looked_ns = time.time_ns()
        self._known = {node.name: _Known() for node in self.nodes}
        for node in self.nodes:
            node.listen(self._happened)
        self.look()
        self._thread = threading.Thread(target=self._keep_looking, name=f"looks at site {self.site_id}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for node in self.nodes:
            node.unlisten(self._happened)
        if self._thread is not None:
            self._thread.join(LEAVE_SECONDS)

    def look(self) -> None:
        """Hand on all that happened before this call.

        What a pid 1 has told comes over the same socket as its answer to this look, and before it.
        """
        began = time.time_ns()
        switch = self.channel.ask("look", f"looking at site {self.site_id}")["nodes"]
        for node in self.nodes:
            if not self._known[node.name].ended:
                self._look_at(node, switch.get(node.name), began)
        self._oom_kills = _oom_kills()
        self._looked_ns = began

    def _keep_looking(self) -> None:
        keep_looking(
            self._stopped, LOOK_SECONDS, self.look, lambda error: self.on_note(f"the nodes can't be looked at: {error}")
        )

    def _look_at(self, node: LocalNode, switch: dict[str, Any] | None, began: int) -> None:
        known = self._known[node.name]
        stopped = _is_stopped(node.state.pid)
        with self._lock:
            if stopped != known.paused:
                known.paused = stopped
                at = self._looked_ns if stopped else began
                detail = "its first process is stopped" if stopped else "its first process goes on"
                self._tell(node, "node", "paused", not stopped, at, detail)
        if stopped or switch is None:
            return
        try:
            seen = node.look()
        except FencepostError:
            if node.state.ended is None:
                raise
            return  # its end has been told
        addresses = set(seen["addresses"])
        here = bool(switch["linked"] and seen["up"] and addresses)
        with self._lock:
            if here != known.connected:
                known.connected = here
                same = addresses == set(node.addresses)
                detail = "found by looking" + (
                    f": its addresses are {', '.join(sorted(addresses))} now" if here and not same else ""
                )
                self._tell(node, "node", "disconnected", here, began if here else self._looked_ns, detail, same)

    def _happened(self, node: LocalNode, happened: Happened) -> None:
        """A part of a node has ended, as a pid 1 has told, or was started again by this process."""
        with self._lock:
            known = self._known[node.name]
            if happened.ended is None:
                detail = "it was started again"
                ended_as = known.ended_as.get(happened.part, "killed")
                self._tell(node, happened.part, ended_as, True, happened.wall_ns, detail)
                return
            what, detail = self._how(happened.ended)
            known.ended_as[happened.part] = what
            if happened.part == "node":
                known.ended = True
                detail = "its first process is gone, and all with it"
            self._tell(node, happened.part, what, False, happened.wall_ns, detail)

    def _how(self, ended: Ended) -> tuple[str, str]:
        """Whether the kernel took its memory, and how it ended in words."""
        detail = f"exited with code {ended.code}"
        now = _oom_kills()
        if ended.code == KILLED and now > self._oom_kills:
            detail += (
                "; since the last look the kernel has killed "
                f"{now - self._oom_kills} processes of this machine for want of memory"
            )
            return "oom", detail
        return "killed", detail

    def _tell(
        self, node: LocalNode, part: str, what: str, over: bool, at: int, detail: str, restored: bool = True
    ) -> None:
        if not self._stopped.is_set():
            self.on_seen(Seen(node.name, part, what, over, at, detail, restored))


def _oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since it began; 0 where it doesn't tell."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0


def _is_stopped(pid: int | None) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state in "Tt"
