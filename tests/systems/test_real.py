"""Each system and its lock client against the real thing, on nodes of their own.

One cluster for each system, for all tests of it; its tests leave the lock free.
"""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from harness import registry
from harness.errors import AgentError
from harness.runtime.base import Node, NodeSpec
from harness.systems.base import Settings
from harness.systems.zookeeper import ZooKeeper
from harness.trial.cluster import AgentServer, Cluster
from nemesis.link import open_agent
from tests import place
from tests.waiting import until

pytestmark = pytest.mark.nodes

TTL = 2.0
LONGEST_LEASE = 2 * TTL + 1.0
"""After so long every system here has given up on a holder: Consul takes two ttl and its lock-delay."""


def signal(node: Node, pid: int, name: str) -> None:
    """Send a process on a node a signal; the shell's own kill, because a node has no other."""
    done = node.run(["sh", "-c", f"kill -{name} {pid}"])
    assert done.exit_code == 0, done.stderr


class Driver:
    """A lock client on a contender's node."""

    def __init__(self, node: Node, process: int, client: str, settings: dict[str, Any]) -> None:
        self.node = node
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._errors: list[bytes] = []
        source = Path(__file__).with_name("driver.py").read_text()
        self._spawned = node.spawn(
            ["python3", "-u", "-c", source], on_line=self._answers.put, on_error_line=self._errors.append
        )
        given = {"process": process, "client": client, "settings": settings, "ttl": TTL}
        self.hello = self._exchange(given, 30.0)
        assert self.hello["problem"] is None

    def _exchange(self, said: dict[str, Any], seconds: float) -> dict[str, Any]:
        self._spawned.send(json.dumps(said).encode() + b"\n")
        return self.answer(seconds)

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next answer."""
        try:
            return json.loads(self._answers.get(timeout=seconds))  # type: ignore[no-any-return]
        except queue.Empty:
            words = b"\n".join(self._errors[-5:]).decode(errors="replace")
            pytest.fail(f"no answer from {self.node.name} within {seconds:g} s; its last words: {words or 'none'}")

    def acquire(self, seconds: float) -> dict[str, Any]:
        """Try for so long."""
        return self._exchange({"call": "acquire", "seconds": seconds}, seconds + 10)

    def acquire_later(self, seconds: float) -> None:
        """Begin to try; the answer comes later."""
        self._spawned.send(json.dumps({"call": "acquire", "seconds": seconds}).encode() + b"\n")

    def call(self, name: str) -> dict[str, Any]:
        """renew or release."""
        return self._exchange({"call": name}, 20.0)

    def signal(self, name: str) -> None:
        """Send the client's process a signal."""
        signal(self.node, self.hello["pid"], name)

    def close(self) -> None:
        """End it."""
        self._spawned.close_stdin()
        self._spawned.wait(60)


@dataclass
class Running:
    """A healthy cluster and two clients of its lock."""

    cluster: Cluster
    seconds: float
    drivers: list[Driver]


