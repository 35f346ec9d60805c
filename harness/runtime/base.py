"""Where nodes live: the small protocol that every runtime (Docker, SSH, local) answers.

A runtime opens a *site*: the nodes of one trial on one network of their own. A node owns a network and a process
namespace; programs are spawned on it over their stdio (the agent, the contenders), and *services* are joined to it:
the containers of the system under test, each with a root and a life of its own. The first one is the node's *main*
service; most nodes have no other. Nothing here knows what an agent or a lock is.

All calls are synchronous and safe to call from several threads; `start_nodes` and friends work in parallel inside.
Errors are `HarnessError` (something did not behave) or `RuntimeUnavailable` (the place can't be used at all).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from harness.images.halting import Halt
from harness.images.theirs import Theirs

MAIN = "service"
"""What the main service of a node is called as a part of it (`Seen.part`), whatever name its spec gives it."""
NODE_PARTS = ("node", MAIN, "agent", "contender", "resource")
"""Words that no service beside the main one may be called: they mean other things on a node."""

LineHandler = Callable[[bytes], None]
"""Called with each line of output, without its newline, in order, from one reader thread. Must not block for long."""


@dataclass(frozen=True)
class NodeSpec:
    """One node to create. `image` is a name that the runtime resolves ("node", "contender", or a reference).

    `role` is "server", "contender" or "resource": a label that people and `fencepost clean` see. With `faultable`
    the node gets the capabilities that the agent needs (docs/runtime.md); without, it has none. A node of the resource
    is a plain service container on its own: `service` is then run as the node's own container, as its image means it
    to run, whatever `image` and `faultable` say; `start_service` does not apply to it.

    With `enters` its programs may go into the file system of another image that it holds (`HoldsImages`).
    """

    name: str
    image: str = "node"
    role: str = "server"
    faultable: bool = True
    service: ServiceSpec | None = None
    enters: bool = False


@dataclass(frozen=True)
class ServiceSpec:
    """One program of the system under test on one node, run in its own image, unmodified and unprivileged.

    `name` tells it from others on its node ("sentinel"); the only one, or the first, needs none. `port` is where it
    takes clients, where that is known and another than the system's.

    `files` are written into the container before it first starts (absolute path -> content, root's, mode 0644).
    `command` replaces the image's CMD (not its entrypoint). `tmpfs` paths are memory, writable by every user, and empty
    at each start of the service: what a killed service shall find again does not belong there.

    `data` are the folders in which it keeps what it must find again, should it once be started from another spec.
    """

    image: str
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    tmpfs: Sequence[str] = ()
    name: str = MAIN
    port: int | None = None
    data: Sequence[str] = ()


@dataclass(frozen=True)
class Completed:
    """A program that ended: `exit_code`, and all that it wrote."""

    exit_code: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class Seen:
    """Something that happened to a node, whoever did it: the runtime doesn't know which acts are the trial's own.

    `part` is what it happened to: "node", "service" for the main program of the system (or that of the resource), or
    the name of another service of the node. `what`:

    - "paused": it stands still, with its memory and its connections, and may go on later;
    - "killed": it has ended, by whatever cause; "oom": the kernel took its memory for spent, and killed in it;
    - "disconnected": it is off the trial's network.

    `over` tells that this has ended: it goes on, was started again, is connected again. `restored` is then whether all
    is as it was before; a node that comes back with another address isn't what the others knew. `wall_ns` is when, in
    ns since 1970, by the wall clock of the machine on which the nodes are: for what was only found by looking, the
    earliest moment at which it can have been. `detail` is what was seen, in words.
    """

    node: str
    part: str
    what: str
    over: bool
    wall_ns: int
    detail: str
    restored: bool = True


SeenHandler = Callable[[Seen], None]
"""Called with each thing that is seen, of one part in order, from one thread at a time. Must not block for long."""


class Watch(Protocol):
    """A site that is being watched; `Site.watch` gives one."""

    def look(self) -> None:
        """Look at everything now: what happened before this call has been handed on when it returns.

        Raises HarnessError, or RuntimeUnavailable, when the place can't be asked.
        """


@runtime_checkable
class Process(Protocol):
    """A program running on a node, spoken to over its stdio. `spawn` returns one."""

    def send(self, data: bytes) -> None:
        """Write to its stdin. Raises HarnessError when it is gone."""

    def close_stdin(self) -> None:
        """End its stdin; agents and contenders take that as the order to clean up and leave. Idempotent."""

    def wait(self, timeout_seconds: float) -> int | None:
        """Its exit code, or None when it still runs after the timeout. All its output was handled before.

        137 (killed) when its node was removed underneath it. Raises HarnessError when a handler of its output raised.
        """

    def abandon(self) -> None:
        """Drop the connection without ceremony (what a crash of the harness does to it). Idempotent."""


@runtime_checkable
class Node(Protocol):
    """One host of a trial."""

    @property
    def name(self) -> str:
        """Its name on the trial's network, resolvable by the other nodes: "n1", "c0", "resource"."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its addresses on the trial's network: IPv4 first, then IPv6 when the network has it."""

    def spawn(
        self,
        argv: Sequence[str],
        *,
        on_line: LineHandler,
        on_error_line: LineHandler,
        env: Mapping[str, str] | None = None,
        service: str | None = None,
    ) -> Process:
        """Start a program with open stdio. Lines of its stdout and stderr go to the handlers.

        With the name of a service it runs in that one's container, and sees what it sees: its programs, its files. It
        ends when the service does. HarnessError when that doesn't run.
        """

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_seconds: float = 10.0,
        env: Mapping[str, str] | None = None,
        service: str | None = None,
    ) -> Completed:
        """Run a program to its end (slow: ~70 ms; for setup and looking, not for the hot path).

        After the timeout it is killed, with its children, and HarnessError is raised. `service` as for `spawn`.
        """

    def start_service(self, spec: ServiceSpec) -> None:
        """Create a service and start it. Returns when it was started, not when it is healthy.

        The first one is the main one. HarnessError when the node has one of that name already.
        """

    def restart_service(
        self, *, keep_data: bool = True, service: str | None = None, spec: ServiceSpec | None = None
    ) -> None:
        """Start a service again after it was killed; without its data it is created anew from the same spec.

        With a `spec` it is that one from now on, of whatever image, its name kept; its data are then what lies in the
        folders that the spec names (`ServiceSpec.data`), and its files are written anew.

        None here, and below, is the main one; HarnessError for a name that the node doesn't have.
        """

    def service_running(self, service: str | None = None) -> tuple[bool, str]:
        """Whether its main process runs, and the runtime's word on it ("running", "exited with code 137")."""

    def services(self) -> Sequence[str]:
        """The names of the services that were started here, the main one first."""

    def logs(self, service: str | None = None) -> bytes:
        """All output of a service so far, stdout and stderr together; of the node's own program without one."""

    def how_to_enter(self) -> str:
        """The shell command with which a person looks inside this node."""


@runtime_checkable
class HoldsImages(Protocol):
    """A node that can have the file system of another image beside its own, where the place has images at all."""

    def hold_image(self, image: str, archive: bytes) -> None:
        """Have it beside the node's own, in a container that shares the node's network and processes, and in which
        nothing runs but one that sleeps (`harness.runtime.idle`), as the image's user, with its environment and in its
        working directory. Programs of the node go in there by `/proc/PID/root` of that one (`NodeSpec.enters`).

        `archive` is a tar that is unpacked at its root before. Once for each node. It isn't among `services`.
        """


@runtime_checkable
class TakesImages(Protocol):
    """A runtime that has images of users' own, as they are."""

    def take_image(self, reference: str, *, report: Callable[[str], None], halt: Halt) -> Theirs:
        """Have it, pulled where it isn't there, and say what it is.

        UsageError where it can't be had, Halted when `halt` was told to stop.
        """


@runtime_checkable
class AgentHost(Protocol):
    """A node that has the agent loaded already, where that saves the start of a Python; see `nemesis.link`."""

    def spawn_agent(self, parcel: bytes, *, on_line: LineHandler, on_error_line: LineHandler) -> Process:
        """Start the agent of this parcel. Like `Node.spawn` with its bootstrap and its code sent to it, whole.

        Where another code is loaded than the parcel's, the agent ends with an error that says so.
        """


@runtime_checkable
class Site(Protocol):
    """The nodes of one trial (or of a lane that runs trials one after the other) on one network of their own."""

    @property
    def id(self) -> str:
        """Unique; part of all names and labels."""

    @property
    def notes(self) -> Sequence[str]:
        """What this place could not give, one sentence each, for `trial.json`: "the network has no IPv6, since …"."""

    def starting(self, check: Callable[[], None] = ...) -> AbstractContextManager[None]:
        """Hold this machine's turn for heavy start-ups, so that trials side by side start one after the other.

        `start_nodes` and `Node.start_service` take it by themselves where they are heavy; hold it around both, and
        around the wait for health, where nobody else's start-up should come in between. Re-entrant, and shared by all
        threads that work on this site. `restart_service` never waits for a turn: it belongs to a fault. `check` is
        called while the turn is waited for, and may raise to give up.
        """

    def start_nodes(self, specs: Sequence[NodeSpec]) -> list[Node]:
        """Create and start nodes, in parallel, in the order of the specs. On an error none of them is left."""

    def remove_nodes(self, nodes: Sequence[Node]) -> None:
        """Remove nodes and their services, with their volumes, in parallel; frozen or paused ones too. Idempotent."""

    def watch(self, on_seen: SeenHandler, on_note: Callable[[str], None]) -> AbstractContextManager[Watch]:
        """See what happens to the nodes that the site has now, until the context ends.

        First comes what is not as it should be already. What nobody told of is found by looking, at the latest by
        `look`. `on_note` gets sentences on the watching itself: that it was blind for a while, and what that means.
        """

    def close(self) -> None:
        """Remove all that is left of this site, network last, and what is still being created. Idempotent.

        Nothing can be created any more from here on. Raises HarnessError naming what stays.
        """

    def keep(self) -> None:
        """Let it stay when this process ends, however it ends, until `how_to_remove` is done."""

    def how_to_remove(self) -> str:
        """The command that removes this site when it was kept."""


class Runtime(Protocol):
    """A place where nodes can live. Constructed without arguments; raises RuntimeUnavailable when it can't be used."""

    @property
    def name(self) -> str:
        """As it is registered: "docker"."""

    def open_site(
        self,
        site_id: str,
        *,
        images: Mapping[str, str] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Site:
        """A new site with its own internal dual-stack network. `images` overrides image names with references.

        `check` is called before each step of a start-up (the network, each node, each service), and may raise to give
        up. `restart_service` and all that removes never ask it.
        """

    def sweep(self, within_seconds: float) -> list[str]:
        """Remove all that the open sites of this runtime have, whatever other threads are at; the process is leaving.

        They can't create anything any more. Sites that are being opened are among them. Returns a sentence for
        whatever could not be removed in that time; never takes much longer, nor raises, when the place doesn't answer.
        """

    def describe(self) -> dict[str, str]:
        """Versions and limits of the place, for `trial.json` and `doctor`: engine, api, kernel, cgroup, storage."""

    def image_versions(
        self, names: Sequence[str], *, images: Mapping[str, str] | None = None
    ) -> dict[str, dict[str, str]]:
        """For each image name: reference, id and origin, recorded in `trial.json`; `images` as in `open_site`.

        Raises RuntimeUnavailable that names those that are missing, and how to get them.
        """

    def get_images(self, names: Sequence[str], *, report: Callable[[str], None], halt: Halt) -> None:
        """Make or fetch those of these images that are missing, telling `report` of each in a line.

        Raises RuntimeUnavailable with the last words of what failed, Halted when `halt` was told to stop.
        """

    def clean(self, *, site_id: str | None = None, include_running: bool = False, dry_run: bool = False) -> list[str]:
        """Remove what runs have left behind (all, or one site), by labels alone; one line for each thing removed.

        What belongs to a process that still runs, or may, stays unless `include_running`. Raises HarnessError naming
        what would not go. With `dry_run` nothing is removed.
        """
