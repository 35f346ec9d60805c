"""Freezing, thawing and killing: done by signals, proven by what /proc says of every thread."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, Sequence, Set

from nemesis.agent.base import Refused, now_ns
from nemesis.agent.processes import Stat, all_processes, descendants, is_same, thread_states
from nemesis.agent.roles import Selection

UNDISTURBED_SECONDS = 0.02
"""For so long nobody looks at processes that were let go on. What a program does in its first milliseconds decides what
comes of a pause, and reading /proc takes a processor just then, which on a machine with two is half of them."""
VFORK_SECONDS = 0.05
"""How long the child of a vfork is let run at first. Twice as long each time after that: on a machine that is busy it
does not get its turn sooner."""
STOPPED = "Tt"
"""State letters of a thread that does not run: stopped by a signal, or by a tracer."""


def signal_process(pid: int, number: int) -> None:
    """Send a signal; a process that is gone needs none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise Refused("no permission to signal process %d (the node needs the capability KILL)" % pid) from None


def freeze(selection: Selection, note: Callable[[Dict[int, Stat]], None], deadline: float) -> Dict[str, Any]:
    """SIGSTOP all processes of a selection, until every thread of every one of them is stopped.

    A process may fork while the others are being stopped, and one that is in the middle of a fork (of a large one, for
    milliseconds) ends it before it stops: its child appears after a reading of the tree, and the parent is stopped by
    the time that its state is read. So two looks in a row must find nothing new and nobody running: whoever was read as
    stopped in the first of them can't have made anything since, and what had been made by then the second one sees.
    `note` is called with processes before they are stopped. Returns the evidence.
    """
    held: Dict[int, Stat] = {}
    looks = quiet = 0
    patience = VFORK_SECONDS
    while quiet < 2:
        found = selection.some() if not held else selection.now()
        fresh = {pid: stat for pid, stat in found.items() if pid not in held or held[pid].started != stat.started}
        if fresh:
            held.update(fresh)
            note(held)
            for pid in sorted(fresh):
                signal_process(pid, signal.SIGSTOP)
        looks += 1
        running = {
            "%d/%d" % (pid, tid): state
            for pid in held
            for tid, state in thread_states(pid).items()
            if state not in STOPPED
        }
        if not fresh and not running:
            quiet += 1
            continue
        quiet = 0
        if time.monotonic() > deadline:
            raise Refused("not all threads stopped in time; these did not: %s" % _few(running or fresh))
        if looks % 20 == 0 and "D" in running.values():
            parents = {int(where.split("/")[0]) for where, state in running.items() if state == "D"}
            _release_vfork(parents, held, min(patience, deadline - time.monotonic()))
            patience *= 2
        if running:
            time.sleep(0.0005)
    alive = {pid: stat for pid, stat in held.items() if is_same(pid, stat.started)}
    if not alive:
        raise Refused("every process of the selection ended while it was being stopped")
    return {
        "processes": [{"pid": p, "comm": s.comm, "threads": len(thread_states(p))} for p, s in sorted(alive.items())],
        "looks": looks,
    }


def _release_vfork(parents: Set[int], held: Dict[int, Stat], patience: float) -> None:
    """Let the children of these processes run until they let go of their parents, for so many seconds at most, and stop
    them again.

    A thread that called vfork() waits, deaf to all signals (state D), until its child runs another program or ends.
    When the child was stopped before that, the parent never stops. Shells, Go and the JVM start programs so.
    """
    children = [stat.pid for stat in all_processes().values() if stat.parent in parents and stat.pid in held]
    for pid in children:
        signal_process(pid, signal.SIGCONT)
    end = time.monotonic() + patience
    while time.monotonic() < end and any("D" in thread_states(pid).values() for pid in parents):
        time.sleep(0.0002)
    for pid in children:
        signal_process(pid, signal.SIGSTOP)


def thaw(held: Sequence[Sequence[int]], deadline: float) -> Dict[str, Any]:
    """SIGCONT to processes ([pid, started]) and their stopped descendants; returns once none of them is stopped.

    `end_ns` in the evidence: when the last of them was let go on.
    """
    mine = {int(pid): int(started) for pid, started in held}
    alive = {pid for pid, started in mine.items() if is_same(pid, started)}
    before = {pid: thread_states(pid) for pid in alive}
    escaped = {str(p): t for p, t in before.items() if any(state not in STOPPED for state in t.values())}
    for pid in sorted(alive):
        signal_process(pid, signal.SIGCONT)
    end_ns = now_ns()
    time.sleep(UNDISTURBED_SECONDS)
    while True:
        everyone = all_processes()
        tree = descendants([pid for pid in alive if is_same(pid, mine[pid])], everyone)
        still: Dict[str, str] = {}
        for pid in tree:
            states = thread_states(pid)
            if any(state == "T" for state in states.values()):
                still[str(pid)] = "".join(sorted(set(states.values())))
                signal_process(pid, signal.SIGCONT)
                end_ns = now_ns()
        if not still:
            break
        if time.monotonic() > deadline:
            raise Refused("these processes are still stopped: %s" % _few(still))
        time.sleep(0.0005)
    return {
        "processes": sorted(alive),
        "gone": sorted(set(mine) - alive),
        "was_stopped_throughout": not escaped,
        "end_ns": end_ns,
        "states": "".join(sorted({state for pid in alive for state in thread_states(pid).values()})),
    }


def kill(selection: Selection, deadline: float) -> Dict[str, Any]:
    """SIGKILL all processes of a selection; returns once none of them is there."""
    killed: Dict[int, Stat] = {}
    found = selection.some()
    while found:
        for pid, stat in sorted(found.items()):
            killed[pid] = stat
            signal_process(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise Refused("these processes are still there after SIGKILL: %s" % _few(dict.fromkeys(found, "SIGKILL")))
        time.sleep(0.0005)
        found = selection.now()
        found.update({pid: stat for pid, stat in killed.items() if is_same(pid, stat.started)})
    return {"processes": [{"pid": pid, "comm": s.comm, "started": s.started} for pid, s in sorted(killed.items())]}


def stop(selection: Selection, deadline: float) -> Dict[str, Any]:
    """SIGTERM to those processes of a selection that come of none of it; returns once no process of it is there.

    Nothing else is done to those that take longer than they may: Refused says which.
    """
    seen = dict(selection.some())
    first = sorted(pid for pid, stat in seen.items() if stat.parent not in seen)
    began = time.monotonic()
    for pid in first:
        signal_process(pid, signal.SIGTERM)
    while True:
        seen.update(selection.now())
        left = {pid: stat.comm for pid, stat in seen.items() if is_same(pid, stat.started)}
        if not left:
            break
        if time.monotonic() > deadline:
            waited = time.monotonic() - began
            raise Refused("these processes are still there %.1f s after SIGTERM: %s" % (waited, _few(left)))
        time.sleep(0.002)
    return {
        "processes": [{"pid": pid, "comm": s.comm, "started": s.started} for pid, s in sorted(seen.items())],
        "told": first,
        "took_seconds": round(time.monotonic() - began, 4),
    }


def _few(items: Dict[Any, Any]) -> str:
    shown = ", ".join("%s (%s)" % pair for pair in sorted(items.items(), key=str)[:8])
    return shown + (" and %d more" % (len(items) - 8) if len(items) > 8 else "")
