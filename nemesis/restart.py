"""Restart: a server is told to end and started again at once; several of them one after the other.

What an upgrade does, or a change of configuration. With more than one target (`all`, `majority`, `minority`) it is a
rolling restart: the next one is told to end when the one before it takes clients again.
"""

from __future__ import annotations

from typing import Any

from harness.errors import UsageError
from nemesis.base import Environment, Started
from nemesis.parameters import Parameters
from nemesis.stop import Stop
from nemesis.targets import Resolved


class Restart(Stop):
    """As `Stop`, and back at once. Nobody tells the next one before the last one takes clients, or has had 10 s for it.

    Receipt: of each, as for a stop; the last one is started again at the end.
    """

    kind = "restart"
    summary = "tell a server to end (SIGTERM) and start it again at once; several one after the other"

    def _take_more(self, taken: Parameters) -> None:
        super()._take_more(taken)
        if taken.given("down"):
            raise UsageError("restart: it is back at once; with 'down' it is a stop (stop-leader)")
        self.down = "short"

    def _strike(self, env: Environment, hit: Resolved) -> Started:
        self._hit = hit
        self._watch(env, hit.nodes if len(hit.nodes) == 1 else ())
        evidence: dict[str, Any] = {**hit.told, "stopped": {}, "restarted": {}}
        problems: list[str] = []
        for number, node in enumerate(hit.nodes):
            answers, wrong = self._end(env, [node])
            evidence["stopped"] |= answers
            problems += wrong
            if number < len(hit.nodes) - 1:
                back = evidence["restarted"][node] = self._restart(env, node)
                self._old.pop(node, None)  # it is back, with nothing left to be done
                problems += [f"{node}: {back['error']}"] if "error" in back else []
            if problems:
                return Started("unproven", hit.nodes, (), evidence, "; ".join(problems))
        return Started("landed", hit.nodes, (), evidence)
