"""Kill: the processes of a server, or of a contender, are gone at once, and later started again.

The node stays, with its addresses and its agent. Nothing is flushed or closed by the program; what it had handed to the
kernel (sockets, written files) the kernel deals with, as after a crash of the program, not of the machine.

Two kinds of kill of a server show two things. After a *long* one every lease has run out by the time that the server is
back, so that it may have forgotten them all and nobody notices; it shows what the others do meanwhile. After a *short*
one it is back well inside a lease, which it must still know of. So faults of one trial alternate, the long one first.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness.errors import FencepostError, UsageError
from harness.systems.base import LeaseTerms
from nemesis import holding, targets
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.link import settle
from nemesis.parameters import Parameters
from nemesis.targets import Resolved
from nemesis.watched import Watched

BACK_SECONDS = 10.0
POLL_SECONDS = 0.01
PROBE_SECONDS = 0.2
DOWN = ("both", "long", "short")
LEAST_SECONDS, MOST_SECONDS = 0.0, 3600.0


def _down(value: Any) -> str | float:
    """The parameter `down`: a word, or a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and LEAST_SECONDS <= value <= MOST_SECONDS:
        return float(value)
    if value in DOWN:
        return str(value)
    words = ", ".join(DOWN)
    right = f"one of {words}, or a number of seconds from {LEAST_SECONDS:g} to {MOST_SECONDS:g}"
    raise UsageError(f"parameter 'down' must be {right}, not {value!r}")


