"""What every runtime answers, with real nodes on each: what a node is, what it can reach, and what becomes of it."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from harness.errors import HarnessError, RuntimeUnavailable, UsageError
from harness.runtime.base import Node, NodeSpec, Runtime, ServiceSpec, Site
from tests.runtime.conftest import (
    DOCKER,
    LAST_WORDS,
    LOCAL,
    SLEEPER,
    eventually,
    kill_service,
    left_of,
    pids,
    runtime_named,
)


@pytest.fixture(scope="session", params=[DOCKER, LOCAL])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    """Each runtime in turn, in place of the engine that the other modules of this folder are about."""
    return runtime_named(request.param)


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
    assert server.wait(60) == 0
    assert lines == [b"ready", second.addresses[0 if family == 4 else 1].encode()]


def test_there_is_no_way_out(pair: list[Node]) -> None:
    """Neither family has a route to anywhere but the site's own network. (Asked of the kernel: nothing is sent.)"""
    for outside in ("192.0.2.1", "2001:db8::1"):
        answer = pair[0].run(["ip", "route", "get", outside])
        assert answer.exit_code != 0
        assert b"unreachable" in answer.stderr, answer
    for family in ("-4", "-6"):
        assert pair[0].run(["ip", family, "route", "show", "default"]).stdout == b""


def test_addresses_are_not_given_out_again_soon(open_site: Callable[[], Site]) -> None:
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


def test_a_site_exists_once(open_site: Callable[[], Site], runtime: Runtime) -> None:
    """A second site of the same id is refused, and the first is not touched."""
    site = open_site()
    with pytest.raises(HarnessError, match=f"fencepost clean --site {site.id}"):
        runtime.open_site(site.id)
    assert left_of(runtime, site.id) != []


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


def test_the_node_reaches_into_a_service_of_another_user(guests: Callable[[NodeSpec], Node], runtime: Runtime) -> None:
    """From the node: stop, read and rewrite the read-only vDSO of a real server that runs as a user of its own.

    On `local` that is one of a user namespace below, whom the node sees as root, as itself.
    """
    node = guests(NodeSpec("reaches"))
    node.start_service(ServiceSpec("postgres", env={"POSTGRES_HOST_AUTH_METHOD": "trust"}))
    eventually("its readiness", lambda: b"ready to accept connections" in node.logs(), 30)
    (pid,) = eventually("the server alone", lambda: len(found := pids(node, "postgres")) == 1 and found, 30)
    answer = node.run(["python3", "-c", REACH, str(pid)])
    assert answer.exit_code == 0, answer.stderr.decode()
    assert (int(answer.stdout) != 0) is (runtime.name == "docker")


def test_the_resource_is_a_container_of_its_own(open_site: Callable[[], Site], runtime: Runtime) -> None:
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
    assert process.wait(60) == 7
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
    assert process.wait(60) == 0
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
        thread.join(60)
    process.close_stdin()
    assert process.wait(60) == 0
    assert sorted(lines) == words


