"""The Docker runtime against a real engine: what a node is, what it can reach, and what becomes of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from harness.errors import HarnessError, RuntimeUnavailable
from harness.runtime import network, removal
from harness.runtime.base import Node, NodeSpec, ServiceSpec
from harness.runtime.docker import DockerRuntime, DockerSite
from harness.runtime.owner import Owner
from harness.runtime.pod import CAPABILITIES, DockerNode
from tests.runtime.conftest import LAST_WORDS, SLEEPER, eventually, pause, pids

pytestmark = pytest.mark.docker


def test_the_gateway_of_a_node_without_capabilities_is_nobody(open_site: Callable[[], DockerSite]) -> None:
    """A node that can't drop its default route has one to an address that no one has, on both families."""
    site = open_site()
    (node,) = site.start_nodes([NodeSpec("n1", faultable=False)])
    subnets = site.network.subnets
    assert subnets.ipv6 is not None
    for family, subnet in (("-4", subnets.ipv4), ("-6", subnets.ipv6)):
        routes = node.run(["ip", family, "route", "show", "default"]).stdout.decode().split()
        assert "via" not in routes or routes[routes.index("via") + 1] == str(subnet[network.NOBODY])
    taken = runtime_addresses(site)
    assert not taken & {str(subnets.ipv4[network.NOBODY]), str(subnets.ipv6[network.NOBODY])}


def runtime_addresses(site: DockerSite) -> set[str]:
    """Every address that the engine gave out on a site's network, its own gateway's included."""
    found = site.engine.api.inspect_network(site.network.id)
    given = [each[key] for each in found["Containers"].values() for key in ("IPv4Address", "IPv6Address")]
    gateways = [pool.get("Gateway", "") for pool in found["IPAM"]["Config"]]
    return {address.partition("/")[0] for address in (*given, *gateways) if address}


def test_no_question_leaves_by_dns(pair: list[Node]) -> None:
    """A name that is none of the site's is not asked for elsewhere, and the answer comes within seconds."""
    look = "import socket, sys\ntry: socket.gethostbyname('outside.invalid')\nexcept socket.gaierror: sys.exit(9)"
    began = time.monotonic()
    assert pair[0].run(["python3", "-c", look]).exit_code == 9
    assert time.monotonic() - began < 9
    found = pair[0].engine.api.inspect_container(f"fencepost-{pair[0].place.site_id}-n1")  # type: ignore[attr-defined]
    assert found["HostConfig"]["Dns"] == ["127.0.0.1"]


def test_no_host_port_is_published(pair: list[Node], runtime: DockerRuntime) -> None:
    """Nothing of a site is reachable through a port of the host."""
    for container in runtime.engine.containers(f"fencepost.site={pair[0].place.site_id}"):  # type: ignore[attr-defined]
        assert all("PublicPort" not in port for port in container["Ports"])


