"""What trials that are made up for tests have in common: servers of one service each, of which one leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.systems.roles import USUAL, Role
from nemesis.topology import Electorate


class Usual:
    """The part of `nemesis.base.Environment` that says what the cluster is made of."""

    servers: Sequence[str]
    roles: Sequence[Role] = USUAL

    def leader(self) -> str | None:
        raise NotImplementedError

    def standing(self) -> Mapping[str, Sequence[str]]:
        leads = self.leader()
        return {
            "leader": [] if leads is None else [leads],
            "follower": [each for each in self.servers if each != leads],
        }

    def services(self, node: str) -> Sequence[str]:
        return ["pretend"] if node in self.servers else []

    def electorate(self, led: str | None) -> Electorate:
        return Electorate(self.servers, self.servers)