Start = Callable[[str, int], Running]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Starts a cluster of a system and a size; all of them are gone after the module, and looked for."""
    sites = ExitStack()
    closing: list[Callable[[], None]] = []
    made: dict[tuple[str, int], Running] = {}

    def starter(name: str, servers: int) -> Running:
        if (name, servers) in made:
            return made[name, servers]
        site = sites.enter_context(place.site())
        system = registry.load("systems", name)()
        settings = Settings(TTL, servers, system.image)
        specs = [NodeSpec(f"n{number}") for number in range(1, servers + 1)]
        specs += [NodeSpec(f"c{number}", image="contender", role="contender") for number in range(2)]
        nodes = site.start_nodes(specs)
        agents = {node.name: open_agent(node) for node in nodes[:servers]}
        closing.extend(agent.close for agent in agents.values())
        cluster = Cluster(system, settings, nodes[:servers], agents)
        closing.append(cluster.close)
        cluster.start()
        seconds = cluster.wait_healthy(lambda: None)
        config = system.client_config(settings, cluster.addresses())
        client = registry.reference("clients", system.client)
        drivers = [Driver(node, number, client, config) for number, node in enumerate(nodes[servers:])]
        closing.extend(driver.close for driver in drivers)
        made[name, servers] = Running(cluster, seconds, drivers)
        return made[name, servers]

    with sites:
        yield starter
        for close in closing:
            close()


SYSTEMS = [("redis", 1), ("redis-sentinel", 3), ("etcd", 3), ("consul", 3), ("zookeeper", 3)]


@pytest.fixture(params=SYSTEMS, ids=[name for name, _ in SYSTEMS])
def running(request: pytest.FixtureRequest, start: Start) -> Running:
    return start(*request.param)


def test_it_becomes_healthy_and_somebody_leads(running: Running) -> None:
    """Long before its deadline even on a busy machine; leadership is quick and agrees with itself."""
    assert running.seconds < running.cluster.system.healthy_within_seconds / 2
    began = time.monotonic()
    found = running.cluster.leadership()
    assert time.monotonic() - began < 30
    assert found.leader in running.cluster.nodes, found.seen
    version, why = running.cluster.version(10.0, lambda: None)
    assert version is not None, why
    assert version[0].isdigit()


def test_the_lock_is_taken_renewed_and_handed_over(running: Running) -> None:
    """One holds, the other waits in vain, then gets it with a greater token."""
    first, second = running.drivers
    held = first.acquire(5.0)
    assert held["type"] == "ok", held
    assert held["ttl"] == pytest.approx(TTL)
    assert first.call("renew")["type"] == "ok"
    waited = second.acquire(1.0)
    assert (waited["type"], waited["error"]) == ("fail", waited["error"])
    assert "held by another" in waited["error"]
    second.acquire_later(10.0)
    assert first.call("renew")["type"] == "ok"
    assert first.call("release")["type"] == "ok"
    got = second.answer(15.0)
    assert got["type"] == "ok", got
    assert got["token"] > held["token"]
    again = first.call("release")
    assert (again["type"], again["held"]) == ("fail", False)
    assert second.call("renew")["type"] == "ok"
    assert second.call("release")["type"] == "ok"


def test_a_waiter_keeps_its_own_lease_alive(running: Running) -> None:
    """It waits for longer than a lease lasts, behind a holder that renews, and gets a lease that is fresh."""
    first, second = running.drivers
    assert first.acquire(5.0)["type"] == "ok"
    second.acquire_later(4 * TTL)
    end = time.monotonic() + 1.5 * TTL
    while time.monotonic() < end:
        assert first.call("renew")["type"] == "ok"
        time.sleep(0.2)
    assert first.call("release")["type"] == "ok"
    got = second.answer(15.0)
    assert got["type"] == "ok", got
    assert (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - got["since"]) / 1e9 < TTL
    assert second.call("release")["type"] == "ok"


def test_a_frozen_holder_loses_the_lock_and_is_told_so(running: Running) -> None:
    """Not before its time; and when it wakes up, renewing and releasing both say that it isn't held."""
    first, second = running.drivers
    held = first.acquire(5.0)
    assert held["type"] == "ok", held
    assert first.call("renew")["type"] == "ok"
    renewed = time.monotonic()
    first.signal("STOP")
    got = second.acquire(LONGEST_LEASE + 10)
    assert got["type"] == "ok", got
    assert time.monotonic() - renewed > TTL * 0.9
    assert got["token"] > held["token"]
    first.signal("CONT")
    said = first.call("renew")
    deadline = time.monotonic() + 60
    while said["type"] == "info" or (said["type"] == "fail" and said["held"] is None):
        # The first word after waking up may be a broken connection.
        assert time.monotonic() < deadline, said
        said = first.call("renew")
    assert (said["type"], said["held"]) == ("fail", False), said
    assert first.call("release")["held"] is False
    assert second.call("renew")["type"] == "ok"
    assert second.call("release")["type"] == "ok"


@pytest.mark.slow
def test_etcd_runs_with_five(start: Start) -> None:
    """Five agree, and the lock works."""
    running = start("etcd", 5)
    found = running.cluster.leadership()
    assert len(found.seen) == 5
    assert len(set(found.seen.values())) == 1
    assert running.drivers[0].acquire(5.0)["type"] == "ok"
    assert running.drivers[0].call("release")["type"] == "ok"


def test_a_silent_leader_is_still_named(start: Start) -> None:
    """Frozen, it answers nobody; the others say who it is, within a second or two, until they have elected another."""
    running = start("etcd", 3)
    cluster = running.cluster
    leader = cluster.leader()
    assert leader is not None
    node = cluster.nodes[leader]
    pids = node.run(["sh", "-c", "for p in /proc/[0-9]*; do grep -lx etcd $p/comm; done"]).stdout.split()
    pid = int(pids[0].decode().split("/")[2])
    signal(node, pid, "STOP")
    try:
        found = cluster.leadership()
        assert found.leader is not None, found.seen
        end = time.monotonic() + 20
        while (found := cluster.leadership()).leader in (None, leader):
            assert time.monotonic() < end, found.seen
    finally:
        signal(node, pid, "CONT")
    cluster.wait_healthy(lambda: None)


