"""A small trial for tests of faults: servers, contenders and a resource on nodes made of namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.systems.base import Leadership, LeaseTerms
from nemesis.bite import SeenHold, SeenRequest, SeenWait
from nemesis.link import Link, open_agent
from tests.nemesis.nodes import NamespaceNode, Spawned, until
from tests.nemesis.usual import Usual

PORT = 2379
SERVICE = [
    sys.executable,
    "-c",
    "import socket, threading, time\n"
    f"s = socket.create_server(('::', {PORT}), family=socket.AF_INET6, dualstack_ipv6=True)\n"
    "def serve():\n"
    "    while True: taken.append(s.accept())\n"
    "taken = []\nthreading.Thread(target=serve).start()",
]
"""It takes whoever connects, and has two threads."""
CONTENDER = [
    sys.executable,
    "-c",
    "import socket, sys, threading, time\n"
    "def stay(server):\n"
    "    while True:\n"
    "        try:\n"
    f"            with socket.create_connection((server, {PORT})) as c: c.recv(1)\n"
    "        except OSError: time.sleep(0.01)\n"
    "for server in sys.argv[1:]: threading.Thread(target=stay, args=(server,)).start()",
]
"""It stays connected to the servers that it is told."""


class SmallTrial(Usual):
    """What a fault sees of a trial (nemesis.base.Environment). Who leads and who holds is set by the test."""

    system = "pretend"
    holds_until_told = False

    def __init__(self, nodes: dict[str, NamespaceNode]) -> None:
        self.nodes = nodes
        self.servers: Sequence[str] = [name for name in nodes if name.startswith("n")]
        self.contenders = {name: number for number, name in enumerate(n for n in nodes if n.startswith("c"))}
        names = [*self.servers, *self.contenders]
        with ThreadPoolExecutor(4) as pool:
            self.links: dict[str, Link] = dict(zip(names, pool.map(lambda n: open_agent(nodes[n]), names), strict=True))
        self.leads: str | None = self.servers[0]
        self.holds: str | None = next(iter(self.contenders), None)
        self.seen: dict[str, SeenHold] = {}
        self.waiting: dict[str, SeenWait] = {}
        self.term: int | None = None
        self.asked: list[SeenRequest] = []
        self.guards = False
        self.lease_terms = LeaseTerms(2.0, 0.0, 0.0, 2.0, 2.5, 1.0, None, "pretended", False, "pretended")
        self._contender_pids: dict[str, int] = {}
        self.restarted: list[tuple[str, bool]] = []
        for server in self.servers:
            self._start(server)
        for contender in self.contenders:
            self._spawn(contender)

    def _spawn(self, contender: str) -> None:
        node = self.nodes[contender]
        servers = [self.nodes[server].addresses[0] for server in self.servers]
        program = Spawned(node.enter([*CONTENDER, *servers]), lambda x: None, lambda x: None, {})
        node._children.append(program.popen)
        children = Path(f"/proc/{program.popen.pid}/task/{program.popen.pid}/children")
        until(children.read_text, f"the contender on {contender}")
        self._contender_pids[contender] = node.inner(int(children.read_text().split()[0]))

    def connections(self, contender: str) -> str:
        """What is connected from a contender's node, by another reader of the same tables than the agent's."""
        return self.nodes[contender].shell("ss -Htn state established || netstat -tn | grep ESTABLISHED || true")

    def _start(self, server: str) -> None:
        self.nodes[server].service(SERVICE)
        until(lambda: self.processes(server), f"the service on {server}")

    def processes(self, server: str) -> list[dict[str, object]]:
        """The processes of the service on a server, as its agent lists them."""
        return [r for r in self.links[server].call("processes")["processes"] if r["role"] == "service"]

    def agent(self, node: str) -> Link:
        return self.links[node]

    def addresses(self, node: str) -> Sequence[str]:
        return self.nodes[node].addresses

    def leader(self) -> str | None:
        return self.leads

    def holder(self) -> str | None:
        return self.holds

    def wait_for_holder(self, timeout_seconds: float) -> str | None:
        return self.holds

    def wait_until_told(self, timeout_seconds: float) -> str | None:
        raise AssertionError("nobody can be told here")

    def let_go(self, node: str) -> None:
        raise AssertionError(f"{node} was never told to hold")

    def now(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def terms(self) -> LeaseTerms:
        return self.lease_terms

    def holds(self, at_ns: int | None = None) -> Sequence[SeenHold]:
        return [hold for hold in self.seen.values() if hold.believed(self.now() if at_ns is None else at_ns)]

    def hold_of(self, node: str, at_ns: int | None = None) -> SeenHold | None:
        return self.seen.get(node)

    def granted(self, since_ns: int, until_ns: int) -> Sequence[SeenHold]:
        return [hold for hold in self.seen.values() if since_ns <= hold.since_ns <= until_ns]

    def wait_of(self, node: str, at_ns: int) -> SeenWait | None:
        return self.waiting.get(node)

    def answered(self, since_ns: int, until_ns: int) -> int:
        return 0

    def wrote(self, node: str, since_ns: int) -> bool:
        return False

    def leadership(self, but: Collection[str] = ()) -> Leadership:
        return Leadership(self.leads, {}, self.term)

    def requests(self, since_ns: int, until_ns: int) -> Sequence[SeenRequest]:
        return [
            each
            for each in self.asked
            if each.sent_ns <= until_ns and (each.done_ns is None or each.done_ns >= since_ns)
        ]

    def guarded(self, node: str) -> bool:
        return self.guards

    def brought(self, node: str) -> bool:
        return False

    def client_port(self, node: str, service: str | None = None) -> int | None:
        return PORT

    def contender_pids(self, node: str) -> Sequence[int]:
        return [self._contender_pids[node]]

    def restart_service(self, node: str, *, keep_data: bool, service: str | None = None) -> None:
        self.restarted.append((node, keep_data))
        self._start(node)

    def restart_contender(self, node: str) -> None:
        self._spawn(node)

    def works(self, a: str, b: str, family: int = 0) -> bool:
        """Whether a ping from one node to another is answered: measured by other means than the faults use."""
        address = self.nodes[b].addresses[family]
        if os.path.exists("/bin/ping") or os.path.exists("/usr/bin/ping"):
            command = ["ping", "-c", "1", "-W", "1", "-q", address]
            return subprocess.run(self.nodes[a].enter(command), capture_output=True).returncode == 0
        # Nobody listens on port 1: a refusal is an answer.
        code = (
            "import socket, sys\n"
            "s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET); s.settimeout(0.5)\n"
            "sys.exit(0 if s.connect_ex((sys.argv[1], 1)) == 111 else 1)"
        )
        return subprocess.run(self.nodes[a].enter([sys.executable, "-c", code, address])).returncode == 0

    def close(self) -> None:
        """End all agents."""
        for link in self.links.values():
            link.close()
