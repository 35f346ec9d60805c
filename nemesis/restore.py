"""Restore: the service is put back to what it was when a snapshot was taken, as an operator does after data was lost.

A snapshot is taken, the lock changes hands, and then it is put back: by the system's own order while the servers run
(Consul), or by ending all of them and starting them from it (etcd, Redis). Everything that was granted since then is
forgotten. Whoever held the lock at the snapshot may hold it again by the service's word, whoever holds it now doesn't,
and a counter from which fencing tokens are made is back where it was: the fence of the resource doesn't know of that.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness.errors import AgentError, FencepostError
from harness.systems.operating import lacks
from harness.systems.restoring import Restores, Snapshot
from nemesis import targets
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.kill import Kill
from nemesis.parameters import Parameters
from nemesis.targets import Resolved
from nemesis.watched import Watched
from nemesis.well import await_well

HANDS = 8
"""How often the lock is to be granted between the snapshot and its coming back, where nobody says how old it is."""
WELL_SECONDS = 30.0
"""How long the service may take to be well again."""
LOOK_SECONDS = 0.05
MARK = "fencepost-restored"
"""A key that is written right after the snapshot: when it is gone, the service is back at it."""


class Restore(Kill):
    """`age`: how old the snapshot is when it is put back, in s, at the least; without it, the lock was granted eight
    times since, if it is within the time that faults wait for a holder. Servers that have to be ended are killed: what
    they hold is about to be thrown away, and nobody waits for their good-bye.

    Receipt: a key that was written after the snapshot, and was there right before, is there no more, and the whole
    service is well. There is nothing to undo.
    """

    kind = "restore"
    summary = "put the service back to a snapshot that is some grants old, as an operator does"
    targets: Sequence[str] = ()

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        Watched.__init__(self, "all", "hold")
        taken = Parameters(self.kind, parameters)
        taken.whole("seed", 0, 0, 2**63 - 1)  # every fault is handed one; there is nothing to draw here
        self.age = taken.number("age", 0.0, 0.0, 3600)
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        taken.done()
        self.service, self.keep_data = None, True
        self._old = {}
        self._since_ns = 0

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """A system that has a way for it."""
        return lacks(system, cls.kind, Restores, "snapshot that could be put back")

    def stands_seconds(self, env: Environment, number: int, usual: float) -> float:
        """Nothing is in force once it is back."""
        self._witness.turn(number)
        return 0.0

    def start(self, env: Environment) -> Started:
        """Take a snapshot, let some grants pass, and put it back while somebody holds, if somebody does."""
        patience = self.patience or targets.patience_of(env)
        mark = secrets.token_hex(8)
        try:
            taken = env.snapshot()
            self._since_ns = env.now()
            env.put(MARK, mark)
        except AgentError as error:
            return Started("unproven", env.servers, (), {}, f"no snapshot could be taken: {error}")
        self._wait(env, patience)
        self._witness.summon(env, patience)
        self._hit = Resolved(tuple(env.servers), (), targets.EVERY)
        self._watch(env)
        evidence: dict[str, Any] = {
            "snapshot": taken.order,
            "bytes": len(taken.data),
            "age_seconds": round((env.now() - self._since_ns) / 1e9, 3),
            "granted_since": len(env.granted(self._since_ns, env.now())),
        }
        try:
            if env.get(MARK) != mark:
                raise AgentError("what was written after the snapshot isn't there before it is put back")
            evidence["begin_ns"] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            evidence |= self._put_back(env, taken)
            evidence["well_seconds"] = self._well(env)
            if (left := env.get(MARK)) is not None:
                raise AgentError(f"what was written after the snapshot is there still ({left!r})")
        except FencepostError as error:
            return Started("unproven", self._hit.nodes, (), evidence, f"the snapshot was not put back: {error}")
        return Started("landed", self._hit.nodes, (), evidence)

    def _wait(self, env: Environment, patience: float) -> None:
        """Until the snapshot is as old as it is to be."""
        end = time.monotonic() + (self.age or patience)
        while time.monotonic() < end and (self.age or len(env.granted(self._since_ns, env.now())) < HANDS):
            time.sleep(LOOK_SECONDS)

    def _put_back(self, env: Environment, taken: Snapshot) -> dict[str, Any]:
        """Put it back; the evidence. FencepostError when that failed."""
        if env.restores_running:
            return {"order": env.restore(taken)}
        answers, wrong = self._end(env, env.servers)
        if wrong:
            raise AgentError("; ".join(wrong))
        anew = env.restored_from(taken)
        with ThreadPoolExecutor(max_workers=len(anew)) as pool:
            list(pool.map(env.restart_from, anew, anew.values()))
        back = {node: self._seen_back(env, node) for node in env.servers}
        if errors := [f"{node}: {each['error']}" for node, each in back.items() if "error" in each]:
            raise AgentError("; ".join(errors))
        return {"killed": answers, "restarted": back, "order": env.restore(taken)}

    def _well(self, env: Environment) -> float:
        """Wait until the service is well; how long that took, in s. AgentError when it isn't in time."""
        well, seen, took = await_well(env, WELL_SECONDS)
        if not well:
            raise AgentError(f"the service was not well {WELL_SECONDS:g} s later; seen last: {seen}")
        return round(took, 3)

    def stop(self, env: Environment) -> Stopped:
        """There is nothing to undo. Servers that were ended, and are not back, are started as they were."""
        if not self._hit.nodes:
            return Stopped("undone")
        gone = [node for node in self._old if not any(self._running(env, node, part) for part in env.services(node))]
        back = {node: self._restart(env, node) for node in gone}
        problems = [f"{node}: {each['error']}" for node, each in back.items() if "error" in each]
        if problems:
            return Stopped("unproven", {"restarted": back}, "; ".join(problems))
        return Stopped("undone", {"restarted": back} if back else {})

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """What was granted since the snapshot is forgotten; without anything, there was nothing to forget."""
        granted = env.granted(self._since_ns, began_ns)
        borne = self._leading.bite(env, began_ns, ended_ns)
        age = (began_ns - self._since_ns) / 1e9
        evidence = {**borne.evidence, "granted_since": len(granted), "age_seconds": round(age, 3)}
        if granted:
            what = "1 grant was" if len(granted) == 1 else f"{len(granted)} grants were"
            return Bite(True, f"{what} forgotten, of the {age:.2f} s since the snapshot", evidence)
        reason = f"nobody was granted the lock in the {age:.2f} s since the snapshot: nothing was forgotten"
        return Bite(False, reason, evidence, "an older snapshot (age), or shorter jobs")
