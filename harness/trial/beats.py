"""Heartbeats: a small question to every agent, and to the resource, twice a second, on streams that are open anyway.

The answers tell what the agents saw on their nodes (nemesis/agent/watching.py): processes that somebody stopped, and
gaps in their own time. The lack of an answer tells of an agent that is deaf.

A gap that most agents report for the same time is one of their machine: it was suspended, or stood still. A gap of one
alone is that of its agent, or of its node. And the harness may have stood still itself, which it sees in the same way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import AgentError, HarnessError
from harness.runtime.base import Node, Process
from harness.trial.outside import Outsiders
from nemesis.agent.processes import Stat
from nemesis.agent.watching import TICK_SECONDS, Gaps, Stops, read_clocks
from nemesis.base import AgentLink

BEAT_SECONDS = 0.5
DEAF_SECONDS = 10.0
"""An agent that is silent for so long is deaf: so long does a trial wait for it at its end. A busy machine is late by
tenths of a second; and what lasted for a shorter time an agent tells itself, with its times, once it answers again."""
GAP_TTLS = 0.25
"""Which gap matters, in ttls: a lease that is renewed at a third of its ttl survives a shorter one."""
LEAST_GAP_SECONDS = 0.25
ALONE = 2
"""How many times as long the gap of one agent alone must be: it is the weakest sign of all. What pauses a node or stops
a contender is seen by itself, and one process on a machine with ten times as much load as processors was seen to come a
third of a second late for no reason that the kernel tells."""
PATIENT_BEATS = 3
"""For how many beats a gap waits for those of the other agents."""
HARNESS = "harness"
STATES = (
    "while read -r _; do "
    'for file in /proc/[0-9]*/stat; do { read -r line < "$file"; } 2>/dev/null && echo "$line"; done; '
    "echo .; done"
)
"""What runs on the resource's node, which has no python3: for each line it prints /proc/PID/stat of all, then a dot.
Built-ins of the shell alone, so that a look starts no process."""


@dataclass
class Gap:
    """Time that went missing on a node, or in the harness. ns of the history; `beats` counts how long it has waited."""

    node: str
    begin: int
    end: int
    suspended: bool
    seconds: float
    beats: int = 0


@dataclass
class Beats:
    """Asks until it is stopped; what it finds goes to `outsiders`.

    `epoch_ns` is the time 0 of the history on the nodes' boot clock. `boot_ahead_ns` is by how much that clock is ahead
    of the nodes' wall clock (negative), as one agent read both at once, last.
    """

    agents: Mapping[str, AgentLink]
    resource: Node
    outsiders: Outsiders
    ttl: float
    epoch_ns: int
    noted: Callable[[str], None]
    look: Callable[[], None]
    """Asks the runtime what it sees: what ended an agent may have been the end of its whole node."""
    boot_ahead_ns: int = 0
    failure: str | None = None
    _after: dict[str, int] = field(default_factory=dict)
    _pending: dict[str, Any] = field(default_factory=dict)
    _silent_since: dict[str, float] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    gaps: list[Gap] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def least_gap_seconds(self) -> float:
        """The gap from which on one counts."""
        return max(LEAST_GAP_SECONDS, GAP_TTLS * self.ttl)

    def start(self) -> None:
        """Begin. Raises AgentError when an agent doesn't answer now."""
        pending = {name: agent.start("watch", least=self.least_gap_seconds) for name, agent in self.agents.items()}
        for name, handle in pending.items():
            answer = handle.result(DEAF_SECONDS)
            self._heard(name, answer)
            if not answer["counts_waiting"]:
                self.noted(f"the kernel of {name} doesn't tell waiting from standing still: only suspensions are seen")
        self._states = _ResourceStates(self.resource, self.outsiders, self.look)
        for run, what in ((self._beat, "beats"), (self._watch_myself, "own gaps")):
            thread = threading.Thread(target=run, name=what, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Ask once more, wait for the answers, and end."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(DEAF_SECONDS)
        deadline = time.monotonic() + DEAF_SECONDS / 2
        last = {name: self._pending.pop(name, None) for name in self.agents}
        for name, handle in last.items():
            self._finish(name, handle, deadline)
        asked = {
            name: agent.start("watch", after=self._after[name])
            for name, agent in self.agents.items()
            if name not in self._gone
        }
        for name, handle in asked.items():
            self._finish(name, handle, deadline)
        self.sort_gaps(at_once=True)
        self._states.stop()

    def _finish(self, name: str, handle: Any, deadline: float) -> None:
        if handle is None:
            return
        try:
            self._heard(name, handle.result(max(0.0, deadline - time.monotonic())))
        except AgentError as error:
            self._unheard(name, str(error))
            now = self.outsiders.now()
            if not handle.done and not self.outsiders.explains(name, now, now):
                self.outsiders.begin(name, "agent", "deaf", now, "no answer at the end")

    # -- agents ---------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        try:
            while not self._stopped.wait(BEAT_SECONDS):
                for name in self.agents:
                    self._ask(name)
                self._states.ask()
                self.sort_gaps()
        except HarnessError as error:
            self.failure = str(error)

    def _ask(self, name: str) -> None:
        """Take the answer to the last question, if it is there, and ask the next."""
        now = time.monotonic()
        handle = self._pending.get(name)
        if handle is not None and not handle.done:
            # A node that is known to stand still can't answer; its silence counts from its end.
            if any(name in each.targets and each.parts & {"node"} for each in self.outsiders.standing()):
                self._silent_since[name] = now
            elif now - self._silent_since[name] > DEAF_SECONDS:
                at = self.outsiders.now() - int((now - self._silent_since[name]) * 1e9)
                seen = f"no answer for {DEAF_SECONDS:g} s"
                self.outsiders.begin(name, "agent", "deaf", at, seen)
            return
        if handle is not None:
            try:
                self._heard(name, handle.result(0.0))
            except AgentError as error:
                self._unheard(name, str(error))
        if name not in self._gone:
            self._pending[name] = self.agents[name].start("watch", after=self._after[name])
            self._silent_since[name] = now

    def _unheard(self, name: str, words: str) -> None:
        if not self.agents[name].alive and name not in self._gone:
            self._gone.add(name)
            self._pending.pop(name, None)
            now = self.outsiders.now()
            self.look()
            self.outsiders.begin(name, "agent", "killed", now, f"{words}; see logs/{name}/agent.log")

    def _heard(self, name: str, answer: Mapping[str, Any]) -> None:
        """Sort what an agent has seen since the last time."""
        self._after[name] = int(answer["number"])
        self.boot_ahead_ns = int(answer["boottime_ns"]) - int(answer["wall_ns"])
        self.outsiders.finish(name, "agent", "deaf", self.outsiders.now(), "it answers again")
        for seen in answer["seen"]:
            begin = int(seen["begin_ns"]) - self.epoch_ns
            end = None if seen["end_ns"] is None else int(seen["end_ns"]) - self.epoch_ns
            if seen["what"] == "stopped":
                tell_stop(self.outsiders, name, seen, begin, end)
            elif end is not None:
                with self._lock:
                    self.gaps.append(Gap(name, begin, end, seen["what"] == "suspended", float(seen["seconds"])))

    # -- gaps -----------------------------------------------------------------------------------------------------

    def _watch_myself(self) -> None:
        gaps = Gaps(int(TICK_SECONDS * 1e9), int(self.least_gap_seconds * 1e9))
        while not self._stopped.wait(TICK_SECONDS):
            found = gaps.at(read_clocks())
            if found is not None:
                end = self.outsiders.now()
                begin = end - (int(found["end_ns"]) - int(found["begin_ns"]))
                with self._lock:
                    self.gaps.append(Gap(HARNESS, begin, end, found["what"] == "suspended", found["seconds"]))

    def sort_gaps(self, *, at_once: bool = False) -> None:
        """Tell whose gaps these were, once all that were in them had the time to say so."""
        with self._lock:
            for gap in self.gaps:
                gap.beats += 1
            ripe = bool(self.gaps) and (at_once or max(gap.beats for gap in self.gaps) > PATIENT_BEATS)
            gaps, self.gaps = (self.gaps, []) if ripe else ([], self.gaps)
        for group in overlapping(gaps):
            self._tell(group)

    def _tell(self, group: Sequence[Gap]) -> None:
        nodes = sorted({gap.node for gap in group if gap.node != HARNESS})
        begin, end = min(gap.begin for gap in group), max(gap.end for gap in group)
        seconds = max(gap.seconds for gap in group)
        suspended = any(gap.suspended for gap in group)
        if 2 * len(nodes) > len(self.agents):
            how = "by its clocks it was suspended" if suspended else "without waiting for a processor"
            seen = f"{len(nodes)} agents stood still for {seconds:.2f} s, {how}"
            self.outsiders.happened(nodes, "paused", "the machine under the nodes", begin, end, seen)
            return
        for gap in group:
            if gap.seconds < ALONE * self.least_gap_seconds:
                continue
            seen = f"for {gap.seconds:.2f} s, " + (
                "by its clocks its machine was suspended" if gap.suspended else "without waiting for a processor"
            )
            if gap.node == HARNESS:
                self.outsiders.happened([], "stalled", "the harness itself", gap.begin, gap.end, seen)
            elif not self.outsiders.explains(gap.node, gap.begin, gap.end):
                who = f"the agent on {gap.node}"
                self.outsiders.happened([gap.node], "stalled", who, gap.begin, gap.end, seen)


def overlapping(gaps: Sequence[Gap]) -> list[list[Gap]]:
    """Gaps in groups of which each shares some time with another of its group."""
    groups: list[list[Gap]] = []
    until = 0
    for gap in sorted(gaps, key=lambda gap: gap.begin):
        if groups and gap.begin <= until:
            groups[-1].append(gap)
            until = max(until, gap.end)
        else:
            groups.append([gap])
            until = gap.end
    return groups


def tell_stop(outsiders: Outsiders, node: str, stop: Mapping[str, Any], begin: int, end: int | None) -> None:
    """A process that somebody stopped, or let go on (`nemesis.agent.watching.Stops`); in times of the history."""
    part = f"process {stop['pid']}"
    if end is None:
        outsiders.begin(node, part, "paused", begin, f"{part} ({stop['comm']}) was stopped by a signal")
    else:
        outsiders.finish(node, part, "paused", end, f"{part} goes on")


class _ResourceStates:
    """The states of the resource's processes, asked for on the stream of a small shell loop on its node."""

    def __init__(self, node: Node, outsiders: Outsiders, look: Callable[[], None]) -> None:
        self._node, self._outsiders, self._look = node, outsiders, look
        self._stops = Stops()
        self._gone = False
        self._lines: list[bytes] = []
        self._asked_ns: int | None = None
        self._process: Process = node.spawn(["sh", "-c", STATES], on_line=self._line, on_error_line=lambda line: None)

    def ask(self) -> None:
        """The next look, unless the last one is still under way. A node that is gone is told of by the runtime."""
        now = self._outsiders.now()
        if self._gone:
            return
        if self._asked_ns is not None:
            known = any(self._node.name in each.targets for each in self._outsiders.standing())
            if known:
                self._asked_ns = now
            elif now - self._asked_ns > DEAF_SECONDS * 1e9:
                self._outsiders.begin(
                    self._node.name, "agent", "deaf", self._asked_ns, f"no answer for {DEAF_SECONDS:g} s"
                )
            return
        self._asked_ns = now
        try:
            self._process.send(b"\n")
        except HarnessError as error:
            self._gone = True
            self._look()
            self._outsiders.begin(self._node.name, "agent", "killed", now, str(error))

    def stop(self) -> None:
        """End the loop."""
        self._process.close_stdin()
        if self._process.wait(1.0) is None:
            self._process.abandon()

    def _line(self, line: bytes) -> None:
        if line != b".":
            self._lines.append(line)
            return
        lines, self._lines = self._lines, []
        now = self._outsiders.now()
        self._asked_ns = None
        self._outsiders.finish(self._node.name, "agent", "deaf", now, "it answers again")
        stats = [Stat(text) for text in lines]
        stopped = {(stat.pid, stat.started): stat.comm for stat in stats if stat.state == "T"}
        for stop in self._stops.at(now, stopped):
            tell_stop(self._outsiders, self._node.name, stop, stop["begin_ns"], stop["end_ns"])