def test_a_taken_range_is_passed_over(open_site: Callable[[], DockerSite], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the random range overlaps with another network, the next one is tried."""
    taken = open_site().network.subnets
    real, calls = network.random_subnets, []

    def first_the_taken(*args: object) -> network.Subnets:
        calls.append(args)
        return taken if len(calls) == 1 else real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(network, "random_subnets", first_the_taken)
    assert open_site().network.subnets.ipv4 != taken.ipv4
    assert len(calls) >= 2  # the next may have been taken meanwhile by somebody who runs beside


def test_a_full_pool_is_told(open_site: Callable[[], DockerSite], monkeypatch: pytest.MonkeyPatch) -> None:
    """When the pool holds no free range the error says so, and what to set."""
    site = open_site()
    monkeypatch.setenv(network.POOL_VARIABLE, str(site.network.subnets.ipv4))
    with pytest.raises(HarnessError, match=r"no free range .* FENCEPOST_IPV4_POOL"):
        open_site()


def test_without_ipv6_there_is_a_note(
    open_site: Callable[[], DockerSite], runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that refuses IPv6 gets an IPv4 site, and the site says so and why."""
    real = runtime.engine.api.create_network

    def refusing(name: str, *, enable_ipv6: bool, **rest: Any) -> dict[str, str]:
        # Said here, since an engine that is made to refuse by a bad range keeps the bridge or the range for ever.
        if enable_ipv6:
            raise APIError("500", explanation="Unable to enable IPv6 addresses on bridge: no such file or directory")
        return real(name, enable_ipv6=False, **rest)

    monkeypatch.setattr(runtime.engine.api, "create_network", refusing)
    site = open_site()
    assert site.notes == (
        "the network has no IPv6, since Docker refused it: "
        "Unable to enable IPv6 addresses on bridge: no such file or directory",
    )
    (node,) = site.start_nodes([NodeSpec("n1")])
    assert len(node.addresses) == 1
    seen = json.loads(node.run(["ip", "-j", "-4", "addr", "show", "dev", "eth0"]).stdout)
    assert [each["local"] for each in seen[0]["addr_info"]] == list(node.addresses)


# What a node is ------------------------------------------------------------------------------------------------------


def test_the_service_is_unprivileged_and_the_node_has_just_what_is_needed(
    pair: list[Node], runtime: DockerRuntime
) -> None:
    """Nobody is privileged; the service has its image's defaults; the node's capabilities are the documented five."""
    node = pair[0]
    assert isinstance(node, DockerNode)
    base = f"fencepost-{node.place.site_id}-n1"
    outer, inner = (runtime.engine.api.inspect_container(name) for name in (base, f"{base}-service"))
    assert not outer["HostConfig"]["Privileged"]
    assert outer["HostConfig"]["CapDrop"] == ["ALL"]
    assert {cap.removeprefix("CAP_") for cap in outer["HostConfig"]["CapAdd"]} == set(CAPABILITIES)
    assert not inner["HostConfig"]["Privileged"]
    assert not inner["HostConfig"]["CapAdd"]
    assert not inner["HostConfig"]["SecurityOpt"]
    assert inner["Config"]["User"] == ""
    for each in (outer, inner):
        assert each["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")
        assert each["Config"]["Labels"]["fencepost.node"] == "n1"
        assert each["Config"]["Labels"]["fencepost.owner"] == Owner.current().label()


SPAWN = """
import sys
from harness.engine import Engine
from harness.runtime.stream import Lines, start_exec
say = Lines(lambda line: print(line.decode(), flush=True))
container, code, file = sys.argv[1:]
program = start_exec(Engine(), container, ["python3", "-c", code, file], "it", on_stdout=say, on_stderr=say)
program.wait(60)
"""


def test_kill_9_of_the_harness_ends_stdin_on_the_node(pair: list[Node]) -> None:
    """The dead man's switch, for real: the process that holds the stream is killed with SIGKILL."""
    node = pair[0]
    assert isinstance(node, DockerNode)
    harness = subprocess.Popen(
        [sys.executable, "-c", SPAWN, f"fencepost-{node.place.site_id}-n1", LAST_WORDS, "/killed"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert harness.stdout is not None
    assert harness.stdout.readline() == "ready\n"
    assert node.run(["cat", "/killed"]).exit_code == 1
    harness.kill()
    harness.communicate(timeout=60)
    eventually("its last words", lambda: node.run(["cat", "/killed"]).stdout == b"the end of stdin was seen")


def test_frozen_and_paused_nodes_go_like_others(open_site: Callable[[], DockerSite], runtime: DockerRuntime) -> None:
    """SIGSTOPped trees, a paused service and a paused node are all removed, long before the deadline."""
    site = open_site()
    nodes = site.start_nodes([NodeSpec(name) for name in ("frozen", "paused", "deep")])
    for node in nodes:
        node.start_service(SLEEPER)
    (pid,) = pids(nodes[0], "sleep", "12345")
    assert nodes[0].run(["sh", "-c", f"kill -STOP {pid}"]).exit_code == 0
    pause(runtime.engine.api, f"fencepost-{site.id}-paused-service")
    pause(runtime.engine.api, f"fencepost-{site.id}-deep-service")
    pause(runtime.engine.api, f"fencepost-{site.id}-deep")
    assert nodes[1].service_running() == (True, "paused")
    began = time.monotonic()
    site.remove_nodes(nodes)
    assert time.monotonic() - began < 30
    assert runtime.engine.containers(f"fencepost.site={site.id}") == []
    site.remove_nodes(nodes)


def test_volumes_go_with_their_container(lasting_site: DockerSite, runtime: DockerRuntime) -> None:
    """The anonymous volume of a database does not outlive it."""
    site = lasting_site
    (node,) = site.start_nodes([NodeSpec("db", service=ServiceSpec("postgres"))])
    mounts = runtime.engine.api.inspect_container(f"fencepost-{site.id}-db")["Mounts"]
    (volume,) = [mount["Name"] for mount in mounts if mount["Type"] == "volume"]
    site.remove_nodes([node])
    assert volume not in [each["Name"] for each in runtime.engine.volumes()]


def test_closing_twice_and_closing_what_others_attached(
    open_site: Callable[[], DockerSite], runtime: DockerRuntime
) -> None:
    """A container that somebody attached to the site's network does not keep it; a second close does nothing."""
    site = open_site()
    site.start_nodes([NodeSpec("n1")])
    stranger = runtime.engine.api.create_container(
        site.reference("node"), name=f"{site.id}-stranger", command=["sleep", "99"]
    )
    try:
        runtime.engine.api.start(stranger["Id"])
        runtime.engine.api.connect_container_to_network(stranger["Id"], site.network.name)
        site.close()
        site.close()
        assert removal.find(runtime.engine, site.id) == []
        assert runtime.engine.api.inspect_container(stranger["Id"])["State"]["Running"]
    finally:
        runtime.engine.api.remove_container(stranger["Id"], force=True)
    with pytest.raises(HarnessError, match="is closed"):
        site.start_nodes([NodeSpec("n2")])


# The engine ----------------------------------------------------------------------------------------------------------


def test_no_engine_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A socket that nobody answers on, and an address that is none."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(RuntimeUnavailable, match=r"No such file or directory.*fencepost doctor"):
        DockerRuntime()
    monkeypatch.setenv("DOCKER_HOST", "nonsense://x")
    with pytest.raises(RuntimeUnavailable, match="nonsense"):
        DockerRuntime()


def test_the_engine_is_described(runtime: DockerRuntime) -> None:
    """Versions and limits, all of them words."""
    said = runtime.describe()
    assert {"engine", "api", "kernel", "cgroup", "storage", "architecture"} <= said.keys()
    assert all(isinstance(value, str) and value for value in said.values())
