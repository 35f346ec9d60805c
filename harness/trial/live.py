"""What is known about a running trial from the events so far: for the live view, and for targets such as `holder`.

This is a view for aiming faults, not for judging: verdicts come from the history file alone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.trial.asked import Asked
from harness.trial.holds import Holds
from nemesis.bite import SeenHold, SeenRequest, SeenWait


@dataclass(frozen=True)
class Hold:
    """A belief that is open now: who, with which token, since when (ns of the trial).

    `planned_end` is when the contender means to release (ns), where its workload tells (`hold` in the grant's event).
    """

    process: int
    token: int | None
    since: int
    planned_end: int | None = None


@dataclass
class LiveState:
    """Fed with every event; safe to read from other threads. `changed` is notified at each event."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    grants: int = 0
    handovers: int = 0
    events: int = 0
    last_grant_time: int | None = None
    came_to: Counter[str] = field(default_factory=Counter)
    """How many of the faults that are over `bit`, `missed`, were `immune`, or `unmeasured`."""
    active_faults: dict[str, str] = field(default_factory=dict)
    grants_seen: Holds = field(default_factory=Holds)
    asked: Asked = field(default_factory=Asked)
    _holds: dict[int, Hold] = field(default_factory=dict)
    _last_holder: int | None = None
    _wrote: dict[int, int] = field(default_factory=dict)

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take one event in (a plain dict as it stands in the history)."""
        with self.changed:
            self.events += 1
            kind, f, process = event["type"], event["f"], event["process"]
            if kind != "invoke":
                self.outcomes[(f, kind)] += 1
            if f == "fault":
                self._fault(event)
            elif isinstance(process, int):
                self._contender(process, kind, f, event)
            self.changed.notify_all()

    def _contender(self, process: int, kind: str, f: str, event: Mapping[str, Any]) -> None:
        self.grants_seen.feed(process, kind, f, event)
        self.asked.feed(process, kind, f, event)
        if f == "acquire" and kind == "ok":
            self.grants += 1
            if self._last_holder is not None and self._last_holder != process:
                self.handovers += 1
            self._last_holder = process
            self.last_grant_time = event["time"]
            planned, since = event.get("hold"), event["time"]
            end = since + int(planned * 1e9) if isinstance(planned, int | float) else None
            self._holds[process] = Hold(process, event.get("token"), since, end)
        elif f == "write" and kind == "ok":
            self._wrote[process] = event["time"]
        elif (f in ("release", "acquire") and kind == "invoke") or f in ("lost", "crash"):
            self._holds.pop(process, None)

    def _fault(self, event: Mapping[str, Any]) -> None:
        if event["phase"] == "start":
            if event.get("receipt") != "skipped":
                self.active_faults[event["id"]] = f"{event['kind']} {' '.join(event.get('targets', ()))}".strip()
        else:
            self.active_faults.pop(event["id"], None)
            self.came_to[{True: "bit", False: "missed", None: "unmeasured"}.get(event.get("bit"), "immune")] += 1

    @property
    def unknown_share(self) -> float:
        """Which share of the operations that were completed ended in `info`; 0 where none was."""
        with self.changed:
            of_lock = {key: count for key, count in self.outcomes.items() if key[0] in ("acquire", "renew", "release")}
        return sum(count for (_, kind), count in of_lock.items() if kind == "info") / (sum(of_lock.values()) or 1)

    def holder(self) -> Hold | None:
        """The latest grant that is still believed in, or None."""
        with self.changed:
            return max(self._holds.values(), key=lambda hold: hold.since, default=None)

    def believers(self) -> list[Hold]:
        """All that believe that they hold the lock now, the oldest first."""
        with self.changed:
            return sorted(self._holds.values(), key=lambda hold: hold.since)

    def holds(self, at_ns: int | None, nodes: Mapping[int, str]) -> list[SeenHold]:
        """See `Holds.believed`. `nodes`: process -> its node."""
        with self.changed:
            return self.grants_seen.believed(at_ns, nodes)

    def granted(self, since_ns: int, until_ns: int, nodes: Mapping[int, str]) -> list[SeenHold]:
        """See `Holds.granted`."""
        with self.changed:
            return self.grants_seen.granted(since_ns, until_ns, nodes)

    def hold_of(self, process: int, node: str, at_ns: int | None = None) -> SeenHold | None:
        """See `Holds.latest_of`."""
        with self.changed:
            return self.grants_seen.latest_of(process, node, at_ns)

    def wait_of(self, process: int, at_ns: int) -> SeenWait | None:
        """See `Asked.wait_of`."""
        with self.changed:
            return self.asked.wait_of(process, at_ns)

    def requests(self, since_ns: int, until_ns: int, nodes: Mapping[int, str]) -> list[SeenRequest]:
        """All requests of contenders that were under way from one moment to the other. `nodes` as for `holds`."""
        with self.changed:
            return self.asked.between(since_ns, until_ns, nodes)

    def answered(self, since_ns: int, until_ns: int) -> int:
        """How many requests of contenders were sent and answered ok from one moment to the other."""
        with self.changed:
            return self.asked.answered(since_ns, until_ns)

    def wrote(self, process: int) -> int:
        """When the last write of a contender was accepted; -1 before its first."""
        with self.changed:
            return self._wrote.get(process, -1)

    def answer_to(self, process: int, order: str) -> bool | None:
        """Whether a contender said that it holds until told; None before its answer to this order."""
        with self.changed:
            return self.grants_seen.told.get((process, order))
