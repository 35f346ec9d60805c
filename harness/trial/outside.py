"""What others did to a trial's nodes: each thing a fault of kind `outside` in the history, and an error of the trial.

Whatever of it broke a lease has broken it all the same; but a lock that stood still meanwhile is not accused, and no
trial to which it happened counts as one that went as expected.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.errors import HarnessError
from harness.trial.recorder import Recorder

WORDS: Mapping[str, str] = {
    "paused": "was paused",
    "killed": "ended",
    "oom": "ran out of memory",
    "disconnected": "was off the trial's network",
    "deaf": "did not answer",
    "stalled": "stood still",
}
"""`what` in the history -> what happened, in a sentence about who it happened to."""
SHOWN = 4
"""How much of what showed it a sentence lists; faults.jsonl has all."""
SIGNS = ("agent", "contender")
"""Parts whose end may be but the first sign of more."""
ENDED = ("killed", "oom")
STILL = ("paused", "deaf", *ENDED)


@dataclass
class Outside:
    """One thing that somebody else did. Times are ns of the history; `ended` is None while it lasts.

    `parts` are those of the node that it still holds ("node", "service", "agent", "contender", "process 17"); what was
    killed in several parts at once is one thing. `seen` is what showed it, in words.
    """

    id: str
    what: str
    targets: Sequence[str]
    processes: Sequence[int]
    who: str
    began: int
    parts: set[str]
    seen: list[str]
    ended: int | None = None
    restored: bool = True
    told: bool = False

    def sentence(self) -> str:
        """It in one sentence, for the trial's errors."""
        seen = list(dict.fromkeys(self.seen))
        words = "; ".join(seen[:SHOWN]) + (f"; and {len(seen) - SHOWN} more" if len(seen) > SHOWN else "")
        began = f"from {self.began / 1e9:.2f} s"
        span = f"{began} of the trial on" if self.ended is None else f"{began} to {self.ended / 1e9:.2f} s of the trial"
        return f"{self.who} {WORDS.get(self.what, f'was {self.what}')}, and no fault did that ({span}: {words})"


@dataclass
class Outsiders:
    """All that others did, written down as it is seen. Safe from several threads.

    `names` says what a node's parts are called in sentences ((node, part) -> "redis on n1"), `contenders` which process
    of the history lives on which node. What can't be written is kept in `failure`.
    """

    recorder: Recorder
    now: Callable[[], int]
    contenders: Mapping[str, int]
    names: Callable[[str, str], str]
    said: Callable[[str], None]
    all: list[Outside] = field(default_factory=list)
    failure: str | None = None
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, node: str, part: str, what: str, at: int, seen: str) -> None:
        """Something begins to be so. Where the node is in it already, this part comes along."""
        with self._lock:
            standing = self._standing(node, (what, *ENDED) if what in ENDED else (what,))
            if standing is not None:
                if part == "node" or (part not in SIGNS and "node" not in standing.parts):
                    standing.who = self.names(node, part)  # an agent that is gone was only the first sign of it
                standing.parts.add(part)
                standing.seen.append(seen)
                return
            contender = self.contenders.get(node)
            itself = part in ("node", "contender") or part.startswith("process ")  # not a service beside it
            hit = [contender] if contender is not None and itself else []
            self._start(what, [node], hit, self.names(node, part), at, {part}, seen)

    def finish(self, node: str, part: str, what: str, at: int, seen: str, *, restored: bool = True) -> None:
        """It is over for this part; nothing happens where it wasn't so."""
        with self._lock:
            standing = self._standing(node, (what, *ENDED) if what in ENDED else (what,))
            if standing is None or part not in standing.parts:
                return
            standing.parts.discard(part)
            standing.seen.append(seen)
            standing.restored &= restored
            if not standing.parts:
                self._stop(standing, at)

    def happened(self, nodes: Sequence[str], what: str, who: str, begin: int, end: int, seen: str) -> None:
        """Something that was over when it was noticed. `who` is named in its sentence. What is `paused`, contenders on
        these nodes were."""
        with self._lock:
            hit = [self.contenders[node] for node in nodes if node in self.contenders] if what == "paused" else []
            self._stop(self._start(what, nodes, hit, who, begin, set(), seen), end)

    def explains(self, node: str, begin: int, end: int) -> bool:
        """Whether the agent on this node could not have run in this span, or in a part of it, as is known already."""
        with self._lock:
            return any(
                each.what in STILL
                and node in each.targets
                and each.began <= end
                and (each.ended is None or each.ended >= begin)
                for each in self.all
            )

    def standing(self) -> list[Outside]:
        """What has not ended."""
        with self._lock:
            return [each for each in self.all if each.ended is None]

    def _standing(self, node: str, whats: Sequence[str]) -> Outside | None:
        for each in self.all:
            if each.ended is None and node in each.targets and each.what in whats:
                return each
        return None

    def _start(
        self, what: str, nodes: Sequence[str], hit: Sequence[int], who: str, at: int, parts: set[str], seen: str
    ) -> Outside:
        at = max(0, min(at, self.now()))
        outside = Outside(f"o{next(self._numbers)}", what, nodes, hit, who, at, parts, [seen])
        self.all.append(outside)
        self._record(outside, "start", at, seen)
        return outside

    def _stop(self, outside: Outside, at: int) -> None:
        outside.ended = max(outside.began, min(at, self.now()))
        self._record(outside, "stop", outside.ended, outside.seen[-1])

    def _record(self, outside: Outside, phase: str, at: int, reason: str) -> None:
        event = {"time": at, "id": outside.id, "kind": "outside", "what": outside.what, "phase": phase}
        if phase == "start":
            event |= {"targets": list(outside.targets), "processes": list(outside.processes), "receipt": "landed"}
        else:
            event["receipt"] = "undone" if outside.restored else "unproven"
        event["reason"] = reason
        try:
            self.recorder.fault(event, {"who": outside.who, "seen": list(outside.seen)}, "outside")
        except HarnessError as error:
            self.failure = self.failure or str(error)
        self.said(f"{outside.id} outside {phase}: {outside.who} {WORDS.get(outside.what, outside.what)} ({reason})")
