"""Clock: the processes of a node suddenly live at another time, while the machine's clock stays as it is.

What a clock that was set by hand, a broken time server or a resumed virtual machine does to a program. It is done to
the target processes alone, through the vDSO that they read their clocks from (docs/clock-skew.md).

What decides expiry differs: etcd and Consul count leases on the monotonic clock, ZooKeeper on System.nanoTime (the
same), Redis on the wall clock. So `clocks` says which one is moved, and the evidence which one was. Where another clock
decides, the fault is immune by design. Where that one does, it bit if the process read its moved clock, and a lease was
live that could run out by such a jump.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import AgentError, UsageError
from nemesis import targets
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.link import settle
from nemesis.parameters import Parameters
from nemesis.watched import Watched

CONTENDERS_CLOCK = "monotonic"
"""By what a contender counts its deadline, its renewals and its jobs (workloads/contender.py)."""


class Clock(Watched):
    """A jump by `offset` seconds (default +30) of the wall clock, the monotonic one, or both.

    Receipt: each process' clocks are read by its own code path before and after, and the chosen ones moved by the
    offset, the others (CLOCK_BOOTTIME always) not at all. At the end likewise.
    """

    kind = "clock"
    summary = "let the clock of a server or a contender jump (its processes alone, by way of the vDSO)"
    targets: Sequence[str] = ("leader", "follower", "one", "minority", "majority", "all", "holder", "waiter")

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(targets.check(self.kind, target, self.targets), "hold")
        taken = Parameters(self.kind, parameters)
        self.offset = taken.number("offset", 30.0, -1e8, 1e8)
        self.clocks = taken.choice("clocks", ("realtime", "monotonic", "both"))
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        self.service = taken.other("service", targets.service_parameter, None)
        taken.done()
        if self.offset == 0:
            raise UsageError("clock: parameter 'offset' must not be 0: a jump by nothing is no fault")
        self._name = secrets.token_hex(4)
        self._reads: dict[str, int | None] = {}

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """Any server that there is, any contender."""
        return targets.sensible(target, servers)

    def start(self, env: Environment) -> Started:
        """Move the clocks of all targets side by side; of servers rather while somebody holds, after a ttl at most."""
        patience = self.patience or targets.patience_of(env)
        if not targets.on_contender(self.target):
            self._witness.summon(env, patience)  # a lease that can run out
        rng = random.Random(f"clock/{self.seed}")
        hit = targets.resolve(env, self.target, rng, patience=patience, service=self.service)
        self._hit = hit
        self._watch(env)
        arguments = {"fault": self._name, "offset": self.offset, "clocks": self.clocks}
        started = [env.agent(n).start("clock_set", **arguments, **hit.selection(env, n)) for n in hit.nodes]
        answers, errors = settle(started, 6.0)
        problems = [str(error) for error in errors.values()]
        for index, answer in answers.items():
            for process in answer["processes"]:
                problems += [f"{hit.nodes[index]}, process {process['pid']}: {wrong}" for wrong in process["wrong"]]
        evidence = {
            **hit.told,
            "offset": self.offset,
            "clocks": self.clocks,
            "moved": {hit.nodes[index]: answer for index, answer in answers.items()},
        }
        if problems:
            return Started("unproven", hit.nodes, hit.processes, evidence, "; ".join(problems))
        return Started("landed", hit.nodes, hit.processes, evidence)

    def stop(self, env: Environment) -> Stopped:
        """Give all targets their time back. A process that ended meanwhile took the patch with it."""
        nodes = self._hit.nodes
        started = [env.agent(node).start("clock_restore", fault=self._name, missing_ok=True) for node in nodes]
        answers, errors = settle(started, 8.0)
        problems = [str(error) for error in errors.values()]
        evidence = {"restored": {nodes[index]: answer for index, answer in answers.items()}}
        self._reads = {node: _reads(answer) for node, answer in evidence["restored"].items()}
        for node, answer in evidence["restored"].items():
            for process in answer.get("processes", []):
                problems += [f"{node}, process {process['pid']}: {wrong}" for wrong in process.get("wrong", [])]
        return Stopped("unproven", evidence, "; ".join(problems)) if problems else Stopped("undone", evidence)

    # -- whether it bit -------------------------------------------------------------------------------------------

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """Immune where another clock decides. Else: was it read, and was a lease live that could run out by it?"""
        if self._hit.processes:
            return self._bite_contender(env, began_ns)
        if not self._hit.hits_main(env):  # no lease is counted by it
            return self._leading.bite(env, began_ns, ended_ns)
        return self._bite_servers(env, began_ns, ended_ns)

    def _moves(self, clock: str | None) -> bool:
        """Whether this clock is one of those that are moved. One that nobody knows may be."""
        return clock is None or self.clocks in (clock, "both")

    def _bite_servers(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        terms = env.terms()
        evidence: dict[str, Any] = {"reads": self._reads, "lease_clock": terms.lease_clock}
        if not terms.expires:
            return Bite("immune", f"no clock ends a lock of this system: {terms.lease_clock_reason}", evidence)
        if not self._moves(terms.lease_clock):
            return Bite("immune", f"{self.clocks} was moved, and {terms.lease_clock_reason}", evidence)
        _, evidence["leadership"] = self._leading.moved(env)
        led = {view["leader"] for word, view in evidence["leadership"].items() if word != "after"} - {None}
        if led.isdisjoint(self._hit.nodes):
            reason = f"{', '.join(self._hit.nodes)} did not lead, and {terms.lease_clock_reason}"
            return Bite(False, reason, evidence, "move the leader's clock (clock-leader)")
        reads = self._count()
        if reads == 0:
            reason = f"{', '.join(self._hit.nodes)} did not read the moved clock once"
            return Bite(False, reason, evidence, "let it last longer (schedule.on)")
        # Leases end early when the clock jumps ahead: at the start, or, when it had been set back, at the end.
        jump_ns = began_ns if self.offset > 0 else ended_ns
        left = []
        for hold in env.holds(jump_ns):
            end = hold.promise_end_ns
            # Where renewals are unseen, it may have begun anew right before.
            left.append(terms.ttl_seconds if end is None else (end - jump_ns) / 1e9)
        live = sorted(seconds for seconds in left if seconds > 0)
        evidence |= {"jump_ns": jump_ns, "left_seconds": live}
        when = "when the clock jumped ahead"
        if not live:
            return Bite(False, f"nobody held a live lease {when}", evidence, "more contenders, or longer holds")
        if abs(self.offset) < live[0]:
            reason = f"the lease that was held had {live[0]:.2f} s to go {when}, by {abs(self.offset):g} s"
            return Bite(False, reason, evidence, f"a larger fault_options.offset (the ttl is {terms.ttl_seconds:g} s)")
        unknown = f" ({terms.lease_clock_reason})" if terms.lease_clock is None else ""
        times = f"the moved clock was read {reads} times"
        return Bite(
            True, f"a lease had {live[0]:.2f} s to go {when}, by {abs(self.offset):g} s; {times}{unknown}", evidence
        )

    def _bite_contender(self, env: Environment, began_ns: int) -> Bite:
        node = self._hit.nodes[0]
        evidence: dict[str, Any] = {"reads": self._reads, "guarded": env.guarded(node)}
        what = "its deadline, its renewals" if env.guarded(node) else "its renewals"
        if env.brought(node):  # by which clock a program of the user's own counts, only its reads can tell
            evidence["brought"], what = True, "what it has to"
        elif not self._moves(CONTENDERS_CLOCK):
            reason = f"a contender counts {what} and its jobs by CLOCK_MONOTONIC, which wasn't moved"
            return Bite("immune", reason, evidence)
        held = next((hold for hold in env.holds(began_ns) if hold.node == node), None)
        if held is None:
            return Bite(
                False, f"{node} did not hold the lock when its clock jumped", evidence, "hit the holder (clock-holder)"
            )
        reads = self._count()
        if reads == 0:
            reason = f"{node} held the lock, and did not read the moved clock once"
            longer = "let it last longer (schedule.on)"
            return Bite(False, reason, evidence, longer + (", or move both clocks" if env.brought(node) else ""))
        return Bite(
            True, f"{node} held the lock, and read the moved clock {reads} times, by which it counts {what}", evidence
        )

    def _count(self) -> int:
        """How often the moved clock was read, all targets together."""
        uncounted = [node for node in self._hit.nodes if self._reads.get(node) is None]
        if uncounted:
            raise AgentError(
                f"it isn't known how often {', '.join(uncounted)} read the clock: it ended, or wasn't counted"
            )
        return sum(reads or 0 for reads in self._reads.values())


def _reads(answer: Mapping[str, Any]) -> int | None:
    """How often the processes of a node read the moved clock: the most that one of them counted, for forks count on.

    None when none of them counted.
    """
    counts = [each["reads"] for each in answer.get("processes", []) if each.get("reads") is not None]
    return max(counts, default=None)
