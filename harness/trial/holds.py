"""Every grant of a running trial, by the rules of docs/contract.md, for faults that ask whether they could matter.

A view of what was said so far, not a judgement: verdicts come from the history file alone. What a contender said last
may still be on its way.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemesis.bite import SeenHold

ANSWERED = frozenset({"acquire", "renew", "release"})


@dataclass
class _Grant:
    process: int
    token: int | None
    since_ns: int
    extended_ns: int
    """When the last request was sent that is known to have extended the lease."""
    asked_ttl: float | None
    """Of its acquire; a renew that doesn't say otherwise asks for the same."""
    ttl: float | None
    """Of the last request that is known to have extended it."""
    renewals_seen: bool
    doubtful_ttl: float | None = None
    """The shortest among the renews of unknown outcome: one of them may have come last."""
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

    def seen(self, node: str) -> SeenHold:
        end = None
        if self.renewals_seen and self.ttl is not None:
            ttl = self.ttl if self.doubtful_ttl is None else min(self.ttl, self.doubtful_ttl)
            end = self.extended_ns + int(ttl * 1e9)
        # One that is under way may have been heard already.
        released = self.released_ns if self.released_ns is not None else self.releasing
        return SeenHold(
            node=node,
            process=self.process,
            token=self.token,
            since_ns=self.since_ns,
            promise_end_ns=end,
            renewals_seen=self.renewals_seen,
            ended_ns=self.ended_ns,
            ended_by=self.ended_by,
            released_ns=released,
        )


@dataclass
class Holds:
    """All grants so far, and when requests were answered. Not safe from several threads by itself."""

    ttl: float | None = None
    """The ttl where a grant doesn't give its own, as the history's meta has it."""
    _grants: list[_Grant] = field(default_factory=list)
    """In the order in which they were heard of."""
    _latest: dict[int, _Grant] = field(default_factory=dict)
    """Process -> its latest grant, over or not, whose renews and releases are its own."""
    _sent: dict[tuple[int, str], int] = field(default_factory=dict)
    _answered: list[tuple[int, int]] = field(default_factory=list)
    """(sent, answered) of everything that was answered ok, in order of the first."""

    def feed(self, process: int, type_: str, f: str, event: Mapping[str, Any]) -> None:
        """Take one event of a contender in."""
        sent = self._time(process, type_, f, event["time"]) if f in ANSWERED else None
        if f == "acquire":
            self._acquire(process, type_, event, sent)
        elif (grant := self._latest.get(process)) is not None:
            if f == "renew":
                self._renew(grant, type_, event)
            elif f == "release":
                self._release(grant, type_, event["time"])
            elif f in ("lost", "crash"):
                grant.end(event["time"], f)
                if f == "crash":
                    del self._latest[process]

    def _time(self, process: int, type_: str, f: str, at_ns: int) -> int | None:
        """When the request was sent that this event is about."""
        if type_ == "invoke":
            self._sent[process, f] = at_ns
            return at_ns
        sent = self._sent.pop((process, f), None)
        if sent is not None and type_ == "ok":
            insort(self._answered, (sent, at_ns))
        return sent

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
            extended_ns=extended,
            asked_ttl=ttl,
            ttl=ttl,
            renewals_seen=event.get("renewals") != "unseen",
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
                grant.extended_ns, grant.ttl = sent, ttl
            elif type_ != "fail" and ttl is not None:
                grant.doubtful_ttl = ttl if grant.doubtful_ttl is None else min(grant.doubtful_ttl, ttl)

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

    def believed(self, at_ns: int | None) -> list[_Grant]:
        """Those believed in at a moment (without one, now), the oldest first."""
        found = [
            grant
            for grant in self._grants
            if (at_ns is None and grant.ended_ns is None)
            or (at_ns is not None and grant.since_ns <= at_ns and (grant.ended_ns is None or grant.ended_ns > at_ns))
        ]
        return sorted(found, key=lambda grant: grant.since_ns)

    def latest_of(self, process: int) -> _Grant | None:
        """The last grant of a process, over or not."""
        return next((grant for grant in reversed(self._grants) if grant.process == process), None)

    def answered(self, since_ns: int, until_ns: int) -> int:
        """How many requests were sent and answered ok from one moment to the other."""
        sent_in = self._answered[bisect_left(self._answered, (since_ns, 0)) :]
        return sum(sent <= until_ns and done <= until_ns for sent, done in sent_in)
