"""Bringing a trial up: nodes, agents, servers, history, contenders; until the system is healthy and all said hello."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from harness import registry, secrets
from harness.client import plugged
from harness.client.brought import ADAPTER
from harness.client.sending import told
from harness.errors import HarnessError
from harness.images import Halt
from harness.runtime.base import Node, NodeSpec, Runtime
from harness.systems import roles
from harness.systems.base import Settings, System
from harness.systems.operating import LOCK
from harness.trial import arriving, attachment, resource
from harness.trial.attached import AttachedCluster
from harness.trial.attachment import Attachment
from harness.trial.cluster import Cluster
from harness.trial.config import TrialConfig
from harness.trial.contenders import Contender
from harness.trial.lane import CONTENDER
from harness.trial.lookout import Lookout
from harness.trial.meta import meta
from harness.trial.record import TrialRecord
from harness.trial.recorder import Recorder
from harness.trial.running import Running, Watch

HELLO_SECONDS = 60.0
VERSION_SECONDS = 3.0


class BringUp:
    """Fills `Running`. Each thing is entered there once it was started: what fails later leaves nothing behind."""

    def __init__(
        self, config: TrialConfig, runtime: Runtime, record: TrialRecord, running: Running, watch: Watch
    ) -> None:
        self._config, self._runtime, self._record, self._running, self._watch = config, runtime, record, running, watch
        self._lane = running.lane
        self._system: System = registry.load("systems", config.system)()
        self._began = 0.0
        """When it got its turn (monotonic s)."""
        self._attachment: Attachment | None = None
        self._comes: arriving.Arriving | None = None
        """The client that the user brings."""

    def run(self) -> None:
        """All of it. Raises HarnessError, with what was awaited and seen, when something doesn't come up."""
        config, record = self._config, self._record
        record.phase("turn")
        self._watch.check()
        record.data["images"] = self._runtime.image_versions(config.images_needed(), images=config.images)
        self._comes = arriving.arriving(config, self._runtime, record.say, Halt())
        if self._comes is not None and (image := self._comes.image) is not None:
            record.data["images"]["client"] = {"reference": image.reference, "id": image.id, "origin": "given"}
        record.data["versions"]["engine"] = self._runtime.describe()
        settings = Settings(
            ttl_seconds=config.ttl,
            servers=config.servers or len(config.endpoints),
            image=config.image_of(self._system.image),
            options=secrets.reveal(config.system_options),
            attached=bool(config.endpoints),
        )
        if config.endpoints:
            self._attachment = attachment.examine(config, settings)
            record.data["endpoints"] = self._attachment.recorded()
            names = self._attachment.nodes
        else:
            names = roles.node_names(self._system, settings)
            self._system.plan(settings, dict.fromkeys(names, ("192.0.2.1",)))  # a bad option ends it before any node
        # One start-up at a time on this machine: side by side they take longer each than one after the other.
        try:
            with self._lane.site.starting(self._watch.check):
                record.phase("start")
                self._began = time.monotonic()
                record.data["start_seconds"] = {}
                began = self._start(settings, names)
                self._running.servers.wait_healthy(self._watch.check)
                took = time.monotonic() - began
                self._reached("healthy")
            record.data["healthy_seconds"] = round(took, 3)
            ours = self._attachment is None
            record.say(f"{config.system} healthy {took:.1f} s after its start" if ours else "the ways there are open")
            record.data["versions"]["system"], why = self._running.servers.version(VERSION_SECONDS, self._watch.check)
            if why is not None:
                record.say(f"the version stays unknown: {why}")
            self._check_version(record.data["versions"]["system"])
            self._await_hellos()
            self._reached("hellos")
        finally:
            self._begin_history()
        self._look_out()
        record.save()

    def _reached(self, what: str) -> None:
        """Note when, in seconds since the start began: `start_seconds` in trial.json."""
        self._record.data["start_seconds"][what] = round(time.monotonic() - self._began, 3)

    def _start(self, settings: Settings, names: Sequence[str]) -> float:
        """Nodes, agents, services and contenders, all started; nothing is awaited yet.

        Returns when the services were started (monotonic s).
        """
        config, running, record, logs = self._config, self._running, self._record, self._record.folder / "logs"
        with ThreadPoolExecutor(max_workers=1) as pool:
            # The lane's own nodes (contenders, resource) and the servers come up side by side.
            prepared = pool.submit(self._prepare_lane)
            image, role = ("node", "server") if self._attachment is None else ("contender", "endpoint")
            running.server_nodes += self._lane.site.start_nodes([NodeSpec(name, image, role) for name in names])
            self._reached("nodes")
            running.agents.update(self._lane.open_agents(running.server_nodes, logs))
            self._reached("agents")
            beside: Sequence[Node] = ()
            if self._attachment is None and roles.has_beside(self._system, settings, names):
                prepared.result()  # what is beside the contenders must know their addresses
                running.agents.update(self._lane.agents)
                beside = self._lane.contender_nodes
            running.cluster = self._cluster(settings, beside)
            running.cluster.start()
            began = time.monotonic()
            self._reached("services")
            prepared.result()
            self._reached("lane")
        running.agents.update(self._lane.agents)
        running.cluster.start_beside()
        record.data["epoch"] = running.clock.start(next(iter(running.agents.values())))
        record.data["services"] = {
            node: {name: spec.image for name, spec in services.items()}
            for node, services in running.cluster.plan.items()
        }
        for played, nodes in ((role, running.server_nodes), ("contender", self._lane.contender_nodes)):
            for node in nodes:
                record.data["nodes"][node.name] = {"role": played, "addresses": list(node.addresses)}
        record.data["nodes"]["resource"] = {"role": "resource", "addresses": list(self._lane.resource.addresses)}
        record.data["notes"] = list(self._lane.site.notes)
        if self._attachment is None:
            record.data["system"] = self._system.recorded(replace(settings, options=config.system_options))
        running.recorder = Recorder(record.folder)
        record.progress.live = running.recorder.live
        self._spawn_contenders()  # they load their libraries while the servers elect a leader
        self._reached("contenders")
        return began

    def _prepare_lane(self) -> None:
        config = self._config
        self._lane.prepare(config.contenders, self._record.folder / "logs", arriving.node(config, CONTENDER.name))
        if self._comes is not None:
            # What a program that isn't ours leaves on a node (files, processes) is nobody else's: no other trial's.
            self._lane.replace(node.name for node in self._lane.contender_nodes)
            self._record.data["client"] = self._comes.recorded(config)
        packages = plugged.read(config.plugged())
        if packages:
            self._record.data["plugged"] = {each.name: each.digest for each in packages}
        arriving.send(self._comes, packages, self._lane.contender_nodes)

    def _check_version(self, runs: str | None) -> None:
        """HarnessError when another one runs than was asked for: all that is told of this trial would be of that one.

        The image is at fault, which was built from packages that have moved on.
        """
        asked = self._config.version
        if asked is not None and runs is not None and runs != asked:
            raise HarnessError(f"{self._config.system}@{asked} was asked for, and its servers say that they are {runs}")

    def _cluster(self, settings: Settings, beside: Sequence[Node]) -> Cluster:
        nodes, agents = self._running.server_nodes, self._running.agents
        if self._attachment is not None:
            return AttachedCluster(self._system, settings, nodes, agents, self._attachment)
        return Cluster(self._system, settings, nodes, agents, beside)

    def _begin_history(self) -> None:
        """Now that it is known what the clients are like; or that they won't tell, and why stands in the errors."""
        running, record = self._running, self._record
        if running.recorder is not None:
            hellos = [contender.hello for contender in running.contenders if contender.hello is not None]
            running.recorder.begin(meta(self._config, record.folder.name, running.clock, hellos))

    def _spawn_contenders(self) -> None:
        config, running = self._config, self._running
        named, settings = config.client, running.servers.client_config()
        if self._comes is not None:
            options = secrets.reveal(config.client_options)
            named = ADAPTER
            settings = {**settings, "adapter": told(self._comes.client, config.system, options)}
        base = {
            "epoch": running.clock.epoch_ns,
            "lock": LOCK,
            "workload": registry.reference("workloads", config.workload),
            "client": registry.reference("clients", named or self._system.client),
            "client_config": settings,
            "ttl": config.ttl,
            "holder": config.kind,
            "resource": self._lane.resource_config(self._record.folder.name),
            "parameters": secrets.reveal(config.workload_options),
        }
        for number, node in enumerate(self._lane.contender_nodes):
            log = self._record.log_folder(node.name) / "contender.log"
            running.contenders.append(Contender(node, number, running.history, log, running.clock.now))
        with ThreadPoolExecutor(max_workers=len(running.contenders)) as pool:
            started = [pool.submit(c.spawn, {**base, "seed": f"{config.seed}/{c.process}"}) for c in running.contenders]
            for future in started:
                future.result()

    def _look_out(self) -> None:
        """From here on, whatever others do to the nodes is seen."""
        running, config = self._running, self._config
        lookout = Lookout(
            self._lane.site,
            running.agents,
            running.contenders,
            self._lane.resource,
            running.history,
            running.clock,
            system=config.system,
            ttl=config.ttl,
            said=self._record.say,
        )
        running.lookout = lookout  # entered first: what fails on the way is ended on the way out
        lookout.start()

    def _await_hellos(self) -> None:
        end = time.monotonic() + HELLO_SECONDS
        for contender in self._running.contenders:
            with contender.changed:
                while contender.hello is None:
                    self._watch.check()
                    if time.monotonic() > end:
                        _, word = resource.ready(self._lane.resource)
                        raise HarnessError(
                            f"contender {contender.process} on {contender.node.name} said no hello within "
                            f"{HELLO_SECONDS:.0f} s (the resource says: {word or 'nothing'}); what it printed, if "
                            f"anything, is in logs/{contender.node.name}/contender.log"
                        )
                    contender.changed.wait(0.1)
            self._record.data["contenders"][str(contender.process)] = {
                "node": contender.node.name,
                "holder": self._config.kind,
                "hello": contender.hello,
            }