def test_a_program_that_does_not_read_is_told(pair: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """A `send` to a frozen program ends with an error instead of hanging."""
    monkeypatch.setattr("harness.runtime.stdio.SEND_TIMEOUT_SECONDS", 0.5)
    process = pair[0].spawn(["sleep", "4321"], on_line=print, on_error_line=print)
    began = time.monotonic()
    with pytest.raises(HarnessError, match=r"took no input for 0\.5 s"):
        process.send(b"x" * 20_000_000)
    assert time.monotonic() - began < 12
    pair[0].run(["sh", "-c", "kill -KILL $0", *map(str, pids(pair[0], "sleep", "4321"))])
    assert process.wait(60) == 137


def test_a_failing_handler_is_not_lost(pair: list[Node]) -> None:
    """What a handler raises comes out of `wait` and `send`, and the program loses its stdin."""

    def bad(line: bytes) -> None:
        raise KeyError(line)

    process = pair[0].spawn(["sh", "-c", "echo word; exec cat"], on_line=bad, on_error_line=bad)
    with pytest.raises(HarnessError, match=r"KeyError\(b'word'\)"):
        process.wait(60)
    with pytest.raises(HarnessError, match="handling the output"):
        process.send(b"x\n")
    eventually("its end", lambda: not pids(pair[0], "cat"))


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
    assert process.wait(60) == 0


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


def test_a_process_ends_with_its_node(guests: Callable[[NodeSpec], Node], lasting_site: Site) -> None:
    """When the node is removed underneath a program, `wait` says killed instead of hanging."""
    node = guests(NodeSpec("ends"))
    lines: list[bytes] = []
    process = node.spawn(["cat"], on_line=lines.append, on_error_line=lines.append)
    process.send(b"there\n")
    eventually("its echo", lambda: lines == [b"there"])
    lasting_site.remove_nodes([node])
    assert process.wait(60) == 137


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
    node.restart_service()  # at once: it may not have been noticed the end yet
    eventually("its output", lambda: node.logs() == b"content\nnew\n" + 2 * b"content\nold\n")
    kill_service(node)
    node.restart_service(keep_data=False)
    eventually("its output", lambda: node.logs() == b"content\nnew\n" + 2 * b"content\nold\n" + b"content\nnew\n")
    assert node.service_running() == (True, "running")
    seen = json.loads(node.run(["ip", "-j", "addr", "show", "dev", "eth0"]).stdout)
    assert {each["local"] for each in seen[0]["addr_info"] if each["scope"] == "global"} == set(node.addresses)


def test_a_running_service_is_not_started_again(pair: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting what runs would do nothing, and say nothing: it is an error that asks whether it was killed."""
    for module in ("pod", "local.node"):
        monkeypatch.setattr(f"harness.runtime.{module}.EXITED_WITHIN_SECONDS", 0.3)
    with pytest.raises(HarnessError, match=r"still runs after 0\.3 s .*was it killed\?"):
        pair[0].restart_service()


def test_a_node_without_a_service_says_so(pair: list[Node]) -> None:
    """What needs a service is refused with the node's name."""
    for call in (pair[1].restart_service, pair[1].service_running):
        with pytest.raises(HarnessError, match="node n2 has no service"):
            call()
    with pytest.raises(HarnessError, match="node n1 has a service already"):
        pair[0].start_service(SLEEPER)


def test_files_are_roots_and_readable(guests: Callable[[NodeSpec], Node], runtime: Runtime) -> None:
    """A file is there before the service starts, with mode 0644, in a folder made for it; never under a tmpfs.

    It is root's; on `local`, where nobody else is known, the service's own.
    """
    owner = b"0" if runtime.name == "docker" else b"999"
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
    assert node.logs().splitlines() == [owner + b" 755 /new/folder", owner + b" 644 /new/folder/x", b"tmpfs"]
    assert node.service_running() == (False, "exited with code 0")


# Creation and removal ------------------------------------------------------------------------------------------------


def test_a_failed_start_leaves_no_node(open_site: Callable[[], Site], runtime: Runtime) -> None:
    """When one of several nodes can't be had, none is left, and the site goes on."""
    site = open_site()
    broken = ServiceSpec("etcd", files={"/etc/passwd/x": b"a file can't be in a file"})
    with pytest.raises(HarnessError, match="bad"):
        site.start_nodes([NodeSpec("n1"), NodeSpec("n2"), NodeSpec("bad", service=broken), NodeSpec("n3")])
    names = ["n1", "n2", "bad", "n3"]
    assert [node.name for node in site.start_nodes([NodeSpec(name) for name in names])] == names


def test_names_are_checked_and_used_once(open_site: Callable[[], Site], runtime: Runtime) -> None:
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


def test_a_missing_image_names_the_remedy(open_site: Callable[[], Site], runtime: Runtime) -> None:
    """Both for an image of ours and for a reference."""
    site = open_site()
    with pytest.raises(RuntimeUnavailable, match=r"nonesuch:1.*`fencepost images"):
        site.start_nodes([NodeSpec("n1", image="nonesuch:1")])
    with pytest.raises(RuntimeUnavailable, match="fencepost images"):
        runtime.open_site(f"{site.id}x", images={"node": "nonesuch:1"}).start_nodes([NodeSpec("n1")])
    runtime.clean(site_id=f"{site.id}x", include_running=True)


def test_removal_copes_with_others_that_remove_too(open_site: Callable[[], Site], runtime: Runtime) -> None:
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
        thread.join(60)
    assert errors == []
    assert [node.name for node in site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])] == ["n1", "n2"]


def test_a_site_is_entered_and_removed_by_the_commands_it_names(pair: list[Node], lasting_site: Site) -> None:
    """The commands that a kept site tells are right."""
    command = pair[0].how_to_enter().replace(" -it ", " ")
    answer = subprocess.run(f"{command} -c hostname", shell=True, capture_output=True, text=True, check=False)
    assert answer.stdout == "n1\n", answer
    assert lasting_site.how_to_remove() == f"fencepost clean --site {lasting_site.id}"


def test_threads_of_one_site_share_its_turn(open_site: Callable[[], Site]) -> None:
    """Starting services from several threads inside `starting` needs no second turn, and the turn ends with it."""
    site = open_site()
    with site.starting():
        nodes = site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])
        threads = [threading.Thread(target=node.start_service, args=(SLEEPER,)) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [node.service_running()[0] for node in nodes] == [True, True]
    second = open_site()
    with second.starting():
        pass


def test_the_protocols_are_answered(pair: list[Node], lasting_site: Site) -> None:
    """What other parts are written against is what this runtime gives."""
    assert isinstance(lasting_site, Site)
    assert isinstance(pair[0], Node)


def test_images_are_recorded(runtime: Runtime) -> None:
    """Reference, id and origin of each, for `trial.json`."""
    versions = runtime.image_versions(["node", "etcd"])
    assert set(versions) == {"node", "etcd"}
    for version in versions.values():
        assert version["id"]
        assert version["reference"]
        assert version["origin"] in ("built", "pulled", "given", "made", "exported")
