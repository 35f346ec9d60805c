"""Reconfigure: a member leaves the cluster and joins it again, as when a machine is replaced.

The others are told that it is a member no more, and their quorum is counted without it; its process ends. Later it
comes back: the others are told again, and it starts, mostly with nothing, and has to be sent everything. A leader that
is taken out has to give up what it leads, its leases included.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from harness.errors import AgentError
from harness.systems.operating import Reconfigures, lacks
from nemesis import targets
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.kill import POLL_SECONDS
from nemesis.parameters import Parameters
from nemesis.stop import Stop
from nemesis.targets import NoTarget, Resolved
from nemesis.watched import Watched

INSIST_SECONDS = 20.0
"""How long the others may refuse an order. An etcd takes no change while a member is new, or was away for the last 5 s;
nobody takes one during an election."""
LOOK_AGAIN_SECONDS = 0.1
ENDS_SECONDS = 1.0
"""How long it may take to end by itself, once it is no member; then it is told to."""

T = TypeVar("T")


class Reconfigure(Stop):
    """`grace`: as of `Stop`, for one that doesn't end by itself once it is no member.

    Receipt: the others don't list it as a member, and none of its processes is there; at the end they list it, a
    process runs that none of the old ones is, and it takes clients.
    """

    kind = "reconfigure"
    summary = "take a member out of the cluster, later let it join again"
    targets: Sequence[str] = ("leader", "follower", "one")

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        Watched.__init__(self, targets.check(self.kind, target, self.targets), "hold")
        taken = Parameters(self.kind, parameters)
        self._take_more(taken)
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        taken.done()
        self.service = None
        self.keep_data = True
        self._old = {}
        self._left = False

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """A cluster with members, and more than one."""
        if (reason := lacks(system, cls.kind, Reconfigures, "members that leave and join again")) is not None:
            return reason
        if servers == 1:
            return "a single server has no cluster to leave"
        if targets.on_contender(target):
            return "a contender is no member of the cluster"
        return targets.sensible(target, servers)

    def stands_seconds(self, env: Environment, number: int, usual: float) -> float:
        """As the schedule says."""
        self._witness.turn(number)
        return usual

    def start(self, env: Environment) -> Started:
        """Take it out, where all are in, and see it gone."""
        patience = self.patience or targets.patience_of(env)
        missing = sorted(set(env.servers) - set(_insist(env.members)))
        if missing:
            raise NoTarget(f"{', '.join(missing)} is no member, and not more than one is taken out at a time")
        self._witness.summon(env, patience)
        rng = random.Random(f"{self.kind}/{self.seed}")
        return self._strike(env, targets.resolve(env, self.target, rng, patience=patience))

    def _strike(self, env: Environment, hit: Resolved) -> Started:
        (node,) = hit.nodes
        self._hit = hit
        self._watch(env, hit.nodes)
        before = env.agent(node).call("processes")["processes"]
        self._old[node] = {(each["pid"], each["started"]) for each in before if each["role"] == "service"}
        begin_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        evidence: dict[str, Any] = {"left": node, "begin_ns": begin_ns}
        try:
            evidence["order"] = _insist(lambda: env.leave(node))
            self._left = True
            evidence["members"] = _insist(lambda: _without(env.members(but=[node]), node))
            evidence["ended"] = self._ended(env, node)
        except AgentError as error:
            return Started("unproven", hit.nodes, (), evidence, f"{node} was not taken out: {error}")
        return Started("landed", hit.nodes, (), evidence)

    def _ended(self, env: Environment, node: str) -> str:
        """See its processes gone: by themselves, or told to. AgentError when they aren't."""
        old, end = self._old[node], time.monotonic() + ENDS_SECONDS
        while self._left_of(env, node, old):
            if time.monotonic() > end:
                _, errors = self._end(env, [node])
                self._old[node] = old | self._old[node]
                if self._left_of(env, node, old):  # one that has ended meanwhile can't be told to, and that is well
                    raise AgentError("; ".join(errors))
                return "told to (SIGTERM)"
            time.sleep(POLL_SECONDS)
        return "by itself"

    def _left_of(self, env: Environment, node: str, old: set[tuple[int, int]]) -> bool:
        """Whether any of these processes is there still."""
        now = env.agent(node).call("processes")["processes"]
        return any((each["pid"], each["started"]) in old and each["state"] not in "ZX" for each in now)

    def stop(self, env: Environment) -> Stopped:
        """Let it join, see it run, and see it listed."""
        if not self._hit.nodes:
            return Stopped("undone")
        node = self._hit.nodes[0]
        if not self._left:
            self._old.pop(node, None)
            return super().stop(env)  # which starts what is gone, and nothing that runs
        evidence: dict[str, Any] = {}
        try:
            joining = _insist(lambda: env.admit(node))
            evidence |= {"order": joining.order, "keep_data": joining.keep_data}
            env.restart_service(node, keep_data=joining.keep_data, spec=joining.spec)
            back = evidence["restarted"] = self._seen_back(env, node)
            evidence["also"] = _insist(lambda: env.admitted(node))
            evidence["members"] = _insist(lambda: _with(env.members(but=[node]), node))
        except AgentError as error:
            return Stopped("unproven", evidence, f"{node} did not join again: {error}")
        if "error" in back:
            return Stopped("unproven", evidence, f"{node}: {back['error']}")
        return Stopped("undone", evidence)

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """See `nemesis.leading`."""
        return self._leading.bite(env, began_ns, ended_ns)


def _insist(order: Callable[[], T]) -> T:
    """Give an order again until it is taken. AgentError with the last refusal after INSIST_SECONDS."""
    end = time.monotonic() + INSIST_SECONDS
    while True:
        try:
            return order()
        except AgentError as error:
            if time.monotonic() > end:
                raise AgentError(f"refused for {INSIST_SECONDS:g} s, at last with: {error}") from error
            time.sleep(LOOK_AGAIN_SECONDS)


def _without(members: Sequence[str], node: str) -> list[str]:
    if node in members:
        raise AgentError(f"{node} is still listed as a member ({', '.join(members)})")
    return list(members)


def _with(members: Sequence[str], node: str) -> list[str]:
    if node not in members:
        raise AgentError(f"{node} is not listed as a member ({', '.join(members)})")
    return list(members)
