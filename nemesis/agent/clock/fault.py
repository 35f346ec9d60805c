"""The fault on all processes that it is meant for: its arguments, applying it, undoing it, what is left of it."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterable, List, Set, Tuple

from nemesis.agent.arguments import take
from nemesis.agent.base import Refused
from nemesis.agent.clock.image import Image
from nemesis.agent.clock.patch import Patch
from nemesis.agent.clock.readings import CLOCKS
from nemesis.agent.processes import Stat, all_processes, is_same
from nemesis.agent.roles import Roles, Selection

MOVED = {
    "realtime": ("realtime", "realtime_coarse", "realtime_alarm", "tai"),
    "monotonic": ("monotonic", "monotonic_raw", "monotonic_coarse"),
}


def patched(patch: Patch, roles: Roles) -> Dict[int, Stat]:
    """The processes that run with a patch: those that were given it, and those that they forked."""
    found = {}
    everyone = all_processes()
    for pid in sorted(set(everyone) - roles.own_processes(everyone) - {1}):
        try:
            if patch.is_in(Image(pid)):
                found[pid] = everyone[pid]
        except (Refused, OSError):
            continue  # ending, or without a 64-bit vDSO
    return found


def clock_apply(patch: Patch, selection: Selection, deadline: float) -> List[Dict[str, Any]]:
    """Patch all processes of a selection, and what appears among them meanwhile. Returns the evidence for each."""
    seen: Set[Tuple[int, int]] = set()
    results = []
    for _ in range(5):  # a service that starts programs all the time is never complete; those keep the true time
        fresh = [stat for stat in selection.now().values() if (stat.pid, stat.started) not in seen]
        if not fresh:
            break
        for stat in sorted(fresh, key=lambda each: each.pid):
            seen.add((stat.pid, stat.started))
            patience = min(deadline, time.monotonic() + 0.25)
            while is_same(stat.pid, stat.started):
                try:
                    if not patch.is_in(Image(stat.pid)):  # else forked by one that was patched
                        results.append(dict(patch.apply(stat.pid, deadline), comm=stat.comm))
                    break
                except (Refused, OSError) as error:
                    # One that is ending, or about to run another program, has no memory for a moment.
                    if time.monotonic() > patience:
                        raise Refused("process %d: %s" % (stat.pid, error)) from error
                    time.sleep(0.002)
    if not results:
        raise Refused("every process of the selection ended before its clock was moved")
    return results


def clock_undo(patch: Patch, roles: Roles) -> Dict[str, Any]:
    """Take a patch out of every process that runs with it, until none does. All are tried; Refused naming failures."""
    results: Dict[int, Dict[str, Any]] = {}
    problems: Dict[int, str] = {}
    deadline = time.monotonic() + 4.0
    while True:
        # Again, for a process may have forked before it was its turn. One whose routine had to stay is done.
        todo = {p: s for p, s in patched(patch, roles).items() if p not in problems and p not in results}
        if not todo:
            break
        for pid, stat in todo.items():
            try:
                results[pid] = dict(patch.undo(pid, deadline), comm=stat.comm)
                if not results[pid]["restored"]:
                    problems[pid] = "not restored"
            except (Refused, OSError) as error:
                if is_same(pid, stat.started):
                    problems[pid] = str(error)
                else:
                    results[pid] = {"pid": pid, "comm": stat.comm, "gone": True}
    if problems:
        raise Refused("; ".join("process %d: %s" % pair for pair in sorted(problems.items())))
    return {"processes": [results[pid] for pid in sorted(results)]}


def clock_left(pids: Iterable[int]) -> List[str]:
    """Which of these processes run with a vDSO that differs from this agent's own, byte by byte."""
    mine = Image(os.getpid())
    found = []
    for pid in pids:
        try:
            image = Image(pid)
        except (Refused, OSError):
            continue  # gone, or without a 64-bit vDSO; neither can carry a patch of ours
        if len(image.bytes) == len(mine.bytes) and not image.bytes.startswith(mine.code):
            found.append("process %d has a changed vDSO" % pid)
    return found


def clock_arguments(command: Dict[str, Any]) -> Tuple[int, int]:
    """(offset in ns, mask of clocks) of a clock_set."""
    offset = take(command, "offset", (int, float))
    if not -1e9 < offset < 1e9 or offset == 0:
        raise Refused("clock_set: 'offset' must be a number of seconds other than 0, at most 1e9, not %r" % offset)
    which = take(command, "clocks", str, "realtime")
    if which not in ("realtime", "monotonic", "both"):
        raise Refused("clock_set: 'clocks' must be realtime, monotonic or both, not %r" % which)
    groups = ("realtime", "monotonic") if which == "both" else (which,)
    mask = sum(1 << CLOCKS[name] for group in groups for name in MOVED[group])
    return round(offset * 1e9), mask
