"""A witness: a contender that is told to hold the lock through a fault on servers, and the moment to end the fault at.

Most jobs are short. A lease that was there when the leader was frozen is mostly gone when it wakes, and whatever the
one that wakes does to it nobody sees. So before the fault comes a holder is told to hold until it is let go, which is
when the fault was undone and it was seen what became of its hold.

And a fault on whoever leads matters most when it ends. The one that comes back may act on what it knew: a countdown
of its own, say, of a lease that was renewed elsewhere meanwhile. Before that countdown is over nothing can follow from
it, and each second after that only makes the next fault later. So the fault ends at the *moment* when

    leadership moved, as the servers say that can be asked,
    the witness has renewed its lease since, and is inside its promise: it is alive where leadership is now,
    and what it had been promised before is over, and so its lease for whoever was hit, by his own count (he counts from
    when he heard of it; that much longer is waited).

Where that doesn't come about (nobody held, leadership didn't move, renewals are unseen) the fault lasts as the schedule
says, and in no case longer. None of this knows of any particular bug, nor looks at what came of it.

Every eighth fault of a trial comes without a witness, and lasts as the schedule says, as every long kill does: while
somebody holds throughout, nobody is granted the lock under the fault, and that is to be tried as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from harness.systems.base import Leadership
from nemesis import targets
from nemesis.base import Environment
from nemesis.bite import SeenHold, SeenRequest

HOW = ("moment", "hold", "none")
"""The parameter `witness`: as above; a witness, and the fault lasts as the schedule says; neither."""
WITHOUT_EVERY = 8
OVERDUE_TTLS = 0.1
"""How long after the end of the old promise: that is counted from the sending of a request, and a server may count from
a moment up to an answer's time later."""
ASK_SECONDS = 0.1
"""How often the servers are asked who leads, until it moved."""


class Witness:
    """One fault's. To be called in this order: `turn`, `summon`, `begin`; `ripe` while it stands; `seen` once undone.

    `how`: one of HOW.
    """

    def __init__(self, how: str) -> None:
        self._how = how
        self._number = 1
        self._hold: SeenHold | None = None
        """What was held when it said that it goes on."""
        self._led: Leadership | None = None
        self._silent: Collection[str] = ()
        self._began_ns = 0
        self._asked_ns = 0
        self._moved_ns: int | None = None
        self._leads: str | None = None
        self._renewed: SeenRequest | None = None
        self._why: str | None = None
        self._undone_ns: int | None = None
        self._came_to: str | None = None

    def turn(self, number: int) -> None:
        """Which fault of the trial this is, from 1."""
        self._number = number

    def summon(self, env: Environment, patience: float) -> None:
        """Before anything is done: have somebody hold until told. A ttl is waited for that, at most."""
        if self._how == "none" or self._number % WITHOUT_EVERY == 0:
            return
        node = targets.await_hold(env, patience)
        hold = None if node is None else env.hold_of(node)
        self._hold = hold if hold is not None and hold.believed(env.now()) else None

    def begin(self, env: Environment, led: Leadership | None, silent: Collection[str] = ()) -> None:
        """Right before the servers are hit. `led`: who leads; `silent`: who can't be asked while the fault is on."""
        self._led, self._silent, self._began_ns = led, silent, env.now()
        if self._hold is not None:
            self._hold = env.hold_of(self._hold.node) or self._hold  # with what was promised to it since

    def ripe(self, env: Environment) -> bool:
        """Whether the moment has come. Cheap enough to be asked at every event."""
        if self._hold is None or self._how != "moment" or self._why is not None:
            return False
        now, before = env.now(), self._hold
        hold = env.hold_of(before.node)
        if hold is None or hold.since_ns != before.since_ns or not hold.believed(now):
            self._why = "the witness's hold ended before"
        elif hold.promise_end_ns is None:
            self._why = "the witness's renewals are unseen"
        elif self._moved(env, now) and self._renewal(env) and hold.promise_end_ns > now and self._over(env, now):
            self._why = "the moment had come"
            return True
        return False

    def _moved(self, env: Environment, now: int) -> bool:
        """Whether leadership has moved, asked of the servers every so often until it has."""
        due = now - self._asked_ns >= ASK_SECONDS * 1e9
        if self._moved_ns is None and due and self._led is not None and set(env.servers) - set(self._silent):
            leads, led = env.leadership(self._silent), self._led
            self._asked_ns = env.now()
            newer = leads.term is not None and led.term is not None and leads.term > led.term
            if leads.leader is not None and (leads.leader != led.leader or newer):
                self._moved_ns, self._leads = self._asked_ns, leads.leader
        return self._moved_ns is not None

    def _over(self, env: Environment, now: int) -> bool:
        """Whether the promise by requests that whoever led before may have answered is over."""
        assert self._hold is not None
        assert self._moved_ns is not None
        old = env.hold_of(self._hold.node, self._began_ns if self._silent else self._moved_ns)
        late_ns = int(OVERDUE_TTLS * env.terms().ttl_seconds * 1e9)
        return old is not None and old.promise_end_ns is not None and now >= old.promise_end_ns + late_ns

    def _renewal(self, env: Environment) -> bool:
        """Whether it renewed since. While whoever led can't answer, every renewal that is answered is another's."""
        assert self._hold is not None
        assert self._moved_ns is not None
        if self._renewed is None:
            since = self._began_ns if self._silent else self._moved_ns
            answered = [each for each in self._renewals(env, self._began_ns) if (each.done_ns or 0) >= since]
            self._renewed = answered[0] if answered else None
        return self._renewed is not None

    def _renewals(self, env: Environment, sent_since: int) -> list[SeenRequest]:
        assert self._hold is not None
        return [
            each
            for each in env.requests(sent_since, env.now())
            if each.node == self._hold.node and each.f == "renew" and each.came_to == "ok" and each.sent_ns > sent_since
        ]

    def seen(self, env: Environment) -> bool:
        """Once the fault is undone, asked at every event: whether it was seen what became of the hold."""
        if self._undone_ns is None:
            self._undone_ns = env.now()
        if self._hold is None:
            return True
        if self._came_to is None:
            self._came_to = self._became(env, self._hold, self._undone_ns)
        return self._came_to is not None

    def _became(self, env: Environment, before: SeenHold, undone_ns: int) -> str | None:
        now = env.now()
        hold = env.hold_of(before.node)
        if hold is None or hold.since_ns != before.since_ns or not hold.believed(now):
            return "it ended its hold" + (f" ({hold.ended_by})" if hold is not None and hold.ended_by else "")
        if any(
            each.node == before.node and each.f == "renew" and each.held is False
            for each in env.requests(self._began_ns, now)
        ):
            return "it was told that it does not hold"
        if self._renewals(env, undone_ns):
            return "it holds on"
        if hold.promise_end_ns is not None and hold.promise_end_ns < now:
            return "its promise is over"
        return None

    def told(self) -> Mapping[str, Any] | None:
        """All of it, for the journal; moments in ns of the history. None without a witness."""
        if self._hold is None:
            return None
        return {
            "node": self._hold.node,
            "token": self._hold.token,
            "promise_end_ns": self._hold.promise_end_ns,
            "moved_ns": self._moved_ns,
            "leads": self._leads,
            "renewed_ns": None if self._renewed is None else self._renewed.sent_ns,
            "ended": self._why or "the schedule's time was over",
            "came_to": self._came_to,
        }
