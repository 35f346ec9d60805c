"""Every grant of a running trial, by the rules of docs/contract.md, for faults that ask whether they could matter.

A view of what was said so far, not a judgement: verdicts come from the history file alone. What a contender said last
may still be on its way.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemesis.bite import SeenHold, SeenWait

ANSWERED = frozenset({"acquire", "renew", "release"})


@dataclass
class _Grant:
    process: int
    token: int | None
    since_ns: int
    asked_ttl: float | None
    """Of its acquire; a renew that doesn't say otherwise asks for the same."""
    renewals_seen: bool
    extended: list[tuple[int, float | None]]
    """(sent, ttl) of the requests that are known to have extended the lease, the acquire's first."""
    doubtful: list[tuple[int, float]] = field(default_factory=list)
    """The same of renews of unknown outcome: any of them may have come last, with a shorter ttl."""
    ended_ns: int | None = None
    ended_by: str | None = None
    released_ns: int | None = None
    renewing: tuple[int, float | None] | None = None
    """A renew under way: when it was sent, and its ttl."""
    releasing: int | None = None
    """A release under way: when it was sent."""

    def end(self, at_ns: int, by: str) -> None:
        if self.ended_ns is None:
            self.ended_ns, self.ended_by = at_ns, by

    def promise_end(self, at_ns: int | None) -> int | None:
        """By the requests that had been sent at that moment (now, without one)."""
        past = [each for each in self.extended[1:] if at_ns is None or each[0] <= at_ns]
        sent, ttl = past[-1] if past else self.extended[0]
        if not self.renewals_seen or ttl is None:
            return None
        shortest = min([ttl, *(other for asked, other in self.doubtful if at_ns is None or asked <= at_ns)])
        return sent + int(shortest * 1e9)

    def seen(self, node: str, at_ns: int | None) -> SeenHold:
        return SeenHold(
            node=node,
            process=self.process,
            token=self.token,
            since_ns=self.since_ns,
            promise_end_ns=self.promise_end(at_ns),
            renewals_seen=self.renewals_seen,
            ended_ns=self.ended_ns,
            ended_by=self.ended_by,
            # One that is under way may have been heard already.
            released_ns=self.released_ns if self.released_ns is not None else self.releasing,
        )


