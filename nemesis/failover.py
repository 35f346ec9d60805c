"""Failover: an operator orders that another server leads, with nothing broken.

etcd's `move-leader`, `SENTINEL FAILOVER`: what is done before a machine is taken out. Leases and locks should go along.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from harness import registry
from harness.errors import AgentError
from harness.systems.base import HandsOver
from nemesis import targets
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.parameters import Parameters
from nemesis.targets import Resolved
from nemesis.watched import Watched

MOVED_SECONDS = 10.0
"""How long leadership may take to move once the order was taken."""
LOOK_SECONDS = 0.02
LASTING_TTLS = 1.0
"""How long it is looked on after that: for what contenders make of it."""


class Failover(Watched):
    """The order, given while somebody holds the lock, if somebody does within a ttl.

    Receipt: the servers name another leader. There is nothing to undo: at the end somebody leads.
    """

    kind = "failover"
    summary = "order that another server leads, as an operator does"
    targets: Sequence[str] = ()

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        super().__init__("leader", "hold")
        taken = Parameters(self.kind, parameters)
        taken.whole("seed", 0, 0, 2**63 - 1)  # every fault is handed one; there is nothing to draw here
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        taken.done()

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """A system that takes such an order, and has somebody else to lead."""
        if not isinstance(registry.load("systems", system)(), HandsOver):
            return f"{system} takes no order that another server lead"
        return "a single server has nobody to hand over to" if servers == 1 else None

    def stands_seconds(self, env: Environment, number: int, usual: float) -> float:
        """Nothing is in force: it is looked on for a ttl."""
        self._witness.turn(number)
        return min(usual, LASTING_TTLS * env.terms().ttl_seconds)

    def start(self, env: Environment) -> Started:
        """Give the order, and wait until leadership has moved."""
        patience = self.patience or targets.patience_of(env)
        self._witness.summon(env, patience)
        leader = targets.who_leads(env, patience)
        self._hit = Resolved((leader,), ())
        self._watch(env)
        before = self._leading.led
        assert before is not None, "it was watched"
        begin_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        evidence: dict[str, Any] = {"from": leader, "term": before.term}
        try:
            evidence["order"] = env.hand_over(leader)
        except AgentError as error:
            return Started("unproven", (leader,), (), evidence, f"the order was not taken: {error}")
        began = time.monotonic()
        while (now := env.leadership()).leader in (None, leader, before.leader):  # an election alone is not enough
            if time.monotonic() - began > MOVED_SECONDS:
                reason = f"{evidence['order']}: taken, but {now.leader or 'nobody'} leads {MOVED_SECONDS:g} s later"
                return Started("unproven", (leader,), (), evidence, reason)
            time.sleep(LOOK_SECONDS)
        evidence |= {"to": now.leader, "new_term": now.term, "moved_seconds": round(time.monotonic() - began, 4)}
        return Started("landed", (leader,), (), {**evidence, "begin_ns": begin_ns})

    def stop(self, env: Environment) -> Stopped:
        """Somebody leads."""
        if not self._hit.nodes:
            return Stopped("undone")
        end = time.monotonic() + MOVED_SECONDS
        while (now := env.leadership()).leader is None:
            if time.monotonic() > end:
                return Stopped("unproven", {"seen": dict(now.seen)}, f"nobody leads after {MOVED_SECONDS:g} s")
            time.sleep(LOOK_SECONDS)
        return Stopped("undone", {"leads": now.leader, "term": now.term})

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """See `nemesis.leading`: leadership moved, and that is all that it takes."""
        return self._leading.bite(env, began_ns, ended_ns)
