"""What workloads share whose contenders take the lock for one job after the other: how they go about it.

What a job is, and what is done in it, is the workload's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from workloads.validate import BadConfig

if TYPE_CHECKING:
    from workloads.contender import Contender, Hold

Job = TypeVar("Job")


class Jobs(ABC, Generic[Job]):
    """Draw a job, take the lock for it, do it, release, rest; until the contender is told to stop.

    Of the parameters `wait_ttls`, `after_failure` and `rest_max` are used here.
    """

    name: str

    def __init__(self, contender: Contender, parameters: Mapping[str, Any]) -> None:
        from workloads.resource import Attempts  # only a process that uses PostgreSQL pays for its library

        self.resolved = self.resolve(parameters)
        self._contender = contender
        config = contender.config
        if config.resource is None:
            raise BadConfig("resource", f"the workload {self.name} needs one")
        self._resource = config.resource
        self._attempts = Attempts(config.process, config.epoch_ns)

    @classmethod
    @abstractmethod
    def resolve(cls, given: Mapping[str, Any]) -> dict[str, float]:
        """All parameters, the given ones over the defaults. BadConfig names one that is unknown or out of range."""

    @abstractmethod
    def _draw(self) -> tuple[Job, float]:
        """The next job, by lot, and how many seconds it is meant to take."""

    @abstractmethod
    def _work(self, hold: Hold, job: Job) -> None:
        """Do the job, with the lock in hand."""

    def run(self) -> None:
        """Until the contender is told to stop."""
        contender, values = self._contender, self.resolved
        while not contender.stopping.is_set():
            # Drawn before the attempt, so that the sequence of jobs depends on nothing but the seed.
            job, seconds = self._draw()
            hold = contender.acquire(values["wait_ttls"] * contender.config.ttl, hold=round(seconds, 3))
            if hold is None:
                contender.stopping.wait(values["after_failure"] * contender.random.uniform(0.5, 1.5))
                continue
            self._work(hold, job)
            hold.release()
            contender.stopping.wait(contender.random.uniform(0, values["rest_max"]))