def test_a_failover_is_seen_in_all_roles_and_may_lose_the_lock(start: Start) -> None:
    """The Redis of the primary alone is frozen, its Sentinel isn't; another one takes over, and is found by the client.

    Once it goes on it becomes a replica, whatever it has believed meanwhile.
    """
    running = start("redis-sentinel", 3)
    cluster, (first, _) = running.cluster, running.drivers
    before = cluster.standing()
    (old,) = before["primary"]
    assert sorted([*before["primary"], *before["replica"]]) == sorted(before["sentinel"]) == ["n1", "n2", "n3"]
    term = cluster.leadership().term or 0
    agent = cast(AgentServer, cluster.servers[list(cluster.nodes).index(old)]).agent
    agent.call("freeze", fault="primary", services=["redis"])
    try:
        end = time.monotonic() + 20
        while (new := cluster.leadership()).leader in (None, old):
            assert time.monotonic() < end, new.seen
        during = cluster.standing()
        assert old not in [*during["primary"], *during["replica"]], "it answers nobody"
        assert old in during["sentinel"], "and what is beside it does"
        assert (new.term or 0) > term
        got = first.acquire(10.0)
        assert got["type"] == "ok", got
        assert first.call("release") == {"type": "ok", "held": None, "error": None, "lost": []}
    finally:
        agent.call("thaw", fault="primary")
    cluster.wait_healthy(lambda: None)
    assert old in cluster.standing()["replica"]


@pytest.mark.parametrize("wait", [1, 2])
def test_a_lock_that_too_few_replicas_have_is_given_back(start: Start, wait: int) -> None:
    """Of two replicas one stands still: one may be asked for, two may not, and then nothing is left of the lock."""
    running = start("redis-sentinel", 3)
    cluster = running.cluster
    config = {**cluster.system.client_config(cluster.settings, cluster.addresses()), "wait": wait}
    client = registry.reference("clients", "redis-sentinel")
    driver = Driver(running.drivers[0].node, 5, client, config)
    server = cluster.servers[list(cluster.nodes).index(cluster.standing()["replica"][0])]
    agent = cast(AgentServer, server).agent
    agent.call("freeze", fault="replica", services=["redis"])
    try:
        got = driver.acquire(0.5)
        other = running.drivers[1].acquire(0.5)
    finally:
        agent.call("thaw", fault="replica")
        driver.close()
    if wait == 1:
        assert (got["type"], other["type"]) == ("ok", "fail")
        time.sleep(TTL)  # nobody is left to release it: what it is about is a stretch of time
    else:
        assert (got["type"], got["error"]) == ("fail", "wait: 1 of 2 replicas have it")
        assert other["type"] == "ok"
        assert running.drivers[1].call("release")["type"] == "ok"


def test_an_operator_takes_the_lock_from_its_holder(running: Running) -> None:
    """By each of the system's ways: the service names the holder with its token before, and nobody afterwards; another
    is granted it. Of what the holder is told, a client that holds by its lease alone learns nothing.
    """
    cluster, (first, second) = running.cluster, running.drivers
    system: Any = cluster.system
    assert cluster.held() is None
    for way in system.unlock_ways:
        held = first.acquire(5.0)
        assert held["type"] == "ok", held
        owned = cluster.held()
        assert owned is not None
        assert owned.token == held["token"]
        order = cluster.unlock(owned, way)
        assert owned.key in order or owned.owner in order
        assert cluster.held() is None
        if system.name != "consul":  # which ends a session that has ended, and deletes what isn't there
            with pytest.raises(AgentError, match=r"gone already|not found"):
                cluster.unlock(owned, way)
        got = second.acquire(LONGEST_LEASE)
        assert got["type"] == "ok", got
        assert got["token"] > held["token"]
        told = first.call("renew")
        unaware = (system.name, way) in {("etcd", "key"), ("consul", "key"), ("consul", "release")}
        assert (told["type"], told["held"]) == (("ok", None) if unaware else ("fail", False)), (way, told)
        first.call("release")
        assert second.call("release")["type"] == "ok", way
    assert cluster.held() is None


