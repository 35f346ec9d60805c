"""Whom a fault hits. A target is a question, answered at the moment of injection.

"leader" is whoever leads when the fault is applied, not when the trial was configured; "holder" is the contender that
holds the lock right now. Each role that the system under test names is a target too ("primary", "sentinel"). Where the
words leave a choice (`one`, `minority`, …) it is drawn from the fault's own seeded generator, so that a trial can be
repeated.

A node may carry several services. A fault means the main one, or the one that plays the role it was aimed at, unless
its parameter `service` names another: that one's processes alone are hit. With `service` the words for several servers
(`one`, `minority`, …) count the nodes that have it; aimed at a contender it means what the system has beside that one.
"""

from __future__ import annotations

import difflib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.systems import roles
from harness.systems.roles import Role
from nemesis.base import Environment

WORDS = {
    "leader": "the server that leads now",
    "follower": "a server that doesn't lead now",
    "one": "any one server",
    "minority": "as many servers as the rest can do without, drawn by lot",
    "majority": "as many servers as make a quorum, drawn by lot",
    "all": "every server",
    "holder": "the contender that holds the lock now",
    "waiter": "a contender that doesn't hold the lock now",
}
SERVERS = ("leader", "follower", "one", "minority", "majority", "all")
CONTENDERS = ("holder", "waiter")
NAME = roles.NODE_NAME
EVERY = "all"
"""As the parameter `service`: all services of the node at once."""
PATIENCE_SECONDS = 10.0
"""How long a fault waits for somebody to lead or to hold, at least. On a busy machine, elections take their time."""
POLL_SECONDS = 0.02


class NoTarget(HarnessError):
    """Nobody answered to the target's description in time."""


@dataclass(frozen=True)
class Resolved:
    """Whom the target meant: nodes, and the process numbers of those that are contenders.

    A contender beside which a service is hit is none of them: nothing is done to it itself. `service` is what the fault
    is meant for; None is the main one of a server, or the contender.
    """

    nodes: tuple[str, ...]
    processes: tuple[int, ...]
    service: str | None = None

    def parts(self, env: Environment, node: str) -> list[str]:
        """The names of the services that are meant on a node; none where the contender is."""
        if node in env.contenders and self.service is None:
            return []
        names = list(env.services(node))
        return names if self.service == EVERY else [self.service or names[0]]

    def selection(self, env: Environment, node: str) -> dict[str, Any]:
        """How the agent is told which processes are meant: a contender by its pids, a service by its name where there
        are several, else all that isn't the node's own.
        """
        parts = self.parts(env, node)
        if not parts:
            return {"pids": list(env.contender_pids(node))}
        return {"services": parts} if len(env.services(node)) > 1 else {}

    def hits_main(self, env: Environment) -> bool:
        """Whether the main service of a server is among what is hit: what grants the leases."""
        return any(node in env.servers and env.services(node)[0] in self.parts(env, node) for node in self.nodes)

    @property
    def told(self) -> dict[str, str]:
        """The service in the evidence, where it isn't plain."""
        return {} if self.service is None else {"service": self.service}


def check(kind: str, target: str, allowed: Sequence[str]) -> str:
    """The target, after it was found among the words allowed, or is the name of a node ("n1", "c0").

    An empty target means the first word allowed. Raises UsageError with the near ones.
    """
    if not target:
        return allowed[0]
    if target in allowed or NAME.fullmatch(target) or is_role(target, allowed):
        return target
    if target in WORDS:
        raise UsageError(f"{kind} takes no target {target!r} (it takes {', '.join(allowed)}, or a node's name)")
    near = difflib.get_close_matches(target, allowed, n=1)
    hint = f"did you mean {kind}-{near[0]}?" if near else f"known: {', '.join(allowed)}, or a node's name such as n1"
    raise UsageError(f"unknown target {target!r} of {kind}; {hint}")


def is_role(target: str, allowed: Sequence[str]) -> bool:
    """Whether a fault that takes these words can be aimed at this role, which some system names."""
    return "leader" in allowed and target in roles.known()


def service_parameter(value: Any) -> str:
    """The parameter `service`. UsageError unless it is a name; whether there is such a service, the trial's config
    tells.
    """
    if not isinstance(value, str) or not value:
        raise UsageError(f"parameter 'service' must be the name of a service, or {EVERY!r}, not {value!r}")
    return value


def sensible(target: str, servers: int) -> str | None:
    """None when a cluster of so many servers has such a target, else the rule that leaves the cell out."""
    if servers == 1 and target in ("follower", "minority"):
        return f"a single server has no {target}"
    if servers == 1 and target in ("majority", "one", "all"):
        return f"with a single server, {target!r} is the same as 'leader'"
    if servers == quorum(servers) and target == "minority":
        return f"of {servers} servers none can be done without, so that there is no minority"
    return None


def quorum(servers: int) -> int:
    """How many servers make a majority."""
    return servers // 2 + 1


def resolve(
    env: Environment,
    target: str,
    rng: random.Random,
    *,
    patience: float = PATIENCE_SECONDS,
    service: str | None = None,
) -> Resolved:
    """Answer the question now. Waits up to `patience` seconds for somebody to lead, to play a role, to hold the lock.

    Raises NoTarget when nobody does, UsageError for a node that doesn't exist, and for one that lacks the service.
    """
    role = role_of(env, target)
    hit = _resolve(env, target, rng, patience, service)
    meant = service or (role.service if role is not None else None)
    for node in hit.nodes:
        if meant is not None and meant not in (EVERY, *env.services(node)):
            has = ", ".join(env.services(node)) or "none"
            raise UsageError(f"{node} has no service {meant!r} (it has: {has})")
    return Resolved(hit.nodes, () if service is not None else hit.processes, meant)


