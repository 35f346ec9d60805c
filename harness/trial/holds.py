"""Every grant of a running trial, by the rules of docs/contract.md, for faults that ask whether they could matter.

A view of what was said so far, not a judgement: verdicts come from the history file alone. What a contender said last
may still be on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemesis.bite import SeenHold


@dataclass
class _Grant:
    number: int
    """In which order it was heard of."""
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
    """All grants so far, and who holds until told.

    Not safe from several threads by itself. `nodes` is process -> node wherever it is asked for.
    """

    ttl: float | None = None
    """The ttl where a grant doesn't give its own, as the history's meta has it."""
    told: dict[tuple[int, str], bool] = field(default_factory=dict)
    """(process, id of an order to hold) -> whether it holds until told; nothing before its answer."""
    _grants: dict[int, list[_Grant]] = field(default_factory=dict)
    """Process -> its grants, in order."""
    _latest: dict[int, _Grant] = field(default_factory=dict)
    """Process -> its latest grant, over or not, whose renews and releases are its own."""
    _asked: dict[int, int] = field(default_factory=dict)
    """Process -> when its acquire was sent that is under way."""

    def feed(self, process: int, type_: str, f: str, event: Mapping[str, Any]) -> None:
        """Take one event of a contender in."""
        grant = self._latest.get(process)
        if f == "acquire":
            self._acquire(process, type_, event)
        elif f == "hold":
            held = grant is not None and grant.ended_ns is None
            self.told[process, str(event.get("id"))] = held and event.get("holds") is True
        elif f == "crash":
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

    def _acquire(self, process: int, type_: str, event: Mapping[str, Any]) -> None:
        if type_ == "invoke":
            self._asked[process] = event["time"]
            if (last := self._latest.pop(process, None)) is not None:
                last.end(event["time"], "acquire")
            return
        sent = self._asked.pop(process, None)
        if type_ != "ok":
            return
        if (extended := event.get("lease_from")) is None:
            extended = event["time"] if sent is None else sent
        ttl = event["ttl"] if event.get("ttl") is not None else self.ttl
        own = self._grants.setdefault(process, [])
        grant = _Grant(
            number=sum(map(len, self._grants.values())),
            process=process,
            token=event.get("token"),
            since_ns=event["time"],
            asked_ttl=ttl,
            renewals_seen=event.get("renewals") != "unseen",
            extended=[(extended, ttl)],
        )
        own.append(grant)
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
        """Those believed in at a moment (now, without one), the oldest first, as far as they were promised then.

        Of each process that can only be its latest: whoever asks anew believes no more in what he had.
        """
        latest = [grant for process in self._grants if (grant := self._by(process, at_ns)) is not None]
        found = [grant.seen(nodes[grant.process], at_ns) for grant in _oldest_first(latest)]
        return [hold for hold in found if (hold.ended_ns is None if at_ns is None else hold.believed(at_ns))]

    def granted(self, since_ns: int, until_ns: int, nodes: Mapping[int, str]) -> list[SeenHold]:
        """Those granted from one moment to the other, the oldest first."""
        found = [grant for own in self._grants.values() for grant in own if since_ns <= grant.since_ns <= until_ns]
        return [grant.seen(nodes[grant.process], None) for grant in _oldest_first(found)]

    def latest_of(self, process: int, node: str, at_ns: int | None) -> SeenHold | None:
        """The last grant of a process by a moment (now, without one), over or not, as far as it was promised then."""
        grant = self._by(process, at_ns)
        return None if grant is None else grant.seen(node, at_ns)

    def _by(self, process: int, at_ns: int | None) -> _Grant | None:
        own = reversed(self._grants.get(process, ()))
        return next((grant for grant in own if at_ns is None or grant.since_ns <= at_ns), None)


def _oldest_first(grants: Iterable[_Grant]) -> list[_Grant]:
    return sorted(grants, key=lambda grant: (grant.since_ns, grant.number))
