"""What a fault is. A new fault is one class in this package, registered under `fencepost.faults`.

A fault resolves its targets at the moment of injection, applies itself through the agents on the nodes, and gives a
*receipt*: the measured proof that it took effect, and later that it was undone. A receipt never comes from the same
call that made the change: a partition is probed, a freeze is read from the process state, a clock is read back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from harness.runtime.base import ServiceSpec
from harness.systems.base import Leadership, LeaseTerms
from harness.systems.operating import Held, Joining
from harness.systems.restoring import Snapshot
from harness.systems.roles import Role
from nemesis.bite import Bite, SeenHold, SeenRequest, SeenWait
from nemesis.topology import Electorate

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

    roles: Sequence[Role]
    """The roles that the system's nodes play; each is a target."""

    def standing(self) -> Mapping[str, Sequence[str]]:
        """Role -> the nodes that play it now, asked of the system this instant."""

    def services(self, node: str) -> Sequence[str]:
        """The names of the services on a node, the main one first; none on most contenders' nodes."""

    def hand_over(self, leader: str) -> str:
        """Order, as an operator does, that another server leads; what was ordered. AgentError when it is refused."""

    def owned(self) -> Held | None:
        """Who holds the lock by the service's own word, asked of it this instant; None: nobody.

        AgentError when nobody answers, or the system tells no operator.
        """

    def unlock(self, held: Held, way: str | None) -> str:
        """Take the lock away from this owner, as an operator does; what was ordered. `way`: one of the system's, None
        = its usual. AgentError when it is refused.
        """

    def members(self, but: Collection[str] = ()) -> Sequence[str]:
        """The servers that are members of the cluster, by the word of all others than `but`. AgentError without one."""

    def leave(self, node: str) -> str:
        """Order that a server is a member no more; what was ordered. From here on its end is ours. AgentError when it
        is refused.
        """

    def admit(self, node: str) -> Joining:
        """Tell the others that it comes again; how it is to be started. AgentError when they refuse."""

    def admitted(self, node: str) -> str:
        """What is to be ordered once it runs again; what was ordered. AgentError when it is refused."""

    restores_running: bool
    """Whether a snapshot is put back while the servers run."""

    def snapshot(self) -> Snapshot:
        """Take a snapshot of all that the service holds. AgentError when no server gives one."""

    def restored_from(self, snapshot: Snapshot) -> Mapping[str, Sequence[ServiceSpec]]:
        """From what each server is to be started, one after the other, to be back at it; where it is ended for that."""

    def restart_from(self, node: str, specs: Sequence[ServiceSpec]) -> None:
        """Start the main service of a node without its data, from each of these in turn; all but the last end by
        themselves. AgentError when one of them ends with anything but 0, or not in time.
        """

    def restore(self, snapshot: Snapshot) -> str:
        """Order what brings the service back to it, or what is left of that; what was ordered. AgentError when it is
        refused.
        """

    def put(self, key: str, value: str) -> None:
        """Write a key of ours into the service, as a quorum takes it. AgentError when that isn't sure."""

    def get(self, key: str) -> str | None:
        """Read it as a quorum has it; None: there is none. AgentError without an answer."""

    def electorate(self, led: str | None) -> Electorate:
        """Who decides who leads, and who can, when this one led."""

    def leader(self) -> str | None:
        """The server that leads now, asked of the system this instant; None when nobody is known to lead."""

    def holder(self) -> str | None:
        """The contender node that believes it holds the lock now (the latest grant), from the live history; or None."""

    def wait_for_holder(self, timeout_seconds: float) -> str | None:
        """Like `holder`, waiting until there is one."""

    holds_until_told: bool
    """Whether the contenders can be told to hold until they are let go (workloads/PROTOCOL.md)."""

    def wait_until_told(self, timeout_seconds: float) -> str | None:
        """A contender that holds the lock and has *said* that it will not release before it is let go; its node.

        None when nobody did in time. The trial lets it go once the fault is over, whatever became of it.
        """

    def let_go(self, node: str) -> None:
        """Let it go before that. Nothing happens to a contender that wasn't told to hold."""

    def now(self) -> int:
        """The time of the history, ns."""

    def terms(self) -> LeaseTerms:
        """How long leases last on this system, and how long it takes to give one away, with its client."""

    def holds(self, at_ns: int | None = None) -> Sequence[SeenHold]:
        """All grants that were believed in at that moment (now, without one), the oldest first.

        As far as they were promised by the requests that had been sent then; so also `hold_of`.
        """

    def hold_of(self, node: str, at_ns: int | None = None) -> SeenHold | None:
        """The latest grant that the contender on this node had by then, over or not; None before its first."""

    def granted(self, since_ns: int, until_ns: int) -> Sequence[SeenHold]:
        """All grants from one moment to the other, the oldest first."""

    def wait_of(self, node: str, at_ns: int) -> SeenWait | None:
        """The acquire of the contender on this node that was under way at that moment, if it waited then."""

    def answered(self, since_ns: int, until_ns: int) -> int:
        """How many acquires, renews and releases were both sent and answered ok from one moment to the other.

        None at all while contenders want the lock: the service stood still.
        """

    def wrote(self, node: str, since_ns: int) -> bool:
        """Whether a write of the contender on this node was accepted since then."""

    def leadership(self, but: Collection[str] = ()) -> Leadership:
        """Who leads, asked of all servers this instant, with what each of them said; `but` isn't asked.

        One that can't answer, because a fault has frozen it, costs a second otherwise.
        """

    def requests(self, since_ns: int, until_ns: int) -> Sequence[SeenRequest]:
        """Every acquire, renew and release that was under way at some moment from one to the other, by when it was
        sent.
        """

    def guarded(self, node: str) -> bool:
        """Whether the contender on this node stops by its own deadline."""

    def brought(self, node: str) -> bool:
        """Whether the contender on this node has its lock by a program of the user's own, an adapter."""

    def client_port(self, node: str, service: str | None = None) -> int | None:
        """The port on which a service (None: the main one) takes clients, for a probe; None where that isn't known."""

    def contender_pids(self, node: str) -> Sequence[int]:
        """The process ids of the contender on this node, in the node's pid namespace."""

    def healthy(self) -> tuple[bool, str]:
        """Whether a leader is known and a write through each server succeeds, this instant; and what was seen."""

    def version(self, node: str) -> str:
        """The version that a server says that it is. Raises AgentError, ValueError or KeyError without an answer."""

    def image(self, node: str, service: str) -> str:
        """The name of the image that a service runs in."""

    def restart_service(
        self,
        node: str,
        *,
        keep_data: bool,
        service: str | None = None,
        spec: ServiceSpec | None = None,
        image: str | None = None,
    ) -> None:
        """Start a killed service (None: the main one) again (the runtime's work); returns once it was started.

        From another spec where there is one; or from another image, which is its own from then on.
        """

    def restart_contender(self, node: str) -> None:
        """Start the contender that was killed on this node again, under its number; returns once it is at work.

        Raises HarnessError when it doesn't come back, which ends the trial.
        """


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

    It may have `look` or `bite` too (`Looks`, `Bites` below); without `bite` it isn't known whether it could matter.
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


