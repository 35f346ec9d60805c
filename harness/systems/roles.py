"""What a cluster of a system is made of: its nodes, the services on them, the roles that nodes play, and who decides.

All of it is optional for a system. Whoever says nothing has nodes n1, n2, … with one service each, of which one leads
and the others follow, and a majority of them decides: etcd, ZooKeeper, Consul. A system that is made otherwise has one
or more of these attributes and methods, and everything else (targets, receipts, evidence, `fencepost list`) follows:

    roles = (Role("primary", "takes writes", leads=True), Role("replica", …), Role("sentinel", …, service="sentinel"))
    quorum = Quorum(voters="sentinel", holds_on=True, forwards=False)
    def node_names(self, settings) -> [...]             other names than n1, n2, …
    def standing(self, servers) -> {"primary": ["n2"], "replica": ["n1", "n3"], …}
    def beside(self, settings, nodes, contenders) -> {"c0": [ServiceSpec(…, name="agent")], …}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, runtime_checkable

from harness import registry
from harness.errors import FencepostError, UsageError
from harness.runtime.base import MAIN, ServiceSpec
from harness.systems.base import Leadership, Server, Settings, System
from nemesis.agent.roles import NAME_FILE

NODE_NAME = re.compile(r"[a-z]+\d+")

Plan = Mapping[str, Mapping[str, ServiceSpec]]
"""Node -> name of a service on it -> the service, the main one first."""


@dataclass(frozen=True)
class Role:
    """A part that nodes play in a cluster, asked of the system at the moment of a fault. Its name is a target."""

    name: str
    """As users type it behind the kind of a fault: "primary" of `kill-primary`."""
    summary: str
    """Who that is, for `fencepost list`: "the Redis that takes writes"."""
    service: str | None = None
    """Which service of the node plays it, and so is hit; None = the main one."""
    leads: bool = False
    """Whether to play it is to lead: the word `leader` means the same then."""
    means: str = ""
    """What a fault on one that plays it is to bring about, for what is said of one that missed."""
    vacancy: str = ""
    """What it means that nobody plays it, as a sentence, where that isn't plain."""


LEADER = Role("leader", "leads now", leads=True)
FOLLOWER = Role("follower", "a server that doesn't lead now")
USUAL = (LEADER, FOLLOWER)


@dataclass(frozen=True)
class Quorum:
    """Who decides who leads. Nodes are named by a service that is on them; None = the main one."""

    voters: str | None = None
    """A majority of the nodes with this service decides."""
    candidates: str | None = None
    """A node with this one can lead, while it and a majority of the voters talk."""
    holds_on: bool = False
    """Whether one that leads and has lost the voters goes on serving: then there may be two."""
    forwards: bool = True
    """Whether one that doesn't lead passes requests on to the one that does."""


@runtime_checkable
class Roled(Protocol):
    """A system whose nodes play other roles than that of a leader and its followers."""

    roles: Sequence[Role]

    def standing(self, servers: Sequence[Server]) -> Mapping[str, Sequence[str]]:
        """Role -> the nodes that play it now, asked of all servers at once, each for at most 1 s; none where nobody is
        known to.
        """


@runtime_checkable
class Named(Protocol):
    """A system whose nodes aren't n1, n2, …"""

    def node_names(self, settings: Settings) -> Sequence[str]:
        """Letters and a number each ("e1"), no c0, c1, …: those are contenders. UsageError on a bad option."""


@runtime_checkable
class Accompanies(Protocol):
    """A system that has services of its own on the nodes of the contenders: an agent, a proxy."""

    def beside(
        self, settings: Settings, nodes: Mapping[str, Sequence[str]], contenders: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[ServiceSpec]]:
        """Contender node -> services, from the names and addresses of servers and contenders; may be empty. Pure."""

    def beside_healthy(self, beside: Sequence[Server]) -> tuple[bool, str]:
        """One look at these, as `System.healthy`; not asked where there are none."""


def images_of(system: System) -> tuple[str, ...]:
    """The names of the images that its services need: `images` where there are others than `image`."""
    return tuple(getattr(system, "images", (system.image,)))


def roles_of(system: System) -> tuple[Role, ...]:
    """The roles of a system, those that every system has where it names none."""
    return tuple(system.roles) if isinstance(system, Roled) else USUAL


def role_of(system: System, name: str) -> Role | None:
    """Its role of this name."""
    return next((role for role in roles_of(system) if role.name == name), None)


def quorum_of(system: System) -> Quorum:
    """Who decides who leads."""
    found = getattr(system, "quorum", None)
    return found if isinstance(found, Quorum) else Quorum()


