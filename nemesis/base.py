"""What a fault is. A new fault is one class in this package, registered under `fencepost.faults`.

A fault resolves its targets at the moment of injection, applies itself through the agents on the nodes, and gives a
*receipt*: the measured proof that it took effect, and later that it was undone. A receipt never comes from the same
call that made the change: a partition is probed, a freeze is read from the process state, a clock is read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

StartReceipt = Literal["landed", "unproven", "skipped"]
StopReceipt = Literal["undone", "unproven"]


class AgentLink(Protocol):
    """The open stream to the agent on one node (see nemesis/link.py)."""

    @property
    def node(self) -> str:
        """The node's name."""

    @property
    def alive(self) -> bool:
        """Whether commands still reach the agent."""

    def call(self, op: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> dict[str, Any]:
        """One command and its answer. Raises AgentError when it failed, timed out, or the agent is gone."""

    def close(self) -> None:
        """End the agent: it undoes what it holds, then leaves. Idempotent; silent for a dead one."""

    def start(self, op: str, **arguments: Any) -> Any:
        """Send a command without waiting; the handle goes to `nemesis.link.gather`, so that nodes work in parallel."""


class Environment(Protocol):
    """What a fault may use of the trial that it is applied to."""

    servers: Sequence[str]
    """Names of the server nodes."""
    contenders: Mapping[str, int]
    """Contender node -> process number in the history."""
    system: str
    """The name of the system under test."""

    def agent(self, node: str) -> AgentLink:
        """The agent on a node."""

    def addresses(self, node: str) -> Sequence[str]:
        """All addresses of a node (IPv4, IPv6), the resource's included (name "resource")."""

    def leader(self) -> str | None:
        """The server that leads now, asked of the system this instant; None when nobody is known to lead."""

    def holder(self) -> str | None:
        """The contender node that believes it holds the lock now (the latest grant), from the live history; or None."""

    def wait_for_holder(self, timeout_seconds: float) -> str | None:
        """Like `holder`, waiting until there is one."""

    def client_port(self) -> int:
        """The port on which the system's servers take clients; a probe connects to it."""

    def contender_pids(self, node: str) -> Sequence[int]:
        """The process ids of the contender on this node, in the node's pid namespace."""

    def restart_service(self, node: str, *, keep_data: bool) -> None:
        """Start a killed service again (the runtime's work); returns once it was started."""


@dataclass(frozen=True)
class Started:
    """What `start` did. `targets` are nodes, `processes` the contenders hit (process numbers).

    `evidence` is the measurement behind the receipt, plain JSON; `reason` is a sentence on why it is skipped or
    unproven.
    """

    receipt: StartReceipt
    targets: Sequence[str]
    processes: Sequence[int] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class Stopped:
    """What `stop` did, with the measurement that shows it."""

    receipt: StopReceipt
    evidence: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None


class Fault(Protocol):
    """One fault of one trial; constructed once for each injection by `nemesis.faults.make`.

    `start` and `stop` are each called once, in this order, never at the same time. `stop` is called even when `start`
    raised, and must then undo whatever had been done. An AgentError in `start` becomes an `unproven` receipt with the
    error as reason, in `stop` likewise; the harness goes on and the verdict `faults` tells.
    """

    kind: str
    """The name in the history: "partition", "freeze", "kill", "clock"."""
    summary: str
    """One line for `fencepost list`."""
    targets: Sequence[str]
    """The target words that it takes: ("leader", "holder", …), the default first."""

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        """Raises UsageError that names the parameter (or the target) and what would be right."""

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """None when this cell makes sense, else the rule by which it is left out, as a sentence."""

    def start(self, env: Environment) -> Started:
        """Resolve the targets, apply, measure."""

    def stop(self, env: Environment) -> Stopped:
        """Undo, measure."""
