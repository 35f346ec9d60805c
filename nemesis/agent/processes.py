"""Processes: read from /proc, never guessed."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, Optional, Set

from nemesis.agent.base import Refused, read_at_once


class Stat(object):
    """One line of /proc/PID/stat (or of one thread). `started` tells a process from a later one with its number."""

    __slots__ = ("pid", "comm", "state", "parent", "started")

    def __init__(self, text: bytes) -> None:
        head, _, tail = text.rpartition(b")")
        number, _, comm = head.partition(b"(")
        words = tail.split()
        self.pid = int(number)
        self.comm = comm.decode("utf-8", "replace")
        self.state = words[0].decode()
        self.parent = int(words[1])
        self.started = int(words[19])


def stat_of(pid: int) -> Optional[Stat]:
    """The process, or None when there is none of that number."""
    try:
        return Stat(read_at_once("/proc/%d/stat" % pid))
    except (FileNotFoundError, ProcessLookupError):
        return None


def all_processes() -> Dict[int, Stat]:
    """Every process of this pid namespace."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = stat_of(int(name))
            if stat is not None:
                found[stat.pid] = stat
    return found


def thread_ids(pid: int) -> List[int]:
    """The threads of a process; none when it is gone."""
    try:
        return sorted(int(name) for name in os.listdir("/proc/%d/task" % pid))
    except (FileNotFoundError, ProcessLookupError):
        return []


def thread_states(pid: int) -> Dict[int, str]:
    """Thread -> state letter, of those that live (not Z, not X)."""
    states = {}
    for tid in thread_ids(pid):
        try:
            state = Stat(read_at_once("/proc/%d/task/%d/stat" % (pid, tid))).state
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            states[tid] = state
    return states


def is_same(pid: int, started: int) -> bool:
    """Whether this process still lives, and is not a later one that was given its number."""
    stat = stat_of(pid)
    return stat is not None and stat.started == started and lives(stat)


def lives(stat: Stat) -> bool:
    """Whether anything of a process still runs: the first thread may have ended while others have not."""
    return stat.state not in "ZX" or bool(thread_states(stat.pid))


def descendants(roots: Iterable[int], everyone: Dict[int, Stat]) -> Set[int]:
    """The roots that live, and all their children and children's children."""
    children: Dict[int, List[int]] = {}
    for stat in everyone.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    found: Set[int] = set()
    todo = [root for root in roots if root in everyone]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(children.get(pid, ()))
    return found


def namespace(pid: Any, kind: str) -> Optional[str]:
    """The identity of a process' namespace, or None when it has none any more, because it is ending or gone."""
    try:
        return os.readlink("/proc/%s/ns/%s" % (pid, kind))
    except PermissionError as error:
        # Linux says so, too, of a process that went between the finding of the link and its reading (proc_ns_readlink).
        if not os.path.exists("/proc/%s" % pid):
            return None
        raise Refused(
            "the namespaces of process %s can't be read (the node needs the capability SYS_PTRACE)" % pid
        ) from error
    except OSError:
        return None
