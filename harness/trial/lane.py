"""A lane: the nodes that trials run on one after the other.

Creating a container costs a third of a second of CPU, and a trial has six that no trial leaves a mark on: five
contender nodes and the resource. A lane keeps those between trials, and hands a contender node on only after its agent
has proven that nothing of ours is in force there; one that isn't clean is replaced. Servers are created for each trial
and never reused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import AgentError, HarnessError
from harness.runtime.base import Node, NodeSpec, Runtime, Site
from harness.trial import resource
from harness.trial.recorder import LogFile
from nemesis.base import AgentLink
from nemesis.link import open_agent

log = logging.getLogger(__name__)

CONTENDER = NodeSpec("contender", "contender", "contender")
"""What contenders' nodes are, but for their names, where their client needs nothing else."""


class LogSink:
    """Where an agent's stderr goes now: into the logs of the trial that runs on the lane."""

    def __init__(self, path: Path) -> None:
        self.point_to(path)

    def point_to(self, path: Path) -> None:
        """From now on to this file. An agent's log that can't be written loses no evidence: receipts are answers."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._log = LogFile(path, log.warning)

    def __call__(self, line: bytes) -> None:
        self._log.line(line)


class Lane:
    """One site with its contender nodes and its resource. Not for two trials at once."""

    def __init__(
        self,
        runtime: Runtime,
        site_id: str,
        *,
        images: Mapping[str, str] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` is called before each step of a start-up, and may raise to give up."""
        self.runtime, self.site_id, self.images = runtime, site_id, dict(images or {})
        self._check = check
        self.contender_nodes: list[Node] = []
        self.agents: dict[str, AgentLink] = {}
        self._site: Site | None = None
        self._resource: Node | None = None
        self._sinks: dict[str, LogSink] = {}
        self._touched: set[str] = set()
        self._kind = CONTENDER
        self._opening = threading.Lock()

    @property
    def site(self) -> Site:
        """Its site, opened when it is first asked for."""
        with self._opening:
            if self._site is None:
                self._site = self.runtime.open_site(self.site_id, images=self.images, check=self._check)
            return self._site

    @property
    def opened(self) -> bool:
        """Whether there is anything to close."""
        return self._site is not None

    @property
    def resource(self) -> Node:
        """The node of the protected resource."""
        assert self._resource is not None, "prepare() comes first"
        return self._resource

    @property
    def has_resource(self) -> bool:
        """Whether the resource was started."""
        return self._resource is not None

    def close_agents(self, nodes: Sequence[Node], agents: Mapping[str, AgentLink]) -> None:
        """End the agents of nodes that are about to go; each undoes what it still holds."""
        for node in nodes:
            if node.name in agents:
                agents[node.name].close()

    def replace(self, nodes: Iterable[str]) -> None:
        """Don't hand these nodes on, however clean their agents say they are: others did something to them."""
        self._touched.update(nodes)

    def prepare(self, contenders: int, logs: Path, kind: NodeSpec = CONTENDER) -> None:
        """Have so many clean contender nodes of this kind (whatever its name), with agents, and the resource; reuses
        what is there and clean.
        """
        self.replace(node.name for node in self.contender_nodes if kind != self._kind)
        self._kind = kind
        self._drop_dead_resource()
        clean = self._clean_nodes()
        keep = clean[:contenders]
        drop = [node for node in self.contender_nodes if node not in keep]
        for node in drop:
            agent = self.agents.pop(node.name, None)
            if agent is not None:
                agent.close()
        self.site.remove_nodes(drop)
        have = {node.name for node in keep}
        names = [name for name in (f"c{number}" for number in range(contenders)) if name not in have]
        specs = [replace(kind, name=name) for name in names]
        if self._resource is None:
            specs.append(NodeSpec(name="resource", role="resource", faultable=False, service=resource.service()))
        fresh = self.site.start_nodes(specs)
        self._touched.clear()
        if self._resource is None:
            self._resource = fresh.pop()
        self.agents.update(self.open_agents(fresh, logs))
        self.contender_nodes = sorted([*keep, *fresh], key=lambda node: int(node.name[1:]))
        for node in keep:
            self._sinks[node.name].point_to(logs / node.name / "agent.log")

    def _drop_dead_resource(self) -> None:
        """A resource that doesn't answer is replaced like an unclean node."""
        if self._resource is None:
            return
        try:
            alive = self._resource.name not in self._touched and resource.ready(self._resource)[0]
        except HarnessError:
            alive = False
        if not alive:
            self.site.remove_nodes([self._resource])
            self._resource = None

    def _clean_nodes(self) -> list[Node]:
        def clean(node: Node) -> bool:
            if node.name in self._touched:
                return False
            try:
                return bool(self.agents[node.name].call("verify_clean")["clean"])
            except (AgentError, KeyError):
                return False  # a node whose agent can't vouch for it is replaced, not trusted

        if not self.contender_nodes:
            return []
        with ThreadPoolExecutor(max_workers=len(self.contender_nodes)) as pool:
            verdicts = list(pool.map(clean, self.contender_nodes))
        return [node for node, good in zip(self.contender_nodes, verdicts, strict=True) if good]

    def open_agents(self, nodes: Sequence[Node], logs: Path) -> dict[str, AgentLink]:
        """Start the agent on each node, in parallel; their stderr goes to the trial's logs."""

        def start(node: Node) -> AgentLink:
            self._check()
            sink = self._sinks[node.name] = LogSink(logs / node.name / "agent.log")
            return open_agent(node, on_log=sink)

        if not nodes:
            return {}
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            return {agent.node: agent for agent in pool.map(start, nodes)}

    def resource_config(self, run: str) -> dict[str, Any]:
        """How a contender of this run reaches the resource (workloads/PROTOCOL.md)."""
        return {**resource.connection(self.resource.name), "run": run}

    def close(self) -> None:
        """Close the agents, remove everything. Whatever fails on the way, the removal is tried; its error is raised."""
        for agent in self.agents.values():
            try:
                agent.close()
            except HarnessError as error:
                log.warning("%s", error)  # removing its node ends it all the same
        self.agents.clear()
        self.contender_nodes, self._resource = [], None
        if self._site is not None:
            self._site.close()
            self._site = None
