"""The story of the statement job (`workloads/statements.py`) in plain words, line by line, from the events themselves.

The same lines are printed while a trial runs (`fencepost demo`) and stand on its page afterwards.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.report import words
from workloads import tally

Tone = Literal["plain", "pause", "bad", "good"]


@dataclass(frozen=True)
class Line:
    """One line of the story. `seconds` on the history's clock; `world` is set where one of the three answers."""

    seconds: float
    text: str
    tone: Tone = "plain"
    world: str | None = None


@dataclass
class _Batch:
    """One batch on its way into the three worlds: what each was offered, and what it said."""

    offered: dict[str, tuple[int, Sequence[int]]] = field(default_factory=dict)
    """World -> month and customers."""
    said: dict[str, str] = field(default_factory=dict)
    """World -> ok, fail or info; "look" for one that was refused before it was rendered."""
    swallowed: int = 0


IN_HAND_SECONDS = 0.1
"""What is stamped so soon after a pause began was said before it."""


class Teller:
    """Takes the events of a history in their order, and says what a reader should know of them."""

    def __init__(self) -> None:
        self._held: dict[int, int | None] = {}
        self._highest = -1
        self._frozen: dict[str, list[int]] = {}
        """Fault -> whom it paused."""
        self._overtaken: set[int] = set()
        self._woken: set[int] = set()
        self._told_to_stay: set[int] = set()
        """Who was ordered to keep its work for itself until the pause has been looked at; it goes on after that."""
        self._paused_at: dict[int, float] = {}
        """Who is paused and hasn't gone on yet: since when, in s."""
        self._got: dict[str, Counter[tuple[int, int]]] = {world: Counter() for world in tally.WORLDS}
        self._batches: dict[int, _Batch] = {}
        self._quiet: dict[int, list[int]] = {}

    def tell(self, event: Mapping[str, Any]) -> list[Line]:
        """What this event adds to the story; most add nothing."""
        f, kind, process = event.get("f"), event.get("type"), event.get("process")
        at = float(event.get("time") or 0) / 1e9
        if f == "fault":
            return self._fault(at, event)
        if not isinstance(process, int):
            return []
        if at > self._paused_at.get(process, math.inf) + IN_HAND_SECONDS:
            # Whoever says something goes on. The harness tells of the pause's end later, once it has seen that.
            return [*self._wakes(at, [process]), *self._acts(at, process, str(f), str(kind), event)]
        return self._acts(at, process, str(f), str(kind), event)

    def _acts(self, at: float, process: int, f: str, kind: str, event: Mapping[str, Any]) -> list[Line]:
        if f == "acquire" and kind == "ok":
            return self._granted(at, process, event.get("token"))
        if f == "release" and kind == "invoke":
            return self._released(at, process)
        if f == "lost":
            said = [*self._flush(at, process), Line(at, f"c{process} sees that its lease is over, and stops.")]
            self._held.pop(process, None)
            return said
        if f == "hold" and event.get("holds"):
            self._told_to_stay.add(process)
        if f == "let_go":
            self._told_to_stay.discard(process)
        if f in ("write", "send"):
            return self._sent(at, process, str(event.get("resource") or event.get("world")), kind, event)
        return []

    # -- the lock

    def _granted(self, at: float, process: int, token: int | None) -> list[Line]:
        late = [other for other in self._held if other != process and other not in self._overtaken]
        self._held[process] = token
        self._highest = max(self._highest, token or 0)
        self._overtaken |= set(late)
        self._overtaken.discard(process)
        numbered = "" if token is None else f", with token {token}"
        if any(process in frozen for process in late for frozen in self._frozen.values()):
            return [Line(at, f"The lease of {_names(late)} has run out, and c{process} gets the lock{numbered}.")]
        return [Line(at, f"c{process} gets the lock{numbered}{f', while {_names(late)} has it, too' if late else ''}.")]

    def _released(self, at: float, process: int) -> list[Line]:
        overtaken = process in self._overtaken
        self._held.pop(process, None)
        self._overtaken.discard(process)
        self._woken.discard(process)
        if overtaken:
            gone = f"c{process} is done, and gives back a lock that it has no longer."
            return [*self._flush(at, process), Line(at, gone)]
        return self._flush(at, process, " and gives the lock back")

    def _fault(self, at: float, event: Mapping[str, Any]) -> list[Line]:
        hit = [process for process in event.get("processes") or () if isinstance(process, int)]
        name, said = str(event.get("id")), list[Line]()
        if event.get("phase") == "start":
            for process in hit:
                said += self._flush(at, process)
            if event.get("receipt") != "landed" or not hit:
                reason = event.get("reason") or "nobody was hit"
                return [*said, Line(at, f"The pause did not come about: {reason}.", "pause")]
            self._frozen[name] = hit
            self._paused_at |= dict.fromkeys(hit, at)
            holder = any(process in self._held for process in hit)
            with_it = ", with the lock and a batch half rendered" if holder else ""
            text = f"PAUSE: {_names(hit)} stands still{with_it}, as in a long garbage collection."
            said.append(Line(at, text, "pause"))
        elif hit := self._frozen.pop(name, []):
            # The stamp is that of the node; what the others did until the harness heard of it has been told already.
            # Who was told to hold wakes with the first that it says.
            said += self._wakes(
                at, [each for each in hit if each in self._paused_at and each not in self._told_to_stay]
            )
        return said

    def _wakes(self, at: float, hit: Sequence[int]) -> list[Line]:
        """They go on: what was sent meanwhile comes first."""
        if not hit:
            return []
        said = [line for process in list(self._quiet) for line in self._flush(at, process)]
        self._woken |= set(hit)
        for process in hit:
            self._paused_at.pop(process, None)
        return [*said, Line(at, f"{_names(hit)} WAKES. It knows of no pause, and goes on where it stood.", "pause")]

    # -- batches

    def _sent(self, at: float, process: int, world: str, kind: str, event: Mapping[str, Any]) -> list[Line]:
        if world not in tally.WORLDS:
            return []
        batch = self._batches.setdefault(process, _Batch())
        if kind == "invoke":
            if isinstance(event.get("customers"), str):
                batch.offered[world] = (int(event["month"]), tally.numbers(event["customers"]))
            else:
                batch.said[world] = "look"
        elif batch.said.get(world) != "look":
            batch.said[world] = kind
        if world == "idempotent" and kind != "invoke":
            batch.swallowed = int(event.get("swallowed") or 0)
            del self._batches[process]
            return self._closed(at, process, batch)
        return []

    def _closed(self, at: float, process: int, batch: _Batch) -> list[Line]:
        """All three worlds have answered. A batch of which nothing is to be said joins those before it."""
        twice = 0
        for world, (month, customers) in batch.offered.items():
            if batch.said.get(world) == "ok":
                self._got[world].update((month, customer) for customer in customers)
                if world == "unfenced":
                    twice = sum(self._got[world][month, customer] > 1 for customer in customers)
        _, customers = batch.offered.get("unfenced", (0, ()))
        odd = any(said != "ok" for said in batch.said.values())
        if not twice and not batch.swallowed and not odd:
            self._quiet.setdefault(process, []).extend(customers)
            return []
        stale = process in self._woken
        self._woken.discard(process)
        whom = tally.ranges(customers)
        text = f"c{process} sends customers {whom}, which it had rendered." if stale else f"c{process} sends {whom}."
        head = [*self._flush(at, process), Line(at, text)]
        return [
            *head,
            *(self._answer(at, process, world, batch, twice) for world in tally.WORLDS if world in batch.said),
        ]

    def _answer(self, at: float, process: int, world: str, batch: _Batch, twice: int) -> Line:
        """What one world made of a batch that is told of."""
        said, token = batch.said[world], self._held.get(process)
        size = len(batch.offered.get(world, (0, ()))[1])
        if said == "info":
            return Line(at, "did not answer; nobody knows whether it took them", "bad", world)
        if said in ("fail", "look"):
            early = " before it was rendered" if said == "look" else ""
            older = "" if token is None else f": token {token} is older than {self._highest}"
            return Line(at, f"refuses the batch{early}{older}", "good", world)
        if world == "idempotent" and batch.swallowed:
            rest = size - batch.swallowed
            took = f", and takes the other {rest}" if rest else ""
            return Line(at, f"swallows {batch.swallowed}: they have theirs{took}", "good", world)
        if world == "unfenced" and twice:
            these = f"these {size} customers" if twice == size > 1 else f"{twice} of these {size} customers"
            return Line(at, f"takes them: {these} now have two", "bad", world)
        return Line(at, "takes them", "plain", world)

    def _flush(self, at: float, process: int, ending: str = "") -> list[Line]:
        """What a contender has sent since it was last told of, in one line."""
        customers = self._quiet.pop(process, [])
        if customers:
            return [Line(at, f"c{process} has sent customers {tally.ranges(customers)}{ending}.")]
        return [Line(at, f"c{process} gives the lock back.")] if ending else []


def _names(processes: Sequence[int]) -> str:
    return words.listing([f"c{process}" for process in processes])
