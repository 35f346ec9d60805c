"""The order in which servers start, and what is told of those that never got healthy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.errors import NotHealthy
from harness.trial import cluster as clusters
from harness.trial.cluster import Cluster


def of(system: object, started: list[str], *names: str) -> Cluster:
    """A cluster of such nodes, which note their start."""
    nodes = {
        name: SimpleNamespace(name=name, start_service=lambda spec, name=name: started.append(name)) for name in names
    }
    cluster = Cluster.__new__(Cluster)
    cluster.system, cluster.nodes = cast(Any, system), cast(Any, nodes)
    cluster.servers = cast(Any, list(nodes.values()))
    cluster.plan = cast(Any, {name: {"main": None} for name in names})
    return cluster


def test_the_others_start_once_the_first_serves() -> None:
    """Where a system wants it so; it is asked until it does."""
    started: list[str] = []
    asked: list[list[str]] = []

    def serves(server: Any) -> bool:
        assert server.name == "n1"
        asked.append(list(started))
        return len(asked) == 3

    of(SimpleNamespace(serves=serves), started, "n1", "n2", "n3").start()
    assert asked == [["n1"]] * 3
    assert sorted(started) == ["n1", "n2", "n3"]


def test_a_first_server_that_never_serves_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others start all the same: it is seen later, with its reason, that the cluster isn't healthy."""
    monkeypatch.setattr(clusters, "FIRST_SECONDS", 0.1)
    started: list[str] = []
    of(SimpleNamespace(serves=lambda server: False), started, "n1", "n2").start()
    assert started == ["n1", "n2"]


def test_a_server_alone_and_servers_of_other_systems_are_not_asked() -> None:
    """Nobody waits for them."""

    def serves(server: Any) -> bool:
        raise AssertionError(f"{server} was asked")

    started: list[str] = []
    of(SimpleNamespace(serves=serves), started, "n1").start()
    of(SimpleNamespace(), started, "n1", "n2").start()
    assert sorted(started) == ["n1", "n1", "n2"]


@pytest.mark.parametrize("word", ["was removed", "exited with code 137, out of memory"])
def test_a_server_that_ended_is_told_in_a_sentence(word: str) -> None:
    """Whatever the engine's word for its end: it stands where it makes a sentence."""
    node = SimpleNamespace(service_running=lambda service: (False, word), logs=lambda service: b"goodbye\n")
    system = SimpleNamespace(name="etcd")
    cluster = Cluster.__new__(Cluster)
    cluster.system, cluster.nodes = cast(Any, system), cast(Any, {"n1": node})
    cluster.beside, cluster.plan = {}, cast(Any, {"n1": {"etcd": None}})
    told = rf"^etcd on n1 ended while it was starting: it {word} \(seen: no leader\); its last words: goodbye$"
    with pytest.raises(NotHealthy, match=told):
        cluster._raise_if_ended("no leader")
