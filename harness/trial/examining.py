"""Examining an adapter at a real system: its nodes, a contender's node on which the adapter runs, and the server's
freezes, by their agents. What is examined, and how, is `workloads/adapters/examine.py`, which runs on that node.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from harness import registry
from harness import secrets as values
from harness.client import sending
from harness.errors import HarnessError
from harness.images.halting import Halt
from harness.runtime.base import Node, NodeSpec, Runtime
from harness.systems import roles
from harness.systems.base import Settings, System, terms_of
from harness.trial import arriving
from harness.trial.cluster import Cluster
from harness.trial.config import TrialConfig
from nemesis.base import AgentLink
from nemesis.link import gather, open_agent
from workloads.adapters.examine import Alone

ARGV = ("python3", "-u", "-m", "workloads.adapters.examine")
FAULT = "examination"
STEP_SECONDS = 120.0
"""How long nothing may be heard of the examination: its longest step waits for some leases to run out."""
LAST_LINES = 10
"""How much of what it prints on stderr is told when it dies."""


@dataclass(frozen=True)
class Examined:
    """`alone` when it kept the rules that need no service; `broken`, the rules that it broke, and how."""

    alone: Alone | None
    broken: Sequence[tuple[str, str]] = ()


def ttl_of(system: str, wanted: float | None) -> float:
    """The lease to examine with: the wanted one, else 2 s, or the shortest that the system grants.

    UsageError for an unknown system.
    """
    made = registry.load("systems", system)()
    least = terms_of(made, Settings(2.0, made.server_counts[0], made.image, {})).least_seconds
    return wanted if wanted is not None else max(2.0, least)


def examine(config: TrialConfig, runtime: Runtime, report: Callable[[str], None], halt: Halt) -> Examined:
    """Examine the client that a resolved config brings, at its system.

    Raises UsageError when what it needs can't be installed, HarnessError when the examination itself could not be made,
    RuntimeUnavailable when an image is missing.
    """
    arriving.get_image([config], runtime, report, halt)
    comes = arriving.arriving(config, runtime, report, halt)
    assert comes is not None
    made: System = registry.load("systems", config.system)()
    settings = Settings(config.ttl, made.server_counts[0], config.image_of(made.image), {})
    runtime.image_versions(config.images_needed(), images=config.images)
    site = runtime.open_site(f"x{secrets.token_hex(4)}", images=config.images)
    with ExitStack() as undo:
        undo.callback(site.close)
        names = roles.node_names(made, settings)
        servers = site.start_nodes([NodeSpec(name) for name in names])
        [place] = site.start_nodes([arriving.node(config)])
        agents: dict[str, AgentLink] = {}
        for node in (*servers, place):
            agents[node.name] = link = open_agent(node)
            undo.callback(link.close)
        beside = [place] if roles.has_beside(made, settings, names) else []
        cluster = Cluster(made, settings, servers, agents, beside)
        undo.callback(cluster.close)
        report(f"{config.system} comes up")
        cluster.start()
        cluster.start_beside()
        cluster.wait_healthy(lambda: None)
        arriving.send(comes, (), [place])
        report("the adapter is examined there")
        told = cluster.client_config()
        subject = {
            "own": sending.told(comes.client, config.system, values.reveal(config.client_options)),
            "ttl": config.ttl,
            "endpoints": told.pop("endpoints"),
            "settings": told,
        }
        return _Examination(place, subject, {name: agents[name] for name in names}).result()


class _Examination:
    """The examination on its node, which asks for freezes of the servers."""

    def __init__(self, node: Node, subject: Mapping[str, Any], agents: Mapping[str, AgentLink]) -> None:
        self._agents = agents
        self._said: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._errors: list[str] = []
        self._process = node.spawn(ARGV, on_line=self._line, on_error_line=self._error)
        self._process.send(json.dumps(subject).encode() + b"\n")
        threading.Thread(target=self._watch, name="examination", daemon=True).start()

    def _line(self, line: bytes) -> None:
        self._said.put(json.loads(line))

    def _error(self, line: bytes) -> None:
        self._errors = [*self._errors, line.decode(errors="replace")][-LAST_LINES:]

    def _watch(self) -> None:
        try:
            while self._process.wait(60.0) is None:
                pass
        finally:
            self._said.put(None)

    def result(self) -> Examined:
        """What came of it."""
        alone: Alone | None = None
        try:
            while True:
                try:
                    said = self._said.get(timeout=STEP_SECONDS)
                except queue.Empty:
                    raise HarnessError(f"nothing was heard of the examination for {STEP_SECONDS:g} s") from None
                if said is None:
                    last = "; ".join(self._errors) or "nothing"
                    raise HarnessError(f"the examination ended before its time; its last words: {last}")
                if "broken" in said:
                    return Examined(alone, [(str(rule), str(what)) for rule, what in said["broken"]])
                if "alone" in said:
                    alone = Alone(**said["alone"])
                else:
                    self._do(str(said["please"]))
        finally:
            self._process.close_stdin()
            if self._process.wait(5.0) is None:
                self._process.abandon()

    def _do(self, word: str) -> None:
        more = {"missing_ok": True} if word == "thaw" else {}
        gather([agent.start(word, fault=FAULT, **more) for agent in self._agents.values()])
        self._process.send(json.dumps({"done": word}).encode() + b"\n")
