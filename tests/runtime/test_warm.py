"""Agents of the runtime local: forks of a node's first process that can do, and have, what a program would."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.errors import AgentError
from harness.runtime.base import NodeSpec, Runtime, ServiceSpec
from nemesis import parcel
from nemesis.link import open_agent
from tests.runtime.conftest import eventually, runtime_named

pytestmark = pytest.mark.local

RIGHTS = ("CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "Uid:", "NoNewPrivs:", "SigBlk:")


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    """Namespaces of this machine."""
    return runtime_named("local")


def of(node: Any, pid: int, name: str) -> str:
    """A file of a process of the node, as a program there sees it."""
    return str(node.run(["cat", f"/proc/{pid}/{name}"]).stdout.decode())


def rights(status: str) -> list[str]:
    return [line for line in status.splitlines() if line.startswith(RIGHTS)]


def test_an_agent_has_the_rights_of_a_program_and_nothing_of_the_harness(open_site: Callable[[], Any]) -> None:
    """A fork inherits what an exec loses: capabilities, and open files. All of it is given up."""
    (node,) = open_site().start_nodes([NodeSpec("n1")])
    agent = open_agent(node)
    pid = agent.hello["pid"]
    (guardian,) = [
        int(name)
        for name in node.run(["ls", "/proc"]).stdout.split()
        if name.isdigit() and int(name) > 1 and f"PPid:\t{pid}\n" in of(node, int(name), "status")
    ]
    program = node.run(["cat", "/proc/self/status"]).stdout.decode()
    for each in (pid, guardian):
        assert rights(of(node, each, "status")) == rights(program)
        opened = node.run(["sh", "-c", f"for x in /proc/{each}/fd/*; do readlink $x; done"]).stdout.decode().split()
        assert not [name for name in opened if "socket" in name or "memfd" in name or name.startswith("mnt:")], opened
    assert of(node, pid, "comm") == "agent\n"
    assert agent.hello["code"] == parcel.code()
    agent.close()
    eventually("the guardian's end", lambda: node.run(["test", "-d", f"/proc/{guardian}"]).exit_code == 1)


def test_code_that_was_changed_since_is_loaded_from_the_parcel(open_site: Callable[[], Any]) -> None:
    """A harness that has run for long may be older, or younger, than the files that a site finds: its own code runs."""
    (node,) = open_site().start_nodes([NodeSpec("n1")])
    sources = parcel.sources()
    start = sources["nemesis/agent/start.py"].replace(b"Agent(journal, code)", b"Agent(journal, 'other ' + code)")
    other = parcel.pack({**sources, "nemesis/agent/start.py": start})
    said: list[bytes] = []
    process = node.spawn_agent(other, on_line=said.append, on_error_line=said.append)
    process.send(b'{"id": 1, "op": "hello"}\n')
    eventually("its hello", lambda: said)
    process.close_stdin()
    assert process.wait(60.0) == 0
    assert json.loads(said[0])["ok"]["code"] == f"other {hashlib.sha256(other).hexdigest()}"


def test_an_agent_that_was_forked_can_all_that_it_imports_late(open_site: Callable[[], Any]) -> None:
    """Names, requests, tracebacks: their modules are nowhere in the root that it stands in."""
    (node,) = open_site().start_nodes([NodeSpec("n1")])
    node.start_service(ServiceSpec("redis"))
    agent = open_agent(node)
    hello = base64.b64encode(b"PING\r\n").decode()
    eventually("redis", lambda: _pong(agent, hello))
    with pytest.raises(AgentError, match="refused"):
        agent.call("http", method="GET", path="/", port=1, body="", timeout=1.0)
    agent.close()


def _pong(agent: Any, payload: str) -> bool:
    try:
        answer = agent.call("tcp", payload=payload, port=6379, read_bytes=7, timeout=1.0)
    except AgentError:
        return False  # not yet
    return base64.b64decode(answer["data"]).startswith(b"+PONG")
