"""What a fault may use of the running trial (nemesis.base.Environment), and the injector that applies it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness import redaction
from harness.errors import AgentError, FencepostError
from harness.runtime.base import MAIN, Node, ServiceSpec
from harness.systems import roles
from harness.systems.base import Leadership, LeaseTerms, terms_of
from harness.systems.operating import Held, Joining
from harness.systems.restoring import Restores, Snapshot
from harness.systems.roles import Role
from harness.trial.acts import ActingLink, OwnActs, part_of
from harness.trial.cluster import Cluster
from harness.trial.contenders import Contender
from harness.trial.live import Hold
from harness.trial.recorder import Recorder
from nemesis.base import AgentLink, Bites, Fault, Looks, Seeks, Started, Stopped
from nemesis.bite import Bite, SeenHold, SeenRequest, SeenWait, Tally
from nemesis.targets import NoTarget
from nemesis.topology import Electorate

LASTING_TTLS = 3.0
"""A holder that goes on for so long outlives its lease on every system here; Consul may take two ttls and a delay."""
PICKY_TTLS = 2.0
"""How long such a holder is waited for; after that any will do."""
PREPARED_SECONDS = 30.0
"""How long a program may take that prepares the data of a service before it starts."""
ANSWER_SECONDS = 1.0
"""How long a holder may take to say that it holds until told. One that is well needs a millisecond."""


class TrialEnvironment:
    """The trial as its faults see it. Targets are answered at the moment they are asked for."""

    def __init__(
        self,
        cluster: Cluster,
        contenders: Sequence[Contender],
        agents: Mapping[str, AgentLink],
        resource: Node,
        recorder: Recorder,
        now: Callable[[], int],
        acts: OwnActs,
        check: Callable[[], None] = lambda: None,
        *,
        hold_most_seconds: float,
    ) -> None:
        """`check` is called where there is something to wait for, and may raise to give up. `hold_most_seconds`: for
        how long a contender may be told to hold, at most; more than any fault lasts.
        """
        self._cluster, self._agents, self._resource, self._recorder = cluster, agents, resource, recorder
        self._now, self._acts, self._check = now, acts, check
        self._contenders = {contender.node.name: contender for contender in contenders}
        self.servers: Sequence[str] = list(cluster.nodes)
        self.contenders: Mapping[str, int] = {name: c.process for name, c in self._contenders.items()}
        self.system = cluster.system.name
        self.roles: Sequence[Role] = roles.roles_of(cluster.system)
        self._nodes = {process: name for name, process in self.contenders.items()}
        self.restores_running = isinstance(cluster.system, Restores) and cluster.system.restores_running
        self.holds_until_told = all(contender.holds_until_told for contender in contenders)
        self._orders = itertools.count(1)
        self._told: dict[str, str] = {}
        self._hold_most = hold_most_seconds
        self._terms = terms_of(cluster.system, cluster.settings)

    def agent(self, node: str) -> AgentLink:
        contender = self._contenders.get(node)
        doomed = None if contender is None else _Doomed(contender)
        return ActingLink(self._agents[node], self._acts, self.services(node), doomed)

    def addresses(self, node: str) -> Sequence[str]:
        if node == self._resource.name:
            return self._resource.addresses
        if node in self._cluster.nodes:
            return self._cluster.nodes[node].addresses
        return self._contenders[node].node.addresses

    def leader(self) -> str | None:
        return self._cluster.leader()

    def standing(self) -> Mapping[str, Sequence[str]]:
        return self._cluster.standing()

    def services(self, node: str) -> Sequence[str]:
        return list(self._cluster.services(node))

    def hand_over(self, leader: str) -> str:
        return self._cluster.hand_over(leader)

    def owned(self) -> Held | None:
        return self._cluster.held()

    def unlock(self, held: Held, way: str | None) -> str:
        return self._cluster.unlock(held, way)

    def members(self, but: Collection[str] = ()) -> Sequence[str]:
        return self._cluster.members(but)

    def leave(self, node: str) -> str:
        self._acts.begin(node)
        return self._cluster.leave(node)

    def admit(self, node: str) -> Joining:
        return self._cluster.admit(node)

    def admitted(self, node: str) -> str:
        return self._cluster.admitted(node)

    def snapshot(self) -> Snapshot:
        return self._cluster.restoring().snapshot(self._cluster.servers)

    def restored_from(self, snapshot: Snapshot) -> Mapping[str, Sequence[ServiceSpec]]:
        specs = {node: next(iter(self._cluster.services(node).values())) for node in self.servers}
        return self._cluster.restoring().restored_from(snapshot, specs)

    def restart_from(self, node: str, specs: Sequence[ServiceSpec]) -> None:
        self._acts.begin(node)  # until the fault is over (`settle`): all but the last end by themselves
        for number, spec in enumerate(specs):
            self._cluster.node(node).restart_service(keep_data=number > 0, spec=spec)
            if number < len(specs) - 1:
                self._await_success(self._cluster.node(node), spec)

    def _await_success(self, node: Node, spec: ServiceSpec) -> None:
        """See a program end with 0. AgentError with its last words otherwise, or when that takes too long."""
        end, what = time.monotonic() + PREPARED_SECONDS, " ".join(spec.command)[:200]
        while True:
            runs, word = node.service_running()
            if not runs and word.endswith("code 0"):
                return
            if not runs or time.monotonic() > end:
                words = redaction.raw(node.logs())[-400:].decode(errors="replace").strip()
                raise AgentError(f"{what} on {node.name} {word}; its last words: {words or 'none'}")
            self._check()
            time.sleep(0.02)

    def restore(self, snapshot: Snapshot) -> str:
        return self._cluster.restoring().restore(self._cluster.servers, snapshot)

    def put(self, key: str, value: str) -> None:
        self._cluster.restoring().put(self._cluster.servers, key, value)

    def get(self, key: str) -> str | None:
        return self._cluster.restoring().get(self._cluster.servers, key)

    def electorate(self, led: str | None) -> Electorate:
        quorum = roles.quorum_of(self._cluster.system)

        def having(service: str | None) -> list[str]:
            return [node for node in self.servers if service is None or service in self._cluster.services(node)]

        return Electorate(
            voters=having(quorum.voters),
            candidates=having(quorum.candidates),
            incumbent=led if quorum.holds_on else None,
            forwards=quorum.forwards,
        )

    def holder(self) -> str | None:
        hold = self._recorder.live.holder()
        return None if hold is None else self._node_of(hold)

    def wait_for_holder(self, timeout_seconds: float) -> str | None:
        """The holder, and rather one that means to hold for longer than its lease can last.

        A holder that is about to release shows nothing: its hold ends before its lease does. So a job that plans to go
        on for LASTING_TTLS more is waited for, for PICKY_TTLS; after that whoever holds will do.
        """
        began = time.monotonic()
        ttl = self._cluster.settings.ttl_seconds
        lasting_ns = int(LASTING_TTLS * ttl * 1e9)
        changed = self._recorder.live.changed
        with changed:
            while True:
                hold = self._recorder.live.holder()
                waited = time.monotonic() - began
                if hold is not None and (
                    waited > PICKY_TTLS * ttl
                    or hold.planned_end is None
                    or hold.planned_end - self._now() >= lasting_ns
                ):
                    return self._node_of(hold)
                if waited >= timeout_seconds:
                    return None
                changed.wait(0.05)

    def _node_of(self, hold: Hold) -> str:
        return self._nodes[hold.process]

    def wait_until_told(self, timeout_seconds: float) -> str | None:
        end = time.monotonic() + timeout_seconds
        changed = self._recorder.live.changed
        asked: tuple[str, int] | None = None
        while True:
            seen = self.holds()
            hold = seen[-1] if seen else None
            over = hold is not None and hold.promise_end_ns is not None and hold.promise_end_ns <= self._now()
            # A hold is asked once: one that is about to end has said so, and another will come.
            if hold is not None and not over and asked != (hold.node, hold.since_ns):
                if self._tell(hold.node, max(0.0, end - time.monotonic())):
                    return hold.node
                asked = (hold.node, hold.since_ns)
            with changed:
                if (left := end - time.monotonic()) <= 0:
                    return None
                changed.wait(min(left, 0.05))

    def _tell(self, node: str, left: float) -> bool:
        """Order a contender to hold. Whether it has said that it does.

        One that doesn't answer in time (it is frozen, or slow) is let go at once: should it take the order later, it
        takes that one with it.
        """
        contender, order = self._contenders[node], f"h{next(self._orders)}"
        contender.order("hold", id=order, seconds=self._hold_most)
        live, end = self._recorder.live, time.monotonic() + min(left, ANSWER_SECONDS)
        with live.changed:
            while (answer := live.answer_to(contender.process, order)) is None and time.monotonic() < end:
                live.changed.wait(max(0.0, end - time.monotonic()))
        if answer is None:
            contender.order("let_go", id=order)
        elif answer:
            self._told[node] = order
        return bool(answer)

    def let_go(self, node: str) -> None:
        order = self._told.pop(node, None)
        if order is not None:
            self._contenders[node].order("let_go", id=order)

    def now(self) -> int:
        return self._now()

    def terms(self) -> LeaseTerms:
        return self._terms

    def holds(self, at_ns: int | None = None) -> Sequence[SeenHold]:
        return self._recorder.live.holds(at_ns, self._nodes)

    def hold_of(self, node: str, at_ns: int | None = None) -> SeenHold | None:
        return self._recorder.live.hold_of(self.contenders[node], node, at_ns)

    def granted(self, since_ns: int, until_ns: int) -> Sequence[SeenHold]:
        return self._recorder.live.granted(since_ns, until_ns, self._nodes)

    def wait_of(self, node: str, at_ns: int) -> SeenWait | None:
        return self._recorder.live.wait_of(self.contenders[node], at_ns)

    def answered(self, since_ns: int, until_ns: int) -> int:
        return self._recorder.live.answered(since_ns, until_ns)

    def wrote(self, node: str, since_ns: int) -> bool:
        return self._recorder.live.wrote(self.contenders[node]) >= since_ns

    def leadership(self, but: Collection[str] = ()) -> Leadership:
        return self._cluster.leadership(but)

    def requests(self, since_ns: int, until_ns: int) -> Sequence[SeenRequest]:
        return self._recorder.live.requests(since_ns, until_ns, self._nodes)

    def guarded(self, node: str) -> bool:
        return (self._contenders[node].hello or {}).get("margin_seconds") is not None

    def brought(self, node: str) -> bool:
        return "adapter" in ((self._contenders[node].hello or {}).get("client") or {})

    def client_port(self, node: str, service: str | None = None) -> int | None:
        specs = self._cluster.services(node)
        if not specs:  # the way to an endpoint, which listens as the system would
            return self._cluster.system.port if node in self.servers else None
        main = next(iter(specs))
        name = service or main
        usual = self._cluster.system.port if name == main and node in self.servers else None
        return specs[name].port or usual

    def contender_pids(self, node: str) -> Sequence[int]:
        return self._contenders[node].pids()

    def healthy(self) -> tuple[bool, str]:
        return self._cluster.healthy()

    def version(self, node: str) -> str:
        return self._cluster.version_of(node)

    def image(self, node: str, service: str) -> str:
        return self._cluster.services(node)[service].image

    def restart_service(
        self,
        node: str,
        *,
        keep_data: bool,
        service: str | None = None,
        spec: ServiceSpec | None = None,
        image: str | None = None,
    ) -> None:
        services = self.services(node)
        part = part_of(service or services[0], services)
        if image is not None:
            spec = self._cluster.exchange(node, service or services[0], image)
        self._acts.begin(node, part)
        self._cluster.node(node).restart_service(keep_data=keep_data, service=service, spec=spec)
        if image is None:  # what another one makes of the data of this one is the doing of whoever started it
            self._acts.end(node, part)

    def restart_contender(self, node: str) -> None:
        self._check()
        self._told.pop(node, None)  # who was told is dead
        self._contenders[node].restart(self._check)

    def settle(self) -> None:
        """After a fault: whoever was told to hold is let go, and what was to be killed and runs is its own again,
        whoever ends it from now on.
        """
        for node in list(self._told):
            self.let_go(node)
        for contender in self._contenders.values():
            contender.spare()
        for node, part in self._acts.opened():
            running, _ = self._cluster.node(node).service_running(None if part == MAIN else part)
            if running:
                self._acts.end(node, part)


class _Doomed:
    """Notes an order to kill the contender on a node."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender

    def begin(self, node: str, part: str = MAIN) -> None:
        """Its end is ours from now on."""
        self._contender.doom()


