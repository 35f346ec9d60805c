"""A trial's life: start, wait, disturb, heal, recover, stop, take down, judge, report; one way out of every error.

The order is that of issue 2, item 8. Three rules hold it together:

- *Nothing is lost.* Config and history are on disk before anything can fail; every stage after the first event runs
  whatever happened before it (undo, stop, ledger, logs, take-down, judging, report), each guarded by itself, and what
  failed in it is added to the trial's errors.
- *Everything is undone.* Faults are undone by their own `stop`, then by the agents (`undo_all`), and the agents verify
  it; should the harness be killed, their stdin ends and they do the same by themselves.
- *A lane keeps what is clean.* Contender nodes and the resource outlive a trial when a lane is handed in, and only
  after their agents have proven that nothing of ours is in force on them.
"""

from __future__ import annotations

import json
import logging
import platform
import random
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from checkers import judge
from harness import __version__, history, registry
from harness.errors import FencepostError, HarnessError
from harness.report import write_trial
from harness.runtime.base import Node, NodeSpec, Runtime
from harness.systems.base import Settings, System
from harness.trial import resource
from harness.trial.cluster import Cluster
from harness.trial.config import TrialConfig
from harness.trial.contenders import Contender
from harness.trial.injector import Injector, TrialEnvironment
from harness.trial.lane import Lane
from harness.trial.ledger import disagreements
from harness.trial.live import LiveState
from harness.trial.outcome import Outcome, decide
from harness.trial.recorder import Recorder, write_json
from nemesis import faults as fault_registry
from nemesis.base import AgentLink
from nemesis.link import gather

REQUIRED = ("lease", "fencing", "linearizable", "fenced", "progress", "faults")
HELLO_SECONDS = 60.0
BYE_SECONDS = 10.0
VERSION_SECONDS = 3.0


class Cancelled(HarnessError):
    """The user asked to stop. Goes through the same undo as every other error."""

    exit_code = 130


@dataclass
class Progress:
    """What the live view shows of a trial; written by the trial's thread, read by the view's."""

    title: str
    phase: str = "waiting"
    started: float = field(default_factory=time.monotonic)
    live: LiveState | None = None
    on_line: Callable[[str], None] | None = None

    def say(self, line: str) -> None:
        """A line for people who watch plain text."""
        if self.on_line is not None:
            self.on_line(line)


def _draw(seed: int | None, number: int) -> int:
    """The seed of one fault of a trial: where its target leaves a choice, the draw follows from the trial's seed."""
    return random.Random(f"fault/{seed}/{number}").randrange(2**31)


class _QuietFileHandler(logging.FileHandler):
    """A log file that a full disk ends without a traceback on the terminal: the trial has its own words for that."""

    def handleError(self, record: logging.LogRecord) -> None:
        return None

    def close(self) -> None:
        try:
            super().close()
        except OSError:
            self.stream = None


@dataclass(frozen=True)
class TrialResult:
    """What a trial came to. `verdicts` is name -> true, false or "unknown"."""

    folder: Path
    config: TrialConfig
    outcome: Outcome
    verdicts: Mapping[str, bool | str]
    report: Path | None
    kept: Sequence[str] = ()


