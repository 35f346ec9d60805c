"""Who leads, as made out of what the servers say; and that nobody waits for a server that says nothing."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from harness.systems.base import Server
from harness.systems.consul import Consul
from harness.systems.etcd import Etcd
from harness.systems.redis import Redis
from harness.systems.redis_sentinel import RedisSentinel
from harness.systems.zookeeper import ZooKeeper
from tests.systems.servers import Hung, Scripted, says


def etcd(name: str, leader: str | None, term: int) -> Scripted:
    ids = {"n1": "11", "n2": "22", "n3": "33"}
    status = {"header": {"member_id": ids[name]}, "raftTerm": str(term)}
    if leader is not None:
        status["leader"] = ids[leader]
    members = {"members": [{"ID": number, "name": node} for node, number in ids.items()]}
    answers = {"/v3/maintenance/status": says(status), "/v3/cluster/member/list": says(members)}
    return Scripted(name, http={**answers, "/v3/kv/put": says({})})


def consul(name: str, leader: str, term: int) -> Scripted:
    address = {"n1": "192.0.2.1", "n2": "192.0.2.2", "n3": "192.0.2.3"}
    stats = {"consul": {"leader_addr": f"{address[leader]}:8300" if leader else ""}, "raft": {"term": str(term)}}
    return Scripted(name, address[name], http={"/v1/agent/self": says({"Stats": stats})})


def zookeeper(name: str, mode: str, epoch: int) -> Scripted:
    told = f"Zookeeper version: 3.9.3-abc, built on today\nZxid: {(epoch << 32) + 17:#x}\nMode: {mode}\nNode count: 5\n"
    return Scripted(name, tcp={b"srvr": told.encode()})


def sentinel(name: str, redis: str | None, primary: str | None, epoch: int = 0, before: str | None = None) -> Scripted:
    """A node: what its Redis says ("master", "slave"), and whom its Sentinel names; None where one is silent.

    `before`: whom it tells of otherwise, in the middle of a failover.
    """
    asked: dict[str | None, str] = {}
    if redis is not None:
        asked["redis"] = f"{redis}\n0\n6379\nconnected"
    if primary is not None:
        state = f"name\nfencepost\nip\n192.0.2.{(before or primary)[1]}\nflags\nmaster\nconfig-epoch\n{epoch}"
        asked["sentinel"] = f"{state}\nfencepost-0\n192.0.2.{primary[1]}\n6379"
    return Scripted(name, f"192.0.2.{name[1]}", asked=asked)


M, S = "master", "slave"
LEADERSHIPS: list[tuple[str, Any, list[Server], str | None]] = [
    ("agreed", Etcd, [etcd("n1", "n2", 3), etcd("n2", "n2", 3), etcd("n3", "n2", 3)], "n2"),
    (
        "an old leader that doesn't know yet",
        Etcd,
        [etcd("n1", "n1", 3), etcd("n2", "n2", 4), etcd("n3", "n2", 4)],
        "n2",
    ),
    ("a leader that is silent", Etcd, [etcd("n1", "n2", 3), Scripted("n2"), etcd("n3", "n2", 3)], "n2"),
    ("nobody", Etcd, [etcd("n1", None, 3), etcd("n2", None, 4), Scripted("n3")], None),
    ("all are silent", Etcd, [Scripted("n1"), Scripted("n2"), Scripted("n3")], None),
    ("agreed", Consul, [consul("n1", "n3", 2), consul("n2", "n3", 2), consul("n3", "n3", 2)], "n3"),
    ("an old leader", Consul, [consul("n1", "n3", 5), consul("n2", "n2", 2), consul("n3", "n3", 5)], "n3"),
    ("silent", Consul, [consul("n1", "n3", 5), consul("n2", "n3", 5), Scripted("n3", "192.0.2.3")], "n3"),
    ("nobody", Consul, [consul("n1", "", 5), consul("n2", "", 6), Scripted("n3", "192.0.2.3")], None),
    ("agreed", ZooKeeper, [zookeeper("n1", "follower", 1), zookeeper("n2", "leader", 1)], "n2"),
    ("an old leader", ZooKeeper, [zookeeper("n1", "leader", 1), zookeeper("n2", "leader", 2)], "n2"),
    (
        "electing",
        ZooKeeper,
        [Scripted("n1", tcp={b"srvr": b"This ZooKeeper instance is not currently serving requests\n"})],
        None,
    ),
    ("agreed", RedisSentinel, [sentinel("n1", M, "n1"), sentinel("n2", S, "n1"), sentinel("n3", S, "n1")], "n1"),
    (
        "one cut off with its Sentinel",
        RedisSentinel,
        [sentinel("n1", M, "n1", 1), sentinel("n2", M, "n2", 2), sentinel("n3", S, "n2", 2)],
        "n2",
    ),
    (
        "a failover that is not over yet",
        RedisSentinel,
        [sentinel("n1", M, "n1", 1), sentinel("n2", M, "n2", 2, before="n1"), sentinel("n3", S, "n1", 1)],
        "n2",
    ),
    ("silent", RedisSentinel, [sentinel("n1", None, "n1"), sentinel("n2", S, "n1"), sentinel("n3", S, None)], "n1"),
    ("no Sentinel", RedisSentinel, [sentinel("n1", S, None), sentinel("n2", M, None), sentinel("n3", S, None)], "n2"),
    ("two without Sentinels", RedisSentinel, [sentinel("n1", M, None), sentinel("n2", M, None)], None),
    ("nothing", RedisSentinel, [sentinel("n1", None, None), sentinel("n2", None, None)], None),
    ("alone", Redis, [Scripted("n1", tcp={b"PING": b"+PONG\r\n+OK\r\n"})], "n1"),
    ("alone and silent", Redis, [Scripted("n1")], "n1"),
]


def test_roles_are_whom_each_says_that_it_is() -> None:
    """A primary that was replaced is no replica before it says so, and who is silent plays none."""
    servers: list[Server] = [sentinel("n1", M, "n1", 1), sentinel("n2", M, "n2", 2), sentinel("n3", S, None)]
    assert RedisSentinel().standing(servers) == {"primary": ["n2"], "replica": ["n3"], "sentinel": ["n1", "n2"]}


@pytest.mark.parametrize(
    ("system", "servers", "leader"),
    [case[1:] for case in LEADERSHIPS],
    ids=[f"{case[1].name}: {case[0]}" for case in LEADERSHIPS],
)
def test_the_leader_of_the_highest_term_counts(system: Any, servers: list[Server], leader: str | None) -> None:
    """Also when an older one still believes, or the leader itself can't be asked; and every server's word is kept."""
    found = system().leadership(servers)
    assert found.leader == leader
    assert set(found.seen) == {server.name for server in servers}
    assert all(isinstance(word, str) for word in found.seen.values())


@pytest.mark.parametrize(("system", "server"), [(Etcd, etcd("n1", "n1", 1)), (ZooKeeper, zookeeper("n1", "leader", 1))])
def test_a_server_that_hangs_costs_the_others_a_second_at_most(system: Any, server: Server) -> None:
    """The answer comes in time, and the silent one is reported as silent."""
    hung = Hung("n2")
    try:
        began = time.monotonic()
        found = system().leadership([server, hung])
        assert time.monotonic() - began < 15  # of the 30 that it would hang
        assert found.leader == "n1"
        assert found.seen["n2"] == "silent"
    finally:
        hung.release.set()


def test_healthy_needs_every_server() -> None:
    """Two of three that agree are a working etcd, but not yet the cluster that the trial asked for."""
    healthy, seen = Etcd().healthy([etcd("n1", "n1", 2), etcd("n2", "n1", 2), Scripted("n3")])
    assert not healthy
    assert "n3: connection refused" in seen


def test_healthy_needs_a_write() -> None:
    """A leader that all name is not enough: the write must succeed, and its refusal is told."""
    servers = [etcd("n1", "n1", 2), etcd("n2", "n1", 2), etcd("n3", "n1", 2)]
    assert Etcd().healthy(servers) == (True, "n1: leader n1, term 2; n2: leader n1, term 2; n3: leader n1, term 2")
    servers[2]._http = {**servers[2]._http, "/v3/kv/put": says({"error": "no space"}, 500)}
    healthy, seen = Etcd().healthy(servers)
    assert not healthy
    assert "no space" in seen


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (frame(struct.pack(">iiq", 0, 10000, 77) + bytes(21)) + frame(struct.pack(">iqi", 1, 5, 0)), None),
        (frame(struct.pack(">iiq", 0, 10000, 77) + bytes(21)) + frame(struct.pack(">iqi", 1, 5, -110)), None),
        (frame(struct.pack(">iiq", 0, 10000, 77) + bytes(21)) + frame(struct.pack(">iqi", 1, 5, -4)), "error -4"),
        (frame(struct.pack(">iiq", 0, 0, 0) + bytes(21)) + frame(struct.pack(">iqi", 1, 5, 0)), "no session"),
        (b"", "0 of 3 answers"),
        (frame(bytes(40))[:-3], "0 of 3 answers"),
    ],
)
def test_zookeeper_s_write_is_read_from_its_protocol(answer: bytes, words: str | None) -> None:
    """A session and a node were made, or it isn't healthy and says what was answered."""
    server = zookeeper("n1", "leader", 1)
    server._tcp = {**server._tcp, b"\0": answer}
    healthy, seen = ZooKeeper().healthy([server])
    assert healthy == (words is None), seen
    assert words is None or words in seen
