"""The commands of the agent: what each does, what is held, and how it is undone."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from nemesis.agent.arguments import take, take_seconds
from nemesis.agent.base import Refused, log, now_ns
from nemesis.agent.clock.fault import clock_apply, clock_arguments, clock_left, clock_undo, patched
from nemesis.agent.clock.patch import Patch
from nemesis.agent.connections import connections, reset_connections
from nemesis.agent.firewall import HOOKS, Firewall, rules_from
from nemesis.agent.journal import Journal
from nemesis.agent.probes import Listeners, probe, shout
from nemesis.agent.processes import Stat, all_processes, is_same, thread_states
from nemesis.agent.requests import http_request, tcp_request
from nemesis.agent.roles import Roles, Selection, service_name
from nemesis.agent.signals import freeze, kill, stop, thaw
from nemesis.agent.watching import Watching

VERSION = 1
INITIAL_PID_NAMESPACE = 0xEFFFFFFC


class Agent(object):
    """Does commands, keeps what is in force, and undoes it."""

    def __init__(self, journal: Journal, code: str) -> None:
        self.journal = journal
        self.code = code
        self.roles = Roles()
        self.firewall = Firewall()
        self.listeners = Listeners()
        self.recovered: List[str] = []
        self.started_ns = now_ns()
        self.counts = {"commands": 0, "errors": 0}
        self.looks: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "hello": self.op_hello,
            "http": http_request,
            "tcp": tcp_request,
            "listen": lambda command: dict(self.listeners.open()),
            "probe": self.op_probe,
            "shout": lambda command: {"errors": shout(take(command, "targets", list))},
            "heard": self.op_heard,
            "processes": self.op_processes,
            "connections": self.op_connections,
            "stats": self.op_stats,
            "watch": Watching(self.roles, self.journal).op_watch,
        }
        self.changes: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "cut": self.op_cut,
            "mend": self.op_mend,
            "freeze": self.op_freeze,
            "thaw": self.op_thaw,
            "kill": self.op_kill,
            "stop": self.op_stop,
            "reset": self.op_reset,
            "clock_read": self.op_clock_read,
            "clock_set": self.op_clock_set,
            "clock_restore": self.op_clock_restore,
            "undo_all": self.op_undo_all,
            "verify_clean": self.op_verify_clean,
        }

    # Looking

    def op_hello(self, command: Dict[str, Any]) -> Dict[str, Any]:
        rule = take(command, "service", str, None)
        if rule is not None:
            if rule not in ("mount", "rest"):
                raise Refused("hello: 'service' must be mount or rest, not %r" % rule)
            if rule == "rest" and os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE:
                raise Refused("hello: the rule 'rest' is refused here, outside a pid namespace of the node's own")
            self.roles.service_rule = rule
        system = os.uname()
        return {
            "version": VERSION,
            "code": self.code,
            "pid": os.getpid(),
            "guardian": self.roles.guardian,
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "kernel": system.release,
            "arch": system.machine,
            "boottime_ns": now_ns(),
            "journal": self.journal.path,
            "recovered": self.recovered,
        }

    def op_probe(self, command: Dict[str, Any]) -> Dict[str, Any]:
        timeout = take_seconds(command, "timeout", 0.3, 30.0)
        return {"results": probe(take(command, "targets", list), timeout)}

    def op_heard(self, command: Dict[str, Any]) -> Dict[str, Any]:
        words = [str(word) for word in take(command, "words", list)]
        return {"heard": self.listeners.heard(words, take_seconds(command, "timeout", 0.3, 30.0))}

    def op_processes(self, command: Dict[str, Any]) -> Dict[str, Any]:
        everyone = all_processes()
        ours = self.roles.own_processes(everyone)
        rows = []
        for pid, stat in sorted(everyone.items()):
            row = {"pid": pid, "parent": stat.parent, "comm": stat.comm, "state": stat.state, "started": stat.started}
            row["threads"] = "".join(sorted(set(thread_states(pid).values())))
            row["role"] = self.roles.role(pid, everyone, ours)
            if row["role"] == "service":
                row["service"] = service_name(pid)
            rows.append(row)
        return {"processes": rows}

    def op_connections(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """The established TCP connections with `peers` (addresses); with `pids`, of these processes alone."""
        only = Selection(self.roles, command).now() if "pids" in command else None
        return {"connections": connections(take(command, "peers", list), only)}

    def op_stats(self, command: Dict[str, Any]) -> Dict[str, Any]:
        return {
            "uptime_seconds": (now_ns() - self.started_ns) / 1e9,
            "commands": self.counts["commands"],
            "errors": self.counts["errors"],
            "held": sorted(self.journal.held),
            "threads": threading.active_count(),
        }

    # Changing

    def _fresh(self, command: Dict[str, Any], kind: str) -> str:
        """The journal's key of a new fault. Refused when it is in force already."""
        key = "%s:%s" % (kind, take(command, "fault", str))
        if key in self.journal.held:
            raise Refused("%s: a fault %r is in force already" % (command["op"], command["fault"]))
        return key

    def _held(self, command: Dict[str, Any], kind: str) -> Optional[str]:
        """The journal's key of a fault in force; None when it isn't and `missing_ok` says that this is fine."""
        key = "%s:%s" % (kind, take(command, "fault", str))
        if key in self.journal.held:
            return key
        if take(command, "missing_ok", bool, False):
            return None
        raise Refused("%s: no fault %r is in force" % (command["op"], command["fault"]))

    def op_cut(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Cut links. `fault` names it; `rules` see `rules_from`. All of it is in force when it returns."""
        key, rules = self._fresh(command, "cut"), rules_from(command)
        self.firewall.backend  # noqa: B018 - refused before anything is noted where no back end works
        self.journal.put(key, {})
        begin = now_ns()
        try:
            self.firewall.cut(key, rules)
        except Refused:
            self._undo(key)
            raise
        return {"begin_ns": begin, "end_ns": now_ns(), "rules": len(rules)}

    def op_mend(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Take a cut back. Also tells what its rules dropped, and whether they still were in force."""
        key = self._held(command, "cut")
        if key is None:
            return {"nothing_in_force": True}
        expected = sum(len(rules) for rules in self.firewall.cuts.values())
        hooks, drops, dropped = self.firewall.state()
        begin = now_ns()
        self._undo(key)
        return {
            "begin_ns": begin,
            "end_ns": now_ns(),
            "was_cut_throughout": hooks == 2 * len(HOOKS) and drops >= expected,
            "dropped_packets": dropped,
        }

    def op_freeze(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Stop the processes of a selection. When it returns every thread of every one is stopped (read from /proc)."""
        key, selection = self._fresh(command, "freeze"), Selection(self.roles, command)
        deadline = time.monotonic() + take_seconds(command, "timeout", 4.0, 60.0)

        def note(held: Dict[int, Stat]) -> None:
            self.journal.put(key, {"held": [[pid, stat.started] for pid, stat in sorted(held.items())]})

        begin = now_ns()
        try:
            evidence = freeze(selection, note, deadline)
        except Refused:
            self._undo(key)
            raise
        return dict(evidence, begin_ns=begin, end_ns=now_ns())

    def op_thaw(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Let frozen processes run again. When it returns none of their threads is stopped."""
        key = self._held(command, "freeze")
        if key is None:
            return {"nothing_in_force": True}
        begin = now_ns()
        return dict(self._undo(key), begin_ns=begin)

    def op_kill(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """SIGKILL the processes of a selection. When it returns none is there. There is nothing to undo on the node."""
        deadline = time.monotonic() + take_seconds(command, "timeout", 4.0, 60.0)
        begin = now_ns()
        evidence = kill(Selection(self.roles, command), deadline)
        return dict(evidence, begin_ns=begin, end_ns=now_ns())

    def op_stop(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """SIGTERM to the first processes of a selection, which end the others by themselves; when it returns none of
        them all is there. `timeout`: how long they may take. There is nothing to undo on the node.
        """
        deadline = time.monotonic() + take_seconds(command, "timeout", 10.0, 600.0)
        begin = now_ns()
        evidence = stop(Selection(self.roles, command), deadline)
        return dict(evidence, begin_ns=begin, end_ns=now_ns())

    def op_reset(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Reset this node's end of `connections`. There is nothing to undo: what is reset stays so."""
        begin = now_ns()
        return {"words": reset_connections(command), "begin_ns": begin, "end_ns": now_ns()}

    def op_clock_set(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Move the clock of the processes of a selection by `offset` s (`clocks`: realtime, monotonic, both).

        Those that live now are moved, and what they fork later; not what is started anew. Each process' own clock is
        read back by its own code path; `wrong` lists what did not move as asked.
        """
        key, selection = self._fresh(command, "clock"), Selection(self.roles, command)
        selection.some()
        patch = Patch.plan(key, *clock_arguments(command))
        self.journal.put(key, patch.data)
        deadline = time.monotonic() + take_seconds(command, "timeout", 4.0, 60.0)
        begin = now_ns()
        try:
            processes = clock_apply(patch, selection, deadline)
        except (Refused, OSError) as error:
            self._undo(key)
            raise Refused(str(error)) from error
        return {"processes": processes, "begin_ns": begin, "end_ns": now_ns()}

    def op_clock_read(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """What the processes of a moved clock read now, in s ahead of this agent's clock, and how often they have."""
        key = "clock:%s" % take(command, "fault", str)
        if key not in self.journal.held:
            raise Refused("clock_read: no fault %r is in force" % command["fault"])
        patch, rows = Patch(self.journal.held[key]), []
        for pid, stat in sorted(patched(patch, self.roles).items()):
            try:
                rows.append(dict(patch.read(pid, time.monotonic() + 4.0), pid=pid, comm=stat.comm))
            except (Refused, OSError) as error:
                if is_same(pid, stat.started):
                    raise Refused("process %d: %s" % (pid, error)) from error
        return {"processes": rows}

    def op_clock_restore(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Give the processes their clock back; `moved` is by how much it jumped at that, read back from each.

        `reads`: how often each had read the moved clock.
        """
        key = self._held(command, "clock")
        if key is None:
            return {"nothing_in_force": True}
        begin = now_ns()
        evidence = self._undo(key)
        return dict(evidence, begin_ns=begin, end_ns=now_ns())

    # Undoing

    def _undo(self, key: str) -> Dict[str, Any]:
        """Undo one fault that is held. Safe to repeat; what it could not undo stays held."""
        entry = self.journal.held.get(key, {})
        evidence = undo(self, key, entry)
        self.journal.drop(key)
        return evidence

    def undo_everything(self) -> List[str]:
        """Undo all that is held; returns a line for each that failed. Never raises."""
        problems = []
        for key in sorted(self.journal.held, reverse=True):
            try:
                self._undo(key)
            except (Refused, OSError) as error:
                problems.append("%s: %s" % (key, error))
        return problems

    def op_undo_all(self, command: Dict[str, Any]) -> Dict[str, Any]:
        held = sorted(self.journal.held)
        problems = self.undo_everything()
        if problems:
            raise Refused("not everything could be undone: " + "; ".join(problems))
        return {"undone": held}

    def op_verify_clean(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Whether nothing of ours is in force on this node, read from the kernel; `left` says what is."""
        left = ["%s is held" % key for key in sorted(self.journal.held)]
        left += self.firewall.left()
        everyone = all_processes()
        ours = self.roles.own_processes(everyone)
        for pid, stat in sorted(everyone.items()):
            if pid in ours or pid == 1:
                continue
            states = "".join(sorted(set(thread_states(pid).values())))
            if "T" in states:
                left.append("process %d (%s) is stopped" % (pid, stat.comm))
        left += clock_left(pid for pid in everyone if pid not in ours and pid != 1)
        return {"clean": not left, "left": left}

    def recover(self) -> None:
        """Undo what an agent before this one left. Reported in `hello`."""
        entries = self.journal.load()
        self.journal.held = dict(entries)
        for key in sorted(entries, reverse=True):
            if key.startswith("cut:"):
                self.firewall.purge()
            try:
                self._undo(key)
                self.recovered.append("%s undone" % key)
            except (Refused, OSError) as error:
                self.recovered.append("%s could not be undone: %s" % (key, error))
                log("recovery: " + self.recovered[-1])


def undo(agent: Agent, key: str, entry: Dict[str, Any]) -> Dict[str, Any]:
    """Undo what one journal entry describes, whether or not it was applied. Raises Refused when it can't be."""
    kind = key.partition(":")[0]
    if kind == "cut":
        agent.firewall.mend(key)
        return {}
    if kind == "freeze":
        return thaw(entry.get("held", []), time.monotonic() + 4.0)
    if kind == "clock":
        return clock_undo(Patch(entry), agent.roles)
    raise Refused("the journal names a fault of an unknown kind, %r" % key)
