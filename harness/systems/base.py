"""What a system (a lock service under test) must tell the harness: how to run it, when it is healthy, who leads.

A system is stateless; everything about one running cluster is in the `Cluster` it is handed. It talks to its servers
through the agents on their nodes (`Server.http`, `Server.tcp`), because the host has no route into a trial's network,
and because what a server answers on its own loopback is not changed by a partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from harness.errors import FencepostError, HarnessError
from harness.runtime.base import Completed, ServiceSpec


@dataclass(frozen=True)
class LeaseTerms:
    """How long leases last, and when a lock is given to the next one: of a system *and* the client it is used by.

    From these follow how long a fault must last, how long the pauses are, and the bound of `progress`. All in seconds.
    """

    ttl_seconds: float
    """The lease that is asked for, and granted."""
    granularity_seconds: float
    """A ttl must be a multiple of this; 0: any is granted."""
    least_seconds: float
    """The shortest ttl that is granted."""
    given_away_least_seconds: float
    """From when the last request was sent that extended a lease: the earliest moment at which a right service gives the
    lock to another."""
    given_away_most_seconds: float
    """The latest, counted from the same: expiry is looked for at intervals, timers run longer than was promised, and a
    client may extend its lease by requests that stand in no history."""
    hand_over_seconds: float
    """What may come on top after a fault of any kind is undone: an election, and the pause between two tries of those
    that wait."""
    lease_clock: str | None
    """Which clock of the server decides expiry: "monotonic" or "realtime"; None = nobody knows."""
    lease_clock_reason: str
    """A sentence with its source."""
    survives_kill: bool
    """Whether all that it granted outlives a SIGKILL of the server that keeps its data, by its design."""
    survives_kill_reason: str
    """A sentence with its source."""
    survives_stop: bool | None = None
    """Whether it outlives a server that is told to end (SIGTERM) and starts again with its data; None: as a kill."""
    survives_stop_reason: str = ""
    expires: bool = True
    """False: a hold ends by its release alone, or with the connection that it was taken on. Then the ttl is but the
    pace of the trial, `given_away_least` and `_most` are how long it takes until a lock is given away whose holder's
    connection has ended, and no clock decides anything. Its client says so too (workloads/clients/base.py).
    """


@dataclass(frozen=True)
class HttpReply:
    """An answer over HTTP: `status` and `body`."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Settings:
    """What a trial asks of a system. `options` are the system's own, validated by it (UsageError names the option)."""

    ttl_seconds: float
    servers: int
    image: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # there are secrets among them
    attached: bool = False
    """Whether it is a cluster that exists (harness/systems/attached.py): nothing of it is set by us."""


class Server(Protocol):
    """One server of the cluster, as its system sees it."""

    @property
    def name(self) -> str:
        """The node's name, "n1"."""

    @property
    def address(self) -> str:
        """Its IPv4 address on the trial's network."""

    @property
    def settings(self) -> Settings:
        """What the trial asks of the system: a password, for one, is needed to ask it anything."""

    def http(self, method: str, path: str, *, port: int, body: bytes = b"", timeout_seconds: float = 1.0) -> HttpReply:
        """One request from the node to its own server on 127.0.0.1. AgentError when none came."""

    def tcp(self, payload: bytes, *, port: int, read_bytes: int = 65536, timeout_seconds: float = 1.0) -> bytes:
        """Send bytes to its own server on 127.0.0.1 and return what came back until it closed, or `read_bytes` came.

        With `read_bytes=1` it returns after the first chunk. Raises AgentError with the reason otherwise.
        """

    def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        service: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = 1.0,
    ) -> Completed:
        """Run a command in a service's container (None: the main one's), to its end: `etcdctl`, `psql -c`.

        A process each time, 20 to 100 ms: for what is asked seldom. A password belongs into `env`. AgentError when it
        can't be run, or doesn't end in time; an exit code is the caller's business.
        """

    def ask(
        self,
        argv: Sequence[str],
        question: str,
        until: str,
        *,
        service: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = 1.0,
    ) -> list[str]:
        """Ask a program that is kept running in a service's container, and gets one question after the other: for what
        is asked every 20 ms. `redis-cli`, `psql -At`.

        `question` is what it reads, with all its newlines; what it answers are its lines before the one that is
        `until`, which the question must make it print. It is started with the first question, and again when it has
        ended; one that didn't answer in time is ended, so that no answer is taken for that to a later question.
        AgentError then, and when it can't be started.
        """


@dataclass(frozen=True)
class Leadership:
    """Who leads, asked of all servers at once.

    `leader` is the node's name or None when nobody is known to lead; `seen` is what each server said, for messages.
    When two claim it (an old leader that does not know yet) the one with the higher term or epoch counts.
    """

    leader: str | None
    seen: Mapping[str, str]
    term: int | None = None
    """The term or epoch of this view, which grows with every election; None where there is no such thing."""


