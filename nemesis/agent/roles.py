"""Who is who on a node, and which of its processes a command means."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Set

from nemesis.agent.arguments import take
from nemesis.agent.base import Refused
from nemesis.agent.processes import Stat, all_processes, descendants, lives, namespace


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
        """init, agent, idle (the sleeper that keeps a pod alive), service, ending, or node (all else on the node)."""
        if pid == 1:
            return "init"
        if pid in ours:
            return "agent"
        stat = everyone[pid]
        mount = namespace(pid, "mnt")
        if mount is None:
            return "ending"
        if mount != self._mount:
            return "service"
        if stat.comm == "sleep" and stat.parent <= 1:
            return "idle"
        if self.service_rule == "rest":
            return "service"
        return "node"


class Selection(object):
    """Which processes a command means: the service of this node, or given ones, each with all its descendants.

    The service's processes are told from the node's own by their mount namespace, because on a pod the service runs in
    a container of its own (rule "mount"). Where it doesn't (a plain host, rule "rest"), they are all that is not ours;
    that rule is refused outside a pid namespace made for the node, where it would mean the whole machine.
    """

    def __init__(self, roles: Roles, command: Dict[str, Any]) -> None:
        self._roles = roles
        pids = take(command, "pids", list, None)
        self.service = pids is None
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
        else:
            chosen = descendants(self.pids, everyone) - ours
        return {pid: everyone[pid] for pid in chosen if lives(everyone[pid])}

    def some(self) -> Dict[int, Stat]:
        """Like `now`, Refused when there is none."""
        found = self.now()
        if not found:
            what = "no process of the service runs on this node" if self.service else "no process %s" % self.pids
            raise Refused(what + " (was it killed, or not started yet?)")
        return found
