"""A node with two services and an agent: each is asked, frozen, killed and started again by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import AgentError, HarnessError, UsageError
from harness.runtime.base import Node, NodeSpec, Seen, ServiceSpec
from harness.systems.base import Settings
from harness.trial.cluster import AgentServer
from harness.trial.lookout import Lookout
from nemesis.agent.roles import NAME_FILE
from nemesis.link import Link, open_agent
from tests import place
from tests.runtime.conftest import pids
from tests.waiting import until

pytestmark = pytest.mark.nodes

SCRIPT = "echo {0} began; echo {0} > /tmp/who; exec sleep 12345"
ECHO = ["sh", "-c", "while read -r word; do if [ $word = who ]; then cat /tmp/who; else echo $word; fi; done"]
"""Reads words; of `who` it says what its service has written."""


def service(name: str) -> ServiceSpec:
    return ServiceSpec("redis", ["sh", "-c", SCRIPT.format(name)], name=name, files={NAME_FILE: f"{name}\n".encode()})


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with place.site() as site:
        (node,) = site.start_nodes([NodeSpec("n1")])
        for name in ("one", "two"):
            node.start_service(service(name))
        yield node


@pytest.fixture(scope="module")
def agent(node: Node) -> Iterator[Link]:
    link = open_agent(node)
    yield link
    link.close()


def states(agent: Link) -> dict[str, set[str]]:
    """Service -> the states of its threads, by the agent's reading; and of what asks."""
    found: dict[str, set[str]] = {}
    for row in agent.call("processes")["processes"]:
        if row["role"] in ("service", "asking"):
            found.setdefault(row.get("service") or row["role"], set()).update(row["threads"])
    return found


def test_each_service_has_a_root_a_log_and_a_life_of_its_own(node: Node) -> None:
    """The first one is the main one. A name is given once, and one that isn't there is told with those that are."""
    assert node.services() == ["one", "two"]
    until(lambda: (node.logs(), node.logs("two")) == (b"one began\n", b"two began\n"), "what both print")
    assert node.run(["cat", "/tmp/who"], service="two").stdout == b"two\n"
    assert node.run(["sh", "-c", "echo $A"], service="one", env={"A": "b"}).stdout == b"b\n"
    with pytest.raises(HarnessError, match="has a service already that is called 'two'"):
        node.start_service(service("two"))
    with pytest.raises(HarnessError, match=r"node n1 has no service 'three' \(it has: one, two\)"):
        node.logs("three")
    with pytest.raises(UsageError, match="can't be called 'agent'"):
        node.start_service(service("agent"))


def test_one_service_is_frozen_and_killed_alone(node: Node, agent: Link) -> None:
    """By its name, and without a word the agent means them all; what only asks one of them is never meant."""
    server = AgentServer(node, agent, Settings(2.0, 1, "redis"))
    with closing(server):
        assert server.ask(ECHO, "who\nend\n", "end", service="two") == ["two"]
        assert server.ask(ECHO, "who\nend\n", "end") == ["one"], "the main one"
        agent.call("freeze", fault="f", services=["two"])
        frozen = states(agent)
        agent.call("thaw", fault="f")
        assert frozen["two"] == {"T"}
        assert "T" not in frozen["one"] | frozen["asking"]
        killed = agent.call("kill", services=["two"])["processes"]
        assert {each["comm"] for each in killed} == {"sleep"}
        until(lambda: not node.service_running("two")[0], "its end")
        assert node.service_running() == (True, "running")
        with pytest.raises(AgentError):
            server.ask(ECHO, "who\nend\n", "end", service="two")
        node.restart_service(service="two")
        until(lambda: node.logs("two") == 2 * b"two began\n", "its second life")
        assert server.ask(ECHO, "who\nend\n", "end", service="two") == ["two"], "asked anew by another program"
        with pytest.raises(AgentError, match="no process of three runs on this node"):
            agent.call("kill", services=["three"])