@runtime_checkable
class Fits(Protocol):
    """A fault whose parameters fit one system and not another."""

    def unfit(self, system: Any) -> str | None:
        """None when they fit this one (an instance), else what is wrong with them, as a sentence. Asked before anything
        starts, of cells that `sensible` has let pass.
        """


@runtime_checkable
class Exchanges(Protocol):
    """A fault that starts services from other images, which have to be there."""

    def images(self, image: str) -> Mapping[str, str]:
        """Each version of a system's usual image, by its name, with the one that takes its place. UsageError for one
        that can't be had.
        """


@runtime_checkable
class Looks(Protocol):
    """A fault that must ask something while it is in force, to know later whether it bit."""

    def look(self, env: Environment) -> None:
        """Called once, when the fault has stood for its time, just before `stop`; not when the trial was broken off."""


@runtime_checkable
class Stands(Protocol):
    """A fault that says how long it is to last, where that isn't what the schedule says."""

    def stands_seconds(self, env: Environment, number: int, usual: float) -> float:
        """How long to let it stand, in s; 0: `stop` follows at once. Called once, before `start`.

        `number` counts the faults of a trial from 1; `usual` is what the schedule gives it.
        """


@runtime_checkable
class Seeks(Protocol):
    """A fault that may end before its time, at the moment when it matters most, and sees what became of that."""

    def ripe(self, env: Environment) -> bool:
        """Asked while it stands, at every event of the history and ten times a second: whether that moment has come."""

    def seen(self, env: Environment) -> bool:
        """Asked likewise once it is undone: whether all has been seen that somebody was told to hold for.

        Not when the trial was broken off. Whoever was told to hold is let go after that, or when it took too long.
        """

    def told(self) -> Mapping[str, Any] | None:
        """What it sought and saw, for the journal; None when there was nothing to seek."""


@runtime_checkable
class Bites(Protocol):
    """A fault that measures whether it had the chance to matter."""

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite | None:
        """Called once, after `stop`, for a fault that landed; not when the trial was broken off.

        Both moments as they are recorded for its start and its stop. None where it doesn't measure it for this target.
        An AgentError is told, and the bite is unknown then.
        """
