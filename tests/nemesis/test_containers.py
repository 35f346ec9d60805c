"""The agent and its faults on pods, with the real services: Go, C and the JVM.

What a fault does to a clock is taken from the service's own mouth here, over its protocol, and from what it makes of
it: which of its clocks decides when a lease runs out.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from harness import registry
from harness.errors import AgentError
from harness.runtime.base import Node, NodeSpec
from harness.systems.base import Leadership, LeaseTerms, Settings
from harness.systems.roles import services_of
from nemesis import faults
from nemesis.link import Link, open_agent
from tests import place
from tests.nemesis.nodes import until
from tests.nemesis.usual import Usual

pytestmark = pytest.mark.nodes

SYSTEMS = ("consul", "etcd", "redis", "zookeeper")
START_SECONDS = 60.0


class Single(Usual):
    """One server of one system on a pod, and the trial that a fault sees of it."""

    contenders: dict[str, int] = {}  # noqa: RUF012 - the protocol has it so

    def __init__(self, system: str, node: Node, link: Link) -> None:
        self.system, self.node, self.link = system, node, link
        self.port = registry.load("systems", system).port
        self.servers: Sequence[str] = [node.name]

    def agent(self, node: str) -> Link:
        return self.link

    def addresses(self, node: str) -> Sequence[str]:
        return self.node.addresses

    def leader(self) -> str | None:
        return self.node.name

    def holder(self) -> str | None:
        return None

    def wait_for_holder(self, timeout_seconds: float) -> str | None:
        return None

    holds_until_told = False

    def terms(self) -> LeaseTerms:
        return LeaseTerms(0.2, 0.0, 0.0, 0.2, 0.2, 1.0, None, "not asked", False, "not asked")

    def leadership(self, but: Collection[str] = ()) -> Leadership:
        return Leadership(self.node.name, {})

    def now(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def client_port(self, node: str, service: str | None = None) -> int | None:
        return int(self.port)

    def contender_pids(self, node: str) -> Sequence[int]:
        return []

    def restart_service(self, node: str, *, keep_data: bool, service: str | None = None) -> None:
        self.node.restart_service(keep_data=keep_data)

    # what the service says

    def tcp(self, words: bytes) -> bytes:
        """What a server of a line protocol answers."""
        payload = base64.b64encode(words).decode()
        one = 1 if self.system == "redis" else 65536
        return base64.b64decode(self.link.call("tcp", port=self.port, payload=payload, read_bytes=one)["data"])

    def http(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """What an HTTP server answers: "status", "date", "json"."""
        sent = b"" if body is None else json.dumps(body).encode()
        answer = self.link.call(
            "http", method=method, path=path, port=self.port, body=base64.b64encode(sent).decode(), timeout=3.0
        )
        text = base64.b64decode(answer["body"])
        return {**answer, "json": json.loads(text) if text[:1] in (b"{", b"[", b'"', b"t", b"f") else None}

    def ahead(self) -> float:
        """By how many seconds the service takes it to be later than it is, in its own words (whole seconds, mostly)."""
        if self.system == "redis":
            said = self.tcp(b"TIME\r\n").split()
            return int(said[2]) + int(said[4]) / 1e6 - time.time()
        if self.system == "zookeeper":  # it tells the time only in its log
            before = len(self.node.logs())
            self.tcp(b"srvr")
            until(lambda: b"srvr command" in self.node.logs()[before:], "a line in the log")
            line = next(line for line in self.node.logs()[before:].splitlines() if b"srvr command" in line)
            said_time = datetime.fromisoformat(line.split()[0].decode()).replace(tzinfo=UTC)
            return said_time.timestamp() - time.time()
        date = self.http("GET", "/version" if self.system == "etcd" else "/v1/status/leader")["date"]
        return parsedate_to_datetime(date).timestamp() - time.time()

    def answers(self) -> bool:
        """Whether the service serves."""
        try:
            if self.system == "redis":
                return self.tcp(b"PING\r\n") == b"+PONG\r\n"
            if self.system == "zookeeper":
                return b"Mode:" in self.tcp(b"srvr")
            if self.system == "etcd":
                return bool(self.http("GET", "/health")["json"] == {"health": "true", "reason": ""})
            return len(self.http("GET", "/v1/status/leader")["json"] or "") > 3
        except AgentError:
            return False


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, Single]]:
    """One server of each system, each on a pod of its own."""
    with place.site() as site:
        nodes = site.start_nodes([NodeSpec(name=f"n{number}") for number in range(1, len(SYSTEMS) + 1)])
        with ThreadPoolExecutor(len(nodes)) as pool:
            links = list(pool.map(open_agent, nodes))
        found = {}
        for name, node, link in zip(SYSTEMS, nodes, links, strict=True):
            system = registry.load("systems", name)()
            settings = Settings(ttl_seconds=2.0, servers=1, image=system.image)
            (spec,) = services_of(system, settings, {node.name: node.addresses}, {})[node.name].values()
            node.start_service(spec)
            found[name] = Single(name, node, link)
        for single in found.values():
            until(single.answers, f"{single.system} to serve", START_SECONDS)
        yield found
        for single in found.values():
            single.link.close()


@pytest.fixture(params=SYSTEMS)
def single(request: pytest.FixtureRequest, services: dict[str, Single]) -> Iterator[Single]:
    """Each system in turn; clean again afterwards."""
    one = services[request.param]
    yield one
    assert one.link.call("verify_clean") == {"clean": True, "left": []}


@pytest.mark.parametrize("clocks", ["realtime", "both"])
def test_the_service_itself_tells_the_moved_time(single: Single, clocks: str) -> None:
    """By its own words the service lives at another time, serves on, and is back when the fault is undone."""
    assert single.ahead() == pytest.approx(0, abs=3)
    fault = faults.make("clock", "leader", {"offset": 1000, "clocks": clocks})
    started = fault.start(single)
    assert started.receipt == "landed", started
    assert single.ahead() == pytest.approx(1000, abs=3)
    assert single.answers()
    stopped = fault.stop(single)
    assert stopped.receipt == "undone", stopped
    assert single.ahead() == pytest.approx(0, abs=3)
    until(single.answers, f"{single.system} to serve", START_SECONDS)


def test_freeze_and_thaw(single: Single) -> None:
    """A frozen service answers nothing, a thawed one goes on."""
    fault = faults.make("freeze", "leader", {})
    started = fault.start(single)
    assert started.receipt == "landed", started
    assert not single.answers()
    stopped = fault.stop(single)
    assert stopped.receipt == "undone", stopped
    assert stopped.reason is None
    until(single.answers, f"{single.system} to serve", START_SECONDS)


@pytest.mark.parametrize("keep_data", [True, False])
def test_kill_and_restart(single: Single, keep_data: bool) -> None:
    """A killed service is gone at once and comes back as other processes, on the same node."""
    fault = faults.make("kill", "leader", {"keep_data": keep_data})
    started = fault.start(single)
    assert started.receipt == "landed", started
    assert not single.answers()
    stopped = fault.stop(single)
    assert stopped.receipt == "undone", stopped
    until(single.answers, f"{single.system} to serve", START_SECONDS)


def test_cut_from_another_pod(services: dict[str, Single]) -> None:
    """Links between pods are cut and mended in both families, with the engine's DNS left alone."""
    one, two = services["etcd"], services["redis"]
    port = two.link.call("listen")["tcp"]
    targets = [[address, port] for address in two.node.addresses]
    assert len(targets) == 2
    assert one.link.call("probe", targets=targets)["results"] == ["connected"] * 2
    two.link.call("cut", fault="c", rules=[{"addresses": list(one.node.addresses)}])
    assert one.link.call("probe", targets=targets)["results"] == ["timeout"] * 2
    found = one.node.run(["getent", "hosts", two.node.name])
    assert found.exit_code == 0
    two.link.call("mend", fault="c")
    assert one.link.call("probe", targets=targets)["results"] == ["connected"] * 2


