"""What an operator can do to a lock service by hand, where a system has it: each is what a fault asks for.

All of it is optional for a system. One that lacks an order leaves the fault's cells out, with that as the rule; where
the reason isn't plain it says it in `inoperable`, by the fault's kind:

    inoperable = {"restore": "a replica is overwritten by whoever is the primary then"}

`HandsOver`, for `failover`, is in harness/systems/base.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from harness import registry
from harness.errors import AgentError
from harness.runtime.base import ServiceSpec
from harness.systems.base import Server, System

LOCK = "lock"
"""The name of the lock that the contenders of a trial fight for."""
PREFIX = "fencepost"
"""Below which our clients keep it, in a service of ours."""

T = TypeVar("T")


@dataclass(frozen=True)
class Held:
    """What a service holds of a lock: by whom it is held, in the service's own words."""

    key: str
    """Under what name: the path of a node, a key."""
    owner: str
    """Whose it is: a lease, a session, a random word of the client's."""
    token: int
    """The fencing token that the client of this owner was given."""


@runtime_checkable
class Unlocks(Protocol):
    """A system of which an operator can take a lock away from its holder."""

    unlock_ways: Sequence[str]
    """By what: words for the parameter `by` of the fault, the usual one first."""

    def held(self, servers: Sequence[Server], lock: str) -> Held | None:
        """Who holds the lock by the service's own word, as a quorum has it; None: nobody. AgentError without an
        answer.
        """

    def unlock(self, servers: Sequence[Server], held: Held, way: str) -> str:
        """Take it away from this owner and from no other; what was ordered, in words. AgentError when it isn't sure
        that it was done.
        """


@dataclass(frozen=True)
class Joining:
    """How a member that left begins again."""

    order: str
    """What the others were told before it starts, in words."""
    spec: ServiceSpec | None
    """What it is started from; None: as it was."""
    keep_data: bool
    """Whether it finds its data again; else it is new, and has to be told everything."""


@runtime_checkable
class Reconfigures(Protocol):
    """A system whose members can leave while the others go on, and join again."""

    def members(self, servers: Sequence[Server]) -> Sequence[str]:
        """The nodes that are members by the word of these, as a quorum has it. AgentError without an answer."""

    def leave(self, servers: Sequence[Server], member: str) -> str:
        """Order that this one is a member no more; what was ordered. AgentError when it was refused, or isn't sure.

        Its process may end by that, or not.
        """

    def admit(self, servers: Sequence[Server], member: str, spec: ServiceSpec) -> Joining:
        """Tell the others that it comes, where they must be told, before it is started. `spec`: as it was planned.

        May be asked again after an AgentError: what was ordered then isn't ordered twice.
        """

    def admitted(self, servers: Sequence[Server], member: str) -> str:
        """What must be ordered once it runs, if anything; what was ordered. To be asked again after an AgentError."""


def lacks(system: str, kind: str, protocol: type[Any], what: str) -> str | None:
    """None when a system has what a kind of fault asks for, else why not, as a sentence: its own, or that it has no
    `what`.
    """
    found: System = registry.load("systems", system)()
    if isinstance(found, protocol):
        return None
    told: str | None = getattr(found, "inoperable", {}).get(kind)
    return f"{system}: {told}" if told is not None else f"{system} has no {what}"


def first_of(servers: Sequence[Server], question: Callable[[Server], T]) -> T:
    """The answer of the first server that gives one. AgentError with what each of them said."""
    refused = []
    for server in servers:
        try:
            return question(server)
        except (AgentError, ValueError, KeyError, IndexError, TypeError) as error:
            refused.append(f"{server.name}: {error}")
    raise AgentError("; ".join(refused) or "there is no server to ask")


def with_values(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A command line with other values behind these flags."""
    before = ["", *command]
    return [values.get(flag, word) for flag, word in zip(before, command, strict=False)]
