"""The servers of one trial, bound to their agents: what a system sees of them, and waiting until they are healthy."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from harness import redaction
from harness.errors import AgentError, NotHealthy
from harness.runtime.base import Node
from harness.systems.base import HttpReply, Leadership, Server, Settings, System
from nemesis.base import AgentLink

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class AgentServer:
    """A server as its system sees it; requests go through the agent on its node, to the server's own loopback."""

    node: Node
    agent: AgentLink
    settings: Settings

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


class Cluster:
    """The running servers of the system under test."""

    def __init__(self, system: System, settings: Settings, nodes: Sequence[Node], agents: Mapping[str, AgentLink]):
        self.system, self.settings = system, settings
        self.nodes = {node.name: node for node in nodes}
        self.servers: list[Server] = [AgentServer(node, agents[node.name], settings) for node in nodes]

    def start(self) -> None:
        """Start the service on every node, in parallel inside the runtime's own limits."""
        from concurrent.futures import ThreadPoolExecutor

        plan = self.system.plan(self.settings, self.addresses())
        with ThreadPoolExecutor(max_workers=len(self.nodes)) as pool:
            list(pool.map(lambda name: self.nodes[name].start_service(plan[name]), plan))

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
            healthy, seen = self.system.healthy(self.servers)
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
        for name, node in self.nodes.items():
            running, word = node.service_running()
            if not running:
                tail = redaction.raw(node.logs())[-400:].decode(errors="replace").strip()
                raise NotHealthy(
                    f"{self.system.name} on {name} ended while it was starting: it {word} (seen: {seen}); "
                    f"its last words: {tail or 'none'}"
                )

    def leader(self) -> str | None:
        """Who leads now; asked of all servers this instant."""
        return self.leadership().leader

    def leadership(self, but: Collection[str] = ()) -> Leadership:
        """Who leads, with what each server said; `but` isn't asked."""
        return self.system.leadership([server for server in self.servers if server.name not in but])

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