# -- what decides when a lease runs out ---------------------------------------------------------------------------


@pytest.mark.parametrize(("clocks", "runs_out"), [("realtime", True), ("monotonic", False)])
def test_redis_leases_run_on_the_wall_clock(services: dict[str, Single], clocks: str, runs_out: bool) -> None:
    """A key of a minute is gone as soon as the wall clock jumps by two, and not when the monotonic clock does."""
    redis = services["redis"]
    assert redis.tcp(b"SET lease x PX 60000\r\n") == b"+OK\r\n"
    fault = faults.make("clock", "leader", {"offset": 120, "clocks": clocks})
    assert fault.start(redis).receipt == "landed"
    assert redis.tcp(b"EXISTS lease\r\n") == (b":0\r\n" if runs_out else b":1\r\n")
    assert fault.stop(redis).receipt == "undone"
    redis.tcp(b"DEL lease\r\n")


@pytest.mark.parametrize(("clocks", "runs_out"), [("realtime", False), ("monotonic", True)])
def test_etcd_leases_run_on_the_monotonic_clock(services: dict[str, Single], clocks: str, runs_out: bool) -> None:
    """A lease of a minute survives a jump of the wall clock by two, and not one of the monotonic clock."""
    etcd = services["etcd"]
    lease = etcd.http("POST", "/v3/lease/grant", {"TTL": 60})["json"]["ID"]

    def left() -> int:
        return int(etcd.http("POST", "/v3/lease/timetolive", {"ID": lease})["json"].get("TTL", 0))

    assert left() > 50
    fault = faults.make("clock", "leader", {"offset": 120, "clocks": clocks})
    assert fault.start(etcd).receipt == "landed"
    if runs_out:
        until(lambda: left() <= 0, "the lease to run out")
    else:
        assert left() > 50
    assert fault.stop(etcd).receipt == "undone"
    until(etcd.answers, "etcd to serve", START_SECONDS)


