"""Watching the node: what others do to its processes, and whether it stood still itself.

Two things can be seen from here that nobody else sees with their times:

- A process that is *stopped* (state T) though no fault of ours holds it: somebody sent it a SIGSTOP.
- The agent's own *gaps*. It looks at its clocks ten times a second; when it comes too late, somebody stopped it, or
  paused its container, or suspended its machine. A suspended machine's CLOCK_BOOTTIME goes on while its CLOCK_MONOTONIC
  stands still, so that is told apart.

A busy machine makes it late too, and that is nobody's doing. So what the kernel says that the threads of this process
spent waiting for a processor (/proc/self/task/*/schedstat), what they computed, and what a hypervisor took from the
machine meanwhile, is no gap: a stopped or frozen process does none of it. All its threads count, because the one that
ticks may wait for the interpreter's lock while the one that holds it waits for a processor. (A gap of a third of a
second that nobody had made was seen once, at ten times as much load as there were processors; that this was its way is
a guess, since it could not be made to come again.) Where the kernel doesn't count that, only suspensions are told.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from nemesis.agent.arguments import take, take_seconds
from nemesis.agent.base import now_ns, read_at_once
from nemesis.agent.journal import Journal
from nemesis.agent.processes import Stat, all_processes
from nemesis.agent.roles import Roles

TICK_SECONDS = 0.1
TICKS_A_LOOK = 2
"""Processes are looked at at every second tick, and count as stopped when they were at two looks in a row: a program
that stops its child for a moment, or a thaw of ours that is under way, is no pause."""
KEPT = 256
"""Gaps and stops that are remembered for a harness that doesn't ask."""


EXCUSES_EVERY = 10
"""At every so manieth tick the excuses are noted: many small files, and they matter only when a tick is late. So an
excuse may be up to so many ticks old, which clears rather than accuses."""


class Reading(object):
    """The clocks at one tick, in ns."""

    __slots__ = ("boot", "mono")

    def __init__(self, boot: int, mono: int) -> None:
        self.boot, self.mono = boot, mono


def read_clocks() -> Reading:
    """The clocks, now."""
    return Reading(now_ns(), time.monotonic_ns())


def read_excuses() -> Optional[Dict[str, int]]:
    """What may have made this process late, each a sum since it began, in ns; None where the kernel doesn't count it.

    A sum for each thread, as those of threads that have ended are gone.
    """
    try:
        found = {"computed": time.process_time_ns(), "stolen": _stolen()}
        for name in os.listdir("/proc/self/task"):
            try:
                found[name] = int(read_at_once("/proc/self/task/%s/schedstat" % name).split()[1])
            except ProcessLookupError:
                continue  # it ended just now
        return found
    except (OSError, IndexError, ValueError):
        return None


