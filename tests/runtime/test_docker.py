"""The Docker runtime against a real engine: what a node is, what it can reach, and what becomes of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from harness.errors import HarnessError, RuntimeUnavailable, UsageError
from harness.runtime import network, removal
from harness.runtime.base import Node, NodeSpec, ServiceSpec, Site
from harness.runtime.docker import DockerRuntime, DockerSite
from harness.runtime.owner import Owner
from harness.runtime.pod import CAPABILITIES, DockerNode
from tests.runtime.conftest import eventually, pause

pytestmark = pytest.mark.docker

SLEEPER = ServiceSpec("etcd", command=["sleep", "12345"])
"""A service that does nothing, in an image of ours."""

FIND = """
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")
    except FileNotFoundError:
        continue
    if words[:-1] == [word.encode() for word in sys.argv[1:]]:
        print(pid)
"""


def pids(node: Node, *argv: str) -> list[int]:
    """The processes on a node that were started with exactly these words."""
    return [int(line) for line in node.run(["python3", "-c", FIND, *argv]).stdout.split()]


def kill_service(node: Node) -> None:
    """SIGKILL from the node container, as the agent does it."""
    (pid,) = pids(node, "sleep", "12345")
    assert node.run(["sh", "-c", f"kill -KILL {pid}"]).exit_code == 0


@pytest.fixture(scope="module")
def pair(lasting_site: DockerSite) -> list[Node]:
    """Two nodes, the first with a service."""
    nodes = lasting_site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])
    nodes[0].start_service(SLEEPER)
    return nodes


@pytest.fixture
def guests(lasting_site: DockerSite) -> Iterator[Callable[[NodeSpec], Node]]:
    """Starts nodes of a test's own on the site of all, which has a network already; they are gone after the test."""
    nodes: list[Node] = []

    def start(spec: NodeSpec) -> Node:
        nodes.extend(lasting_site.start_nodes([spec]))
        return nodes[-1]

    yield start
    lasting_site.remove_nodes(nodes)


# The network ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [4, 6])
def test_nodes_reach_each_other_by_name_on_both_families(pair: list[Node], family: int) -> None:
    """A name resolves to the address that the node has, over IPv4 and over IPv6, and a connection to it works."""
    first, second = pair
    address = first.addresses[0 if family == 4 else 1]
    listen = (
        "import socket; s = socket.create_server(('', 7000), family=socket.AF_INET%s); print('ready', flush=True);"
        "c, peer = s.accept(); print(peer[0], flush=True)"
    ) % ("" if family == 4 else "6")
    lines: list[bytes] = []
    server = first.spawn(["python3", "-c", listen], on_line=lines.append, on_error_line=lines.append)
    eventually("the server", lambda: lines == [b"ready"])
    connect = (
        "import socket\n"
        f"address = socket.getaddrinfo('n1', 7000, socket.AF_INET{'' if family == 4 else '6'})[0][4][0]\n"
        "socket.create_connection((address, 7000), 5)\n"
        "print(address)"
    )
    seen = second.run(["python3", "-c", connect])
    assert seen.stdout.decode().strip() == address, seen
    assert server.wait(5) == 0
    assert lines == [b"ready", second.addresses[0 if family == 4 else 1].encode()]


def test_there_is_no_way_out(pair: list[Node]) -> None:
    """Neither family has a route to anywhere but the site's own network. (Asked of the kernel: nothing is sent.)"""
    for outside in ("192.0.2.1", "2001:db8::1"):
        answer = pair[0].run(["ip", "route", "get", outside])
        assert answer.exit_code != 0
        assert b"unreachable" in answer.stderr, answer
    for family in ("-4", "-6"):
        assert pair[0].run(["ip", family, "route", "show", "default"]).stdout == b""


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


def test_addresses_are_not_given_out_again_soon(open_site: Callable[[], DockerSite]) -> None:
    """A node that takes a removed one's place has another address: nothing half-open can reach it."""
    site = open_site()
    (before,) = site.start_nodes([NodeSpec("n1")])
    site.remove_nodes([before])
    (after,) = site.start_nodes([NodeSpec("n1")])
    assert after.name == before.name
    assert set(after.addresses).isdisjoint(before.addresses)
    seen = json.loads(after.run(["ip", "-j", "addr", "show", "dev", "eth0"]).stdout)
    local = {each["local"] for each in seen[0]["addr_info"] if each["scope"] == "global"}
    assert local == set(after.addresses)


