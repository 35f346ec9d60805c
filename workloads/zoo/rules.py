"""What the zoo's server does with a request, as a function of what it knows and of its clocks. No sockets, no files.

Without a bug it is a right lock:

- Who wants the lock has a *place* in a queue. A place is a lease, too: it lasts as long as its owner keeps asking. When
  it comes to the head of a free lock its owner is told that it's his turn, and takes the lock by asking once more. So
  the lease of a grant counts from a request that was sent just then, however long its owner had waited.
- Leases run on CLOCK_MONOTONIC. A renewal, or a release, is compared with the owner who holds the lock *now*.
- Tokens rise with every grant. A grant is in the journal before it is answered, so a server that is killed knows, when
  it starts again, the last token and who held the lock; how long it was away it can't know, so that lease begins anew.
- Asking again for what one has been granted returns the same grant: an answer that was lost costs nobody the lock. An
  owner that has left is refused from then on, so that no request of his that comes late takes the lock for nobody.

Each bug takes one of these away (`BUGS`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Answer = dict[str, Any]

PLACE_TTLS = 0.5
"""How long a place lasts after its owner's last word, in ttl. Clients ask again after half of that at the latest."""
EARLY = 0.5
"""Where leases end early, after this share of their ttl: later than a renewal comes in time, so that none shows it."""
SETTLING_SECONDS = 0.02
"""How long a grant is on its way to the disk, for the bug that takes the lock for free until it is there."""
REMEMBERED = 10_000
"""So many owners that have left are refused; older ones have been forgotten by the network, too."""

BUGS: Mapping[str, str] = {
    "release-unowned": "a release frees the lock, whoever asks for it",
    "renew-unowned": "a renewal lengthens the lease, whoever asks for it",
    "renews-the-over": "a renewal is ok for whoever was once granted the lock, though his lease has run out since",
    "wall-clock": "leases end by the server's wall clock",
    "early-expiry": "a lease ends after half of what was promised",
    "forgets-tokens": "the count of tokens begins anew when the server does",
    "token-twice": "a hand-over to somebody who has waited doesn't count the token up",
    "grants-the-gone": "whose turn it was is granted the lock whenever he comes, though his place was lost since",
    "grants-in-a-race": "the lock counts as free until a grant is on the disk: who comes meanwhile is granted it too",
    "leaks-waiters": "a place never ends: one whose owner has given up keeps all behind it out for ever",
}
"""What can be wrong with the server, by the name of its switch."""


class Now(NamedTuple):
    """The server's two clocks, in seconds."""

    monotonic: float
    wall: float


@dataclass
class Lease:
    """A grant: whose, with which token, and until when (on the clock that leases run on)."""

    owner: str
    token: int
    ttl: float
    until: float


@dataclass
class Place:
    """Somebody in the queue. `answer_by` is when his open request must be answered; None where there is none."""

    owner: str
    ttl: float
    until: float
    answer_by: float | None = None
    waited: bool = False
    """Whether it didn't find the lock free when it came."""


@dataclass(frozen=True)
class Known:
    """What is left of a lock's past in the journal: the last token, and the grant that has not ended, if any."""

    token: int = 0
    owner: str | None = None
    ttl: float = 0.0

    def after(self, record: Mapping[str, Any]) -> Known:
        """What is known after one more record."""
        if "granted" in record:
            return Known(record["granted"], record["owner"], record["ttl"])
        return Known(self.token) if record.get("ended") == self.token else self


Journal = Callable[[Mapping[str, Any]], None]
"""Keeps a record, whatever happens to the server from then on."""


