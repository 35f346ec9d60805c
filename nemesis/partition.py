"""Partition: some nodes can't reach some others, while each still reaches the rest.

Links are cut by dropping what arrives, with iptables and ip6tables, inside the nodes' own network namespaces: packets
vanish as on a pulled cable, established connections included, and nobody is told. Each directed link is cut where it
ends; only where that node has no agent (the resource), at its other end.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.errors import AgentError, UsageError
from nemesis import holding, targets, topology
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.link import gather, settle
from nemesis.parameters import Parameters
from nemesis.targets import Resolved
from nemesis.watched import Seeking
from nemesis.witness import HOW

RESOURCE = "resource"
SHAPES = ("isolate", "bridge", "halves", "ring")
WORKS = ("connected", "refused")
"""What a probe says when an answer came back; everything else means that none did."""
RECONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Line:
    """One probe: from a node to another, in one family. `works` when the link should."""

    source: str
    target: str
    address: str
    port: int

    @property
    def label(self) -> str:
        """ "n1>n2 IPv4", as it stands in the evidence."""
        return f"{self.source}>{self.target} IPv{6 if ':' in self.address else 4}"


class Partition(Seeking):
    """Cut a server from the other servers, or a contender from the servers but not from the resource.

    Parameters: `topology`, for servers: "isolate" (the targets from the other servers; the default), "halves" (by lot;
    the default of the target `all`), "ring" (majorities that overlap; target `all`), "bridge" (the target sees both
    halves, which don't see each other). `contenders`: on which side of it they are: "both" (they reach every server:
    the default, for then nothing but the servers' own rules keeps two leaders from serving), "majority", "minority",
    "split" (by lot). `direction`, for "isolate": "both", "in" (the target hears nothing), "out" (it isn't heard). For
    contenders: `away_from` "servers", "leader", or "contenders" (the other ones); `keep_resource`
    false cuts it from the resource too.

    Receipt: agents connect to each other over every link that is concerned, in both families and from both ends,
    before and after: every link that was cut failed, and every other still works. One-way links are told apart by
    datagrams. At the end all work again.
    """

    kind = "partition"
    summary = "cut a server from the other servers, or a contender from the service but not from the resource"
    targets: Sequence[str] = ("leader", "follower", "one", "minority", "majority", "all", "holder", "waiter")

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        target = targets.check(self.kind, target, self.targets)
        taken = Parameters(self.kind, parameters)
        shapes = ("halves", "ring") if target == "all" else ("isolate", "bridge")
        self.topology = taken.choice("topology", [*shapes, *(each for each in SHAPES if each not in shapes)])
        self.contenders = taken.choice("contenders", ("both", "majority", "minority", "split"))
        self.direction = taken.choice("direction", topology.DIRECTIONS)
        self.away_from = taken.choice("away_from", ("servers", "leader", "contenders"))
        self.keep_resource = taken.flag("keep_resource", True)
        self.resource_port = taken.whole("resource_port", 5432, 1, 65535)
        self.probe_seconds = taken.number("probe_timeout", 0.3, 0.05, 10)
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        super().__init__(target, taken.choice("witness", HOW))
        taken.done()
        if self.topology not in shapes:
            raise UsageError(
                f"partition: topology {self.topology!r} does not go with target {target!r} "
                f"(which takes {' or '.join(shapes)})"
            )
        if self.topology == "bridge" and target in ("minority", "majority", *targets.CONTENDERS):
            raise UsageError("partition: a bridge has one server in its middle: leader, follower, one, or its name")
        if self.direction != "both" and self.topology != "isolate":
            raise UsageError(f"partition: direction {self.direction!r} goes with topology 'isolate' only")
        self._name = secrets.token_hex(4)
        self._rng = random.Random(f"partition/{self.seed}")
        self._lines: list[Line] = []
        self._ruled: tuple[str, ...] = ()
        """The nodes on which rules were made."""
        self._patience = self.patience
        self._early: str | None = None

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """Cutting servers from each other takes more than one."""
        if servers == 1 and target not in targets.CONTENDERS:
            return "a single server has no other server to be cut from"
        return targets.sensible(target, servers)

    # -- start ----------------------------------------------------------------------------------------------------

    def start(self, env: Environment) -> Started:
        """Decide which links to cut, see that they all work, cut them, and see that just they don't."""
        self._patience = self.patience or targets.patience_of(env)
        if not targets.on_contender(self.target):
            self._witness.summon(env, self._patience)
        hit = self._hit = targets.resolve(env, self.target, self._rng, patience=self._patience)
        self._watch(env)  # all servers can be asked all the time, by the agents on their own nodes
        begun = self._begin(env, hit)
        return begun if isinstance(begun, Started) else self._measure(env, hit, *begun)

    def _begin(self, env: Environment, hit: Resolved) -> Started | tuple[topology.Cut, Sequence[str], dict[str, Any]]:
        """Cut the links of a target; the cut, which links were dead already, and the evidence so far."""
        cut = self._cut(env, hit)
        nodes = [*env.servers, *env.contenders]
        led = self._leading.led
        expected = topology.expect(
            topology.after(topology.full([*nodes, RESOURCE]), cut),
            list(env.servers),
            list(env.contenders),
            env.electorate(None if led is None else led.leader),
        )
        evidence: dict[str, Any] = {
            "topology": self.topology if not hit.processes else f"cut off from {self.away_from}",
            "cut": sorted(f"{a}>{b}" for a, b in cut),
            "expected": asdict(expected),
        }
        if not cut:
            return Started("unproven", hit.nodes, hit.processes, evidence, "there is no link to cut")
        self._lines = self._plan_lines(env, cut)
        before = self._until_all_work(env, self.probe_seconds * 4)
        evidence["before"] = _tally(before)
        dead = [label for label, word in before.items() if word not in WORKS]
        rules = self._rules(env, cut)
        self._ruled = tuple(sorted(rules))
        started = [env.agent(node).start("cut", fault=self._name, rules=rules[node]) for node in self._ruled]
        answers, errors = settle(started, 6.0)
        evidence["applied"] = {self._ruled[index]: answer for index, answer in answers.items()}
        if errors:
            return Started("unproven", hit.nodes, hit.processes, evidence, "; ".join(map(str, errors.values())))
        return cut, dead, evidence

    def _measure(
        self, env: Environment, hit: Resolved, cut: topology.Cut, dead: Sequence[str], evidence: dict[str, Any]
    ) -> Started:
        """Probe every link that is concerned: those cut must fail, the others work."""
        nodes = [*env.servers, *env.contenders]
        after = self._probe(env)
        evidence["after"] = after
        problems = [f"{label} did not work before it was cut" for label in dead]
        graph = topology.after(topology.full([*nodes, RESOURCE]), cut)
        for line in self._lines:
            works = after[line.label] in WORKS
            if works != topology.talks(graph, line.source, line.target):
                said = f"{line.label} {after[line.label]}"
                problems.append(f"{said}, though it was cut" if works else f"{said}, though it was not cut")
        one_way = sorted((a, b) for a, b in cut if (b, a) not in cut and RESOURCE not in (a, b))
        if one_way:
            evidence["datagrams"] = heard = self._datagrams(env, one_way)
            for a, b in one_way:
                problems += [f"a datagram passed from {a} to {b}, though that was cut"] if heard[f"{a}>{b}"] else []
                problems += [] if heard[f"{b}>{a}"] else [f"no datagram passed from {b} to {a}, which was not cut"]
        if problems:
            return Started("unproven", hit.nodes, hit.processes, evidence, "; ".join(problems[:5]))
        return Started("landed", hit.nodes, hit.processes, evidence)

    def _cut(self, env: Environment, hit: Resolved) -> topology.Cut:
        """Which directed links to cut."""
        servers, contenders = list(env.servers), list(env.contenders)
        if hit.processes:
            away = servers
            if self.away_from == "leader":
                away = list(targets.resolve(env, "leader", self._rng, patience=self._patience).nodes)
            elif self.away_from == "contenders":
                away = [contender for contender in contenders if contender not in hit.nodes]
            if not self.keep_resource:
                away = [*away, RESOURCE]
            return topology.isolate(hit.nodes, away, self.direction)
        if self.topology == "ring":
            return topology.majorities_ring(servers)
        if self.topology == "bridge":
            return topology.bridge(servers, hit.nodes[0])
        if self.topology == "halves":
            cut = topology.halves(servers, self._rng)
            small = min(topology.components(topology.after(topology.full(servers), cut), servers), key=len)
        else:
            cut = topology.isolate(hit.nodes, servers, self.direction)
            small = set(hit.nodes)
        if len(small) * 2 > len(servers):
            small = set(servers) - small
        return cut | self._cut_contenders(contenders, small, set(servers) - small)

    def _cut_contenders(self, contenders: Sequence[str], minority: set[str], majority: set[str]) -> topology.Cut:
        if self.contenders == "both":
            return frozenset()
        if self.contenders == "split":
            with_minority = self._rng.sample(list(contenders), len(contenders) // 2)
        else:
            with_minority = list(contenders) if self.contenders == "minority" else []
        with_majority = [contender for contender in contenders if contender not in with_minority]
        return topology.between(with_minority, majority) | topology.between(with_majority, minority)

    def _rules(self, env: Environment, cut: topology.Cut) -> dict[str, list[dict[str, Any]]]:
        """Node -> rules of its agent. A link is cut where it ends, or where it starts when no agent is at its end."""
        arriving: dict[str, list[str]] = {}
        leaving: dict[str, list[str]] = {}
        for a, b in sorted(cut):
            if b != RESOURCE:
                arriving.setdefault(b, []).extend(env.addresses(a))
            else:
                leaving.setdefault(a, []).extend(env.addresses(b))
        rules: dict[str, list[dict[str, Any]]] = {}
        for direction, found in (("in", arriving), ("out", leaving)):
            for node, addresses in found.items():
                rules.setdefault(node, []).append({"addresses": addresses, "direction": direction})
        return rules

    # -- probes ---------------------------------------------------------------------------------------------------

    def _plan_lines(self, env: Environment, cut: topology.Cut) -> list[Line]:
        """Every link of a node that has one cut: to all servers, to the resource, from both ends where there are two.

        The ends are listeners that the agents open for this, so that nothing depends on the ports, or the health, of
        the system under test. The resource has no agent; its answer counts even if it is a refusal.
        """
        concerned = {node for edge in cut for node in edge} - {RESOURCE}
        servers = list(env.servers)
        pairs: set[tuple[str, str]] = set()
        for node in concerned:
            among = node in env.servers or self.away_from == "contenders"
            others = [*servers, *(set(env.contenders) & concerned if among else ())]
            for other in others:
                if other != node:
                    pairs |= {(node, other), (other, node)}
        if not any(node in env.contenders for node in concerned):
            # contenders must still reach the servers that were cut from each other
            pairs |= {(contender, node) for contender in list(env.contenders)[:1] for node in concerned}
        ends = sorted({node for pair in pairs for node in pair})
        ports = dict(zip(ends, gather([env.agent(node).start("listen") for node in ends]), strict=True))
        lines = [Line(a, b, address, ports[b]["tcp"]) for a, b in sorted(pairs) for address in env.addresses(b)]
        lines += [
            Line(node, RESOURCE, address, self.resource_port)
            for node in sorted(concerned & set(env.contenders))
            for address in env.addresses(RESOURCE)
        ]
        return lines

    def _probe(self, env: Environment, only: Iterable[str] | None = None) -> dict[str, str]:
        """Try all lines, all nodes side by side: label -> what the agent saw."""
        wanted = None if only is None else set(only)
        by_node: dict[str, list[Line]] = {}
        for line in self._lines:
            if wanted is None or line.label in wanted:
                by_node.setdefault(line.source, []).append(line)
        handles = [
            env.agent(node).start("probe", timeout=self.probe_seconds, targets=[[e.address, e.port] for e in lines])
            for node, lines in by_node.items()
        ]
        answers = gather(handles, self.probe_seconds + 5.0)
        return {
            line.label: word
            for lines, answer in zip(by_node.values(), answers, strict=True)
            for line, word in zip(lines, answer["results"], strict=True)
        }

    def _until_all_work(self, env: Environment, seconds: float) -> dict[str, str]:
        """Probe until every line works, for at most so long: label -> the last word."""
        end = time.monotonic() + seconds
        words = self._probe(env)
        while (dead := [label for label, word in words.items() if word not in WORKS]) and time.monotonic() < end:
            words.update(self._probe(env, dead))
        return words

    def _datagrams(self, env: Environment, edges: Sequence[topology.Edge]) -> dict[str, bool]:
        """For each pair, both ways: did a datagram pass, in any family? "a>b" -> whether."""
        ways = [way for a, b in edges for way in ((a, b), (b, a)) if RESOURCE not in way]
        ends = sorted({b for _, b in ways})
        ports = dict(zip(ends, gather([env.agent(node).start("listen") for node in ends]), strict=True))
        words = {way: f"{self._name}/{way[0]}>{way[1]}" for way in ways}
        gather(
            [
                env.agent(a).start(
                    "shout", targets=[[address, ports[b]["udp"], words[a, b]] for address in env.addresses(b)]
                )
                for a, b in ways
            ]
        )
        listened = [
            env.agent(end).start("heard", timeout=self.probe_seconds, words=[words[w] for w in ways if w[1] == end])
            for end in ends
        ]
        heard = {word for answer in gather(listened, self.probe_seconds + 5.0) for word in answer["heard"]}
        return {f"{a}>{b}": words[a, b] in heard for a, b in ways}

    # -- stop -----------------------------------------------------------------------------------------------------

    def stop(self, env: Environment) -> Stopped:
        """Mend every link, and see that all work again."""
        started = [env.agent(node).start("mend", fault=self._name, missing_ok=True) for node in self._ruled]
        answers, errors = settle(started, 6.0)
        evidence: dict[str, Any] = {"mended": {self._ruled[index]: answer for index, answer in answers.items()}}
        problems = [str(error) for error in errors.values()]
        if self._lines:
            try:
                words = self._until_all_work(env, RECONNECT_SECONDS)
            except AgentError as error:
                problems.append(str(error))
            else:
                evidence["after"] = _tally(words)
                problems += [
                    f"{label} {word}, though it was mended" for label, word in words.items() if word not in WORKS
                ]
        if problems:
            return Stopped("unproven", evidence, "; ".join(problems[:5]))
        early = [n for n, answer in evidence["mended"].items() if answer.get("was_cut_throughout") is False]
        self._early = f"the rules on {', '.join(early)} had gone before" if early else None
        return Stopped("undone", evidence, self._early)

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite | None:
        """Of a contender: whether its lease ran out while it was cut off, or its turn came. Of servers: `leading`.

        Of one that is cut from the other contenders nobody knows: to a lock that has a service nothing has happened.
        """
        if self._hit.processes and self.away_from == "contenders":
            return None
        if not self._hit.processes:
            return self._leading.bite(env, began_ns, ended_ns)
        return holding.bite(env, self.target, self._hit.nodes[0], began_ns, ended_ns, interrupted=self._early)


def _tally(words: Mapping[str, str]) -> dict[str, int]:
    """How often each word was said."""
    counts: dict[str, int] = {}
    for word in words.values():
        counts[word] = counts.get(word, 0) + 1
    return counts
