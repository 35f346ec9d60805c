"""Freeze: the processes of a node stop dead and later go on, knowing nothing of it.

What a long garbage collection, a suspended virtual machine or a stalled disk does to a program. The frozen one keeps
its connections and its memory, its kernel goes on acknowledging packets, and its leases run out.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from nemesis import holding, targets
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.link import settle
from nemesis.parameters import Parameters
from nemesis.watched import Seeking
from nemesis.witness import HOW


class Freeze(Seeking):
    """SIGSTOP to all processes of the service (or to the contender), SIGCONT at the end.

    Receipt: every thread of every process is read as stopped from /proc; at the end, none is.
    """

    kind = "freeze"
    summary = "stop the processes of a server or a contender (SIGSTOP), later let them go on"
    targets: Sequence[str] = ("leader", "follower", "one", "minority", "majority", "all", "holder", "waiter")

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        target = targets.check(self.kind, target, self.targets)
        taken = Parameters(self.kind, parameters)
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        self.service = taken.other("service", targets.service_parameter, None)
        super().__init__(target, taken.choice("witness", HOW))
        taken.done()
        self._name = secrets.token_hex(4)
        self._early: str | None = None

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """Any server that there is, any contender."""
        return targets.sensible(target, servers)

    def start(self, env: Environment) -> Started:
        """Freeze all targets side by side; of servers rather while somebody holds, who goes on through it."""
        patience = self.patience or targets.patience_of(env)
        if not targets.on_contender(self.target):
            self._witness.summon(env, patience)
        rng = random.Random(f"freeze/{self.seed}")
        hit = targets.resolve(env, self.target, rng, patience=patience, service=self.service)
        self._hit = hit
        self._watch(env, hit.nodes)
        started = [env.agent(n).start("freeze", fault=self._name, **hit.selection(env, n)) for n in hit.nodes]
        answers, errors = settle(started, 6.0)
        evidence: dict[str, Any] = {
            **hit.told,
            "frozen": {hit.nodes[index]: answer for index, answer in answers.items()},
        }
        if errors:
            return Started("unproven", hit.nodes, hit.processes, evidence, "; ".join(map(str, errors.values())))
        return Started("landed", hit.nodes, hit.processes, evidence)

    def stop(self, env: Environment) -> Stopped:
        """Let them all go on. `was_stopped_throughout` tells whether they stayed frozen until then."""
        nodes = self._hit.nodes
        self._undone_ns = env.now()  # before the signal: who has something in his hands writes it in the same instant
        started = [env.agent(node).start("thaw", fault=self._name, missing_ok=True) for node in nodes]
        answers, errors = settle(started, 6.0)
        evidence = {"thawed": {nodes[index]: answer for index, answer in answers.items()}}
        if errors:
            return Stopped("unproven", evidence, "; ".join(map(str, errors.values())))
        early = [n for n, answer in evidence["thawed"].items() if answer.get("was_stopped_throughout") is False]
        self._early = f"somebody else had let {', '.join(early)} go on before" if early else None
        return Stopped("undone", evidence, self._early)

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """Of a contender: whether its lease ran out while it was frozen, or its turn came. Of servers: `leading`.

        A contender goes on with the signal. What it sends then, before all of it is known to go on, was promised after.
        """
        if not self._hit.processes:  # of a server, or of what a system has beside a contender
            return self._leading.bite(env, began_ns, ended_ns)
        ended_ns = ended_ns if self._undone_ns is None else min(ended_ns, self._undone_ns)
        return holding.bite(env, self.target, self._hit.nodes[0], began_ns, ended_ns, interrupted=self._early)