@dataclass
class Holds:
    """All grants so far, who waits, when requests were answered, who holds until told.

    Not safe from several threads by itself. `nodes` is process -> node wherever it is asked for.
    """

    ttl: float | None = None
    """The ttl where a grant doesn't give its own, as the history's meta has it."""
    told: dict[tuple[int, str], bool] = field(default_factory=dict)
    """(process, id of an order to hold) -> whether it holds until told; nothing before its answer."""
    _grants: list[_Grant] = field(default_factory=list)
    """In the order in which they were heard of."""
    _latest: dict[int, _Grant] = field(default_factory=dict)
    """Process -> its latest grant, over or not, whose renews and releases are its own."""
    _waits: dict[int, list[SeenWait]] = field(default_factory=dict)
    """Process -> its acquires, in order; all but the last are over."""
    _sent: dict[tuple[int, str], int] = field(default_factory=dict)
    _answered: list[tuple[int, int]] = field(default_factory=list)
    """(sent, answered) of everything that was answered ok, in order of the first."""

    def feed(self, process: int, type_: str, f: str, event: Mapping[str, Any]) -> None:
        """Take one event of a contender in."""
        sent = self._time(process, type_, f, event["time"]) if f in ANSWERED else None
        grant = self._latest.get(process)
        if f == "acquire":
            self._wait(process, type_, event["time"])
            self._acquire(process, type_, event, sent)
        elif f == "hold":
            held = grant is not None and grant.ended_ns is None
            self.told[process, str(event.get("id"))] = held and event.get("holds") is True
        elif f == "crash":
            self._wait(process, "crash", event["time"])
            if grant is not None:
                grant.end(event["time"], f)
                del self._latest[process]
        elif grant is None:
            return
        elif f == "renew":
            self._renew(grant, type_, event)
        elif f == "release":
            self._release(grant, type_, event["time"])
        elif f == "lost":
            grant.end(event["time"], f)

    def _time(self, process: int, type_: str, f: str, at_ns: int) -> int | None:
        """When the request was sent that this event is about."""
        if type_ == "invoke":
            self._sent[process, f] = at_ns
            return at_ns
        sent = self._sent.pop((process, f), None)
        if sent is not None and type_ == "ok":
            insort(self._answered, (sent, at_ns))
        return sent

    def _wait(self, process: int, type_: str, at_ns: int) -> None:
        waits = self._waits.setdefault(process, [])
        if type_ == "invoke":
            waits.append(SeenWait(process, at_ns, None, None))
        elif waits and waits[-1].until_ns is None:
            waits[-1] = SeenWait(process, waits[-1].since_ns, at_ns, type_)

    def _acquire(self, process: int, type_: str, event: Mapping[str, Any], sent: int | None) -> None:
        if type_ == "invoke":
            if (last := self._latest.pop(process, None)) is not None:
                last.end(event["time"], "acquire")
            return
        if type_ != "ok":
            return
        if (extended := event.get("lease_from")) is None:
            extended = event["time"] if sent is None else sent
        ttl = event["ttl"] if event.get("ttl") is not None else self.ttl
        grant = _Grant(
            process=process,
            token=event.get("token"),
            since_ns=event["time"],
            asked_ttl=ttl,
            renewals_seen=event.get("renewals") != "unseen",
            extended=[(extended, ttl)],
        )
        self._grants.append(grant)
        self._latest[process] = grant

    def _renew(self, grant: _Grant, type_: str, event: Mapping[str, Any]) -> None:
        if type_ == "invoke":
            grant.renewing = (event["time"], event.get("ttl"))
        elif grant.renewing is not None:
            (sent, asked), grant.renewing = grant.renewing, None
            ttl = next((each for each in (event.get("ttl"), asked, grant.asked_ttl) if each is not None), None)
            if type_ == "ok" and event.get("proves") is not False:
                grant.extended.append((sent, ttl))
            elif type_ != "fail" and ttl is not None:
                grant.doubtful.append((sent, ttl))

    def _release(self, grant: _Grant, type_: str, at_ns: int) -> None:
        if type_ == "invoke":
            grant.end(at_ns, "release")
            grant.releasing = at_ns
        elif grant.releasing is not None:
            sent, grant.releasing = grant.releasing, None
            if type_ != "fail" and grant.released_ns is None:
                grant.released_ns = sent
            if type_ == "ok":
                self._latest.pop(grant.process, None)  # what follows is not of this hold

    def believed(self, at_ns: int | None, nodes: Mapping[int, str]) -> list[SeenHold]:
        """Those believed in at a moment (now, without one), the oldest first, as far as they were promised then."""
        found = [grant.seen(nodes[grant.process], at_ns) for grant in self._grants]
        held = [hold for hold in found if (hold.ended_ns is None if at_ns is None else hold.believed(at_ns))]
        return sorted(held, key=lambda hold: hold.since_ns)

    def granted(self, since_ns: int, until_ns: int, nodes: Mapping[int, str]) -> list[SeenHold]:
        """Those granted from one moment to the other, the oldest first."""
        found = [grant for grant in self._grants if since_ns <= grant.since_ns <= until_ns]
        return [grant.seen(nodes[grant.process], None) for grant in sorted(found, key=lambda grant: grant.since_ns)]

    def latest_of(self, process: int, node: str, at_ns: int | None) -> SeenHold | None:
        """The last grant of a process by a moment (now, without one), over or not, as far as it was promised then."""
        own = [g for g in self._grants if g.process == process and (at_ns is None or g.since_ns <= at_ns)]
        return own[-1].seen(node, at_ns) if own else None

    def wait_of(self, process: int, at_ns: int) -> SeenWait | None:
        """The acquire of a process that was under way at a moment."""
        return next((wait for wait in self._waits.get(process, ()) if wait.open(at_ns)), None)

    def answered(self, since_ns: int, until_ns: int) -> int:
        """How many requests were sent and answered ok from one moment to the other."""
        sent_in = self._answered[bisect_left(self._answered, (since_ns, 0)) :]
        return sum(sent <= until_ns and done <= until_ns for sent, done in sent_in)
