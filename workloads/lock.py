"""The workload `lock`: acquire, read-think-write on the twin resources while holding, release, again.

Most jobs are short. A share of them are *long*: they hold for more than two leases, so that whatever befalls the
service meets a lease that has to be kept. The kind of job is drawn from the seed and stands in the event of the grant
(`hold`, planned seconds). A job whose holder is told to hold goes on until it is let go, whatever was planned: so a
holder that is cut off or frozen outlives its lease, and a naive one does its damage.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workloads.jobs import Jobs
from workloads.parameters import Parameter, resolve

if TYPE_CHECKING:
    from workloads.contender import Contender, Hold
    from workloads.resource import Twins


PARAMETERS: Mapping[str, Parameter] = {
    "wait_ttls": Parameter(4.0, 0.1, 1000, "ttl", "how long an acquire waits for its turn"),
    "hold_min": Parameter(0.05, 0, 3600, "s", "the shortest hold"),
    "hold_max": Parameter(0.25, 0, 3600, "s", "the longest hold of a short job"),
    "long_share": Parameter(0.08, 0, 1, "share", "of the jobs that are long"),
    "long_ttls": Parameter(2.5, 0, 1000, "ttl", "how long a long job holds"),
    "think_min": Parameter(0.02, 0, 3600, "s", "the shortest pause between read and write"),
    "think_max": Parameter(0.08, 0, 3600, "s", "the longest"),
    "rest_max": Parameter(0.1, 0, 3600, "s", "the longest pause between a release and the next acquire"),
    "after_failure": Parameter(0.1, 0.001, 3600, "s", "the pause after an acquire without success"),
    "takes_orders": Parameter(1, 0, 1, "0 or 1", "whether a holder can be told to hold until it is let go"),
}


class LockWorkload(Jobs[float]):
    """See the module."""

    name = "lock"
    summary = "Take the lock, read-think-write on the twin resources while holding, release."
    parameters = PARAMETERS

    @classmethod
    def resolve(cls, given: Mapping[str, Any]) -> dict[str, float]:
        """All parameters, the given ones over the defaults. BadConfig names one that is unknown or out of range."""
        return resolve(cls.parameters, given, (("hold_min", "hold_max"), ("think_min", "think_max")))

    def __init__(self, contender: Contender, parameters: Mapping[str, Any]) -> None:
        super().__init__(contender, parameters)
        self.takes_orders = self.resolved["takes_orders"] > 0
        self._twins = self._kind_of_twins()(self._resource, contender.config.lock, contender.config.process)

    def _kind_of_twins(self) -> type[Twins]:
        from workloads.resource import Twins  # only a process that uses PostgreSQL pays for its library

        return Twins

    def prepare(self, timeout_seconds: float) -> str | None:
        """Have the resource ready. None, or why not."""
        return self._twins.prepare(timeout_seconds)

    def _draw(self) -> tuple[float, float]:
        """A job is the seconds that it takes."""
        random, values = self._contender.random, self.resolved
        long = random.random() < values["long_share"]
        seconds = random.uniform(values["hold_min"], values["hold_max"])
        if long:
            seconds = values["long_ttls"] * self._contender.config.ttl
        return seconds, seconds

    def _work(self, hold: Hold, seconds: float) -> None:
        """Read, think, write, until the time of the job is up, the hold is lost, or the contender is stopped.

        The job's time runs on CLOCK_MONOTONIC like everything that it decides by; at least one round is tried. While it
        is ordered to hold it goes on, beyond that time.
        """
        end = time.monotonic() + seconds
        values, contender = self.resolved, self._contender
        while True:
            self._round(hold, contender.random.uniform(values["think_min"], values["think_max"]))
            left = end - time.monotonic()
            if not hold.goes_on or contender.stopping.is_set() or (left <= 0 and hold.leave()):
                return
            pause = contender.random.uniform(values["think_min"], values["think_max"])
            contender.stopping.wait(min(left, pause) if left > 0 else pause)

    def _round(self, hold: Hold, think_seconds: float) -> None:
        """One read-modify-write on both twins, with the same thinking in between.

        The twins are two worlds of one job: when the fenced one refuses, the unfenced one, which knows no tokens,
        goes on.
        """
        from workloads.resource import FENCED, UNFENCED, ResourceError, Stale

        contender, twins = self._contender, self._twins
        reads: dict[Any, int] = {}
        for resource in (FENCED, UNFENCED):
            if hold.token is None and resource == FENCED:
                continue  # a lock without tokens can't be fenced
            try:
                reads[resource] = twins.read(resource, hold.token)
            except Stale as error:
                contender.counts["refused"] += 1
                if hold.begin_write(resource=resource, token=hold.token, id=self._attempts.next().id):
                    contender.events.event("fail", "write", resource=resource, error=f"at the read: {error}")
            except ResourceError as error:
                contender.counts["unreadable"] += 1
                print(f"read of {resource}: {error}", file=sys.stderr, flush=True)
        contender.stopping.wait(think_seconds)
        for resource, read in reads.items():
            attempt = self._attempts.next()
            keys = {
                "resource": resource,
                "token": hold.token,
                "read": read,
                "version": attempt.version,
                "id": attempt.id,
            }
            if not hold.begin_write(**keys):
                contender.counts["skipped"] += 1
                return
            try:
                seq = twins.write(resource, hold.token, read, attempt)
            except ResourceError as error:
                contender.counts["refused"] += isinstance(error, Stale)
                contender.events.event(error.type, "write", resource=resource, error=str(error))
            else:
                contender.counts["writes"] += 1
                contender.events.event("ok", "write", **keys, seq=seq)

    def counts(self) -> dict[str, int]:
        """For the bye."""
        return {"resource_reconnects": self._twins.reconnects}
