"""What a cluster is made of: services, roles and quorums of systems that are made up here; and what follows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UsageError
from harness.runtime.base import ServiceSpec
from harness.systems import roles
from harness.systems.base import Leadership, Settings
from harness.systems.roles import Quorum, Role
from nemesis import targets, topology
from nemesis.agent.roles import NAME_FILE
from nemesis.leading import aim
from nemesis.topology import Electorate

SETTINGS = Settings(2.0, 2, "image")
NODES = {"n1": ("192.0.2.1",), "e1": ("192.0.2.2",)}


class Pooled:
    """A database with a pooler beside it, voters on a node of their own, and an agent beside each contender."""

    name = "pooled"
    roles = (
        Role("primary", "takes writes", leads=True, vacancy="the voters have not agreed"),
        Role("voter", "votes", service="ballot"),
    )
    quorum = Quorum(voters="ballot", candidates="database", holds_on=True, forwards=False)

    def node_names(self, settings: Settings) -> Sequence[str]:
        return ["n1", "e1"]

    def plan(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> Mapping[str, Any]:
        database, pooler = ServiceSpec("image", name="database"), ServiceSpec("image", name="pooler", port=6432)
        return {"n1": [database, pooler], "e1": ServiceSpec("image", name="ballot")}

    def beside(
        self, settings: Settings, nodes: Mapping[str, Sequence[str]], contenders: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[ServiceSpec]]:
        return {node: [ServiceSpec("image", name="proxy")] for node in contenders}

    def beside_healthy(self, beside: Any) -> tuple[bool, str]:
        return True, ""

    def standing(self, servers: Any) -> Mapping[str, Sequence[str]]:
        return {"primary": ["n1"]}


POOLED: Any = Pooled()
PLAIN: Any = SimpleNamespace(
    name="plain",
    plan=lambda settings, nodes: {node: ServiceSpec("image") for node in nodes},
    leadership=lambda servers: Leadership("n2", {}),
)


def test_a_plain_system_has_one_service_a_node_and_a_leader() -> None:
    """As the four first ones: nothing that they don't say is added to what they say."""
    assert roles.node_names(PLAIN, SETTINGS) == ["n1", "n2"]
    plan = roles.services_of(PLAIN, SETTINGS, {"n1": ("192.0.2.1",)}, {"c0": ("192.0.2.9",)})
    assert plan == {"n1": {"plain": ServiceSpec("image", name="plain")}}, "no file by which it is told from others"
    servers: Any = [SimpleNamespace(name=name) for name in ("n1", "n2", "n3")]
    assert roles.standing(PLAIN, servers) == {"leader": ["n2"], "follower": ["n1", "n3"]}
    assert not roles.has_beside(PLAIN, SETTINGS, ["n1"])


def test_services_of_one_node_are_told_apart_by_a_file_in_their_roots() -> None:
    """The first is the main one; one that is alone needs no file."""
    plan = roles.services_of(POOLED, SETTINGS, NODES, {"c0": ("192.0.2.9",)})
    assert [list(plan[node]) for node in ("n1", "e1", "c0")] == [["database", "pooler"], ["ballot"], ["proxy"]]
    assert plan["n1"]["pooler"].files == {NAME_FILE: b"pooler\n"}
    assert plan["e1"]["ballot"].files == plan["c0"]["proxy"].files == {}
    assert roles.has_beside(POOLED, SETTINGS, list(NODES))


def test_a_name_is_given_once_and_no_node_is_called_as_a_contender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would be found by their names."""
    monkeypatch.setattr(Pooled, "node_names", lambda self, settings: ["c1"])
    with pytest.raises(UsageError, match="calls a node 'c1'"):
        roles.node_names(POOLED, SETTINGS)
    twice = [ServiceSpec("image", name="a"), ServiceSpec("image", name="a")]
    monkeypatch.setattr(Pooled, "plan", lambda self, settings, nodes: {"n1": twice})
    with pytest.raises(roles.PlanError, match="the plan of pooled has two services on n1 that are called 'a'"):
        roles.services_of(POOLED, SETTINGS, NODES, {})


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"n1": [ServiceSpec("image")], "e1": []}, "the plan of pooled has no service for e1"),
        ({}, "has no service for n1, e1"),
        (dict.fromkeys(("n1", "e1", "n9"), ServiceSpec("image")), "speaks of n9, and the nodes are n1, e1, c0"),
    ],
)
def test_a_plan_is_for_the_nodes_that_there_are(
    plan: Mapping[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote the system is told, before anything starts."""
    monkeypatch.setattr(Pooled, "plan", lambda self, settings, nodes: plan)
    with pytest.raises(roles.PlanError, match=words):
        roles.services_of(POOLED, SETTINGS, NODES, {"c0": ("192.0.2.9",)})


