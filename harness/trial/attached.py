"""A cluster that exists, in the place of servers of ours: a node for each endpoint, with the way there, and no more.

To faults and probes these nodes are the servers: whoever is cut off from them is cut off from the cluster. What is
asked about its inside (who leads, who plays which role) nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from harness.runtime.base import Node
from harness.systems.base import Leadership, Settings, System
from harness.systems.roles import Plan
from harness.trial.attachment import Attachment
from harness.trial.cluster import Cluster
from harness.trial.relays import Relays
from nemesis.base import AgentLink

UNKNOWN = "not asked: it isn't ours"


class AttachedCluster(Cluster):
    """See the module."""

    def __init__(
        self,
        system: System,
        settings: Settings,
        nodes: Sequence[Node],
        agents: Mapping[str, AgentLink],
        attachment: Attachment,
    ) -> None:
        super().__init__(system, settings, nodes, agents)
        self.attachment = attachment
        self._relays = Relays(nodes, attachment.access.ways, system.port)

    def _planned(self, contenders: Mapping[str, Sequence[str]]) -> Plan:
        """No service is ours."""
        return {}

    def start(self) -> None:
        """Start the relays; all listen when this returns."""
        self._relays.start()

    def check(self) -> None:
        """Raises HarnessError when a relay has ended."""
        self._relays.check()

    def client_config(self) -> dict[str, Any]:
        """What the lock clients are told."""
        each = self.attachment
        return each.system.attached_config(each.access, each.settings, list(self.nodes), each.prefix)

    def wait_healthy(self, check: Callable[[], None], *, deadline_seconds: float | None = None) -> float:
        """It was examined before it was attached to: nothing is awaited."""
        check()
        return 0.0

    def standing(self) -> Mapping[str, Sequence[str]]:
        """Nobody knows."""
        return {}

    def leadership(self, but: Collection[str] = ()) -> Leadership:
        """Nobody knows."""
        return Leadership(None, {name: UNKNOWN for name in self.nodes if name not in but})

    def version(self, patience_seconds: float, check: Callable[[], None]) -> tuple[str | None, str | None]:
        """As the examination found it."""
        version = self.attachment.found.version
        return version, "it isn't told to us" if version is None else None

    def end_relays(self) -> dict[str, Any]:
        """Close the ways there, and say what passed: node -> its connections. Idempotent."""
        self._relays.close()
        return {relay.node.name: relay.told() for relay in self._relays.all}

    def tidy(self) -> int:
        """Remove the trial's keys, once its relays are closed; how many there were. EndpointError if it isn't sure."""
        return self.attachment.system.tidy(self.attachment.access, self.attachment.prefix)

    def close(self) -> None:
        """Close what is open to ask and to carry."""
        super().close()
        self._relays.close()
