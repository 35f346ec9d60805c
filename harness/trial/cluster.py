"""The servers of one trial, bound to their agents: what a system sees of them, and waiting until they are healthy.

A server is a node with all services on it. The services that a system has beside contenders are started here, too.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from harness import redaction
from harness.errors import AgentError, HarnessError, NotHealthy
from harness.runtime.base import Completed, Node, ServiceSpec
from harness.systems import roles
from harness.systems.base import FirstServes, HandsOver, HttpReply, Leadership, Server, Settings, System
from harness.systems.operating import LOCK, Held, Joining, Reconfigures, Unlocks
from harness.systems.restoring import Restores
from harness.trial.conversation import ASKING, Conversation
from nemesis.base import AgentLink

POLL_SECONDS = 0.1
FIRST_POLL_SECONDS, FIRST_SECONDS = 0.02, 3.0
"""How often the first server is asked whether the others may start, and for how long they wait for it at most: all that
depends on it is how soon they are healthy.
"""


@dataclass(frozen=True)
class AgentServer:
    """A server as its system sees it; requests go through the agent on its node, to the server's own loopback."""

    node: Node
    agent: AgentLink
    settings: Settings
    _conversations: dict[tuple[str | None, ...], Conversation] = field(default_factory=dict, compare=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, compare=False)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def address(self) -> str:
        return self.node.addresses[0]

    def http(self, method: str, path: str, *, port: int, body: bytes = b"", timeout_seconds: float = 1.0) -> HttpReply:
        answer = self.agent.call(
            "http",
            timeout_seconds=timeout_seconds + 1.0,
            method=method,
            path=path,
            port=port,
            body=base64.b64encode(body).decode(),
            timeout=timeout_seconds,
        )
        return HttpReply(int(answer["status"]), base64.b64decode(answer["body"]))

    def tcp(self, payload: bytes, *, port: int, read_bytes: int = 65536, timeout_seconds: float = 1.0) -> bytes:
        answer = self.agent.call(
            "tcp",
            timeout_seconds=timeout_seconds + 1.0,
            payload=base64.b64encode(payload).decode(),
            port=port,
            read_bytes=read_bytes,
            timeout=timeout_seconds,
        )
        return base64.b64decode(answer["data"])

    def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        service: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = 1.0,
    ) -> Completed:
        within = service or self.node.services()[0]
        try:
            return self.node.run(
                argv, stdin=stdin, timeout_seconds=timeout_seconds, env={**(env or {}), **ASKING}, service=within
            )
        except HarnessError as error:
            raise AgentError(str(error)) from error

    def ask(
        self,
        argv: Sequence[str],
        question: str,
        until: str,
        *,
        service: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = 1.0,
    ) -> list[str]:
        with self._opening:
            within = service or self.node.services()[0]
            conversation = self._conversations.setdefault(
                (within, *argv), Conversation(self.node, within, argv, env or {})
            )
        return conversation.ask(question, until, timeout_seconds)

    def close(self) -> None:
        """End the programs that are kept running to be asked."""
        with self._opening:  # a question that was given up may just be beginning one
            conversations = list(self._conversations.values())
        for conversation in conversations:
            conversation.close()