class Kill(Watched):
    """SIGKILL to all processes of the service, or to the contender; started again at the end.

    `down`: "both" (the default for servers: of the faults of a trial every other one is short, the first is long),
    "long" (as long as the schedule says; a contender's lease runs out in any case), "short" (started again at once), or
    seconds.

    Receipt: none of the old processes is there; at the end, a process runs that none of them is. Whether the service is
    *healthy* again is the trial's business.
    """

    kind = "kill"
    summary = "kill the processes of a server or a contender (SIGKILL), later start it again"
    targets: Sequence[str] = (*targets.SERVERS, *targets.CONTENDERS)
    order, done = "kill", "killed"
    """What the agents are told to do, and the word for it in the evidence."""
    order_seconds = 6.0
    """How long that may take."""

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(targets.check(self.kind, target, self.targets), "hold")
        taken = Parameters(self.kind, parameters)
        self.keep_data = taken.flag("keep_data", True)
        usual: str | float = "long" if self.target in targets.CONTENDERS else "both"
        self.down = taken.other("down", _down, usual)
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        self.service = taken.other("service", targets.service_parameter, None)
        self._take_more(taken)
        taken.done()
        self._name = secrets.token_hex(4)
        self._old: dict[str, set[tuple[int, int]]] = {}
        self._back_ns: int | None = None
        self._short = False

    def _take_more(self, taken: Parameters) -> None:
        """What a kind of its own has for parameters besides."""

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """Any server that there is, any contender."""
        return targets.sensible(target, servers)

    def stands_seconds(self, env: Environment, number: int, usual: float) -> float:
        """See `nemesis.base.Stands`. Short is 0: starting a service takes its time already."""
        if isinstance(self.down, float):
            self._short = self.down < env.terms().ttl_seconds
            return self.down
        if self.down == "short" or (self.down == "both" and number % 2 == 0):
            self._short = True
            return 0.0
        if self.target in targets.CONTENDERS:
            return max(usual, holding.lasting_seconds(env.terms()))
        return usual

    def start(self, env: Environment) -> Started:
        """Kill all targets side by side; a short kill of servers rather while somebody holds, after a ttl at most."""
        patience = self.patience or targets.patience_of(env)
        if self._short and not targets.on_contender(self.target):
            self._witness.summon(env, patience)  # a lease that it must still know of
        rng = random.Random(f"{self.kind}/{self.seed}")
        return self._strike(env, targets.resolve(env, self.target, rng, patience=patience, service=self.service))

    def _strike(self, env: Environment, hit: Resolved) -> Started:
        self._hit = hit
        self._watch(env, hit.nodes)
        answers, errors = self._end(env, hit.nodes)
        evidence = {**hit.told, self.done: answers}
        if errors:
            return Started("unproven", hit.nodes, hit.processes, evidence, "; ".join(errors))
        return Started("landed", hit.nodes, hit.processes, evidence)

    def _end(self, env: Environment, nodes: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """End what is meant on these nodes, side by side: node -> the agent's account, and what went wrong."""
        started = [env.agent(n).start(self.order, **self._hit.selection(env, n), **self._arguments()) for n in nodes]
        answers, errors = settle(started, self.order_seconds)
        for index, answer in answers.items():
            self._old[nodes[index]] = {(each["pid"], each["started"]) for each in answer["processes"]}
        return {nodes[index]: answer for index, answer in answers.items()}, [str(each) for each in errors.values()]

    def _arguments(self) -> dict[str, Any]:
        """What else the agents are told."""
        return {}

    def stop(self, env: Environment) -> Stopped:
        """Start them all again, and see them run. One whose kill had failed is started only if it is gone."""
        nodes = self._hit.nodes
        if not nodes:
            return Stopped("undone")
        restart = self._restart_contender if self._hit.processes else self._restart
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            results = list(pool.map(lambda node: restart(env, node), nodes))
        restarted = dict(zip(nodes, results, strict=True))
        evidence = {"restarted": restarted, "keep_data": self.keep_data}
        backs = [each["back_ns"] for each in results if "back_ns" in each]
        self._back_ns = max(backs) if len(backs) == len(nodes) else None
        problems = [f"{node}: {result['error']}" for node, result in restarted.items() if "error" in result]
        return Stopped("unproven", evidence, "; ".join(problems)) if problems else Stopped("undone", evidence)

    def _restart(self, env: Environment, node: str) -> dict[str, Any]:
        try:
            for part in self._hit.parts(env, node):
                if node in self._old or not self._running(env, node, part):
                    env.restart_service(node, keep_data=self.keep_data, service=part, **self._anew(env, node, part))
        except FencepostError as error:  # one server that doesn't come back must not keep the others from it
            return {"error": str(error)}
        return self._seen_back(env, node)

    def _anew(self, env: Environment, node: str, part: str) -> dict[str, Any]:
        """How else a service is started again than as it was: `image`."""
        return {}

    def _seen_back(self, env: Environment, node: str) -> dict[str, Any]:
        """What runs on a node that was started again, and when it took clients; or the `error`."""
        try:
            end = time.monotonic() + BACK_SECONDS
            fresh: list[dict[str, Any]] = []
            for part in self._hit.parts(env, node):
                while not (found := self._running(env, node, part)):
                    if time.monotonic() > end:
                        what = "the service" if len(env.services(node)) == 1 else part
                        return {"error": f"no process of {what} {BACK_SECONDS:g} s after it was started again"}
                    time.sleep(POLL_SECONDS)
                fresh += found
            back_ns = self._takes_clients(env, node, end)
        except FencepostError as error:
            return {"error": str(error)}
        return {"processes": fresh, "back_ns": back_ns} if back_ns is not None else {"processes": fresh}

    def _takes_clients(self, env: Environment, node: str, end: float) -> int | None:
        """When it first took a client's connection again (ns of the history), by the agent on its node; or None."""
        port = env.client_port(node, self._hit.parts(env, node)[0])
        if port is None:
            return None
        local = [["127.0.0.1", port]]
        while env.agent(node).call("probe", targets=local, timeout=PROBE_SECONDS)["results"] != ["connected"]:
            if time.monotonic() > end:
                return None
            time.sleep(POLL_SECONDS)
        return env.now()

    def _running(self, env: Environment, node: str, part: str) -> list[dict[str, Any]]:
        """The processes of a service that are none of those killed, and not just about to be reaped."""
        alone = len(env.services(node)) == 1
        old = self._old.get(node, set())
        return [
            {"pid": each["pid"], "comm": each["comm"]}
            for each in env.agent(node).call("processes")["processes"]
            if each["role"] == "service"
            and (alone or each["service"] == part)
            and (each["pid"], each["started"]) not in old
            and each["state"] not in "ZX"
        ]

    def _restart_contender(self, env: Environment, node: str) -> dict[str, Any]:
        if node not in self._old:
            return {"error": "it was not killed, and so not started again"}
        try:
            env.restart_contender(node)
            pids = set(env.contender_pids(node))
            fresh = [
                {"pid": each["pid"], "comm": each["comm"]}
                for each in env.agent(node).call("processes")["processes"]
                if each["pid"] in pids and (each["pid"], each["started"]) not in self._old[node]
            ]
        except FencepostError as error:
            return {"error": str(error)}
        return {"processes": fresh} if fresh else {"error": "the contender that was started again isn't there"}

    # -- whether it bit -------------------------------------------------------------------------------------------

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """A contender: its lease ran out while it was gone. A server: what it had granted could be lost, or see
        `nemesis.leading`.
        """
        if self._hit.processes:
            return self._bite_contender(env, began_ns, ended_ns)
        if not self._hit.hits_main(env):  # it grants nothing itself
            return self._leading.bite(env, began_ns, ended_ns)
        could, evidence = self._could_forget(env, began_ns)
        if could is not None:
            return Bite(True, could, evidence)
        borne = self._leading.bite(env, began_ns, ended_ns)
        evidence |= borne.evidence
        terms = env.terms()
        survives, why = self._survives(terms)
        if borne.bit is False and self.keep_data and survives and len(env.servers) == 1:
            reason = f"what it grants outlives a {self.kind}: {why}; and nobody missed it meanwhile"
            return Bite("immune", reason, evidence)
        return Bite(borne.bit, borne.reason, evidence, borne.remedy)

    def _could_forget(self, env: Environment, began_ns: int) -> tuple[str | None, dict[str, Any]]:
        """Whether it was back inside a lease that it need not know of any more: a sentence, and the evidence."""
        terms, back = env.terms(), self._back_ns
        live = [
            hold
            for hold in env.holds(began_ns)
            if back is not None and (hold.released_ns is None or hold.released_ns > back)
        ]
        # Where renewals are unseen, the lease may have begun anew right before the kill; at the least it lasts to here.
        # One that doesn't expire is live for as long as it isn't given back.
        unknown = (back or 0) + int(terms.ttl_seconds * 1e9) if not terms.expires else 0
        ends = [e.promise_end_ns if e.promise_end_ns is not None else max(e.since_ns, unknown) for e in live]
        evidence: dict[str, Any] = {
            "back_ns": back,
            "leases_at_kill": [{"node": h.node, "promise_end_ns": e} for h, e in zip(live, ends, strict=True)],
        }
        survives, why = self._survives(terms)
        if back is None or not ends or max(ends) <= back or (survives and self.keep_data):
            return None, evidence
        why = why if self.keep_data else "its data were removed"
        early = (max(ends) - back) / 1e9
        gone = (back - began_ns) / 1e9
        return f"back after {gone:.2f} s, {early:.2f} s before a lease ended that it could have lost: {why}", evidence

    def _survives(self, terms: LeaseTerms) -> tuple[bool, str]:
        """Whether all that was granted outlives this, by the system's design, and why."""
        return terms.survives_kill, terms.survives_kill_reason

    def _bite_contender(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """A holder: the others had to wait for its lease to run out. A waiter: its place in the queue was nobody's."""
        node = self._hit.nodes[0]
        held, waited = env.hold_of(node, began_ns), env.wait_of(node, began_ns)
        if held is not None and held.believed(began_ns):
            last = env.hold_of(node, ended_ns)
            same = last if last is not None and last.since_ns == held.since_ns else held
            return holding.of_holder(node, same, env.terms(), began_ns, ended_ns)
        hands = [each.since_ns for each in env.granted(began_ns, ended_ns) if each.node != node]
        evidence = {"waiting_since_ns": None if waited is None else waited.since_ns, "changed_hands_ns": hands}
        if waited is None:
            reason = f"{node} neither held the lock nor waited for it when it was killed"
            return Bite(False, reason, evidence, "hit the holder (kill-holder)")
        if not hands:
            longer = f"fault_on of at least {holding.lasting_seconds(env.terms()):.1f} s, or shorter jobs"
            return Bite(False, f"the lock did not change hands while {node} was gone", evidence, longer)
        times = "once" if len(hands) == 1 else f"{len(hands)} times"
        return Bite(True, f"the lock changed hands {times} while {node}, that had waited for it, was gone", evidence)
