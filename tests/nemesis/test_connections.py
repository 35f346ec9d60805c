"""Connections are seen and reset by the agent; what their programs heard of it is asked of these themselves."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import AgentError
from nemesis.agent import connections as agent_connections
from nemesis.agent.base import Refused
from nemesis.link import Link, open_agent
from tests.nemesis.nodes import NamespaceNode, Spawned, until

TALK = """
import os, socket, sys
def end(side, sock):
    print(side, *sock.getsockname()[:2], flush=True)
    try: said = repr(sock.recv(1))
    except OSError as error: said = error.strerror
    print(said, flush=True)
    sys.stdin.read()
if sys.argv[1] == "serve":
    s = socket.create_server(("::", 7777), family=socket.AF_INET6, dualstack_ipv6=True)
    print("ready", flush=True)
    end("server", s.accept()[0])
else:
    end("client", socket.create_connection((sys.argv[1], 7777)))
"""


@pytest.mark.parametrize("family", [0, 1], ids=["IPv4", "IPv6"])
def test_a_reset_is_heard_at_both_ends(pair: dict[str, NamespaceNode], family: int) -> None:
    """Just the connection that was meant ends, at once and without a word sent over it."""
    n1, n2 = pair["n1"], pair["n2"]
    server_agent, client_agent = open_agent(n1), open_agent(n2)
    heard: dict[str, list[str]] = {"server": [], "client": [], "other": []}

    def talk(node: NamespaceNode, who: str, argument: str) -> Spawned:
        program = [sys.executable, "-u", "-c", TALK, argument]
        spawned = Spawned(node.enter(program), lambda line: heard[who].append(line.decode()), print, {})
        node._children.append(spawned.popen)
        until(lambda: heard[who], f"the {who}'s first line")
        return spawned

    talk(n1, "server", "serve")
    client = talk(n2, "client", n1.addresses[family])
    other = subprocess.Popen(n2.enter([sys.executable, "-c", HOLD, n1.addresses[family]]), stdout=subprocess.PIPE)
    n2._children.append(other)
    assert other.stdout is not None
    assert other.stdout.readline() == b"connected\n"
    inside = n2.inner(int(Path(f"/proc/{client.popen.pid}/task/{client.popen.pid}/children").read_text().split()[0]))
    everyone = client_agent.call("connections", peers=list(n1.addresses))["connections"]
    assert len(everyone) == 2
    (mine,) = client_agent.call("connections", peers=list(n1.addresses), pids=[inside])["connections"]
    assert mine[2:] == [n1.addresses[family], 7777]
    assert mine[0] == n2.addresses[family]
    mirrored = [mine[2], mine[3], mine[0], mine[1]]
    assert mirrored in server_agent.call("connections", peers=list(n2.addresses))["connections"]
    assert server_agent.call("reset", connections=[mirrored])["words"] == ["reset"]
    until(lambda: len(heard["client"]) == 2 and len(heard["server"]) == 3, "both to hear of it")
    assert heard["client"][1] == "Connection reset by peer"
    assert heard["server"][2] == "Software caused connection abort"
    assert client_agent.call("connections", peers=list(n1.addresses))["connections"] == [
        each for each in everyone if each != mine
    ]
    assert server_agent.call("reset", connections=[mirrored])["words"] == ["gone"]
    again = client_agent.call("probe", targets=[[n1.addresses[family], 7777]])["results"]
    assert again == ["connected"], "the kernel's look-up falls back on who listens there, which must not be ended"
    for agent in (server_agent, client_agent):
        assert agent.call("verify_clean") == {"clean": True, "left": []}
        agent.close()


HOLD = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], 7777)); print("connected", flush=True); time.sleep(99)
"""


@pytest.mark.parametrize(
    ("connections", "message"),
    [
        ([["10.77.0.1", 1, "fd77::1", 2]], r"a connection must be \[local, port, remote, port\]"),
        ([["10.77.0.1", 0, "10.77.0.2", 2]], "0 is not a port"),
        (["x"], "a connection must be"),
        ([["x", 1, "y", 2]], "is not an IPv4 or IPv6 address"),
    ],
)
def test_what_is_no_connection_is_refused(agent: Link, connections: Any, message: str) -> None:
    """Before the kernel is asked for anything."""
    with pytest.raises(AgentError, match=message):
        agent.call("reset", connections=connections)


def test_a_kernel_that_can_not_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it lacks, as an error of the command and not of its answer."""
    monkeypatch.setattr(agent_connections, "_destroy", lambda *arguments: errno.EOPNOTSUPP)
    with pytest.raises(Refused, match=r"10\.0\.0\.1:5 to 10\.0\.0\.2:6 can't be reset: this kernel can't \(it needs"):
        agent_connections.reset_connections({"op": "reset", "connections": [["10.0.0.1", 5, "10.0.0.2", 6]]})