def test_a_taken_range_is_passed_over(open_site: Callable[[], DockerSite], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the random range overlaps with another network, the next one is tried."""
    taken = open_site().network.subnets
    real, calls = network.random_subnets, []

    def first_the_taken(*args: object) -> network.Subnets:
        calls.append(args)
        return taken if len(calls) == 1 else real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(network, "random_subnets", first_the_taken)
    assert open_site().network.subnets.ipv4 != taken.ipv4
    assert len(calls) == 2


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


def test_a_site_exists_once(open_site: Callable[[], DockerSite], runtime: DockerRuntime) -> None:
    """A second site of the same id is refused, and the first is not touched."""
    site = open_site()
    with pytest.raises(HarnessError, match=f"fencepost clean --site {site.id}"):
        runtime.open_site(site.id)
    assert len(removal.find(runtime.engine, site.id)) == 1


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


def test_a_node_without_faults_has_no_capability(guests: Callable[[NodeSpec], Node]) -> None:
    """`faultable=False` drops them all, in what runs there too."""
    node = guests(NodeSpec("bare", faultable=False))
    status = node.run(["cat", "/proc/self/status"]).stdout.decode()
    assert "CapBnd:\t0000000000000000" in status
    assert "CapEff:\t0000000000000000" in status


REACH = """
import os, signal, sys
pid = int(sys.argv[1])
uid = os.stat(f"/proc/{pid}").st_uid
os.kill(pid, signal.SIGSTOP)
maps = [line.split() for line in open(f"/proc/{pid}/maps")]
(vdso,) = [line[0] for line in maps if line[-1] == "[vdso]"]
start, end = (int(part, 16) for part in vdso.split("-"))
memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
before = os.pread(memory, end - start, start)
os.pwrite(memory, b"fence", end - 5)
changed = os.pread(memory, end - start, start)
os.pwrite(memory, before[-5:], end - 5)
assert before[:4] == b"\\x7fELF" and changed == before[:-5] + b"fence", (before[-9:], changed[-9:])
assert os.pread(memory, end - start, start) == before
assert b"PGDATA" in open(f"/proc/{pid}/environ", "rb").read()
os.kill(pid, signal.SIGCONT)
print(uid)
"""


def test_the_node_reaches_into_a_service_of_another_user(guests: Callable[[NodeSpec], Node]) -> None:
    """From the node: stop, read and rewrite the read-only vDSO of a real server that runs as a user of its own."""
    node = guests(NodeSpec("reaches"))
    node.start_service(ServiceSpec("postgres", env={"POSTGRES_HOST_AUTH_METHOD": "trust"}))
    (pid,) = eventually("the server", lambda: pids(node, "postgres"), 30)
    eventually("its readiness", lambda: b"ready to accept connections" in node.logs(), 30)
    (pid,) = eventually("the server", lambda: pids(node, "postgres"), 30)
    answer = node.run(["python3", "-c", REACH, str(pid)])
    assert answer.exit_code == 0, answer.stderr.decode()
    assert int(answer.stdout) != 0


def test_the_resource_is_a_container_of_its_own(open_site: Callable[[], DockerSite], runtime: DockerRuntime) -> None:
    """The resource runs its image as it is, under its name on the network, and can be restarted in place."""
    site = open_site()
    service = ServiceSpec("postgres", env={"POSTGRES_HOST_AUTH_METHOD": "trust"})
    resource, node = site.start_nodes(
        [NodeSpec("resource", role="resource", faultable=False, service=service), NodeSpec("c0", role="contender")]
    )
    assert resource.service_running() == (True, "running")
    eventually("its readiness", lambda: b"ready to accept connections" in resource.logs(), 30)
    look = "import socket; print(*{a[4][0] for a in socket.getaddrinfo('resource', 5432)})"
    assert set(node.run(["python3", "-c", look]).stdout.decode().split()) == set(resource.addresses)
    assert len(runtime.engine.containers(f"fencepost.site={site.id}")) == 2
    resource.restart_service(keep_data=False)
    assert resource.service_running() == (True, "running")
    assert set(node.run(["python3", "-c", look]).stdout.decode().split()) == set(resource.addresses)
    with pytest.raises(HarnessError, match="has a service already"):
        resource.start_service(service)


# Programs ------------------------------------------------------------------------------------------------------------


def test_lines_go_both_ways_and_apart(pair: list[Node]) -> None:
    """Lines of stdout and stderr come in order to their own handler, the environment is there, the exit code too."""
    program = (
        "import os, sys\n"
        "print(os.environ['WORD'], flush=True)\n"
        "for line in sys.stdin:\n"
        "    sys.stdout.write('out ' + line); sys.stdout.flush()\n"
        "    sys.stderr.write('err ' + line); sys.stderr.flush()\n"
        "sys.stdout.write('no newline'); sys.exit(7)"
    )
    out: list[bytes] = []
    err: list[bytes] = []
    process = pair[0].spawn(
        ["python3", "-c", program], on_line=out.append, on_error_line=err.append, env={"WORD": "a b=c"}
    )
    for number in range(100):
        process.send(b"%d\n" % number)
    eventually("the answers", lambda: len(out) == 101 and len(err) == 100)
    assert process.wait(0.1) is None
    process.close_stdin()
    process.close_stdin()
    assert process.wait(5) == 7
    assert process.wait(0) == 7
    assert out == [b"a b=c", *(b"out %d" % n for n in range(100)), b"no newline"]
    assert err == [b"err %d" % n for n in range(100)]
    with pytest.raises(HarnessError, match="exited with code 7"):
        process.send(b"more\n")


def test_a_very_long_line_is_one_line(pair: list[Node]) -> None:
    """Twenty megabytes in one line arrive as one, in both directions."""
    lines: list[bytes] = []
    process = pair[0].spawn(["cat"], on_line=lines.append, on_error_line=lines.append)
    big = bytes(range(11, 256)) * 80_000
    process.send(big + b"\nsmall\n")
    process.close_stdin()
    assert process.wait(30) == 0
    assert lines == [big, b"small"]


def test_many_writers_do_not_mix_their_lines(pair: list[Node]) -> None:
    """`send` is one piece, whichever threads call it."""
    lines: list[bytes] = []
    process = pair[0].spawn(["cat"], on_line=lines.append, on_error_line=lines.append)
    words = [bytes([65 + number]) * 30_000 for number in range(16)]
    threads = [threading.Thread(target=process.send, args=(word + b"\n",)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    process.close_stdin()
    assert process.wait(10) == 0
    assert sorted(lines) == words


def test_a_program_that_does_not_read_is_told(pair: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """A `send` to a frozen program ends with an error instead of hanging."""
    monkeypatch.setattr("harness.runtime.stream.SEND_TIMEOUT_SECONDS", 0.5)
    process = pair[0].spawn(["sleep", "4321"], on_line=print, on_error_line=print)
    began = time.monotonic()
    with pytest.raises(HarnessError, match=r"took no input for 0\.5 s"):
        process.send(b"x" * 20_000_000)
    assert time.monotonic() - began < 12
    pair[0].run(["sh", "-c", "kill -KILL $0", *map(str, pids(pair[0], "sleep", "4321"))])
    assert process.wait(5) == 137


def test_a_failing_handler_is_not_lost(pair: list[Node]) -> None:
    """What a handler raises comes out of `wait` and `send`, and the program loses its stdin."""

    def bad(line: bytes) -> None:
        raise KeyError(line)

    process = pair[0].spawn(["sh", "-c", "echo word; exec cat"], on_line=bad, on_error_line=bad)
    with pytest.raises(HarnessError, match=r"KeyError\(b'word'\)"):
        process.wait(5)
    with pytest.raises(HarnessError, match="handling the output"):
        process.send(b"x\n")
    eventually("its end", lambda: not pids(pair[0], "cat"))


LAST_WORDS = """
import pathlib, sys
print("ready", flush=True)
sys.stdin.read()
pathlib.Path(sys.argv[1]).write_text("the end of stdin was seen")
"""


def test_abandoning_ends_its_stdin(pair: list[Node]) -> None:
    """The dead man's switch, by `abandon`: the program on the node reads the end of its input and can still act."""
    lines: list[bytes] = []
    process = pair[0].spawn(
        ["python3", "-c", LAST_WORDS, "/abandoned"], on_line=lines.append, on_error_line=lines.append
    )
    eventually("its start", lambda: lines == [b"ready"])
    process.abandon()
    process.abandon()
    eventually("its last words", lambda: pair[0].run(["cat", "/abandoned"]).stdout == b"the end of stdin was seen")
    assert process.wait(5) == 0


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
    harness.communicate(timeout=5)
    eventually("its last words", lambda: node.run(["cat", "/killed"]).stdout == b"the end of stdin was seen")


def test_run_gives_all_output_and_the_exit_code(pair: list[Node]) -> None:
    """stdin arrives whole, both outputs come apart, a program may ignore its input."""
    data = bytes(range(256)) * 4000
    answer = pair[0].run(["sh", "-c", "cat; echo no >&2; exit 3"], stdin=data)
    assert (answer.exit_code, answer.stdout, answer.stderr) == (3, data, b"no\n")
    assert pair[0].run(["true"], stdin=data).exit_code == 0
    with pytest.raises(HarnessError, match="nonesuch on n1 could not be started"):
        pair[0].run(["nonesuch"])


def test_run_is_bounded_and_leaves_nothing_running(pair: list[Node]) -> None:
    """After the timeout the program and its children are killed; also one that ignores signals and stdin."""
    began = time.monotonic()
    with pytest.raises(HarnessError, match=r"did not end within 0\.5 s and was killed; it had written 'begun'"):
        pair[0].run(
            ["sh", "-c", "trap '' TERM; echo begun; sleep 7654 & wait"], stdin=b"x" * 5_000_000, timeout_seconds=0.5
        )
    assert time.monotonic() - began < 12
    eventually("its end", lambda: not pids(pair[0], "sleep", "7654"))


def test_a_process_ends_with_its_node(guests: Callable[[NodeSpec], Node], lasting_site: DockerSite) -> None:
    """When the node is removed underneath a program, `wait` says killed instead of hanging."""
    node = guests(NodeSpec("ends"))
    lines: list[bytes] = []
    process = node.spawn(["cat"], on_line=lines.append, on_error_line=lines.append)
    process.send(b"there\n")
    eventually("its echo", lambda: lines == [b"there"])
    lasting_site.remove_nodes([node])
    assert process.wait(10) == 137


# The service's life --------------------------------------------------------------------------------------------------


def test_a_killed_service_starts_again_with_and_without_its_data(guests: Callable[[NodeSpec], Node]) -> None:
    """Kept data are kept, other data are gone; files, address and logs stay, and the node never notices."""
    script = (
        "cat /etc/fence/post; if [ -e /var/mark ]; then echo old; else echo new; touch /var/mark; fi; exec sleep 12345"
    )
    spec = ServiceSpec("etcd", command=["sh", "-c", script], files={"/etc/fence/post": b"content\n"})
    node = guests(NodeSpec("again"))
    node.start_service(spec)
    eventually("its output", lambda: node.logs() == b"content\nnew\n")
    assert node.service_running() == (True, "running")
    kill_service(node)
    eventually("its end", lambda: not node.service_running()[0])
    assert node.service_running() == (False, "exited with code 137")
    node.restart_service()
    eventually("its output", lambda: node.logs() == b"content\nnew\ncontent\nold\n")
    kill_service(node)
    node.restart_service()  # at once: the engine may not have noticed the end yet
    eventually("its output", lambda: node.logs() == b"content\nnew\n" + 2 * b"content\nold\n")
    kill_service(node)
    node.restart_service(keep_data=False)
    eventually("its output", lambda: node.logs() == b"content\nnew\n" + 2 * b"content\nold\n" + b"content\nnew\n")
    assert node.service_running() == (True, "running")
    seen = json.loads(node.run(["ip", "-j", "addr", "show", "dev", "eth0"]).stdout)
    assert {each["local"] for each in seen[0]["addr_info"] if each["scope"] == "global"} == set(node.addresses)


def test_a_running_service_is_not_started_again(pair: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting what runs would do nothing, and say nothing: it is an error that asks whether it was killed."""
    monkeypatch.setattr("harness.runtime.pod.EXITED_WITHIN_SECONDS", 0.3)
    with pytest.raises(HarnessError, match=r"still runs after 0\.3 s .*was it killed\?"):
        pair[0].restart_service()


def test_a_node_without_a_service_says_so(pair: list[Node]) -> None:
    """What needs a service is refused with the node's name."""
    for call in (pair[1].restart_service, pair[1].service_running):
        with pytest.raises(HarnessError, match="node n2 has no service"):
            call()
    with pytest.raises(HarnessError, match="node n1 has a service already"):
        pair[0].start_service(SLEEPER)


def test_files_are_roots_and_readable(guests: Callable[[NodeSpec], Node]) -> None:
    """A file is there before the service starts, with mode 0644, in a folder made for it; never under a tmpfs."""
    node = guests(NodeSpec("files"))
    with pytest.raises(UsageError, match="hidden by the tmpfs on '/data'"):
        node.start_service(ServiceSpec("etcd", files={"/data/x": b""}, tmpfs=["/data"]))
    with pytest.raises(UsageError, match="an absolute path"):
        node.start_service(ServiceSpec("etcd", files={"data/x": b""}))
    node.start_service(
        ServiceSpec(
            "etcd",
            command=["sh", "-c", "stat -c '%u %a %n' /new/folder /new/folder/x; stat -f -c %T /data; touch /data/y"],
            files={"/new/folder/x": b"1"},
            tmpfs=["/data"],
        )
    )
    eventually("its end", lambda: not node.service_running()[0])
    assert node.logs().splitlines() == [b"0 755 /new/folder", b"0 644 /new/folder/x", b"tmpfs"]
    assert node.service_running() == (False, "exited with code 0")


# Creation and removal ------------------------------------------------------------------------------------------------


def test_a_failed_start_leaves_no_node(open_site: Callable[[], DockerSite], runtime: DockerRuntime) -> None:
    """When one of several nodes can't be had, none is left, and the site goes on."""
    site = open_site()
    broken = ServiceSpec("etcd", files={"/etc/passwd/x": b"a file can't be in a file"})
    with pytest.raises(HarnessError, match=f"fencepost-{site.id}-bad"):
        site.start_nodes([NodeSpec("n1"), NodeSpec("n2"), NodeSpec("bad", service=broken), NodeSpec("n3")])
    assert runtime.engine.containers(f"fencepost.site={site.id}") == []
    assert [node.name for node in site.start_nodes([NodeSpec("n1")])] == ["n1"]


def test_names_are_checked_and_used_once(open_site: Callable[[], DockerSite], runtime: DockerRuntime) -> None:
    """A name that is no host's, or taken, is refused before anything is created."""
    site = open_site()
    site.start_nodes([NodeSpec("n1")])
    for specs in ([NodeSpec("n2"), NodeSpec("n1")], [NodeSpec("n2"), NodeSpec("n2")]):
        with pytest.raises(HarnessError, match=r"has a node n[12] already"):
            site.start_nodes(specs)
    with pytest.raises(HarnessError, match="node name 'N_1'"):
        site.start_nodes([NodeSpec("N_1")])
    with pytest.raises(HarnessError, match="site id 'a/b'"):
        runtime.open_site("a/b")
    assert [node.name for node in site.start_nodes([NodeSpec("n2")])] == ["n2"]


def test_a_missing_image_names_the_remedy(open_site: Callable[[], DockerSite], runtime: DockerRuntime) -> None:
    """Both for an image of ours and for a reference."""
    site = open_site()
    with pytest.raises(RuntimeUnavailable, match=r"nonesuch:1.*`fencepost images`"):
        site.start_nodes([NodeSpec("n1", image="nonesuch:1")])
    with pytest.raises(RuntimeUnavailable, match="fencepost images"):
        runtime.open_site(f"{site.id}x", images={"node": "nonesuch:1"}).start_nodes([NodeSpec("n1")])
    runtime.clean(site_id=f"{site.id}x", include_running=True)


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


def test_removal_copes_with_others_that_remove_too(open_site: Callable[[], DockerSite], runtime: DockerRuntime) -> None:
    """Several removals of the same nodes at once all succeed: in progress and already gone are no errors."""
    site = open_site()
    nodes = site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])
    nodes[0].start_service(SLEEPER)
    errors: list[BaseException] = []

    def remove() -> None:
        try:
            site.remove_nodes(nodes)
        except BaseException as error:  # noqa: BLE001 - looked at below
            errors.append(error)

    threads = [threading.Thread(target=remove) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert runtime.engine.containers(f"fencepost.site={site.id}") == []


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


def test_a_site_is_entered_and_removed_by_the_commands_it_names(pair: list[Node], lasting_site: DockerSite) -> None:
    """The commands that a kept site tells are right."""
    command = pair[0].how_to_enter().replace(" -it ", " ")
    answer = subprocess.run(f"{command} -c hostname", shell=True, capture_output=True, text=True, check=False)
    assert answer.stdout == "n1\n", answer
    assert lasting_site.how_to_remove() == f"fencepost clean --site {lasting_site.id}"


def test_threads_of_one_site_share_its_turn(open_site: Callable[[], DockerSite]) -> None:
    """Starting services from several threads inside `starting` needs no second turn, and the turn ends with it."""
    site = open_site()
    with site.starting():
        nodes = site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])
        threads = [threading.Thread(target=node.start_service, args=(SLEEPER,)) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert [node.service_running()[0] for node in nodes] == [True, True]
    second = open_site()
    with second.starting():
        pass


def test_the_protocols_are_answered(pair: list[Node], lasting_site: DockerSite) -> None:
    """What other parts are written against is what this runtime gives."""
    assert isinstance(lasting_site, Site)
    assert isinstance(pair[0], Node)


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


def test_images_are_recorded(runtime: DockerRuntime) -> None:
    """Reference, id and origin of each, for `trial.json`."""
    versions = runtime.image_versions(["node", "etcd"])
    assert set(versions) == {"node", "etcd"}
    for version in versions.values():
        assert version["id"].startswith("sha256:")
        assert version["reference"]
        assert version["origin"] in ("built", "pulled", "given")
