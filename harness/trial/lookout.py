"""The lookout: sees whatever happens to a trial's nodes that no fault of the trial did.

It has three pairs of eyes: the runtime's watch over nodes and services (paused, ended, out of memory, off the
network), the agents' own (processes that were stopped, time that went missing), and the contenders' ends. The trial's
own acts are known before they are done (`acts`), so that what they cause is left out.

A trial goes on under what may pass, so that its record shows what that did to the lock. It ends early when what is gone
will not come back: a node, an agent, the resource, or a service that nobody has started again within two ttls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from harness.errors import FencepostError, HarnessError
from harness.runtime.base import MAIN, NODE_PARTS, Node, Seen, Site, Watch
from harness.trial.acts import OwnActs
from harness.trial.beats import Beats
from harness.trial.clock import HistoryClock
from harness.trial.contenders import Contender
from harness.trial.outside import ENDED, Outside, Outsiders
from harness.trial.recorder import Recorder
from nemesis.base import AgentLink

BACK_TTLS = 2.0
"""How long a service that others ended may take to come back, in ttls: by then every lease has run out, and the record
shows what its end did to the lock."""
FIRST_SIGN_SECONDS = 2.0
"""How long the end of an agent or of a contender is taken for the first sign of more: where its whole node was ended
its stream tells of it before the engine does, on a busy machine by more than a look, and it is the node that is to be
named."""
SIGNALLED = (129, 130, 131, 137, 143)
"""Exit codes of a program that was ended by a signal that people send: HUP, INT, QUIT, KILL, TERM."""


class Lookout:
    """Keeps watch from `start` to `close`. `outsiders` is what it has seen."""

    def __init__(
        self,
        site: Site,
        agents: Mapping[str, AgentLink],
        contenders: Sequence[Contender],
        resource: Node,
        recorder: Recorder,
        clock: HistoryClock,
        *,
        system: str,
        ttl: float,
        said: Callable[[str], None],
    ) -> None:
        self._site, self._contenders, self._resource, self._clock = site, contenders, resource, clock
        self._system, self._ttl, self._said = system, ttl, said
        nodes = {contender.node.name: contender.process for contender in contenders}
        self.acts = OwnActs(clock.now)
        self.outsiders = Outsiders(recorder, clock.now, nodes, self._name, said)
        self._beats = Beats(agents, resource, self.outsiders, ttl, clock.epoch_ns, said, self._look_at_nodes)
        self._watch: Watch | None = None
        self._context = ExitStack()
        self._signalled: set[int] = set()

    def start(self) -> None:
        """Begin to watch. What is not as it should be already is the first that is seen."""
        self._beats.start()
        self._context.callback(self._beats.stop)
        self._watch = self._context.enter_context(self._site.watch(self._seen, self._said))

    def look(self) -> None:
        """Everything that happened before this call is known when it returns."""
        self._look_at_contenders()
        if self._watch is not None:
            self._watch.look()

    def _look_at_nodes(self) -> None:
        try:
            self.look()
        except FencepostError as error:  # what can't be seen in this way is seen in the others
            self._said(f"the runtime can't be asked: {error}")

    def check(self) -> None:
        """Raises HarnessError when going on makes no sense, with what happened to whom."""
        self._look_at_contenders()
        failure = self.outsiders.failure or self._beats.failure
        if failure is not None:
            raise HarnessError(failure)
        self._raise_first(self._is_final)

    def check_services(self) -> None:
        """Raises HarnessError when a service has ended, however short ago, and nobody has started it again."""
        self.look()
        self._raise_first(lambda each: each.what in ENDED and bool(each.parts))

    def touched(self) -> set[str]:
        """The nodes to which others did something."""
        return {node for each in self.outsiders.all for node in each.targets}

    def close(self) -> list[str]:
        """Look once more and stop watching. Returns a sentence for each thing that was seen and not raised yet."""
        try:
            self.look()
        finally:
            self._watch = None
            self._context.close()
            untold = [each for each in self.outsiders.all if not each.told]
            for each in untold:
                each.told = True
        return [each.sentence() for each in untold]

    def _raise_first(self, condition: Callable[[Outside], bool]) -> None:
        for each in self.outsiders.standing():
            if not each.told and condition(each):
                each.told = True
                raise HarnessError(each.sentence())

    def _is_final(self, each: Outside) -> bool:
        if each.what == "deaf":
            return True
        if each.what not in ENDED or not each.parts:
            return False
        if each.parts <= {"agent", "contender"}:
            return self._clock.now() - each.began > FIRST_SIGN_SECONDS * 1e9
        if each.parts & {"agent", "contender"}:
            return True
        if each.what == "killed" and ("node" in each.parts or self._resource.name in each.targets):
            return True
        return self._clock.now() - each.began > BACK_TTLS * self._ttl * 1e9

    def _name(self, node: str, part: str) -> str:
        """Who something happened to, in a sentence."""
        contender = next((each for each in self._contenders if each.node.name == node), None)
        if part == "agent":
            return f"the agent on {node}"
        if node == self._resource.name:
            return "the resource"
        if part == "node":
            return f"node {node}"
        if part not in NODE_PARTS and not part.startswith("process "):
            return f"{part} on {node}"
        if contender is None or part == MAIN:
            return f"{self._system} on {node}"
        return f"contender {contender.process} on {node}"

    def _seen(self, seen: Seen) -> None:
        """Something that the runtime saw, by the wall clock of the nodes' machine."""
        at = seen.wall_ns + self._beats.boot_ahead_ns - self._clock.epoch_ns
        if seen.part != "node" and seen.what in ENDED and self.acts.covers(seen.node, at, seen.part):
            return
        if seen.over:
            self.outsiders.finish(seen.node, seen.part, seen.what, at, seen.detail, restored=seen.restored)
        else:
            self.outsiders.begin(seen.node, seen.part, seen.what, at, seen.detail)

    def _look_at_contenders(self) -> None:
        """A contender that ended by a signal that it did not send itself was killed; any other end is its own."""
        for contender in self._contenders:
            end = contender.ended
            if end is None or end.ours:  # its next end may be somebody else's doing
                continue
            if end.exit_code in SIGNALLED and contender.process not in self._signalled:
                self._signalled.add(contender.process)
                seen = f"its process ended with exit code {end.exit_code}"
                self.outsiders.begin(contender.node.name, "contender", "killed", end.time, seen)
