"""The agent, spoken to on nodes made of namespaces; what it does is looked at from outside, by other means."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import AgentError
from harness.runtime.base import Process
from nemesis import link as link_module
from nemesis import parcel
from nemesis.link import Link, gather, open_agent
from tests.nemesis.nodes import NamespaceNode, Spawned, until, why_not

RESTLESS = "while true; do sleep 0.01; done"
"""A service that forks all the time, so that there is always a process that was not there a moment ago."""


def states(node: NamespaceNode, service: bool = True) -> dict[int, str]:
    """Outer pid -> state letters of its threads, for what runs in a mount namespace of its own; read from outside."""
    node_mount = os.readlink(f"/proc/{node.pid}/ns/mnt")
    found = {}
    for pid in node.outer_pids():
        try:
            if (os.readlink(f"/proc/{pid}/ns/mnt") != node_mount) == service:
                tasks = Path(f"/proc/{pid}/task").iterdir()
                found[pid] = "".join(sorted({(t / "stat").read_text().rpartition(")")[2].split()[0] for t in tasks}))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return {pid: letters for pid, letters in found.items() if letters not in ("Z", "X", "")}


def rules(node: NamespaceNode) -> str:
    """All rules of both families, as iptables prints them."""
    return node.shell("iptables -S; ip6tables -S")


def lines_of(node: NamespaceNode, agent: Link, script: str) -> tuple[Spawned, list[str]]:
    """Run a Python script as the node's service; its lines as they come."""
    lines: list[str] = []
    spawned = Spawned(
        node.enter(["unshare", "--mount", "--", sys.executable, "-u", "-c", textwrap.dedent(script)]),
        lambda line: lines.append(line.decode()),
        lambda line: lines.append("stderr: " + line.decode()),
        {},
    )
    node._children.append(spawned.popen)
    until(lambda: lines, "the first line of the service")
    return spawned, lines


# -- the stream ---------------------------------------------------------------------------------------------------


def test_hello_tells_about_the_node(agent: Link) -> None:
    """A hello names kernel, architecture and python, and its clock is that of the machine."""
    hello = agent.call("hello")
    assert hello["kernel"] == os.uname().release
    assert hello["arch"] == os.uname().machine
    assert hello["recovered"] == []


@pytest.fixture(scope="module")
def serving() -> Iterator[tuple[Process, list[dict[str, Any]]]]:
    """An agent without the harness' half of the link, and what it has answered; one for all the lines."""
    if reason := why_not():
        pytest.skip(reason)
    node = NamespaceNode("n1")
    try:
        answers: list[dict[str, Any]] = []
        process = node.spawn(
            link_module.ARGV, on_line=lambda line: answers.append(json.loads(line)), on_error_line=lambda line: None
        )
        process.send(parcel.sent())
        yield process, answers
        process.close_stdin()
        assert process.wait(60.0) == 0
    finally:
        node.close()


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"id": 1}',
        b'{"id": null, "op": "freeze"}',
        b'{"id": 1, "op": "explode"}',
        b'{"id": 1, "op": ["freeze"]}',
        b'{"id": 1, "op": "freeze"}',
        b'{"id": 1, "op": "freeze", "fault": "x", "pids": [1]}',
        b'{"id": 1, "op": "freeze", "fault": "x", "pids": [true]}',
        b'{"id": 1, "op": "freeze", "fault": "x", "pids": [999999]}',
        b'{"id": 1, "op": "freeze", "fault": {"a": 1}}',
        b'{"id": 1, "op": "cut", "fault": "x", "rules": []}',
        b'{"id": 1, "op": "cut", "fault": "x", "rules": [{"addresses": ["10.0.0.1; -F"]}]}',
        b'{"id": 1, "op": "cut", "fault": "x", "rules": [{"addresses": ["10.0.0.1"], "direction": "up"}]}',
        b'{"id": 1, "op": "cut", "fault": "x", "rules": [{"addresses": ["10.0.0.1"], "local_port": 99999}]}',
        b'{"id": 1, "op": "mend", "fault": "never"}',
        b'{"id": 1, "op": "clock_set", "fault": "x", "offset": 0}',
        b'{"id": 1, "op": "clock_set", "fault": "x", "offset": NaN}',
        b'{"id": 1, "op": "clock_set", "fault": "x", "offset": 1e400}',
        b'{"id": 1, "op": "http", "port": "80"}',
        b'{"id": 1, "op": "tcp", "port": 80, "payload": "%%%"}',
        b'{"id": 1, "op": "probe", "targets": [["nowhere", 1]]}',
        b'{"id": 1, "op": "probe", "targets": [["10.0.0.1", 0]]}',
        b'{"id": 1, "op": "hello", "service": "everything"}',
        b'{"id": 1, "op": "http", "port": 1, "method": "GET\\r\\n", "path": "/"}',
        b"[" * 100000,
    ],
    ids=lambda line: line[:60].decode(errors="replace"),
)
def test_hostile_line_is_answered_with_an_error(serving: tuple[Process, list[dict[str, Any]]], line: bytes) -> None:
    """Whatever comes over stdin, and after whatever else, the agent answers with an error, serves on, and holds
    nothing.
    """
    process, answers = serving
    before = len(answers)
    process.send(line + b"\n")
    until(lambda: len(answers) > before, "an answer")
    assert "error" in answers[before]
    process.send(b'{"id": "next", "op": "stats"}\n')
    until(lambda: len(answers) == before + 2, "an answer to a good command")
    assert answers[before + 1]["id"] == "next"
    assert answers[before + 1]["ok"]["held"] == []


