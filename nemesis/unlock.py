"""Unlock: an operator takes the lock away from its holder, by hand.

Somebody is paged since a job hangs, finds the lock, and deletes its key, or ends the lease or the session behind it.
The holder wasn't asked. So a promise is broken that the service had made, and this is no test of the service: it shows
what the client makes of it, how long there are two, and whether the tokens save the resource.

What the history says of it is what any history says. The verdict `lease` is false: the lock was given to another, or
declared lost, inside the time that was promised, and no kind of fault excuses that (docs/contract.md). Who did it
stands in this fault's receipt alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import AgentError, UsageError
from harness.systems.operating import Held, Unlocks, lacks
from nemesis import holding, targets
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.parameters import Parameters
from nemesis.targets import NoTarget, Resolved

LASTING_TTLS = 1.0
"""How long it is looked on: for what the holder makes of it, and who gets the lock meanwhile."""
LOOK_SECONDS = 0.02


class Unlock:
    """`by`: the system's word for what is taken away (etcd: "key", the default, or "lease"); it has the ways listed.

    Receipt: the service named the holder as the owner, with the token that it was granted; afterwards it names another
    or nobody. There is nothing to undo: at the end that owner still isn't back.
    """

    kind = "unlock"
    summary = "take the lock away from its holder by hand, as an operator does"
    targets: Sequence[str] = ("holder",)
    orders_servers = True
    """Not at a cluster that isn't ours (harness/trial/attaching.py)."""

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        self.target = targets.check(self.kind, target, self.targets)
        if self.target not in self.targets:
            raise UsageError("unlock takes the lock from whoever holds it (unlock-holder), not from a node by its name")
        taken = Parameters(self.kind, parameters)
        self.by = taken.other("by", _word, None)
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        taken.done()
        self._hit = Resolved((), ())
        self._taken: Held | None = None

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """A system whose locks an operator can take away."""
        return lacks(system, cls.kind, Unlocks, "order by which an operator takes a lock away")

    def unfit(self, system: Any) -> str | None:
        """See `nemesis.base.Fits`: a way that this system doesn't have."""
        if self.by is None or self.by in system.unlock_ways:
            return None
        return (
            f"unlock: parameter 'by' must be one of {', '.join(system.unlock_ways)} on {system.name}, not {self.by!r}"
        )

    def stands_seconds(self, env: Environment, number: int, usual: float) -> float:
        """Nothing is in force: it is looked on for a ttl."""
        return min(usual, LASTING_TTLS * env.terms().ttl_seconds)

    def start(self, env: Environment) -> Started:
        """Find what the service holds for the holder, and take it away."""
        patience = self.patience or targets.patience_of(env)
        hit = targets.resolve(env, self.target, random.Random(f"unlock/{self.seed}"), patience=patience)
        node = hit.nodes[0]
        held = self._owned(env, node, patience)
        self._hit = hit
        begin_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        evidence: dict[str, Any] = {**_told(held), "from": node}
        try:
            evidence["order"] = env.unlock(held, self.by)
        except AgentError as error:
            return Started("unproven", hit.nodes, hit.processes, evidence, f"the order was not taken: {error}")
        evidence |= {"begin_ns": begin_ns, "removed_ns": env.now(), "after": _told(after := env.owned())}
        if _same(after, held):
            reason = f"{evidence['order']}: answered, and {held.key} is {held.owner}'s as before"
            return Started("unproven", hit.nodes, hit.processes, evidence, reason)
        self._taken = held
        reason = (
            f"an operator took {held.key} from {node} (owner {held.owner}, token {held.token}): {evidence['order']}"
        )
        return Started("landed", hit.nodes, hit.processes, evidence, reason)

    def _owned(self, env: Environment, node: str, patience: float) -> Held:
        """What the service holds for this contender, by the token that it was granted. NoTarget when it has nothing."""
        end = time.monotonic() + patience
        while True:
            held, hold = env.owned(), env.hold_of(node)
            if hold is None or not hold.believed(env.now()):
                raise NoTarget(f"{node} gave the lock up before it could be taken away")
            if held is not None and hold.token in (None, held.token):
                return held
            if time.monotonic() > end:
                says = "nobody holds it" if held is None else f"{held.owner} holds it, with token {held.token}"
                raise NoTarget(f"{node} believes that it holds the lock, with token {hold.token}; the service: {says}")
            time.sleep(LOOK_SECONDS)

    def stop(self, env: Environment) -> Stopped:
        """See that what was taken away has not come back."""
        if self._taken is None:
            return Stopped("undone")
        now = env.owned()
        if _same(now, self._taken):
            return Stopped("unproven", {"held": _told(now)}, f"{self._taken.key} is {self._taken.owner}'s again")
        return Stopped("undone", {"held": _told(now)})

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """It believed that it held, inside what it was promised, when the lock was taken away."""
        node, hold = self._hit.nodes[0], env.hold_of(self._hit.nodes[0], began_ns)
        evidence = {"promise_end_ns": None if hold is None else hold.promise_end_ns}
        if hold is None or not hold.believed(began_ns):
            return Bite(False, f"{node} did not hold the lock when it was taken away", evidence, holding.HOLD_ON)
        if hold.promise_end_ns is None:
            return Bite(True, f"the lock was taken from {node} while it held it", evidence)
        left = (hold.promise_end_ns - began_ns) / 1e9
        if left <= 0:
            return Bite(False, f"the lease of {node} had run out {-left:.1f} s before", evidence, holding.HOLD_ON)
        return Bite(True, f"the lock was taken from {node} {left:.2f} s before its lease could have run out", evidence)


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"parameter 'by' must be what is taken away, a word, not {value!r}")
    return value


def _told(held: Held | None) -> dict[str, Any]:
    return {} if held is None else {"key": held.key, "owner": held.owner, "token": held.token}


def _same(now: Held | None, before: Held) -> bool:
    return now is not None and (now.key, now.owner, now.token) == (before.key, before.owner, before.token)
