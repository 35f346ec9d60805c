"""Lose: a server is gone for good, as when its machine has burnt. What is left has to go on by itself, or can't.

Its processes are killed and never started again while the trial lasts; the node stays, and refuses connections.
There is nothing to undo then, and so this fault is over once it has stood for its time: from then on the cluster *is*
what is left of it, and `progress` asks of that what it asks of any. A quorum goes on and gives the lock away as ever; a
service of two members, of which both are its quorum, does not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from nemesis import targets
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.kill import Kill
from nemesis.parameters import Parameters
from nemesis.watched import Watched


class Lose(Kill):
    """SIGKILL to all processes of one server, whatever services it has, which is never started again. A trial loses no
    more than one: another is skipped.

    Receipt: none of its processes is there; at the end, still none.
    """

    kind = "lose"
    summary = "lose a server for good (SIGKILL, never started again)"
    targets: Sequence[str] = ("leader", "follower", "one")

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        Watched.__init__(self, targets.check(self.kind, target, self.targets), "none")
        taken = Parameters(self.kind, parameters)
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        taken.done()
        self._old = {}

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """A cluster that has a server to lose."""
        if servers == 1:
            return "a single server that is lost leaves nothing that could go on"
        if targets.on_contender(target):
            return "what is lost for good is a server (a contender: kill-holder, kill-waiter)"
        return targets.sensible(target, servers)

    def stands_seconds(self, env: Environment, number: int, usual: float) -> float:
        """As the schedule says: so long those that are left have to see it, and to elect another, before more is asked
        of them.
        """
        return usual

    def start(self, env: Environment) -> Started:
        """Kill it, where all the others run."""
        for node in env.servers:
            if not self._runs(env, node):
                reason = f"{node} is gone already, and a trial loses no more than one server"
                return Started("skipped", (), (), {"gone": [node]}, reason)
        patience = self.patience or targets.patience_of(env)
        rng = random.Random(f"lose/{self.seed}")
        return self._strike(env, targets.resolve(env, self.target, rng, patience=patience, service=targets.EVERY))

    def stop(self, env: Environment) -> Stopped:
        """Nothing is started again: it is seen that it is gone, and who is left."""
        nodes = self._hit.nodes
        if not nodes:
            return Stopped("undone")
        left = [node for node in env.servers if node not in nodes and self._runs(env, node)]
        here = [node for node in nodes if self._runs(env, node)]
        evidence = {"gone": [node for node in nodes if node not in here], "left": left}
        if here:
            return Stopped("unproven", evidence, f"{', '.join(here)} runs again, and was to be gone for good")
        return Stopped(
            "undone", evidence, f"{', '.join(nodes)} is gone for good; {len(left)} of {len(env.servers)} left"
        )

    def _runs(self, env: Environment, node: str) -> bool:
        """Whether anything of a server does."""
        return any(self._running(env, node, part) for part in env.services(node))

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """See `nemesis.leading`."""
        return self._leading.bite(env, began_ns, ended_ns)