@pytest.mark.parametrize("name", ["etcd", "zookeeper", pytest.param("consul", marks=pytest.mark.slow)])
def test_a_member_leaves_and_joins_again(start: Start, name: str) -> None:
    """The others go on without it, and with it; what was ordered isn't ordered twice, and the lock works again."""
    running = start(name, 3)
    cluster, (first, _) = running.cluster, running.drivers
    assert sorted(cluster.members()) == ["n1", "n2", "n3"]
    node = next(each for each in cluster.nodes if each != cluster.leader())
    end = time.monotonic() + 120

    def insist(order: Callable[[], Any]) -> Any:
        while True:
            try:
                return order()
            except AgentError:  # an election, or a member that isn't known to be well yet
                assert time.monotonic() < end, order
                time.sleep(0.1)

    insist(lambda: cluster.leave(node))
    while node in insist(lambda: cluster.members(but=[node])):
        assert time.monotonic() < end
    with suppress(AgentError):  # by itself, or not
        cast(AgentServer, cluster.servers[list(cluster.nodes).index(node)]).agent.call("kill")
    assert first.acquire(10.0)["type"] == "ok"
    assert first.call("release")["type"] == "ok"
    joining = insist(lambda: cluster.admit(node))
    assert insist(lambda: cluster.admit(node)) == joining
    cluster.nodes[node].restart_service(keep_data=joining.keep_data, spec=joining.spec)
    insist(lambda: cluster.admitted(node))
    while node not in insist(lambda: cluster.members(but=[node])):
        assert time.monotonic() < end
    insist(lambda: cluster.admitted(node))
    cluster.wait_healthy(lambda: None)
    with pytest.raises(AgentError, match="redis has no members that leave and join"):
        start("redis", 1).cluster.members()


@pytest.mark.parametrize("name", ["etcd", "redis-sentinel"])
def test_leadership_moves_by_an_operator_s_order(start: Start, name: str) -> None:
    """To another one, with a higher term, and the lock goes along; a system without such an order says so."""
    running = start(name, 3)
    cluster, (first, _) = running.cluster, running.drivers
    before = cluster.leadership()
    assert before.leader is not None
    end = time.monotonic() + 20
    refusals = []
    while time.monotonic() < end:  # a Sentinel refuses while it doesn't know of a replica in good health
        try:
            cluster.hand_over(before.leader)
            break
        except AgentError as error:
            refusals.append(str(error))
            time.sleep(0.2)
    else:
        pytest.fail(refusals[-1])
    while (now := cluster.leadership()).leader in (None, before.leader) or (now.term or 0) <= (before.term or 0):
        assert time.monotonic() < end, now.seen
    assert first.acquire(10.0)["type"] == "ok"
    assert first.call("release")["type"] == "ok"
    with pytest.raises(AgentError, match="redis has no order by which another server leads"):
        start("redis", 1).cluster.hand_over("n1")
    cluster.wait_healthy(lambda: None)


@pytest.mark.parametrize(("name", "servers"), [("etcd", 3), ("consul", 3), ("redis", 1)])
def test_a_snapshot_is_put_back(start: Start, name: str, servers: int) -> None:
    """What was written since is gone, the lock works, and etcd's snapshot is unpacked by its own tool."""
    running = start(name, servers)
    cluster, (first, _) = running.cluster, running.drivers
    system = cluster.restoring()
    system.put(cluster.servers, "before", "1")
    taken = system.snapshot(cluster.servers)
    assert taken.data
    system.put(cluster.servers, "after", "2")
    assert [system.get(cluster.servers, key) for key in ("before", "after", "never")] == ["1", "2", None]
    anew = system.restored_from(taken, {node: next(iter(specs.values())) for node, specs in cluster.plan.items()})
    assert bool(anew) is not system.restores_running
    for server in cluster.servers if anew else ():
        cast(AgentServer, server).agent.call("kill")
    for node, specs in anew.items():
        for number, spec in enumerate(specs):
            cluster.nodes[node].restart_service(keep_data=number > 0, spec=spec)
            if number < len(specs) - 1:
                until(lambda node=node: not cluster.nodes[node].service_running()[0], "its end")  # type: ignore[misc]
                assert cluster.nodes[node].service_running()[1] == "exited with code 0"
    if anew:
        cluster.wait_healthy(lambda: None)
    system.restore(cluster.servers, taken)
    cluster.wait_healthy(lambda: None)
    assert [system.get(cluster.servers, key) for key in ("before", "after")] == ["1", None]
    # The first word may be a broken connection: then nobody knows whether it was granted, and it runs out.
    until(lambda: first.acquire(20.0)["type"] == "ok", "a grant")
    assert first.call("release")["type"] == "ok"
    with pytest.raises(AgentError, match="zookeeper has no snapshot that could be put back"):
        Cluster(ZooKeeper(), cluster.settings, [], {}).restoring()