class Trial:
    """One run of one cell. `run` never raises for what happens in the trial; the outcome tells it."""

    def __init__(
        self,
        config: TrialConfig,
        folder: Path,
        runtime: Runtime,
        *,
        lane: Lane | None = None,
        cancel: threading.Event | None = None,
        progress: Progress | None = None,
        keep: bool = False,
    ) -> None:
        self.config, self.folder, self.runtime = config, folder, runtime
        self.lane = lane or Lane(runtime, f"t{secrets.token_hex(4)}", images=config.images)
        self._own_lane = lane is None
        self.cancel = cancel or threading.Event()
        self.progress = progress or Progress(config.describe())
        self.keep = keep
        self.errors: list[str] = []
        self.phases: list[dict[str, Any]] = []
        self.record: dict[str, Any] = {}
        self.system: System = registry.load("systems", config.system)()
        self.recorder: Recorder | None = None
        self.contenders: list[Contender] = []
        self.cluster: Cluster | None = None
        self.agents: dict[str, AgentLink] = {}
        self._server_nodes: list[Node] = []
        self._epoch = 0
        self._clock_offset = 0
        self._healed = False
        self._injector: Injector | None = None
        self._gone: str | None = None
        """What ended by itself in the trial, a service or a node; then the lock can't be blamed for standing still."""
        self._started = 0.0
        self.kept: list[str] = []

    # -- the whole ------------------------------------------------------------------------------------------------

    def run(self) -> TrialResult:
        """Run the trial to its end, whatever happens in it."""
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self._log_to(self.folder / "harness.log")
        try:
            with self._guard("trial"):
                self._save_config()
                self._start()
                self._warm_up()
                self._disturb()
                self._recover()
            # From here on every stage runs, whatever the one before it met.
            with self._guard("healing"):
                self._heal()
            with self._guard("looking after the servers"):
                self._check_services()
            with self._guard("stopping the contenders"):
                self._stop_contenders()
            with self._guard("reading the ledger"):
                self._read_ledger()
            with self._guard("closing the history"):
                if self.recorder is not None:
                    self.recorder.close()
            self._phase("take-down")
            with self._guard("collecting the logs"):
                self._collect_logs()
            with self._guard("taking down"):
                self._take_down()
            if self._own_lane and self.lane.opened and not self.keep:
                self._note(f"not everything could be removed; {self.lane.site.how_to_remove()} does it later")
            return self._judge()
        finally:
            self._log.removeHandler(self._handler)
            self._handler.close()

    @contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """An error inside ends that stage, is written down, and does not stop the stages after it.

        Whatever it is, an exit of the interpreter included: what was started must be undone and taken down first.
        """
        try:
            yield
        except FencepostError as error:
            self._note(f"{what}: {error}" if what != "trial" else str(error))
            self._log.debug("%s", traceback.format_exc())
        except BaseException as error:  # noqa: BLE001 - the traceback is kept, the trial ends as a harness error
            self._note(f"{what}: {type(error).__name__}: {error} (traceback in harness.log)")
            self._log.error("%s", traceback.format_exc())

    def _note(self, error: str) -> None:
        self.errors.append(error)
        self._log.error("%s", error)
        self.progress.say(f"error: {error}")

    def _say(self, line: str) -> None:
        self.progress.say(line)
        self._log.info("%s", line)

    def _log_to(self, path: Path) -> None:
        """harness.log: what the harness did, with times, and every traceback."""
        self._log = logging.Logger(f"fencepost.{self.folder.name}", logging.DEBUG)
        self._handler = _QuietFileHandler(path)
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self._log.addHandler(self._handler)

    def _phase(self, name: str) -> None:
        now = self._now() if self._epoch else 0
        if self.phases and self.phases[-1]["end"] is None:
            self.phases[-1]["end"] = now
        self.phases.append({"name": name, "start": now, "end": None})
        self.progress.phase = name
        self._say(name)

    def _check(self) -> None:
        """Give up early when the user asked for it or a contender failed."""
        if self.cancel.is_set():
            raise Cancelled("interrupted")
        failed = next((contender.failure for contender in self.contenders if contender.failure), None)
        if failed is not None:
            raise HarnessError(failed)
        dead = next((name for name, agent in self.agents.items() if not agent.alive), None)
        if dead is not None:
            self._gone = f"the agent on {dead} has ended by itself, or its node is gone; see logs/{dead}/agent.log"
            raise HarnessError(self._gone)

    def _check_services(self) -> None:
        """A server that ended though no fault ended it: what follows says nothing about the lock."""
        if self.recorder is None or self.cluster is None or self._gone is not None:
            return  # not begun, or told already
        for name, node in self.cluster.nodes.items():
            running, word = node.service_running()
            if not running:
                self._gone = (
                    f"{self.config.system} on {name} is {word}, and no fault did that; see logs/{name}/service.log"
                )
                raise HarnessError(self._gone)

    def _wait(self, seconds: float) -> None:
        """Let the trial run for a while; returns early only by raising."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check()
            self.cancel.wait(min(left, 0.1))
        self._check()

    def _now(self) -> int:
        """Time of the history in ns, by the clock of the machine on which the nodes are."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._clock_offset - self._epoch

    # -- start ----------------------------------------------------------------------------------------------------

    def _save_config(self) -> None:
        self.record = {
            "format": 1,
            "id": self.folder.name,
            "cell": self.config.cell(),
            "config": msgspec.to_builtins(self.config),
            "repeat": self.config.repeat_command(),
            "site": self.lane.site_id,
            "versions": {"fencepost": __version__, "python": platform.python_version()},
            "expect": dict(self.config.expect),
            "expect_reason": self.config.expect_reason,
            "system": {},
            "nodes": {},
            "contenders": {},
            "phases": self.phases,
            "outcome": None,
            "error": None,
        }
        self._save()

    def _save(self) -> None:
        """Write trial.json so that a reader never meets half of it."""
        write_json(self.folder / "trial.json", self.record)

    def _start(self) -> None:
        config = self.config
        self._phase("turn")
        assert config.servers is not None
        self.record["images"] = self.runtime.image_versions(config.images_needed(), images=config.images)
        self.record["versions"]["engine"] = self.runtime.describe()
        settings = Settings(
            ttl_seconds=config.ttl,
            servers=config.servers,
            image=self.system.image,
            options=config.system_options,
        )
        names = [f"n{number}" for number in range(1, config.servers + 1)]
        self.system.plan(settings, dict.fromkeys(names, ("192.0.2.1",)))  # a bad option ends it before any node
        # One start-up at a time on this machine: side by side they take longer each than one after the other.
        with self.lane.site.starting(self._check):
            self._phase("start")
            self._bring_up(settings, names)
            took = self._wait_healthy()
        self._say(f"{config.system} healthy {took:.1f} s after its start")
        self.record["versions"]["system"], why = self.cluster_now.version(VERSION_SECONDS)
        if why is not None:
            self._say(f"the version stays unknown: {why}")
        self._await_hellos()
        self._save()

    def _bring_up(self, settings: Settings, names: Sequence[str]) -> None:
        """Nodes, agents, services and contenders, all started; nothing is awaited yet."""
        config = self.config
        with ThreadPoolExecutor(max_workers=1) as pool:
            # The lane's own nodes (contenders, resource) and the servers come up side by side.
            prepared = pool.submit(self.lane.prepare, config.contenders, self.folder / "logs")
            self._server_nodes = self.lane.site.start_nodes([NodeSpec(name=name) for name in names])
            self.agents.update(self.lane.open_agents(self._server_nodes, self.folder / "logs"))
            self.cluster = Cluster(self.system, settings, self._server_nodes, self.agents)
            self.cluster.start()
            self._started = time.monotonic()
            prepared.result()
        self.agents.update(self.lane.agents)
        self._set_epoch()
        for role, nodes in (("server", self._server_nodes), ("contender", self.lane.contender_nodes)):
            for node in nodes:
                self.record["nodes"][node.name] = {"role": role, "addresses": list(node.addresses)}
        self.record["nodes"]["resource"] = {"role": "resource", "addresses": list(self.lane.resource.addresses)}
        self.record["notes"] = list(self.lane.site.notes)
        self.record["system"] = self.system.recorded(settings)
        self._open_history()
        self._spawn_contenders(settings)  # they load their libraries while the servers elect a leader

    def _wait_healthy(self) -> float:
        """Wait until the system is healthy; seconds since its services were started."""
        self.cluster_now.wait_healthy(self._check)
        took = time.monotonic() - self._started
        self.record["healthy_seconds"] = round(took, 3)
        return took

    @property
    def cluster_now(self) -> Cluster:
        """The cluster, once it is there."""
        assert self.cluster is not None, "the servers were not started"
        return self.cluster

    def _set_epoch(self) -> None:
        """Time 0 of the history, on the boot clock of the nodes' kernel, which need not be this machine's."""
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        theirs = int(next(iter(self.agents.values())).call("hello")["boottime_ns"])
        after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        # On one machine the two clocks are one; then the offset is only the time that the question took.
        self._clock_offset = 0 if before <= theirs <= after else theirs - (before + after) // 2
        self._epoch = theirs
        self.record["epoch"] = {
            "boottime_ns": theirs,
            "offset_ns": self._clock_offset,
            "utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }

    def _open_history(self) -> None:
        config = self.config
        meta = {
            "system": config.system,
            "ttl": config.ttl,
            "uncertainty": config.uncertainty,
            "rate_tolerance": config.rate_tolerance,
            "min_grants": config.min_grants,
            "progress_bound": config.progress_bound,
            "require": list(REQUIRED),
            "fault": config.fault,
            "guarded": config.guarded,
            "seed": config.seed,
            "trial": self.folder.name,
        }
        self.recorder = Recorder(self.folder, meta)
        self.progress.live = self.recorder.live

    def _spawn_contenders(self, settings: Settings) -> None:
        assert self.recorder is not None
        config = self.config
        base = {
            "epoch": self._epoch,
            "lock": "lock",
            "workload": registry.reference("workloads", config.workload),
            "client": registry.reference("clients", self.system.client),
            "client_config": self.system.client_config(settings, self.cluster_now.addresses()),
            "ttl": config.ttl,
            "guarded": config.guarded,
            "resource": self.lane.resource_config(self.folder.name),
            "parameters": config.workload_options,
        }
        for number, node in enumerate(self.lane.contender_nodes):
            log = self._log_folder(node.name) / "contender.log"
            self.contenders.append(Contender(node, number, self.recorder, log, self._now))
        with ThreadPoolExecutor(max_workers=len(self.contenders)) as pool:
            started = [pool.submit(c.spawn, {**base, "seed": f"{config.seed}/{c.process}"}) for c in self.contenders]
            for future in started:
                future.result()

    def _await_hellos(self) -> None:
        end = time.monotonic() + HELLO_SECONDS
        for contender in self.contenders:
            with contender.changed:
                while contender.hello is None:
                    self._check()
                    if time.monotonic() > end:
                        _, word = resource.ready(self.lane.resource)
                        raise HarnessError(
                            f"contender {contender.process} on {contender.node.name} said no hello within "
                            f"{HELLO_SECONDS:.0f} s (the resource says: {word or 'nothing'}); what it printed, if "
                            f"anything, is in logs/{contender.node.name}/contender.log"
                        )
                    contender.changed.wait(0.1)
            self.record["contenders"][str(contender.process)] = {
                "node": contender.node.name,
                "guarded": self.config.guarded,
                "hello": contender.hello,
            }

    # -- disturb --------------------------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        self._phase("warm-up")
        assert self.recorder is not None
        for contender in self.contenders:
            contender.command("start")
        self._wait(self.config.warmup)
        live = self.recorder.live
        bound = self.config.progress_bound or 0.0
        if not self._await_event(lambda: live.grants > 0, bound):
            raise HarnessError(f"nobody got the lock within {bound:g} s, with nothing broken; see logs/")

    def _await_event(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the history fulfils a condition; False when it didn't in time."""
        assert self.recorder is not None
        end = time.monotonic() + seconds
        changed = self.recorder.live.changed
        while not condition():
            self._check()
            left = end - time.monotonic()
            if left <= 0:
                return False
            with changed:
                changed.wait(min(left, 0.1))
        return True

    def _disturb(self) -> None:
        """Faults by schedule, one after the other, each with its receipts."""
        self._phase("faults")
        config = self.config
        kind, target = fault_registry.parse(config.fault)
        assert self.recorder is not None
        if kind == "none":
            self._wait(config.duration)
            return
        cluster, resource_node = self.cluster_now, self.lane.resource
        environment = TrialEnvironment(cluster, self.contenders, self.agents, resource_node, self.recorder, self._now)
        injector = self._injector = Injector(environment, self.recorder, self._now, self._epoch)
        injector.said = self._say
        began, number = time.monotonic(), 0
        live, cycle = self.recorder.live, config.make_schedule().cycle()
        while (window := cycle.next(time.monotonic() - began)) is not None:
            self._wait(began + window.begin - time.monotonic())
            if window.trigger == "grant":
                seen = live.grants
                left = config.duration - window.on - (time.monotonic() - began)
                if not self._await_event(lambda seen=seen: live.grants > seen, left):  # type: ignore[misc]
                    break  # nobody got the lock any more, and a fault would not fit before the end
            number += 1
            options = {"seed": _draw(config.seed, number), **config.fault_options}
            fault = fault_registry.make(kind, target, options)
            injector.apply(fault, target, lambda on=window.on: self._wait(on))  # type: ignore[misc]
        self._wait(began + config.duration - time.monotonic())

    # -- the way out ----------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Undisturbed again: the lock must be granted once more, or `progress_bound` passes and `progress` tells."""
        self._heal()
        self._check_services()
        self._phase("recovery")
        assert self.recorder is not None
        healed = self._now()
        self._wait(self.config.recovery)
        live = self.recorder.live
        config = self.config
        bound = (config.progress_bound or 0.0) + 1.0
        if not self._await_event(lambda: (live.last_grant_time or 0) > healed, bound):
            self._say(f"nobody got the lock within {bound:.0f} s after the faults were undone")
            self._check_services()
        elif not self._await_event(
            lambda: live.grants >= config.min_grants and live.handovers >= config.min_handovers, 8 * config.ttl
        ):
            self._say(f"only {live.grants} grants and {live.handovers} hand-overs")

    def _heal(self) -> None:
        """Every agent undoes what is left and proves that nothing of ours is in force. Harmless to repeat."""
        if self._healed or not self.agents:
            return
        self._healed = True
        gather([agent.start("undo_all") for agent in self.agents.values()], timeout_seconds=10.0)
        answers = gather([agent.start("verify_clean") for agent in self.agents.values()], timeout_seconds=10.0)
        dirty = [
            f"{name}: {'; '.join(answer['left'])}"
            for name, answer in zip(self.agents, answers, strict=True)
            if not answer["clean"]
        ]
        if dirty:
            raise HarnessError(f"not everything was undone: {'; '.join(dirty)}")

    def _stop_contenders(self) -> None:
        if not self.contenders:
            return
        self._phase("stop")
        for contender in self.contenders:
            contender.command("stop")
        deadline = time.monotonic() + BYE_SECONDS + self.config.ttl
        with ThreadPoolExecutor(max_workers=len(self.contenders)) as pool:
            list(pool.map(lambda contender: contender.end(deadline), self.contenders))
        for contender in self.contenders:
            # Its own counts: polls, reconnects, sessions given up. No retry that nobody counts.
            if (told := self.record["contenders"].get(str(contender.process))) is not None:
                told["bye"] = contender.bye
        failed = [contender.failure for contender in self.contenders if contender.failure]
        for reason in failed:
            if reason not in self.errors:
                self._note(reason)

    def _read_ledger(self) -> None:
        """The resource's own account of what it accepted, read through a contender node."""
        if not self.record.get("contenders"):
            return
        rows = resource.read_ledger(self.lane.contender_nodes[0], self.lane.resource_config(self.folder.name))
        with (self.folder / "ledger.jsonl").open("w") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")
        wrong = disagreements(self.folder / "history.jsonl", rows)
        if wrong:
            raise HarnessError(f"history and ledger disagree: {'; '.join(wrong)}")

    def _log_folder(self, node: str) -> Path:
        folder = self.folder / "logs" / node
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _collect_logs(self) -> None:
        nodes = list(self._server_nodes)
        if self.lane.has_resource:
            nodes.append(self.lane.resource)
        if not nodes:
            return
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            collected = {node.name: pool.submit(node.logs) for node in nodes}
        for name, log in collected.items():
            with self._guard(f"collecting the log of {name}"):  # one that is lost loses no other
                (self._log_folder(name) / "service.log").write_bytes(log.result())

    def _take_down(self) -> None:
        if self.keep and self.lane.opened:
            nodes = [*self._server_nodes, *self.lane.contender_nodes]
            self.kept = [f"{node.name}: {node.how_to_enter()}" for node in nodes]
            self.kept.append(f"remove it all: {self.lane.site.how_to_remove()}")
            return
        if self.lane.opened and self._server_nodes and not self._own_lane:
            self.lane.close_agents(self._server_nodes, self.agents)
            self.lane.site.remove_nodes(self._server_nodes)
        if self._own_lane:
            self.lane.close()

    def _judge(self) -> TrialResult:
        """Judge the history from its file alone, write verdict.json, trial.json and the report."""
        self._phase("check")
        judgement: dict[str, Any] | None = None
        handovers = self.recorder.live.handovers if self.recorder is not None else 0
        if (self.folder / "history.jsonl").exists():
            with self._guard("judging"):
                judgement = judge(history.read(self.folder / "history.jsonl"), cancel=self.cancel).to_json()
                write_json(self.folder / "verdict.json", judgement)
        outcome = decide(
            judgement,
            expect=self.config.expect,
            min_grants=self.config.min_grants,
            min_handovers=self.config.min_handovers,
            handovers=handovers,
            landed=None if self.config.fault == "none" else self._injector.landed if self._injector else 0,
            excused=("progress",) if self._gone else (),
            errors=self.errors,
        )
        self.phases[-1]["end"] = self.phases[-1]["start"]
        self.record["outcome"] = outcome.to_json()
        self.record["error"] = "; ".join(self.errors) or None
        with self._guard("saving trial.json"):
            self._save()
        report: Path | None = None
        with self._guard("report"):
            report = write_trial(self.folder)
        if self.errors and outcome.word != "violation":
            outcome = Outcome("harness-error", self.errors, outcome.valid, outcome.grants, outcome.handovers)
        verdicts = {name: entry["valid"] for name, entry in ((judgement or {}).get("verdicts") or {}).items()}
        self.progress.phase = outcome.word
        return TrialResult(self.folder, self.config, outcome, verdicts, report, self.kept)