# -- the dead man's switch, through the engine --------------------------------------------------------------------

HARNESS = """
import sys, time
from harness.engine import Engine
from harness.runtime.stream import Lines, start_exec
from nemesis.link import open_agent
class Node:
    name, addresses = "n1", ()
    def spawn(self, argv, *, on_line, on_error_line, env=None):
        handlers = {"on_stdout": Lines(on_line), "on_stderr": Lines(on_error_line)}
        return start_exec(Engine(), sys.argv[1], argv, "agent", **handlers)
agent = open_agent(Node())
agent.call("clock_set", fault="k", offset=60)
agent.call("freeze", fault="f")
agent.call("cut", fault="c", rules=[{"addresses": ["192.0.2.1", "2001:db8::1"]}])
print("holding", flush=True)
time.sleep(100)
"""


@pytest.mark.docker
def test_kill_9_of_the_harness_leaves_nothing(services: dict[str, Single]) -> None:
    """When the process with the engine's streams is killed, the pod's service runs again, its links and clock whole."""
    redis = services["redis"]
    redis.link.close()
    container = redis.node.how_to_enter().split()[-2]
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, container], stdout=subprocess.PIPE)
    assert harness.stdout is not None
    assert harness.stdout.readline() == b"holding\n"
    look = ["sh", "-c", "cat /proc/[0-9]*/stat; iptables -S; ip6tables -S"]
    held = redis.node.run(look).stdout
    assert b"(redis-server) T" in held
    assert held.count(b"-j DROP") == 2
    harness.kill()
    harness.wait()
    harness.stdout.close()

    def undone() -> bool:
        seen = redis.node.run(look).stdout
        return b"(redis-server) T" not in seen and b"FENCEPOST" not in seen

    until(undone, "a service that runs, and no rule of ours")
    redis.link = open_agent(redis.node)
    assert redis.link.call("verify_clean") == {"clean": True, "left": []}
    assert redis.ahead() == pytest.approx(0, abs=3)
