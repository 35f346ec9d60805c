"""Kill: the processes of a server are gone at once, and later started again, with or without their data.

The node stays, with its addresses and its agent. Nothing is flushed or closed by the program; what it had handed to the
kernel (sockets, written files) the kernel deals with, as after a crash of the program, not of the machine.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness.errors import FencepostError
from nemesis import targets
from nemesis.base import Environment, Started, Stopped
from nemesis.link import settle
from nemesis.parameters import Parameters

BACK_SECONDS = 10.0
POLL_SECONDS = 0.01


class Kill:
    """SIGKILL to all processes of the service; started again at the end.

    Receipt: none of the old processes is there; at the end, a process of the service runs that none of them is.
    Whether the service is *healthy* again is the trial's business.
    """

    kind = "kill"
    summary = "kill the processes of a server (SIGKILL), later start it again"
    targets: Sequence[str] = targets.SERVERS

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        self.target = targets.check(self.kind, target, self.targets)
        taken = Parameters(self.kind, parameters)
        self.keep_data = taken.flag("keep_data", True)
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", targets.PATIENCE_SECONDS, 0.1, 60)
        taken.done()
        self._name = secrets.token_hex(4)
        self._hit: tuple[str, ...] = ()
        self._old: dict[str, set[tuple[int, int]]] = {}

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """Any server that there is."""
        return targets.sensible(target, servers)

    def start(self, env: Environment) -> Started:
        """Kill all targets side by side."""
        hit = targets.resolve(env, self.target, random.Random(f"kill/{self.seed}"), patience=self.patience)
        self._hit = hit.nodes
        answers, errors = settle([env.agent(node).start("kill") for node in hit.nodes], 6.0)
        for index, answer in answers.items():
            self._old[hit.nodes[index]] = {(each["pid"], each["started"]) for each in answer["processes"]}
        evidence = {"killed": {hit.nodes[index]: answer for index, answer in answers.items()}}
        if errors:
            return Started("unproven", hit.nodes, hit.processes, evidence, "; ".join(map(str, errors.values())))
        return Started("landed", hit.nodes, hit.processes, evidence)

    def stop(self, env: Environment) -> Stopped:
        """Start them all again, and see them run. A server whose kill had failed is started only if it is gone."""
        if not self._hit:
            return Stopped("undone")
        with ThreadPoolExecutor(max_workers=len(self._hit)) as pool:
            results = list(pool.map(lambda node: self._restart(env, node), self._hit))
        restarted = dict(zip(self._hit, results, strict=True))
        evidence = {"restarted": restarted, "keep_data": self.keep_data}
        problems = [f"{node}: {result['error']}" for node, result in restarted.items() if "error" in result]
        return Stopped("unproven", evidence, "; ".join(problems)) if problems else Stopped("undone", evidence)

    def _restart(self, env: Environment, node: str) -> dict[str, Any]:
        try:
            if node in self._old or not self._running(env, node):
                env.restart_service(node, keep_data=self.keep_data)
            end = time.monotonic() + BACK_SECONDS
            while not (fresh := self._running(env, node)):
                if time.monotonic() > end:
                    return {"error": f"no process of the service {BACK_SECONDS:g} s after it was started again"}
                time.sleep(POLL_SECONDS)
        except FencepostError as error:  # one server that doesn't come back must not keep the others from it
            return {"error": str(error)}
        return {"processes": fresh}

    def _running(self, env: Environment, node: str) -> list[dict[str, Any]]:
        """The processes of the service that are none of those killed, and not just about to be reaped."""
        old = self._old.get(node, set())
        return [
            {"pid": each["pid"], "comm": each["comm"]}
            for each in env.agent(node).call("processes")["processes"]
            if each["role"] == "service" and (each["pid"], each["started"]) not in old and each["state"] not in "ZX"
        ]
