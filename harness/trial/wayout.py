"""The way out of a trial, the same after its end and after every error: heal, stop, read back, collect, take down.

Each method is a stage of its own that does what it can with what there is; the trial guards each by itself.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from harness import redaction, registry
from harness.errors import HarnessError
from harness.trial import resource
from harness.trial.attached import AttachedCluster
from harness.trial.config import TrialConfig
from harness.trial.ledger import disagreements
from harness.trial.record import TrialRecord
from harness.trial.running import Running
from nemesis.link import gather

BYE_SECONDS = 10.0


class WayOut:
    """The stages, to be called in this order. `own_lane` says whether the lane ends with the trial."""

    def __init__(
        self, config: TrialConfig, record: TrialRecord, running: Running, *, own_lane: bool, keep: bool
    ) -> None:
        self._config, self._record, self._running = config, record, running
        self._lane, self._own_lane, self._keep = running.lane, own_lane, keep
        self._healed = False
        self.kept: list[str] = []
        """How to look into the nodes that were kept, and how to remove them."""

    def heal(self) -> None:
        """Every agent undoes what is left and proves that nothing of ours is in force. Harmless to repeat."""
        agents = self._running.agents
        if self._healed or not agents:
            return
        self._healed = True
        gather([agent.start("undo_all") for agent in agents.values()], timeout_seconds=10.0)
        answers = gather([agent.start("verify_clean") for agent in agents.values()], timeout_seconds=10.0)
        dirty = [
            f"{name}: {'; '.join(answer['left'])}"
            for name, answer in zip(agents, answers, strict=True)
            if not answer["clean"]
        ]
        if dirty:
            raise HarnessError(f"not everything was undone: {'; '.join(dirty)}")

    def stop_contenders(self) -> None:
        """Tell them to stop, wait until they have left, and note what failed in them."""
        contenders = self._running.contenders
        if not contenders:
            return
        self._record.phase("stop")
        for contender in contenders:
            contender.command("stop")
        deadline = time.monotonic() + BYE_SECONDS + self._config.ttl
        with ThreadPoolExecutor(max_workers=len(contenders)) as pool:
            list(pool.map(lambda contender: contender.end(deadline), contenders))
        for contender in contenders:
            # Its own counts: polls, reconnects, sessions given up. No retry that nobody counts.
            if (told := self._record.data["contenders"].get(str(contender.process))) is not None:
                told["bye"] = contender.bye
                if contender.lives > 1:
                    told["lives"] = contender.lives
        failed = [contender.failure for contender in contenders if contender.failure]
        for reason in failed:
            if reason not in self._record.errors:
                self._record.note(reason)

    def audit(self) -> None:
        """The resource's own account of what it accepted: into ledger.jsonl, and as audits into the history.

        The contenders' accounts are held against it. Raises HarnessError when it could not be had whole (then there is
        no audit at all), and when a contender told what isn't so.
        """
        if not self._record.data.get("contenders"):
            return  # nobody said hello, so nobody prepared the resource
        folder, running = self._record.folder, self._running
        reading = resource.read(self._lane.resource, folder.name, running.clock.now)
        with (folder / "ledger.jsonl").open("wb") as file:
            for write in reading.writes:
                file.write(msgspec.json.encode(redaction.data(msgspec.to_builtins(write))) + b"\n")
        left = [contender.node.name for contender in running.contenders if contender.may_write]
        if left:
            raise HarnessError(f"the resource was not audited: contenders on {', '.join(left)} may still write to it")
        for lock, twin in reading.twins:
            running.history.audit(reading.asked_ns, lock, twin, reading.ids(lock, twin))
        self._count()
        wrong = disagreements(folder / "history.jsonl", reading.writes)
        if wrong:
            raise HarnessError(f"history and ledger disagree: {'; '.join(wrong)}")

    def _count(self) -> None:
        """What the job came to, where its workload has the resource count that; into trial.json, in words too."""
        workload = registry.load("workloads", self._config.workload)
        if (sql := getattr(workload, "tally", None)) is not None:
            counted = resource.ask(self._lane.resource, self._record.folder.name, sql)
            self._record.data["tally"] = {"counted": counted, "words": list(workload.told(counted))}

    def tidy(self) -> None:
        """Remove the trial's own keys from a cluster that exists. Raises HarnessError when that isn't sure."""
        if isinstance(self._running.cluster, AttachedCluster):
            told = self._record.data["endpoints"]
            told["relays"] = self._running.cluster.end_relays()
            told["keys_removed"] = self._running.cluster.tidy()
            self._record.say(f"the trial's own keys are removed there ({told['keys_removed']} were left)")

    def look_back(self) -> None:
        """Look once more for what others did, and note it: the trial did not go as it was meant to."""
        lookout = self._running.lookout
        if lookout is None:
            return
        try:
            for sentence in lookout.close():
                self._record.note(sentence)
        finally:
            self._lane.replace(lookout.touched())

    def close_history(self) -> None:
        """No event comes any more: the history has its end line, and is on the disk."""
        if self._running.recorder is not None:
            self._running.recorder.close()

    def collect_logs(self) -> None:
        """What the services on servers and resource have printed, into the trial's folder."""
        nodes = list(self._running.server_nodes)
        if self._running.cluster is not None:
            nodes += self._running.cluster.beside.values()
        if self._lane.has_resource:
            nodes.append(self._lane.resource)
        if not nodes:
            return
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            collected = {
                (node.name, "service" if number == 0 else service): pool.submit(node.logs, service)
                for node in nodes
                for number, service in enumerate(node.services() or [None])
            }
        for (name, part), log in collected.items():
            with self._record.guard(f"collecting the log of {part} on {name}"):  # one that is lost loses no other
                (self._record.log_folder(name) / f"{part}.log").write_bytes(redaction.raw(log.result()))

    def take_down(self) -> None:
        """Remove what doesn't outlive the trial, or say how to look inside when all is kept."""
        lane, servers, cluster = self._lane, self._running.server_nodes, self._running.cluster
        if cluster is not None:
            with self._record.guard("closing what was open to servers"):  # the nodes are to be removed all the same
                cluster.close()
            lane.replace(cluster.beside)  # with what was beside it, a contender's node is no other trial's
        if self._keep and lane.opened:
            lane.site.keep()
            self.kept = [f"{node.name}: {node.how_to_enter()}" for node in [*servers, *lane.contender_nodes]]
            self.kept.append(f"remove it all: {lane.site.how_to_remove()}")
            return
        if lane.opened and servers and not self._own_lane:
            lane.close_agents(servers, self._running.agents)
            lane.site.remove_nodes(servers)
        if self._own_lane:
            lane.close()

    def tell_what_stays(self) -> None:
        """A lane of the trial's own that could not be closed."""
        if self._own_lane and self._lane.opened and not self._keep:
            self._record.note(f"not everything could be removed; {self._lane.site.how_to_remove()} does it later")