def test_a_line_without_end_is_refused_not_kept(node: NamespaceNode) -> None:
    """A line longer than any command is answered with an error, and the next command is served."""
    answers: list[dict[str, Any]] = []
    process = node.spawn(
        link_module.ARGV, on_line=lambda x: answers.append(json.loads(x)), on_error_line=lambda x: None
    )
    process.send(parcel.sent() + b"x" * (17 * 1024 * 1024) + b"\n" + b'{"id": 5, "op": "stats"}\n')
    until(lambda: len(answers) == 2, "two answers")
    assert "more than" in answers[0]["error"]
    assert answers[1]["id"] == 5
    process.close_stdin()
    assert process.wait(60.0) == 0


def test_commands_in_flight_do_not_wait_for_each_other(agent: Link) -> None:
    """A probe that takes its time does not hold up a quick command."""
    slow = agent.start("heard", words=["never"], timeout=5.0)
    assert agent.call("stats", timeout_seconds=2.0)["held"] == []
    with pytest.raises(AgentError, match=r"did not answer 'heard'"):
        slow.result(0.0)


def test_death_of_the_agent_fails_what_is_in_flight(node: NamespaceNode) -> None:
    """When the agent dies, a waiting caller learns it at once, with the node's name."""
    agent = open_agent(node)
    waiting = agent.start("heard", words=["never"], timeout=30.0)
    os.kill(node.outer(agent.hello["pid"]), signal.SIGKILL)
    with pytest.raises(AgentError, match=r"heard on n1: the agent has ended"):
        waiting.result(10.0)
    with pytest.raises(AgentError, match="the agent has ended"):
        agent.call("stats")
    agent.close()