class Cluster:
    """The running servers of the system under test.

    `beside`: the nodes of contenders, for the services that some systems have there.
    """

    def __init__(
        self,
        system: System,
        settings: Settings,
        nodes: Sequence[Node],
        agents: Mapping[str, AgentLink],
        beside: Sequence[Node] = (),
    ):
        self.system, self.settings = system, settings
        self.nodes = {node.name: node for node in nodes}
        self.servers: list[Server] = [AgentServer(node, agents[node.name], settings) for node in nodes]
        self.plan = self._planned({node.name: node.addresses for node in beside})
        """Node -> its services by name, the main one first."""
        self.beside = {node.name: node for node in beside if self.plan.get(node.name)}
        """The contender nodes that have services of the system's own."""
        self._beside: list[Server] = [AgentServer(node, agents[node.name], settings) for node in self.beside.values()]

    def _planned(self, contenders: Mapping[str, Sequence[str]]) -> roles.Plan:
        """What runs where; `contenders`: the addresses of those that may have something beside them."""
        return roles.services_of(self.system, self.settings, self.addresses(), contenders)

    def start(self) -> None:
        """Start all services of the servers, the nodes in parallel inside the runtime's own limits; where the system
        wants it, the first one before the others.
        """
        nodes = dict(self.nodes)
        if len(nodes) > 1 and isinstance(self.system, FirstServes):
            first = self.servers[0]
            self._start({first.name: nodes.pop(first.name)})
            deadline = time.monotonic() + FIRST_SECONDS
            while not self.system.serves(first) and time.monotonic() < deadline:
                time.sleep(FIRST_POLL_SECONDS)
        self._start(nodes)

    def start_beside(self) -> None:
        """Start those beside the contenders."""
        self._start(self.beside)

    def _start(self, nodes: Mapping[str, Node]) -> None:
        def start(node: Node) -> None:
            for spec in self.plan[node.name].values():  # the first one is the main one
                node.start_service(spec)

        if nodes:
            with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
                list(pool.map(start, nodes.values()))

    def check(self) -> None:
        """Raises HarnessError when something has ended without which no client gets on; servers are the lookout's."""

    def close(self) -> None:
        """End the programs that are kept running to be asked. The services run on."""
        for server in (*self.servers, *self._beside):
            if isinstance(server, AgentServer):
                server.close()

    def node(self, name: str) -> Node:
        """The node of a server, or of a contender that has services beside it."""
        return self.nodes[name] if name in self.nodes else self.beside[name]

    def services(self, node: str) -> Mapping[str, ServiceSpec]:
        """The services of a node by name, the main one first; none for most contenders."""
        return self.plan.get(node, {})

    def exchange(self, node: str, service: str, image: str) -> ServiceSpec:
        """A service is to run in another image from now on; what it is to be started from."""
        spec = replace(self.plan[node][service], image=image)
        self.plan = {**self.plan, node: {**self.plan[node], service: spec}}
        return spec

    def client_config(self) -> dict[str, Any]:
        """What the lock clients are told."""
        return self.system.client_config(self.settings, self.addresses())

    def addresses(self) -> dict[str, tuple[str, ...]]:
        """Node name -> its addresses."""
        return {name: node.addresses for name, node in self.nodes.items()}

    def wait_healthy(self, check: Callable[[], None], *, deadline_seconds: float | None = None) -> float:
        """Wait until a leader is known and a write succeeds; returns the seconds that it took.

        `check` is called at every look and may raise to give up early. Raises NotHealthy with what was seen last, and
        at once when a service's process has ended: it will not get healthy any more.
        """
        began = time.monotonic()
        deadline = deadline_seconds or self.system.healthy_within_seconds
        next_look_at_processes = began + 1.0
        while True:
            check()
            healthy, seen = self.healthy()
            elapsed = time.monotonic() - began
            if healthy:
                return elapsed
            if elapsed > deadline:
                raise NotHealthy(
                    f"{self.system.name} was not healthy after {elapsed:.0f} s (a leader known and a write done were "
                    f"awaited); seen last: {seen}"
                )
            if time.monotonic() > next_look_at_processes:
                self._raise_if_ended(seen)
                next_look_at_processes += 1.0
            time.sleep(POLL_SECONDS)

    def _raise_if_ended(self, seen: str) -> None:
        for name, node in (*self.nodes.items(), *self.beside.items()):
            for service in self.plan[name]:
                running, word = node.service_running(service)
                if not running:
                    tail = redaction.raw(node.logs(service))[-400:].decode(errors="replace").strip()
                    raise NotHealthy(
                        f"{service} on {name} ended while it was starting: it {word} (seen: {seen}); "
                        f"its last words: {tail or 'none'}"
                    )

    def healthy(self) -> tuple[bool, str]:
        """One look at the servers, and, once they are well, at what is beside the contenders; and what was seen."""
        healthy, seen = self.system.healthy(self.servers)
        if healthy and self._beside and isinstance(self.system, roles.Accompanies):
            healthy, also = self.system.beside_healthy(self._beside)
            seen = f"{seen}; beside the contenders: {also}"
        return healthy, seen

    def leader(self) -> str | None:
        """Who leads now; asked of all servers this instant."""
        return self.leadership().leader

    def standing(self) -> Mapping[str, Sequence[str]]:
        """Who plays which role now; asked of all servers this instant."""
        return roles.standing(self.system, self.servers)

    def hand_over(self, leader: str) -> str:
        """Order that another one leads. AgentError when it is refused, or the system has no such order."""
        if not isinstance(self.system, HandsOver):
            raise AgentError(f"{self.system.name} has no order by which another server leads")
        return self.system.hand_over(self.servers, leader)

    def held(self) -> Held | None:
        """Who holds the lock of the contenders, by the service's own word. AgentError as `Unlocks.held`."""
        return self._unlocks().held(self.servers, LOCK)

    def unlock(self, held: Held, way: str | None) -> str:
        """Take it away from this owner, by the system's usual way or another of its. AgentError when it is refused."""
        system = self._unlocks()
        return system.unlock(self.servers, held, way or system.unlock_ways[0])

    def _unlocks(self) -> Unlocks:
        if not isinstance(self.system, Unlocks):
            raise AgentError(f"{self.system.name} has no order by which an operator takes a lock away")
        return self.system

    def members(self, but: Collection[str] = ()) -> Sequence[str]:
        """The nodes that are members, by the word of all servers but these. AgentError as `Reconfigures.members`."""
        return self._reconfigures().members([server for server in self.servers if server.name not in but])

    def leave(self, node: str) -> str:
        """Order that a server is a member no more."""
        return self._reconfigures().leave(self.servers, node)

    def admit(self, node: str) -> Joining:
        """Tell the others that it comes again; how it is to be started."""
        return self._reconfigures().admit(self.servers, node, next(iter(self.plan[node].values())))

    def admitted(self, node: str) -> str:
        """What is to be ordered once it runs again."""
        return self._reconfigures().admitted(self.servers, node)

    def _reconfigures(self) -> Reconfigures:
        if not isinstance(self.system, Reconfigures):
            raise AgentError(f"{self.system.name} has no members that leave and join")
        return self.system

    def restoring(self) -> Restores:
        """What takes snapshots of the service and puts them back. AgentError where the system has nothing like it."""
        if not isinstance(self.system, Restores):
            raise AgentError(f"{self.system.name} has no snapshot that could be put back")
        return self.system

    def leadership(self, but: Collection[str] = ()) -> Leadership:
        """Who leads, with what each server said; `but` isn't asked."""
        return self.system.leadership([server for server in self.servers if server.name not in but])

    def version_of(self, node: str) -> str:
        """The version that one server reports. AgentError, ValueError or KeyError when it doesn't."""
        return self.system.version(next(server for server in self.servers if server.name == node))

    def version(self, patience_seconds: float, check: Callable[[], None]) -> tuple[str | None, str | None]:
        """The version that the first server that answers reports; (None, why) when none did in time.

        `check` is called before every question and may raise to give up. Without an answer the trial goes on: a busy
        machine can be late with one that nothing depends on.
        """
        end = time.monotonic() + patience_seconds
        while True:
            reasons = []
            for server in self.servers:
                check()
                try:
                    return self.system.version(server), None
                except (AgentError, ValueError, KeyError) as error:
                    reasons.append(f"{server.name}: {error}")
            if time.monotonic() > end:
                return None, "; ".join(reasons)
            time.sleep(POLL_SECONDS)
