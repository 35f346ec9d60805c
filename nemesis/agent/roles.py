"""Who is who on a node, and which of its processes a command means."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Set

from nemesis.agent.arguments import take
from nemesis.agent.base import Refused, read_at_once
from nemesis.agent.processes import Stat, all_processes, descendants, lives, namespace

NAME_FILE = "/.fencepost-service"
"""In the root of each service of a node that has several: its name."""
IDLE = "fencepost-idle"
"""The name of the program that only keeps the file system of an image at hand (`harness.runtime.idle`)."""
ASKING = ("FENCEPOST_ASKS", "1")
"""Name and value in the environment of a program that the harness runs in a service's container to ask it something
(`redis-cli`): it is no part of the service, and no fault is meant for it."""


def service_name(pid: int) -> Optional[str]:
    """The name of the service that a process belongs to, by its root; None where there is but one, or it is ending."""
    try:
        return read_at_once("/proc/%d/root%s" % (pid, NAME_FILE)).decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def asks(pid: int) -> bool:
    """Whether the harness has started this process to ask its service something."""
    try:
        return "=".join(ASKING).encode() in read_at_once("/proc/%d/environ" % pid).split(b"\0")
    except OSError:
        return False


class Roles(object):
    """Tells the service's processes from the agent's own and from the node's."""

    def __init__(self) -> None:
        self.service_rule = "mount"
        self.guardian = 0
        self._mount = namespace("self", "mnt")

    def own_processes(self, everyone: Dict[int, Stat]) -> Set[int]:
        """The agent, its guardian, their children, and the shells above the agent."""
        ours = descendants([os.getpid(), self.guardian], everyone)
        parent = everyone[os.getpid()].parent if os.getpid() in everyone else 0
        while parent > 1 and parent in everyone:
            ours.add(parent)
            parent = everyone[parent].parent
        return ours

    def role(self, pid: int, everyone: Dict[int, Stat], ours: Set[int]) -> str:
        """init, agent, idle (a sleeper that keeps a pod alive, or a file system at hand), service, asking, ending, or
        node (all else on the node)."""
        if pid == 1:
            return "init"
        if pid in ours:
            return "agent"
        stat = everyone[pid]
        mount = namespace(pid, "mnt")
        if mount is None:
            return "ending"
        if mount != self._mount and stat.comm == IDLE:
            return "idle"
        if mount != self._mount:
            return "asking" if self._asks(pid, everyone) else "service"
        if stat.comm == "sleep" and stat.parent <= 1:
            return "idle"
        if self.service_rule == "rest":
            return "service"
        return "node"

    def _asks(self, pid: int, everyone: Dict[int, Stat]) -> bool:
        """Whether a process, or the one that it comes of, is there to ask. Such a one is nobody's child in here."""
        while pid in everyone and everyone[pid].parent > 1:
            pid = everyone[pid].parent
        return asks(pid)


class Selection(object):
    """Which processes a command means: the services of this node, or given ones, each with all its descendants.

    `services` names those that are meant; without it all are, and most nodes have one.

    The service's processes are told from the node's own by their mount namespace, because on a pod the service runs in
    a container of its own (rule "mount"). Where it doesn't (a plain host, rule "rest"), they are all that is not ours;
    that rule is refused outside a pid namespace made for the node, where it would mean the whole machine.
    """

    def __init__(self, roles: Roles, command: Dict[str, Any]) -> None:
        self._roles = roles
        pids = take(command, "pids", list, None)
        self.service = pids is None
        self.names: Optional[List[str]] = take(command, "services", list, None)
        if self.names is not None and (not self.service or not self.names):
            raise Refused("%s: 'services' is a list of names, and goes without 'pids'" % command.get("op"))
        self.pids: List[int] = []
        for pid in pids or []:
            if not isinstance(pid, int) or isinstance(pid, bool) or pid < 2:
                raise Refused("%s: %r is not a process to touch" % (command.get("op"), pid))
            self.pids.append(pid)
        if pids is not None and not pids:
            raise Refused("%s: 'pids' is empty" % command.get("op"))

    def now(self) -> Dict[int, Stat]:
        """The processes meant, as of this instant; zombies left out."""
        everyone = all_processes()
        ours = self._roles.own_processes(everyone)
        if self.service:
            chosen = {pid for pid in everyone if self._roles.role(pid, everyone, ours) == "service"}
            if self.names is not None:
                chosen = {pid for pid in chosen if service_name(pid) in self.names}
        else:
            chosen = descendants(self.pids, everyone) - ours
        return {pid: everyone[pid] for pid in chosen if lives(everyone[pid])}

    def some(self) -> Dict[int, Stat]:
        """Like `now`, Refused when there is none."""
        found = self.now()
        if not found:
            what = "no process of the service runs on this node" if self.service else "no process %s" % self.pids
            if self.names is not None:
                what = "no process of %s runs on this node" % " or ".join(map(str, self.names))
            raise Refused(what + " (was it killed, or not started yet?)")
        return found