def node_names(system: System, settings: Settings) -> list[str]:
    """The names of the servers' nodes. Raises UsageError for one that would be taken for something else."""
    if not isinstance(system, Named):
        return [f"n{number}" for number in range(1, settings.servers + 1)]
    names = list(system.node_names(settings))
    for name in names:
        if not NODE_NAME.fullmatch(name) or re.fullmatch(r"c\d+", name) or names.count(name) > 1:
            raise UsageError(f"{system.name} calls a node {name!r}; it takes letters and a number (n1), c0 … left out")
    return names


class PlanError(UsageError):
    """A plan that can't be carried out, whatever options it was made with: whoever wrote the system has to mend it."""


def services_of(
    system: System, settings: Settings, nodes: Mapping[str, Sequence[str]], contenders: Mapping[str, Sequence[str]]
) -> Plan:
    """Every service of a trial, each with its name: of the servers' nodes, and beside contenders.

    Raises UsageError for a bad option, PlanError for a plan that leaves a server out, or knows a node that isn't there.
    A service that is alone on its node, with no name of its own, is called as the
    system is.
    """
    plan: dict[str, Mapping[str, ServiceSpec]] = {}
    for node, planned in system.plan(settings, nodes).items():
        several = [planned] if isinstance(planned, ServiceSpec) else list(planned)
        plan[node] = _named(several, system.name, node)
    if left_out := [node for node in nodes if not plan.get(node)]:
        raise PlanError(f"the plan of {system.name} has no service for {', '.join(left_out)}")
    if isinstance(system, Accompanies):
        for node, planned in system.beside(settings, nodes, contenders).items():
            plan[node] = _named(list(planned), system.name, node)
    if strange := [node for node in plan if node not in nodes and node not in contenders]:
        known = ", ".join([*nodes, *contenders])
        raise PlanError(f"the plan of {system.name} speaks of {', '.join(strange)}, and the nodes are {known}")
    return plan


def has_beside(system: System, settings: Settings, nodes: Sequence[str], contender: str = "c0") -> bool:
    """Whether the system has services of its own beside contenders, with these options. UsageError for a bad one."""
    made_up = ("192.0.2.1",)
    return isinstance(system, Accompanies) and any(
        system.beside(settings, dict.fromkeys(nodes, made_up), {contender: made_up}).values()
    )


def _named(specs: Sequence[ServiceSpec], main: str, node: str) -> dict[str, ServiceSpec]:
    """By name; told apart by a file in the root of each where there are several."""
    found: dict[str, ServiceSpec] = {}
    for spec in specs:
        name = main if spec.name == MAIN else spec.name
        if name in found:
            raise PlanError(f"the plan of {main} has two services on {node} that are called {name!r}")
        found[name] = replace(spec, name=name)
    if len(found) > 1:
        return {
            name: replace(spec, files={**spec.files, NAME_FILE: f"{name}\n".encode()}) for name, spec in found.items()
        }
    return found


def standing(system: System, servers: Sequence[Server], leadership: Leadership | None = None) -> dict[str, list[str]]:
    """Who plays which role now. `leadership` is asked for unless it is given; unused where the system tells itself."""
    if isinstance(system, Roled):
        told = system.standing(servers)
        return {role.name: list(told.get(role.name, ())) for role in system.roles}
    leader = (leadership or system.leadership(servers)).leader
    if leader is None:
        return {LEADER.name: [], FOLLOWER.name: []}
    return {LEADER.name: [leader], FOLLOWER.name: [each.name for each in servers if each.name != leader]}


@cache
def known() -> Mapping[str, tuple[str, ...]]:
    """Every role that some registered system has -> those systems. One that fails to load has none here."""
    found: dict[str, tuple[str, ...]] = {}
    for name in registry.names("systems"):
        try:
            roles = roles_of(registry.load("systems", name)())
        except FencepostError:
            continue
        for role in roles:
            found[role.name] = (*found.get(role.name, ()), name)
    return found


def why_not(system: str, target: str) -> str | None:
    """None unless the target is a role that this system lacks, or the word for one; then the rule, as a sentence."""
    roles = roles_of(registry.load("systems", system)())
    names = [role.name for role in roles]
    if target in ("leader", "follower") and not any(role.leads for role in roles):
        return f"nobody leads in {system} (its roles: {', '.join(names)})"
    if target in known() and target not in ("leader", "follower", *names):
        return f"{system} has no role {target!r} (its roles: {', '.join(names)})"
    return None