def env(**other: Any) -> Any:
    """A trial of the pooled system, as far as targets look at it."""
    services = {"n1": ["database", "pooler"], "e1": ["ballot"], "c0": ["proxy"], "c1": []}
    return SimpleNamespace(
        **{
            "servers": ["n1", "e1"],
            "contenders": {"c0": 0, "c1": 1},
            "roles": Pooled.roles,
            "services": services.__getitem__,
            "leader": lambda: "n1",
            "standing": lambda: {"primary": ["n1"], "voter": ["e1"]},
            "contender_pids": lambda node: [50],
            **other,
        }
    )


@pytest.mark.parametrize(
    ("target", "service", "nodes", "parts", "selection"),
    [
        ("primary", None, ("n1",), ["database"], {"services": ["database"]}),
        ("leader", None, ("n1",), ["database"], {"services": ["database"]}),
        ("primary", "pooler", ("n1",), ["pooler"], {"services": ["pooler"]}),
        ("primary", "all", ("n1",), ["database", "pooler"], {"services": ["database", "pooler"]}),
        ("voter", None, ("e1",), ["ballot"], {}),
        ("one", "ballot", ("e1",), ["ballot"], {}),
        ("minority", "all", (), [], {}),
        ("c0", None, ("c0",), [], {"pids": [50]}),
        ("c0", "proxy", ("c0",), ["proxy"], {}),
    ],
)
def test_a_fault_means_a_role_s_service_or_the_one_that_it_names(
    target: str, service: str | None, nodes: tuple[str, ...], parts: list[str], selection: dict[str, Any]
) -> None:
    """And beside a contender that one alone: the contender itself is not hit, and no pause of its is told."""
    trial = env()
    if not nodes:
        with pytest.raises(targets.NoTarget):
            targets.resolve(trial, target, random.Random(1), service=service)
        return
    hit = targets.resolve(trial, target, random.Random(1), service=service)
    assert hit.nodes == nodes
    assert hit.processes == ((0,) if target == "c0" and service is None else ())
    assert hit.parts(trial, nodes[0]) == parts
    assert hit.selection(trial, nodes[0]) == selection
    assert hit.hits_main(trial) == (nodes[0] != "c0" and parts[:1] != ["pooler"])


@pytest.mark.parametrize(
    ("target", "service", "words"),
    [
        ("primary", "ballot", r"n1 has no service 'ballot' \(it has: database, pooler\)"),
        ("c1", "proxy", r"c1 has no service 'proxy' \(it has: none\)"),
        ("all", "cache", r"no server has a service 'cache' \(they have: database, pooler, ballot\)"),
    ],
)
def test_a_service_that_a_node_lacks_is_told_with_those_that_it_has(target: str, service: str, words: str) -> None:
    """Whoever is aimed at."""
    with pytest.raises(UsageError, match=words):
        targets.resolve(env(), target, random.Random(1), service=service)


def test_nobody_in_a_role_is_told_in_the_system_s_own_words() -> None:
    """That nobody leads means another thing in each system."""
    vacant = env(leader=lambda: None, standing=lambda: {"primary": [], "voter": []})
    for target in ("leader", "primary"):
        with pytest.raises(targets.NoTarget, match="the voters have not agreed"):
            targets.resolve(vacant, target, random.Random(1), patience=0.0)
    with pytest.raises(targets.NoTarget, match=r"no node was known to be voter within 0 s$"):
        targets.resolve(vacant, "voter", random.Random(1), patience=0.0)


def test_a_role_that_leads_is_meant_as_a_leader_is() -> None:
    """So a fault on it that changed nothing has the same remedy."""
    assert aim("primary", Pooled.roles) == aim("leader")
    assert aim("voter", Pooled.roles) != aim("leader")


def test_three_voters_are_no_three_leaders() -> None:
    """Who can lead are the candidates that reach a majority of the voters; one that led goes on where it is so."""
    servers, voters = ["n1", "n2", "e1", "e2", "e3"], ["e1", "e2", "e3"]
    graph = topology.full([*servers, "c0"])
    who = Electorate(voters, ["n1", "n2"], forwards=False)
    assert topology.expect(graph, servers, ["c0"], who).leaders == ("n1", "n2")
    cut = topology.after(graph, topology.isolate(["n1"], servers))
    assert topology.expect(cut, servers, ["c0"], who).leaders == ("n2",)
    holds_on = Electorate(voters, ["n1", "n2"], incumbent="n1", forwards=False)
    seen = topology.expect(cut, servers, ["c0"], holds_on)
    assert (seen.leaders, seen.progress) == (("n1", "n2"), True), "two, as that system has it"
    alone = topology.after(graph, topology.isolate(["n2", "c0"], ["n1", "e1", "e2", "e3"]))
    assert not topology.expect(alone, servers, ["c0"], who).progress, "n2 passes nothing on, and can't lead"
