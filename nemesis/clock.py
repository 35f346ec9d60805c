"""Clock: the processes of a node suddenly live at another time, while the machine's clock stays as it is.

What a clock that was set by hand, a broken time server or a resumed virtual machine does to a program. It is done to
the target processes alone, through the vDSO that they read their clocks from (docs/clock-skew.md).

What decides expiry differs: etcd and Consul count leases on the monotonic clock, ZooKeeper on System.nanoTime (the
same), Redis on the wall clock. So `clocks` says which one is moved, and the evidence which one was.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from nemesis import targets
from nemesis.base import Environment, Started, Stopped
from nemesis.freeze import selection
from nemesis.link import settle
from nemesis.parameters import Parameters


class Clock:
    """A jump by `offset` seconds (default +30) of the wall clock, the monotonic one, or both.

    Receipt: each process' clocks are read by its own code path before and after, and the chosen ones moved by the
    offset, the others (CLOCK_BOOTTIME always) not at all. At the end likewise.
    """

    kind = "clock"
    summary = "let the clock of a server or a contender jump (its processes alone, by way of the vDSO)"
    targets: Sequence[str] = ("leader", "follower", "one", "minority", "majority", "all", "holder", "waiter")

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        self.target = targets.check(self.kind, target, self.targets)
        taken = Parameters(self.kind, parameters)
        self.offset = taken.number("offset", 30.0, -1e8, 1e8)
        self.clocks = taken.choice("clocks", ("realtime", "monotonic", "both"))
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", targets.PATIENCE_SECONDS, 0.1, 60)
        taken.done()
        if self.offset == 0:
            raise UsageError("clock: parameter 'offset' must not be 0: a jump by nothing is no fault")
        self._name = secrets.token_hex(4)
        self._hit: tuple[str, ...] = ()

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """Any server that there is, any contender."""
        return targets.sensible(target, servers)

    def start(self, env: Environment) -> Started:
        """Move the clocks of all targets side by side."""
        hit = targets.resolve(env, self.target, random.Random(f"clock/{self.seed}"), patience=self.patience)
        self._hit = hit.nodes
        arguments = {"fault": self._name, "offset": self.offset, "clocks": self.clocks}
        started = [env.agent(n).start("clock_set", **arguments, **selection(env, n)) for n in hit.nodes]
        answers, errors = settle(started, 6.0)
        problems = [str(error) for error in errors.values()]
        for index, answer in answers.items():
            for process in answer["processes"]:
                problems += [f"{hit.nodes[index]}, process {process['pid']}: {wrong}" for wrong in process["wrong"]]
        evidence = {
            "offset": self.offset,
            "clocks": self.clocks,
            "moved": {hit.nodes[index]: answer for index, answer in answers.items()},
        }
        if problems:
            return Started("unproven", hit.nodes, hit.processes, evidence, "; ".join(problems))
        return Started("landed", hit.nodes, hit.processes, evidence)

    def stop(self, env: Environment) -> Stopped:
        """Give all targets their time back. A process that ended meanwhile took the patch with it."""
        started = [env.agent(node).start("clock_restore", fault=self._name, missing_ok=True) for node in self._hit]
        answers, errors = settle(started, 8.0)
        problems = [str(error) for error in errors.values()]
        evidence = {"restored": {self._hit[index]: answer for index, answer in answers.items()}}
        for node, answer in evidence["restored"].items():
            for process in answer.get("processes", []):
                problems += [f"{node}, process {process['pid']}: {wrong}" for wrong in process.get("wrong", [])]
        return Stopped("unproven", evidence, "; ".join(problems)) if problems else Stopped("undone", evidence)