def _stolen() -> int:
    """What a hypervisor gave to others while this machine wanted to run, all processors together."""
    return int(read_at_once("/proc/stat").split(b"\n", 1)[0].split()[8]) * (10**9 // os.sysconf("SC_CLK_TCK"))


class Gaps(object):
    """Tells from readings that should come every `usual` ns when there was a gap of `least` ns or more."""

    def __init__(self, usual: int, least: int, excuses: Callable[[], Optional[Dict[str, int]]] = read_excuses) -> None:
        self.usual, self.least, self._excuses = usual, least, excuses
        self._last: Optional[Reading] = None
        self._noted = excuses()
        self._ticks = 0

    @property
    def counts_waiting(self) -> bool:
        """Whether waiting for a processor is told from standing still here."""
        return self._noted is not None

    def at(self, now: Reading) -> Optional[Dict[str, Any]]:
        """The gap that ends with this reading, if any: what ("suspended" or "stalled"), begin_ns, end_ns, seconds.

        `seconds` is without what is excused, so it may be less than from begin to end.
        """
        last, self._last = self._last, now
        if last is None:
            return None
        asleep = (now.boot - last.boot) - (now.mono - last.mono)
        if asleep >= self.least:
            return self._gap("suspended", last, now, asleep)
        late = (now.mono - last.mono) - self.usual
        self._ticks += 1
        if late >= self.least or self._ticks % EXCUSES_EVERY == 0:
            late -= self._excused()
        return self._gap("stalled", last, now, late) if self.counts_waiting and late >= self.least else None

    def _excused(self) -> int:
        """What came together of excuses since they were noted last."""
        before, self._noted = self._noted, self._excuses()
        if before is None or self._noted is None:
            return 0
        return sum(max(0, ns - before.get(name, 0)) for name, ns in self._noted.items())

    @staticmethod
    def _gap(what: str, last: Reading, now: Reading, length: int) -> Dict[str, Any]:
        return {"what": what, "begin_ns": last.boot, "end_ns": now.boot, "seconds": length / 1e9}


class Stops(object):
    """Follows which processes are stopped by somebody else, from looks at all of them."""

    def __init__(self) -> None:
        self._suspects: Dict[Tuple[int, int], int] = {}
        self._open: Dict[Tuple[int, int], Dict[str, Any]] = {}

    def at(self, boot: int, stopped: Dict[Tuple[int, int], str]) -> List[Dict[str, Any]]:
        """Take in one look: (pid, started) -> name of what is stopped. Returns the stops that began or ended by it.

        A stop has pid, comm, begin_ns (the first look that saw it), and end_ns (the first that didn't any more), or
        None while it lasts.
        """
        changed = []
        for key, comm in stopped.items():
            if key in self._open:
                continue
            if key in self._suspects:
                self._open[key] = {"pid": key[0], "comm": comm, "begin_ns": self._suspects.pop(key), "end_ns": None}
                changed.append(self._open[key])
        self._suspects = {key: self._suspects.get(key, boot) for key in stopped if key not in self._open}
        for key in [key for key in self._open if key not in stopped]:
            ended = dict(self._open.pop(key), end_ns=boot)
            changed.append(ended)
        return changed


class Watching(object):
    """The thread that ticks, and what it has to tell. It starts when it is first asked for."""

    def __init__(self, roles: Roles, journal: Journal, clocks: Callable[[], Reading] = read_clocks) -> None:
        self._roles, self._journal, self._clocks = roles, journal, clocks
        self._lock = threading.Lock()
        self._told: Deque[Tuple[int, Dict[str, Any]]] = deque(maxlen=KEPT)
        self._number = 0
        self._gaps = Gaps(0, 0, lambda: None)
        self._stops = Stops()
        self._thread: Optional[threading.Thread] = None

    def op_watch(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """What was seen after number `after`. With `least` (s) it begins anew, and tells gaps of that length.

        Answers with both clocks of now, `seen` (each with its `number`; "stopped" stands for stops of processes), and
        whether waiting for a processor is told from standing still here.
        """
        with self._lock:
            if command.get("least") is not None:
                self._told.clear()
                self._stops = Stops()
                self._gaps = Gaps(int(TICK_SECONDS * 1e9), int(take_seconds(command, "least", 1.0) * 1e9))
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, daemon=True)
                self._thread.start()
            after = take(command, "after", int, 0)
            seen = [dict(told, number=number) for number, told in self._told if number > after]
            number = self._number
        return {
            "boottime_ns": now_ns(),
            "wall_ns": time.time_ns(),
            "number": number,
            "seen": seen,
            "counts_waiting": self._gaps.counts_waiting,
        }

    def _tick(self) -> None:
        ticks = 0
        while True:
            time.sleep(TICK_SECONDS)
            now = self._clocks()
            ticks += 1
            with self._lock:
                gap = self._gaps.at(now) if self._gaps.least else None
                if gap is not None:
                    self._tell(gap)
            if ticks % TICKS_A_LOOK == 0:
                stopped = self._stopped()
                with self._lock:
                    for stop in self._stops.at(now.boot, stopped):
                        self._tell(dict(stop, what="stopped"))

    def _tell(self, what: Dict[str, Any]) -> None:
        self._number += 1
        self._told.append((self._number, what))

    def _stopped(self) -> Dict[Tuple[int, int], str]:
        """The processes that are stopped, and held by no fault of ours. Who is who is only asked when there are any."""
        everyone = all_processes()
        stopped = [stat for stat in everyone.values() if stat.state == "T"]
        if not stopped:
            return {}
        held = {tuple(each) for entry in list(self._journal.held.values()) for each in entry.get("held", ())}
        ours = self._roles.own_processes(everyone)
        return {
            (stat.pid, stat.started): stat.comm
            for stat in stopped
            if (stat.pid, stat.started) not in held and self._watched(stat, everyone, ours)
        }

    def _watched(self, stat: Stat, everyone: Dict[int, Stat], ours: Any) -> bool:
        return self._roles.role(stat.pid, everyone, ours) in ("service", "node")