def role_of(env: Environment, target: str) -> Role | None:
    """The role of this system that a target means; "leader" is the one that leads, whatever it is called."""
    found = next((role for role in env.roles if role.name == target), None)
    return found or (next((role for role in env.roles if role.leads), None) if target == "leader" else None)


def _resolve(env: Environment, target: str, rng: random.Random, patience: float, service: str | None) -> Resolved:
    servers = [each for each in env.servers if service in (None, EVERY) or service in env.services(each)]
    if not servers and target in SERVERS:
        known = ", ".join(dict.fromkeys(name for each in env.servers for name in env.services(each)))
        raise UsageError(f"no server has a service {service!r} (they have: {known})")
    if target == "leader":
        return Resolved((who_leads(env, patience),), ())
    if target == "follower":
        leader = who_leads(env, patience)
        able = env.electorate(leader).candidates
        followers = [server for server in servers if server != leader and server in able]
        if not followers:
            raise NoTarget(f"{leader} is the only server: there is no follower")
        return Resolved((rng.choice(followers),), ())
    if target == "one":
        return Resolved((rng.choice(servers),), ())
    if target in ("minority", "majority"):
        need = quorum(len(servers))
        size = need if target == "majority" else len(servers) - need
        if size == 0:
            raise NoTarget(f"{len(servers)} server(s) have no {target}")
        return Resolved(tuple(sorted(rng.sample(servers, size))), ())
    if target == "all":
        return Resolved(tuple(servers), ())
    if target == "holder":
        holder = _holder(env, patience)
        return Resolved((holder,), (env.contenders[holder],))
    if target == "waiter":
        waiter = _waiter(env, rng, patience)
        return Resolved((waiter,), (env.contenders[waiter],))
    if target in env.servers:
        return Resolved((target,), ())
    if target in env.contenders:
        return Resolved((target,), (env.contenders[target],))
    if (role := role_of(env, target)) is not None:
        return Resolved((rng.choice(_playing(env, role, patience)),), ())
    raise UsageError(f"no node {target!r} in this trial (nodes: {', '.join([*servers, *env.contenders])})")


def on_contender(target: str) -> bool:
    """Whether a target is a contender: by a word, or by its name ("c0")."""
    return target in CONTENDERS or (bool(NAME.fullmatch(target)) and target.startswith("c"))


def patience_of(env: Environment) -> float:
    """How long to wait for somebody to lead or to hold, where nobody says: the lock may be on its way to another."""
    terms = env.terms()
    return max(PATIENCE_SECONDS, 2 * (terms.given_away_most_seconds + terms.hand_over_seconds))


def await_hold(env: Environment, patience: float) -> str | None:
    """Wait for somebody to hold the lock, for a ttl at most: for faults on servers that matter to who holds.

    Where contenders can be told, until one has said that it goes on holding. Its node; nobody need be found.
    """
    seconds = min(patience, env.terms().ttl_seconds)
    return env.wait_until_told(seconds) if env.holds_until_told else env.wait_for_holder(seconds)


def _holder(env: Environment, patience: float) -> str:
    """Who holds the lock, and has said that it goes on holding until it is told, where the contenders understand that.

    A hold that may end at any moment would mostly be over when the fault has come. So where they can be told, nobody is
    hit who has not said it.
    """
    if not env.holds_until_told:
        holder = env.wait_for_holder(patience)
        if holder is None:
            raise NoTarget(f"nobody held the lock within {patience:g} s")
        return holder
    holder = env.wait_until_told(patience)
    if holder is None:
        raise NoTarget(f"nobody held the lock and said within {patience:g} s that it would go on holding until told")
    return holder


def _waiter(env: Environment, rng: random.Random, patience: float) -> str:
    """One of those that wait for the lock while somebody else holds it."""
    end = time.monotonic() + patience
    while True:
        holder, now = env.holder(), env.now()
        waiters = [node for node in env.contenders if node != holder and env.wait_of(node, now) is not None]
        if holder is not None and waiters:
            return rng.choice(waiters)
        if time.monotonic() > end:
            held = "nobody held the lock" if holder is None else f"{holder} held the lock and nobody waited for it"
            raise NoTarget(f"{held} within {patience:g} s")
        time.sleep(POLL_SECONDS)


def who_leads(env: Environment, patience: float) -> str:
    """Who leads now, waited for. Raises NoTarget when nobody does."""
    end = time.monotonic() + patience
    while (leads := env.leader()) is None:
        if time.monotonic() > end:
            vacancy = next((role.vacancy for role in env.roles if role.leads and role.vacancy), "")
            raise NoTarget(f"no server was known to lead within {patience:g} s" + (f": {vacancy}" if vacancy else ""))
        time.sleep(POLL_SECONDS)
    return leads


def _playing(env: Environment, role: Role, patience: float) -> list[str]:
    """Who plays a role now; at least one node."""
    end = time.monotonic() + patience
    while not (nodes := sorted(env.standing().get(role.name, ()))):
        if time.monotonic() > end:
            why = f": {role.vacancy}" if role.vacancy else ""
            raise NoTarget(f"no node was known to be {role.name} within {patience:g} s{why}")
        time.sleep(POLL_SECONDS)
    return nodes