class Lock:
    """One lock, and who waits for it. Every answer is a mapping; None means that the answer comes later, from `due`."""

    def __init__(self, journal: Journal, bug: str | None, known: Known, now: Now) -> None:
        self._journal, self._bug = journal, bug
        self._token = 0 if bug == "forgets-tokens" else known.token
        self._lease: Lease | None = None
        self._places: dict[str, Place] = {}
        """In the order in which they came."""
        self._lost: list[Place] = []
        """Places that have run out, whose owners may not have heard of it yet."""
        self._gone: set[str] = set()
        self._gone_in_order: deque[str] = deque()
        self._called: set[str] = set()
        """Whose turn it was."""
        self._granted: set[str] = set()
        """Who was ever granted the lock."""
        self._settling: deque[tuple[float, Lease]] = deque()
        if known.owner is not None:
            self._granted.add(known.owner)
            self._lease = Lease(known.owner, known.token, known.ttl, self._clock(now) + known.ttl)

    def _clock(self, now: Now) -> float:
        return now.wall if self._bug == "wall-clock" else now.monotonic

    # -- requests

    def acquire(self, owner: str, ttl: float, wait: float, now: Now) -> Answer | None:
        """Get in line, or say that one is still there; granted at once where it's one's turn. `wait`, in seconds, is
        how long to wait for that.
        """
        self._sweep(now)
        at = self._clock(now)
        if owner in self._gone:
            return {"gone": True}
        if self._lease is not None and self._lease.owner == owner:
            self._lease.until = at + self._lasts(ttl)
            return self._granting(self._lease)
        place = self._places.setdefault(owner, Place(owner, ttl, 0.0))
        place.until = at + ttl * PLACE_TTLS
        if self._is_free_for(place):
            return self._grant(place, now)
        place.waited, place.answer_by = True, now.monotonic + wait
        return None

    def renew(self, owner: str, ttl: float, now: Now) -> Answer:
        """Let the lease begin anew."""
        self._sweep(now)
        lease = self._lease
        if lease is not None and (lease.owner == owner or self._bug == "renew-unowned"):
            lease.until = self._clock(now) + self._lasts(ttl)
            return {"renewed": True}
        if self._bug == "renews-the-over" and owner in self._granted:
            return {"renewed": True}
        return {"held": False}

    def release(self, owner: str, now: Now) -> Answer:
        """Give the lock up, or one's place in line."""
        self._sweep(now)
        place = self._places.get(owner)
        if self._bug != "leaks-waiters":
            self._forget(owner)
            self._places.pop(owner, None)
        lease = self._lease
        if lease is not None and (lease.owner == owner or self._bug == "release-unowned"):
            self._end(lease)
            return {"released": True}
        return {"left": True} if place is not None else {"held": False}

    # -- what time brings

    def due(self, now: Now) -> Iterable[tuple[str, Answer]]:
        """The open requests that are to be answered now, by their owners."""
        self._sweep(now)
        lost, self._lost = self._lost, []
        for place in lost:
            if place.answer_by is not None:
                yield place.owner, {"queued": False}  # it may come again
        while self._settling and self._settling[0][0] <= now.monotonic:
            self._lease = self._settling.popleft()[1]
            yield self._lease.owner, self._granting(self._lease)
        head = next(iter(self._places.values()), None)
        if self._lease is None and head is not None:
            self._called.add(head.owner)  # from now on it is kept for him, for as long as his place lasts
            if head.answer_by is not None:
                head.answer_by = None
                yield head.owner, {"turn": True}
        for place in self._places.values():
            if place.answer_by is not None and place.answer_by <= now.monotonic:
                place.answer_by = None
                yield place.owner, {"queued": True}

    def _sweep(self, now: Now) -> None:
        """End what has run out."""
        at = self._clock(now)
        if self._lease is not None and self._lease.until <= at:
            self._end(self._lease)
        if self._bug == "leaks-waiters":
            return
        lost = [place for place in self._places.values() if place.until <= at]
        self._lost += lost
        for place in lost:
            del self._places[place.owner]

    # -- grants

    def _is_free_for(self, place: Place) -> bool:
        if self._bug == "grants-the-gone" and place.owner in self._called:
            return True
        return self._lease is None and next(iter(self._places)) == place.owner

    def _grant(self, place: Place, now: Now) -> Answer | None:
        at = self._clock(now)
        del self._places[place.owner]
        self._called.discard(place.owner)
        if not (self._bug == "token-twice" and place.waited):
            self._token += 1
        lease = Lease(place.owner, self._token, place.ttl, at + self._lasts(place.ttl))
        self._journal({"granted": lease.token, "owner": lease.owner, "ttl": lease.ttl})
        self._granted.add(place.owner)
        if self._bug == "grants-in-a-race":
            self._settling.append((now.monotonic + SETTLING_SECONDS, lease))
            return None
        self._lease = lease
        return self._granting(lease)

    def _granting(self, lease: Lease) -> Answer:
        return {"granted": lease.token, "ttl": lease.ttl}

    def _lasts(self, ttl: float) -> float:
        return ttl * EARLY if self._bug == "early-expiry" else ttl

    def _end(self, lease: Lease) -> None:
        self._journal({"ended": lease.token})
        self._lease = None

    def _forget(self, owner: str) -> None:
        """It has left: what it sent before may still come."""
        if owner not in self._gone:
            self._gone.add(owner)
            self._gone_in_order.append(owner)
        if len(self._gone_in_order) > REMEMBERED:
            self._gone.discard(self._gone_in_order.popleft())
