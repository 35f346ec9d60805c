"""Who can reach whom, and what follows from it: which cuts make which shape, where a quorum is left.

A network is a directed graph: an edge a -> b means that packets of a reach b. A *cut* is a set of such edges to remove.
Nothing here touches a node; `nemesis.partition` puts the cuts in force, and the expectation in its evidence.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx

from harness.errors import UsageError

if TYPE_CHECKING:
    Graph = nx.DiGraph[str]
else:
    Graph = nx.DiGraph

Edge = tuple[str, str]
Cut = frozenset[Edge]
DIRECTIONS = ("both", "in", "out")


def between(group: Iterable[str], others: Iterable[str], direction: str = "both") -> Cut:
    """All edges between two groups. "in": the group hears nothing of the others; "out": it is not heard by them."""
    if direction not in DIRECTIONS:
        raise ValueError(f"direction must be one of {DIRECTIONS}, not {direction!r}")
    group, others = set(group), set(others)
    pairs = [(a, b) for a in group for b in others - group]
    cut: set[Edge] = set()
    if direction in ("both", "out"):
        cut.update(pairs)
    if direction in ("both", "in"):
        cut.update((b, a) for a, b in pairs)
    return frozenset(cut)


def isolate(group: Iterable[str], nodes: Iterable[str], direction: str = "both") -> Cut:
    """Cut a group from all other nodes; within it, all links stay."""
    return between(group, nodes, direction)


def halves(nodes: Sequence[str], rng: random.Random) -> Cut:
    """Two parts drawn by lot; with an odd number the larger one keeps the majority."""
    shuffled = rng.sample(list(nodes), len(nodes))
    return between(shuffled[: len(nodes) // 2], shuffled[len(nodes) // 2 :])


def majorities_ring(nodes: Sequence[str]) -> Cut:
    """Every node sees a majority, itself included, but no two see the same one: each sees its neighbours on a ring.

    Raises UsageError below five nodes, where a majority of neighbours is everybody.
    """
    count = len(nodes)
    reach = (count // 2 + 1) // 2
    if 2 * reach + 1 >= count:
        raise UsageError(f"a ring of majorities needs five servers or more, not {count}")
    cut = set()
    for i, a in enumerate(nodes):
        for j, b in enumerate(nodes):
            distance = min((i - j) % count, (j - i) % count)
            if distance > reach:
                cut.add((a, b))
    return frozenset(cut)


def bridge(nodes: Sequence[str], middle: str) -> Cut:
    """Two halves that don't see each other, and one node in the middle that both see. Needs three nodes."""
    rest = [node for node in nodes if node != middle]
    if middle not in nodes or len(rest) < 2:
        raise UsageError(f"a bridge needs three servers or more, {middle!r} one of them; there are {', '.join(nodes)}")
    return between(rest[: len(rest) // 2], rest[len(rest) // 2 :])


def full(nodes: Iterable[str]) -> Graph:
    """The healed network: everybody reaches everybody."""
    nodes = list(nodes)
    graph: Graph = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from((a, b) for a in nodes for b in nodes if a != b)
    return graph


def after(graph: Graph, cut: Cut) -> Graph:
    """The network that is left when a cut is in force."""
    left = graph.copy()
    left.remove_edges_from(cut)
    return left


def talks(graph: Graph, a: str, b: str) -> bool:
    """Whether two nodes can hold a conversation: packets pass both ways. A node always can with itself."""
    return a == b or (graph.has_edge(a, b) and graph.has_edge(b, a))


def components(graph: Graph, nodes: Iterable[str]) -> list[set[str]]:
    """Groups of nodes that are joined by two-way links, directly or over others of them; the largest first."""
    mutual: nx.Graph[str] = nx.Graph()
    nodes = list(nodes)
    mutual.add_nodes_from(nodes)
    mutual.add_edges_from((a, b) for a in nodes for b in nodes if a < b and talks(graph, a, b))
    return sorted((set(part) for part in nx.connected_components(mutual)), key=lambda part: (-len(part), sorted(part)))


@dataclass(frozen=True)
class Electorate:
    """Who decides who leads, and who can: for most systems all servers, both. For others see `Quorum` of
    harness/systems/roles.py.
    """

    voters: Sequence[str]
    candidates: Sequence[str]
    incumbent: str | None = None
    """One that leads and goes on although it is cut off from the voters."""
    forwards: bool = True
    """Whether a server that doesn't lead passes requests on."""


def leaders(graph: Graph, voters: Sequence[str], candidates: Sequence[str] | None = None) -> list[str]:
    """Those of the candidates (the voters themselves) that can lead: they talk to a majority of the voters directly, as
    Raft and Zab leaders must.
    """
    need = len(voters) // 2 + 1
    return [
        a for a in (voters if candidates is None else candidates) if sum(talks(graph, a, b) for b in voters) >= need
    ]


@dataclass(frozen=True)
class Expectation:
    """What a system with majorities should do on this network. `why` is a sentence."""

    progress: bool
    """Somebody can still be granted the lock."""
    leaders: tuple[str, ...]
    """Servers that can lead."""
    components: tuple[tuple[str, ...], ...]
    served: tuple[str, ...]
    """Contenders that can reach the service: a leader, or a server that talks to one and passes their requests on."""
    why: str


def expect(
    graph: Graph, servers: Sequence[str], contenders: Sequence[str], electorate: Electorate | None = None
) -> Expectation:
    """Whether progress is to be expected: who can lead, and which contenders reach a leader or a server next to one
    (where that one passes requests on).
    """
    who = electorate or Electorate(servers, servers)
    able = leaders(graph, who.voters, who.candidates)
    if who.incumbent is not None and who.incumbent not in able:
        able = [who.incumbent, *able]  # it knows of no election
    parts = tuple(tuple(sorted(part)) for part in components(graph, servers))
    serving = set(able)
    if who.forwards:
        serving = {server for server in servers if any(talks(graph, server, leader) for leader in able)}
    served = tuple(c for c in contenders if any(talks(graph, c, server) for server in serving))
    if not able:
        why = f"no server talks to a majority of the {len(who.voters)}"
    elif not served:
        why = f"{', '.join(able)} can lead, but no contender reaches a server that serves"
    else:
        why = f"{', '.join(able)} can lead, and {len(served)} of {len(contenders)} contenders are served"
    return Expectation(bool(able and served), tuple(able), parts, served, why)
