"""What there is of a running trial by now, and looking after it while time passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.errors import HarnessError
from harness.runtime.base import Node
from harness.trial.clock import HistoryClock
from harness.trial.cluster import Cluster
from harness.trial.contenders import Contender
from harness.trial.lane import Lane
from harness.trial.lookout import Lookout
from harness.trial.recorder import Recorder
from nemesis.base import AgentLink


class Cancelled(HarnessError):
    """The user asked to stop. Goes through the same undo as every other error."""

    exit_code = 130


def giving_up(cancel: threading.Event) -> Callable[[], None]:
    """A check that raises Cancelled once the user asked to stop; for what is called before each step of a start-up."""

    def check() -> None:
        if cancel.is_set():
            raise Cancelled("interrupted")

    return check


@dataclass
class Running:
    """Everything that bring-up has started so far, entered here as it comes: what is here, the way out takes down."""

    lane: Lane
    clock: HistoryClock
    server_nodes: list[Node] = field(default_factory=list)
    agents: dict[str, AgentLink] = field(default_factory=dict)
    """Node name -> its agent, of servers and contenders."""
    cluster: Cluster | None = None
    recorder: Recorder | None = None
    contenders: list[Contender] = field(default_factory=list)
    lookout: Lookout | None = None
    """From when all is up: what sees whatever others do to it."""

    @property
    def servers(self) -> Cluster:
        """The cluster, once it is there."""
        assert self.cluster is not None, "the servers were not started"
        return self.cluster

    @property
    def outlook(self) -> Lookout:
        """The lookout, once it is there."""
        assert self.lookout is not None, "nobody looks out yet"
        return self.lookout

    @property
    def history(self) -> Recorder:
        """The recorder, once it is there."""
        assert self.recorder is not None, "the history was not begun"
        return self.recorder


class Watch:
    """Lets time pass in a trial, and gives up early when going on makes no sense."""

    def __init__(self, running: Running, cancel: threading.Event) -> None:
        self._running, self._cancel, self._check_cancel = running, cancel, giving_up(cancel)

    def check(self) -> None:
        """Raises Cancelled when the user asked for it, HarnessError when a contender failed or a node is gone."""
        self._check_cancel()
        failed = next((contender.failure for contender in self._running.contenders if contender.failure), None)
        if failed is not None:
            raise HarnessError(failed)
        if self._running.cluster is not None:
            self._running.cluster.check()
        if self._running.lookout is not None:
            self._running.lookout.check()  # which tells of agents too
            return
        dead = next((name for name, agent in self._running.agents.items() if not agent.alive), None)
        if dead is not None:
            raise HarnessError(
                f"the agent on {dead} has ended by itself, or its node is gone; see logs/{dead}/agent.log"
            )

    def check_services(self) -> None:
        """Raises HarnessError when a server has ended though no fault did that: what follows says little."""
        if self._running.lookout is not None:
            self._running.lookout.check_services()

    def wait(self, seconds: float) -> None:
        """Let the trial run for a while; returns early only by raising."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            self._cancel.wait(min(left, 0.1))
        self.check()

    def await_event(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the history fulfils a condition; False when it didn't in time."""
        end = time.monotonic() + seconds
        changed = self._running.history.live.changed
        while not condition():
            self.check()
            left = end - time.monotonic()
            if left <= 0:
                return False
            with changed:
                changed.wait(min(left, 0.1))
        return True