class Injector:
    """Applies one fault after the other. Each phase enters the history and, with its evidence, the journal.

    A start is stamped with the moment just before the first change on a node, a stop with the one just after the last,
    both by the nodes' own clock (`begin_ns` and `end_ns` in the evidence): what the fault did lies between the two, and
    nothing else does. Aiming at a holder takes seconds, proving a cut takes tenths; a contender that is frozen a moment
    later counts as awake till then. Without such evidence the time around the whole call stands in.

    A fault that raised is `unproven`, with the error as reason: the run goes on, the verdict `faults` tells.
    """

    def __init__(
        self, environment: TrialEnvironment, recorder: Recorder, now: Callable[[], int], epoch_ns: int
    ) -> None:
        self._environment, self._recorder, self._now, self._epoch = environment, recorder, now, epoch_ns
        self._numbers = itertools.count(1)
        self.said: Callable[[str], None] = lambda line: None
        self.tally = Tally()
        """What the faults so far came to."""
        self.ended = time.monotonic()
        """When the last of them was undone."""

    def apply(
        self, fault: Fault, target: str, hold: Callable[[], object], after: Callable[[], object] = lambda: None
    ) -> None:
        """Start the fault, call `hold` (which waits, and may raise), and undo it whatever happened.

        `after` is called then, unless it was raised before: while it waits (it may raise, too), whoever was told to
        hold goes on holding.
        """
        name = f"f{next(self._numbers)}"
        began = self._now()
        started: Started | None = None
        stood, unasked = False, None
        try:
            try:
                started = fault.start(self._environment)
            except NoTarget as error:
                started = Started("skipped", (), reason=str(error))  # nothing was done to anybody
            except FencepostError as error:
                started = Started("unproven", (), reason=str(error))
            hit_at = [moment - self._epoch for moment in _moments(started.evidence, "begin_ns")]
            began = max(began, min(hit_at, default=began))
            self._record(name, fault, target, "start", began, started)
            if started.receipt != "skipped":
                hold()
                stood, unasked = True, self._look(fault)
        finally:
            # Also on the way out of an error or Ctrl-C: what was begun is undone by the fault that knows how.
            stopped = self._stop(fault)
            self.ended, now = time.monotonic(), self._now()
            undone_at = [moment - self._epoch for moment in _moments(stopped.evidence, "end_ns")]
            at = min(max(undone_at, default=now), now) if stopped.receipt == "undone" else now
            measured: Bite | str | None = unasked
            try:
                if stood and started is not None and started.receipt == "landed":
                    if unasked is None:
                        measured = self._bite(fault, began, at)
                    after()
            finally:
                self._environment.settle()
                if started is not None and started.receipt == "landed":
                    self.tally = self.tally.with_(measured if isinstance(measured, Bite) else None)
                if started is not None and started.receipt != "skipped":
                    told = fault.told() if isinstance(fault, Seeks) else None
                    if told is not None:
                        stopped = replace(stopped, evidence={**stopped.evidence, "witness": told})
                    self._record(name, fault, target, "stop", at, stopped, measured)

    def _stop(self, fault: Fault) -> Stopped:
        try:
            return fault.stop(self._environment)
        except FencepostError as error:
            return Stopped("unproven", reason=str(error))

    def _look(self, fault: Fault) -> str | None:
        """Let it ask what it must ask while it is in force. None, or why that can't be known."""
        if isinstance(fault, Looks):
            try:
                fault.look(self._environment)
            except FencepostError as error:
                return f"not measured: {error}"
        return None

    def _bite(self, fault: Fault, began_ns: int, ended_ns: int) -> Bite | str | None:
        """Whether it bit, by its own measure; why that can't be known; None where it doesn't measure it."""
        if not isinstance(fault, Bites):
            return None
        try:
            return fault.bite(self._environment, began_ns, ended_ns)
        except FencepostError as error:
            return f"not measured: {error}"

    def _record(
        self,
        name: str,
        fault: Fault,
        target: str,
        phase: str,
        time_ns: int,
        what: Started | Stopped,
        bite: Bite | str | None = None,
    ) -> None:
        event: dict[str, Any] = {"time": time_ns, "id": name, "kind": fault.kind, "phase": phase}
        if isinstance(what, Started):
            event |= {"targets": list(what.targets), "processes": list(what.processes)}
        event["receipt"] = what.receipt
        if what.reason is not None:
            event["reason"] = what.reason
        evidence = what.evidence
        if isinstance(bite, Bite):
            event |= {"bit": bite.bit, "bit_reason": bite.reason}
            remedy = {} if bite.remedy is None else {"remedy": bite.remedy}
            evidence = {**evidence, "bite": {**bite.evidence, **remedy}}
        elif bite is not None:
            event["bit_reason"] = bite
        self._recorder.fault(event, evidence, target)
        hit = f" on {', '.join(what.targets)}" if isinstance(what, Started) and what.targets else ""
        why = f" ({what.reason})" if what.reason else ""
        self.said(f"{name}: {fault.kind}{hit} {'begins' if phase == 'start' else 'ends'}: {what.receipt}{why}")
        if isinstance(bite, Bite):
            word = "was immune" if bite.bit == "immune" else "bit" if bite.bit else "missed"
            self.said(f"{name} {word}: {bite.reason}" + (f"; {bite.remedy}" if bite.remedy else ""))


def _moments(evidence: object, key: str) -> list[int]:
    """All values under a key, however deep in the evidence."""
    if isinstance(evidence, Mapping):
        own = [evidence[key]] if isinstance(evidence.get(key), int) else []
        return own + [moment for value in evidence.values() for moment in _moments(value, key)]
    if isinstance(evidence, (list, tuple)):
        return [moment for value in evidence for moment in _moments(value, key)]
    return []