def test_a_node_without_python_is_told(node: NamespaceNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that can't start is an error that names the node and what was said there."""
    monkeypatch.setattr(link_module, "ARGV", ("no-such-python", "-c", "x"))
    with pytest.raises(AgentError, match=r"n1.*no-such-python"):
        open_agent(node)


def test_second_agent_waits_for_the_first(node: NamespaceNode) -> None:
    """Two agents never act on one node: the second says hello only when the first has left."""
    first = open_agent(node)
    second: list[Link] = []
    opener = threading.Thread(target=lambda: second.append(open_agent(node)))
    opener.start()
    assert first.call("stats")["held"] == []
    assert second == []
    first.close()
    opener.join(60)
    assert second[0].hello["recovered"] == []
    second[0].close()


# -- freezing and killing -----------------------------------------------------------------------------------------


def test_freeze_catches_what_forks_meanwhile(node: NamespaceNode, agent: Link) -> None:
    """All threads of a service that forks all the time are stopped, as seen from outside; thawed, all run."""
    node.service(["sh", "-c", RESTLESS])
    node.service(
        [
            sys.executable,
            "-c",
            "import threading,time\nfor i in range(20): threading.Thread(target=time.sleep,args=(99,)).start()",
        ]
    )
    until(lambda: len(states(node)) >= 2, "the service")
    for round_ in range(20):
        agent.call("freeze", fault=f"f{round_}")
        seen = states(node)
        assert len(seen) >= 2
        assert set(seen.values()) == {"T"}
        answer = agent.call("thaw", fault=f"f{round_}")
        assert answer["was_stopped_throughout"] is True
        assert "T" not in "".join(states(node).values())


def test_freeze_between_vfork_and_exec(node: NamespaceNode, agent: Link) -> None:
    """A parent that waits in vfork for a child that was stopped too soon does not keep the freeze from landing."""
    node.service(["sh", "-c", "while true; do /bin/true; done"])
    until(lambda: states(node), "the service")
    for round_ in range(40):
        agent.call("freeze", fault=f"f{round_}")
        assert set(states(node).values()) == {"T"}
        agent.call("thaw", fault=f"f{round_}")


def test_freeze_leaves_the_node_itself_alone(node: NamespaceNode, agent: Link) -> None:
    """Freezing the service stops neither the agent nor what else runs on the node."""
    node.service(["sleep", "100"])
    bystander = Spawned(node.enter(["sleep", "99"]), lambda line: None, lambda line: None, {})
    node._children.append(bystander.popen)
    until(lambda: states(node), "the service")
    agent.call("freeze", fault="f")
    assert set(states(node).values()) == {"T"}
    assert "T" not in "".join(states(node, service=False).values())
    agent.call("thaw", fault="f")


def test_freeze_by_pid_takes_the_children_along(node: NamespaceNode, agent: Link) -> None:
    """A contender is frozen with all that it has started, and nothing else is."""
    tree = Spawned(node.enter(["sh", "-c", "sleep 98 & sleep 97 & wait"]), lambda x: None, lambda x: None, {})
    node._children.append(tree.popen)

    def ours() -> list[dict[str, Any]]:
        return [row for row in agent.call("processes")["processes"] if row["role"] == "node"]

    until(lambda: len(ours()) == 3, "the contender and its children")
    shell = next(row["pid"] for row in ours() if row["comm"] == "sh")
    answer = agent.call("freeze", fault="f", pids=[shell])
    assert len(answer["processes"]) == 3
    assert {row["threads"] for row in ours()} == {"T"}
    agent.call("thaw", fault="f")
    assert "T" not in "".join(row["threads"] for row in ours())


def test_thaw_tells_when_somebody_else_was_first(node: NamespaceNode, agent: Link) -> None:
    """A freeze that did not last is not reported as one that did."""
    node.service(["sleep", "100"])
    until(lambda: states(node), "the service")
    agent.call("freeze", fault="f")
    for pid in states(node):
        os.kill(pid, signal.SIGCONT)
    until(lambda: "T" not in "".join(states(node).values()), "the service running")
    assert agent.call("thaw", fault="f")["was_stopped_throughout"] is False


def test_kill_leaves_nothing_of_the_service(node: NamespaceNode, agent: Link) -> None:
    """After a kill there is no process of the service, frozen ones included, and the node lives on."""
    node.service(["sh", "-c", RESTLESS])
    until(lambda: states(node), "the service")
    agent.call("freeze", fault="f")
    killed = agent.call("kill")["processes"]
    assert killed
    assert states(node) == {}
    assert agent.call("thaw", fault="f")["gone"]
    with pytest.raises(AgentError, match="no process of the service runs"):
        agent.call("kill")


def test_the_rule_rest_is_refused_on_the_machine_itself() -> None:
    """Where there is no pid namespace of the node's own, "all that isn't ours" would be the whole machine."""

    class Here:
        name = "here"
        addresses = ()

        def spawn(self, argv: Any, *, on_line: Any, on_error_line: Any, env: Any = None) -> Spawned:
            return Spawned(argv, on_line, on_error_line, {"FENCEPOST_JOURNAL": "/dev/shm"})

    if os.stat("/proc/self/ns/pid").st_ino != 0xEFFFFFFC:
        pytest.skip("these tests run in a pid namespace themselves")
    with pytest.raises(AgentError, match="refused here"):
        open_agent(Here(), service="rest")  # type: ignore[arg-type]


# -- links --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [0, 1], ids=["IPv4", "IPv6"])
def test_a_cut_stops_an_open_connection_and_mending_resumes_it(pair: dict[str, NamespaceNode], family: int) -> None:
    """Data of an established connection does not arrive while the link is cut, and does once it is mended."""
    n1, n2 = pair["n1"], pair["n2"]
    agent = open_agent(n1)
    got: list[str] = []
    address = n1.addresses[family]
    server = Spawned(
        n1.enter([sys.executable, "-u", "-c", SINK, str(family)]), lambda x: got.append(x.decode()), print_line, {}
    )
    n1._children.append(server.popen)
    until(lambda: got, "the sink's port")
    source = Spawned(n2.enter([sys.executable, "-u", "-c", SOURCE, address, got[0]]), lambda x: None, print_line, {})
    n2._children.append(source.popen)
    until(lambda: len(got) > 10, "data")
    agent.call("cut", fault="c", rules=[{"addresses": list(n2.addresses)}])
    settled = len(got)
    with pytest.raises(AssertionError, match="no data"):
        until(lambda: len(got) > settled + 3, "no data", 0.5)
    agent.call("mend", fault="c")
    stalled = len(got)
    until(lambda: len(got) > stalled + 10, "data again")
    agent.close()


SINK = """
import socket, sys
s = socket.create_server(("::" if sys.argv[1] == "1" else "0.0.0.0", 0),
                         family=socket.AF_INET6 if sys.argv[1] == "1" else socket.AF_INET)
print(s.getsockname()[1])
c, _ = s.accept()
while c.recv(4): print("x")
"""
SOURCE = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while True:
    c.sendall(b"ping"); time.sleep(0.01)
"""


def print_line(line: bytes) -> None:
    """Show what a helper program complains about."""
    print(line.decode(errors="replace"))


def test_probe_sees_each_family_and_the_other_end(pair: dict[str, NamespaceNode]) -> None:
    """A probe says connected, refused or timeout, for each family by itself."""
    one, two = open_agent(pair["n1"]), open_agent(pair["n2"])
    port = two.call("listen")["tcp"]
    v4, v6 = pair["n2"].addresses
    targets = [[v4, port], [v6, port], [v4, 1], [v6, 1], ["10.77.0.99", 1]]
    words = one.call("probe", targets=targets, timeout=0.2)["results"]
    assert words[:4] == ["connected", "connected", "refused", "refused"]
    assert words[4] in ("timeout", "No route to host")
    two.call("cut", fault="c", rules=[{"addresses": [pair["n1"].addresses[1]]}])
    assert one.call("probe", targets=targets[:2], timeout=0.2)["results"] == ["connected", "timeout"]
    two.call("mend", fault="c")
    assert one.call("probe", targets=targets[:2], timeout=0.2)["results"] == ["connected", "connected"]
    one.close()
    two.close()


def test_datagrams_tell_the_directions_apart(pair: dict[str, NamespaceNode]) -> None:
    """With only what arrives at n1 cut, n1 is still heard at n2, and a connection fails both ways."""
    one, two = open_agent(pair["n1"]), open_agent(pair["n2"])
    at_one, at_two = one.call("listen"), two.call("listen")
    one.call("cut", fault="c", rules=[{"addresses": list(pair["n2"].addresses), "direction": "in"}])
    one.call("shout", targets=[[a, at_two["udp"], f"to-two-{a}"] for a in pair["n2"].addresses])
    two.call("shout", targets=[[a, at_one["udp"], f"to-one-{a}"] for a in pair["n1"].addresses])
    words = [f"to-two-{a}" for a in pair["n2"].addresses]
    assert two.call("heard", words=words, timeout=2.0)["heard"] == words
    assert one.call("heard", words=[f"to-one-{a}" for a in pair["n1"].addresses], timeout=0.2)["heard"] == []
    assert two.call("probe", targets=[[pair["n1"].addresses[0], at_one["tcp"]]], timeout=0.2)["results"] == ["timeout"]
    assert one.call("mend", fault="c")["dropped_packets"]["in"] >= 2
    one.close()
    two.close()


def test_other_chains_are_left_alone(node: NamespaceNode, agent: Link) -> None:
    """Rules that were there stay as they were, through cuts and mends, and nothing of ours is left."""
    node.shell("iptables -N THEIRS && iptables -A INPUT -p tcp --dport 9 -j THEIRS && iptables -t nat -N DOCKER_OUTPUT")
    before = rules(node)
    agent.call("cut", fault="a", rules=[{"addresses": ["10.0.0.1", "fd00::1"], "direction": "both"}])
    agent.call("cut", fault="b", rules=[{"addresses": ["10.0.0.2"], "local_port": 80}])
    assert "-A FENCEPOST-IN -s 10.0.0.2/32 -p udp -m udp --dport 80 -j DROP" in rules(node)
    assert rules(node).count("-j FENCEPOST-IN") == 2  # one hook for each family, however many cuts
    assert agent.call("mend", fault="a")["was_cut_throughout"] is True
    assert "10.0.0.1" not in rules(node)
    assert "10.0.0.2" in rules(node)
    assert agent.call("mend", fault="b")["was_cut_throughout"] is True
    assert rules(node) == before
    assert "DOCKER_OUTPUT" in node.shell("iptables -t nat -S")
    assert agent.call("verify_clean") == {"clean": True, "left": []}


def test_a_cut_that_somebody_flushed_is_told(node: NamespaceNode, agent: Link) -> None:
    """A cut whose rules were gone before the mend is not reported as one that lasted."""
    agent.call("cut", fault="a", rules=[{"addresses": ["10.0.0.1"]}])
    node.shell("iptables -F FENCEPOST-IN")
    assert agent.call("mend", fault="a")["was_cut_throughout"] is False


def test_a_cut_survives_what_the_node_does_not_know(node: NamespaceNode, agent: Link) -> None:
    """verify_clean reads the kernel: rules of ours that this agent knows nothing of are found."""
    node.shell("iptables -N FENCEPOST-IN && iptables -I INPUT 1 -j FENCEPOST-IN")
    answer = agent.call("verify_clean")
    assert answer["clean"] is False
    assert "FENCEPOST-IN" in " ".join(answer["left"])


# -- requests to the own server -----------------------------------------------------------------------------------

SERVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(418)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (self.path.encode(), body):
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(part), part))
        self.wfile.write(b"0\\r\\n\\r\\n")
    def log_message(self, *args): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def test_http_to_the_own_server(node: NamespaceNode, agent: Link) -> None:
    """Status and body come back as they are, chunked or not; a frozen server is an error within the time."""
    _, lines = lines_of(node, agent, SERVER)
    port = int(lines[0])
    body = base64.b64encode(b"\x00\xff").decode()
    answer = agent.call("http", method="POST", path="/a?b", port=port, body=body, timeout=2.0)
    assert answer["status"] == 418
    assert base64.b64decode(answer["body"]) == b"/a?b\x00\xff"
    agent.call("freeze", fault="f")
    with pytest.raises(AgentError, match=r"no answer from 127.0.0.1:\d+ within 0.3 s"):
        agent.call("http", method="POST", path="/", port=port, timeout=0.3)
    agent.call("thaw", fault="f")
    assert agent.call("http", method="POST", path="/", port=port, timeout=2.0)["status"] == 418
    agent.call("kill")
    with pytest.raises(AgentError, match="Connection refused"):
        agent.call("http", method="POST", path="/", port=port, timeout=2.0)


def test_tcp_to_the_own_server(node: NamespaceNode, agent: Link) -> None:
    """The first chunk, or all until the server closes; an error that tells how much had come."""
    _, lines = lines_of(
        node,
        agent,
        """
        import socket
        s = socket.create_server(("127.0.0.1", 0))
        print(s.getsockname()[1], flush=True)
        while True:
            c, _ = s.accept()
            word = c.recv(100)
            c.sendall(word)
            if word == b"wait": c.recv(1)
            c.sendall(b"!"); c.close()
        """,
    )
    port = int(lines[0])

    def ask(word: bytes, **more: Any) -> bytes:
        payload = base64.b64encode(word).decode()
        return base64.b64decode(agent.call("tcp", port=port, payload=payload, timeout=0.5, **more)["data"])

    assert ask(b"ruok") == b"ruok!"
    assert ask(b"wait", read_bytes=1) == b"wait"
    with pytest.raises(AgentError, match=r"\(4 bytes came\)"):
        ask(b"wait")


# -- the dead man's switch ----------------------------------------------------------------------------------------


def hold_everything(node: NamespaceNode, agent: Link) -> None:
    """A frozen, skewed service and a cut link, as seen from outside."""
    node.service(["sh", "-c", RESTLESS])
    until(lambda: states(node), "the service")
    agent.call("clock_set", fault="k", offset=60)
    agent.call("freeze", fault="f")
    agent.call("cut", fault="c", rules=[{"addresses": ["10.0.0.1", "fd00::1"]}])
    assert set(states(node).values()) == {"T"}
    assert rules(node).count("-j DROP") == 2


def assert_nothing_left(node: NamespaceNode) -> None:
    """Nothing is frozen, cut or skewed, as seen from outside."""
    until(lambda: "T" not in "".join(states(node).values()), "no stopped process")
    until(lambda: "FENCEPOST" not in rules(node), "no rule of ours")
    assert states(node)
    after = open_agent(node)
    assert after.call("verify_clean") == {"clean": True, "left": []}
    after.close()


def test_closing_the_link_undoes_everything(node: NamespaceNode) -> None:
    """When stdin ends, the agent undoes what it holds before it leaves."""
    agent = open_agent(node)
    hold_everything(node, agent)
    agent.close()
    assert "T" not in "".join(states(node).values())
    assert_nothing_left(node)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_undoes_everything(node: NamespaceNode, number: int) -> None:
    """An agent that is asked to end does as when its stdin ends."""
    agent = open_agent(node)
    hold_everything(node, agent)
    os.kill(node.outer(agent.hello["pid"]), number)
    assert_nothing_left(node)
    agent.close()


def test_kill_9_of_the_harness_undoes_everything(node: NamespaceNode) -> None:
    """A harness that is killed leaves no frozen process, no cut link and no skewed clock."""
    script = f"""
        import time
        from nemesis.link import open_agent
        from tests.nemesis.nodes import Spawned
        class There:
            name, addresses = "n1", ()
            def spawn(self, argv, *, on_line, on_error_line, env=None):
                return Spawned({node.enter([])!r} + list(argv), on_line, on_error_line, {{}})
        agent = open_agent(There())
        agent.call("clock_set", fault="k", offset=60)
        agent.call("freeze", fault="f")
        agent.call("cut", fault="c", rules=[{{"addresses": ["10.0.0.1", "fd00::1"]}}])
        print("holding", flush=True)
        time.sleep(100)
    """
    node.service(["sh", "-c", RESTLESS])
    until(lambda: states(node), "the service")
    harness = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert harness.stdout is not None
    assert harness.stdout.readline() == b"holding\n"
    assert set(states(node).values()) == {"T"}
    harness.kill()
    harness.wait()
    harness.stdout.close()
    assert_nothing_left(node)


def test_kill_9_of_the_agent_is_made_good_by_its_guardian(node: NamespaceNode) -> None:
    """An agent that is killed outright has everything undone by its guardian, with no harness to ask for it."""
    agent = open_agent(node)
    hold_everything(node, agent)
    os.kill(node.outer(agent.hello["pid"]), signal.SIGKILL)
    assert_nothing_left(node)
    agent.close()


def test_the_next_agent_undoes_what_the_journal_says(node: NamespaceNode) -> None:
    """With the guardian killed too, faults stay, until the next agent undoes them, and says so."""
    agent = open_agent(node)
    hold_everything(node, agent)
    outer = [node.outer(agent.hello["guardian"]), node.outer(agent.hello["pid"])]
    for pid in outer:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}").exists() and stat_letter(pid) != "Z" for pid in outer), "both dead")
    agent.close()
    assert set(states(node).values()) == {"T"}
    assert rules(node).count("-j DROP") == 2
    said: list[bytes] = []
    after = open_agent(node, on_log=said.append)
    assert after.hello["recovered"] == ["freeze:f undone", "cut:c undone", "clock:k undone"]
    assert any(b"clock:k undone" in line for line in said)
    after.close()
    assert_nothing_left(node)


def stat_letter(pid: int) -> str:
    """The state of a process, read from outside; Z when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_an_unreadable_journal_is_put_aside_and_chains_are_removed(node: NamespaceNode) -> None:
    """Rubbish in the journal keeps no agent from starting, nor our chains in force."""
    agent = open_agent(node)
    journal = Path(agent.hello["journal"])
    agent.close()
    node.shell("iptables -N FENCEPOST-IN && iptables -I INPUT 1 -j FENCEPOST-IN && iptables -A FENCEPOST-IN -j DROP")
    outer = Path(f"/proc/{node.pid}/root{journal}")
    outer.write_text("rubbish")
    after = open_agent(node)
    assert "FENCEPOST" not in rules(node)
    assert after.call("verify_clean")["clean"] is True
    after.close()


def test_a_reader_that_stopped_reading_does_not_keep_faults_alive(node: NamespaceNode) -> None:
    """With its stdout full and nobody reading, the agent still undoes everything when its stdin ends."""
    node.service(["sh", "-c", RESTLESS])
    until(lambda: states(node), "the service")
    read_end, write_end = os.pipe()
    agent = subprocess.Popen(node.enter(link_module.ARGV), stdin=subprocess.PIPE, stdout=write_end)
    os.close(write_end)
    assert agent.stdin is not None
    agent.stdin.write(parcel.sent())
    agent.stdin.write(b'{"id": 1, "op": "freeze", "fault": "f"}\n')
    agent.stdin.flush()
    until(lambda: set(states(node).values()) == {"T"}, "a frozen service")
    os.set_blocking(agent.stdin.fileno(), False)
    sent = 0
    while sent < 2000:  # each answer has 300 bytes: far more than a pipe takes
        try:
            agent.stdin.write(b'{"id": 1, "op": "processes"}\n')
            agent.stdin.flush()
            sent += 1
        except BlockingIOError:
            break
    agent.stdin.close()
    until(lambda: "T" not in "".join(states(node).values()), "a thawed service")
    os.close(read_end)
    agent.wait(60)


def test_gather_waits_for_all_and_names_the_node(agent: Link) -> None:
    """One failure among many is raised after the others have been awaited."""
    handles = [agent.start("stats"), agent.start("mend", fault="never"), agent.start("stats")]
    with pytest.raises(AgentError, match=r"mend on n1: mend: no fault 'never' is in force"):
        gather(handles)
    assert handles[2].result(0.0)["held"] == []


def test_it_runs_on_old_pythons() -> None:
    """Its syntax is that of Python 3.7."""
    import ast

    for path, source in parcel.sources().items():
        ast.parse(source, path, feature_version=(3, 7))