def test_a_service_that_is_told_to_end_may_say_good_bye(node: Node, agent: Link) -> None:
    """SIGTERM goes to its main process alone; what takes longer than it may is told, and is not killed."""
    script = "trap 'echo bye; kill $child; exit 0' TERM; sleep 12345 & child=$!; echo began; wait"
    deaf = "trap '' TERM; sleep 12345 & echo deaf; wait; wait"
    for name, text in (("polite", script), ("deaf", deaf)):
        node.start_service(ServiceSpec("redis", ["sh", "-c", text], name=name, files={NAME_FILE: f"{name}\n".encode()}))
    until(lambda: node.logs("polite") + node.logs("deaf") == b"began\ndeaf\n", "both")
    ended = agent.call("stop", services=["polite"])
    assert (len(ended["told"]), len(ended["processes"])) == (1, 2)
    assert ended["took_seconds"] < 5
    until(lambda: node.service_running("polite") == (False, "exited with code 0"), "its end", 10)
    assert node.logs("polite") == b"began\nbye\n"
    with pytest.raises(AgentError, match=r"still there 0\.\d s after SIGTERM: .*\(sh\)"):
        agent.call("stop", services=["deaf"], timeout=0.3)
    assert node.service_running("deaf")[0]
    agent.call("kill", services=["deaf"])


def test_a_command_has_an_exit_code_and_a_program_that_is_late_is_not_believed(node: Node, agent: Link) -> None:
    """A late answer is none to the next question: its program is ended, and another one asked."""
    server = AgentServer(node, agent, Settings(2.0, 1, "redis"))
    with closing(server):
        done = server.exec(["sh", "-c", "cat; exit 3"], stdin=b"words", service="two", timeout_seconds=5.0)
        assert (done.exit_code, done.stdout) == (3, b"words")
        with pytest.raises(AgentError, match=r"could not be started|executable"):
            server.exec(["no-such-program"])
        with pytest.raises(AgentError, match=r"no answer from sh on n1 within 0\.3 s"):
            server.ask(ECHO, "who\n", "end", timeout_seconds=0.3)
        assert server.ask(ECHO, "who\nend\n", "end") == ["one"]
        with pytest.raises(AgentError, match=r"sh on n1 has ended: last words"):
            server.ask(["sh", "-c", "echo last words >&2; exit 1"], "who\n", "end")


def test_a_node_freezes_as_a_whole_without_a_name(agent: Link) -> None:
    """As one whose machine stands still."""
    agent.call("freeze", fault="g")
    frozen: Any = states(agent)
    agent.call("thaw", fault="g")
    assert frozen["one"] == frozen["two"] == {"T"}


def test_the_end_of_each_service_is_seen_by_its_name() -> None:
    """Whoever ends it: the one that ended and came back, and not the main one; and it is named in a sentence."""
    seen: list[Seen] = []
    with place.site() as site:
        (node,) = site.start_nodes([NodeSpec("n1")])
        for number, name in enumerate(("one", "two")):
            node.start_service(ServiceSpec("redis", ["sleep", str(3000 + number)], name=name))
        with site.watch(seen.append, print) as watch:
            (pid,) = until(lambda: pids(node, "sleep", "3001"), "the second service")
            assert node.run(["sh", "-c", f"kill -KILL {pid}"]).exit_code == 0
            until(lambda: seen, "its end")
            node.restart_service(service="two")
            watch.look()
            until(lambda: len(seen) == 2, "its second life")
    assert [(each.node, each.part, each.what, each.over) for each in seen] == [
        ("n1", "two", "killed", False),
        ("n1", "two", "killed", True),
    ]
    lookout = Lookout.__new__(Lookout)
    vars(lookout).update(_contenders=[], _resource=SimpleNamespace(name="resource"), _system="redis-sentinel")
    words = [lookout._name("n1", part) for part in ("two", "service", "node", "process 17")]
    assert words == ["two on n1", "redis-sentinel on n1", "node n1", "redis-sentinel on n1"]