class System(Protocol):
    """A lock service under test. Register a class under the entry-point group `fencepost.systems`.

    It should also have `terms` (`Termed` below); without it they are assumed from the ttl alone (`terms_of`). Nodes of
    several services, roles, quorums, and services beside the contenders: harness/systems/roles.py.
    """

    name: str
    """The name users type: "etcd"."""
    summary: str
    """One line for `fencepost list`."""
    image: str
    """The image name that `harness.images` resolves."""
    server_counts: tuple[int, ...]
    """The cluster sizes that make sense, the default first: (3, 5)."""
    client: str
    """The name of the lock client in `fencepost.clients` that fits it."""
    port: int
    """Where clients connect."""
    healthy_within_seconds: float
    """The deadline for `wait_healthy`, generous for a loaded machine; not the target."""

    def plan(
        self, settings: Settings, nodes: Mapping[str, Sequence[str]]
    ) -> Mapping[str, ServiceSpec | Sequence[ServiceSpec]]:
        """The service for each node, from the names and addresses of all of them. Raises UsageError on a bad option.

        Several services for a node where it has them, each with a name, the main one first: that is the one which a
        fault on the node means unless it is told another.
        """

    def recorded(self, settings: Settings) -> dict[str, Any]:
        """The settings that decide about safety and timing (ticks, elections, persistence), recorded.

        Here `settings` has `env:NAME` in the place of a secret, as all that is recorded.
        """

    def healthy(self, servers: Sequence[Server]) -> tuple[bool, str]:
        """One look: are all servers up, is a leader known, does a write succeed? And what was seen, for the message.

        Never raises for a server that isn't ready; the harness calls it until True or the deadline.
        """

    def leadership(self, servers: Sequence[Server]) -> Leadership:
        """Who leads now, asked of all servers in parallel, each for at most 1 s."""

    def version(self, server: Server) -> str:
        """The version that the running server reports."""

    def client_config(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """What the lock client is told: at least {"endpoints": [[host, port], ...]}; plain JSON."""


@runtime_checkable
class Termed(Protocol):
    """A system that knows on which terms it grants leases."""

    def terms(self, settings: Settings) -> LeaseTerms:
        """The terms of its leases for these settings, each number with its source. Also for a ttl that isn't granted:
        granularity and least time say so. Raises UsageError on a bad option.
        """


def sizes(system: System) -> str:
    """The cluster sizes of a system, for a sentence, the smallest first: "2, 3 or 5"."""
    *others, last = map(str, sorted(system.server_counts))
    return f"{', '.join(others)} or {last}" if others else last


@runtime_checkable
class HandsOver(Protocol):
    """A system that can be told to let another server lead, as an operator does."""

    def hand_over(self, servers: Sequence[Server], leader: str) -> str:
        """Order that another one leads than this one; what was ordered, and answered, in words.

        Returns when the order was taken; whether anybody else leads is seen elsewhere. AgentError when it was refused.
        """


@runtime_checkable
class FirstServes(Protocol):
    """A system whose servers are up sooner when one of them serves before the others are started."""

    def serves(self, server: Server) -> bool:
        """Whether the first one is so far. Asked every few hundredths of a second, for some seconds at most."""


LEASE_CLOCKS = ("monotonic", "realtime", None)


def _told(system: Termed, settings: Settings) -> LeaseTerms:
    name = getattr(system, "name", type(system).__name__)
    try:
        terms = system.terms(settings)
    except FencepostError:
        raise
    except Exception as error:
        raise HarnessError(f"the terms() of system {name!r} failed: {type(error).__name__}: {error}") from error
    if not isinstance(terms, LeaseTerms):
        raise HarnessError(f"the terms() of system {name!r} must be LeaseTerms, not {terms!r}")
    if terms.lease_clock not in LEASE_CLOCKS:
        raise HarnessError(
            f'the terms() of system {name!r} say lease_clock={terms.lease_clock!r}; it is "monotonic", "realtime", '
            "or None where nobody knows"
        )
    return terms


def terms_of(system: System, settings: Settings) -> LeaseTerms:
    """The terms of a system's leases; assumed from the ttl, and saying so, where the system doesn't tell them.

    The assumption is on the long side: a lease that is given away after twice its ttl at the latest (the most that any
    of the built-in systems takes, its own delays aside), and five seconds for an election.
    """
    if isinstance(system, Termed):
        return _told(system, settings)
    ttl = settings.ttl_seconds
    return LeaseTerms(
        ttl_seconds=ttl,
        granularity_seconds=0.0,
        least_seconds=0.0,
        given_away_least_seconds=ttl,
        given_away_most_seconds=2 * ttl + 1.0,
        hand_over_seconds=5.0,
        lease_clock=None,
        lease_clock_reason=f"{system.name} doesn't say which clock ends its leases",
        survives_kill=False,
        survives_kill_reason=f"{system.name} doesn't say what outlives a kill",
    )
