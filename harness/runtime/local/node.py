"""One node of the runtime `local`: the pid 1 of its namespaces, what it runs, and its services."""

from __future__ import annotations

import base64
import logging
import os
import shlex
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import HarnessError
from harness.runtime.base import Completed, LineHandler, NodeSpec, ServiceSpec
from harness.runtime.lines import ChunkHandler, Lines
from harness.runtime.local.channel import Channel, Switchboard
from harness.runtime.local.inside import wire
from harness.runtime.local.program import KILLED_WITH_ITS_NODE, LocalProcess, Pipes
from harness.runtime.specs import check_files, check_name, which
from harness.runtime.stdio import give_input, tail
from harness.trees import Tree

log = logging.getLogger(__name__)

CAPABILITIES = ("NET_ADMIN", "NET_RAW", "SYS_PTRACE", "KILL", "DAC_OVERRIDE")
"""What programs on a faultable node have, as on a pod: iptables, the memory of others, signals to them. In the site's
user namespace: they reach nothing of the machine's."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
READY_SECONDS = 30.0
EXITED_WITHIN_SECONDS = 10.0
"""How long the end of a service that was killed may take to be heard."""
RUN_END_SECONDS = 5.0


@dataclass(frozen=True)
class Place:
    """The site that a node stands on, as far as the node needs it: one object for all nodes of a site.

    `tree` gives the file tree behind an image name; `check` is called before each step of a start-up, and may raise to
    give up.
    """

    site_id: str
    channel: Channel
    switchboard: Switchboard
    tree: Callable[[str], Tree]
    check: Callable[[], None]


@dataclass(frozen=True)
class Ended:
    """How and when something ended: its exit code, and ns since 1970."""

    code: int
    wall_ns: int


@dataclass
class ServiceState:
    """A service on a node. `life` counts from when it was created anew, `generation` its starts. `log` is a descriptor.

    `part` is what it is called as a part of the node: MAIN, or its name.
    """

    spec: ServiceSpec
    tree: Tree
    part: str
    log: int
    life: int = 1
    generation: int = 0
    fresh: bool = True
    process: int | None = None
    """Its process id, as seen from the harness."""
    started_ns: int = 0
    ended: Ended | None = None


@dataclass
class NodeState:
    """What is known of a node's parts; guarded by `changed`, which is told of each change."""

    pid: int | None = None
    """The pid 1 of the node, as seen from the harness."""
    ready: bool = False
    fatal: str | None = None
    ended: Ended | None = None
    services: dict[str, ServiceState] = field(default_factory=dict)
    """By name, the main one first."""
    changed: threading.Condition = field(default_factory=threading.Condition)


@dataclass(frozen=True)
class Happened:
    """A part of a node ("node", "service", or another service's name) has ended, or (`ended` is None) was started
    again; ns since 1970.
    """

    part: str
    ended: Ended | None
    wall_ns: int


HappenedHandler = Callable[["LocalNode", Happened], None]
"""Called with each thing that happens to a node, in order: in the one step in which the node's state changes."""


class LocalNode:
    """One node (`harness.runtime.base.Node`)."""

    def __init__(self, place: Place, spec: NodeSpec, host_number: int, addresses: Sequence[str]) -> None:
        """`addresses` with their prefixes: "10.183.0.11/24"."""
        self.place, self.spec, self.host_number = place, spec, host_number
        self._interfaces = tuple(addresses)
        self._tree = None if spec.service is not None else place.tree(spec.image)
        self._channel: Channel | None = None
        self._programs: dict[int, LocalProcess] = {}
        self._lock = threading.Lock()  # guards the one above
        self._starting = threading.Lock()  # one start of a service at a time
        self.state = NodeState()
        self._listeners: list[HappenedHandler] = []

    @property
    def name(self) -> str:
        """Its name on the trial's network."""
        return self.spec.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its addresses on the trial's network: IPv4 first, then IPv6 when the network has it."""
        return tuple(each.partition("/")[0] for each in self._interfaces)

    def listen(self, handler: HappenedHandler) -> None:
        """Hear from now on what happens; first what is not as it should be already."""
        with self.state.changed:
            self._listeners.append(handler)
            ended = self.state.ended
            for service in self.state.services.values():
                if service.ended is not None:
                    handler(self, Happened(service.part, service.ended, service.ended.wall_ns))
            if ended is not None:
                handler(self, Happened("node", ended, ended.wall_ns))

    def unlisten(self, handler: HappenedHandler) -> None:
        """Hear nothing any more."""
        with self.state.changed:
            self._listeners.remove(handler)

    def _tell(self, part: str, ended: Ended | None, wall_ns: int) -> None:
        """To all listeners, in the lock under which the state was changed."""
        for handler in self._listeners:
            handler(self, Happened(part, ended, wall_ns))

    # -- its beginning ------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Have the site's pid 1 make it; `await_ready` comes next."""
        self.place.check()
        ours, theirs = wire.pair()
        channel = self._channel = Channel(ours, f"node {self.name}", self._heard, self._gone)
        self.place.switchboard.add(channel)
        with theirs:
            self.place.channel.ask(
                "node",
                f"making node {self.name}",
                [theirs.fileno()],
                name=self.name,
                hostname=self.name,
                layers=[str(layer) for layer in self._tree.layers] if self._tree else [],
                addresses=self._interfaces,
                capabilities=CAPABILITIES if self.spec.faultable else (),
            )

    def await_ready(self) -> None:
        """Until its pid 1 has said that it is ready; a resource's service is started then."""
        with self.state.changed:
            if not self.state.changed.wait_for(
                lambda: self.state.ready or self.state.fatal or self.state.ended, READY_SECONDS
            ):
                raise HarnessError(f"node {self.name} was not made in {READY_SECONDS:g} s")
        if not self.state.ready:
            raise HarnessError(f"node {self.name} can't be made: {self.state.fatal or 'its pid 1 has ended'}")
        if self.spec.service is not None:
            self.start_service(self.spec.service)

    # -- programs -----------------------------------------------------------------------------------------------------

    def spawn(
        self,
        argv: Sequence[str],
        *,
        on_line: LineHandler,
        on_error_line: LineHandler,
        env: Mapping[str, str] | None = None,
        service: str | None = None,
    ) -> LocalProcess:
        """Start a program with open stdio, on the node or in the root of a service. Its lines go to the handlers."""
        what = f"{argv[0]} on {self.name}"
        return self._start(argv, f"starting {what}", what, Lines(on_line), Lines(on_error_line), env or {}, service)[1]

    def spawn_agent(self, parcel: bytes, *, on_line: LineHandler, on_error_line: LineHandler) -> LocalProcess:
        """Start the agent (`harness.runtime.base.AgentHost`): a fork of the node's pid 1, which has it loaded."""
        what = f"the agent on {self.name}"
        memory = os.memfd_create("parcel", os.MFD_CLOEXEC)
        try:
            os.write(memory, parcel)
            on_stdout, on_stderr = Lines(on_line), Lines(on_error_line)
            return self._start((), f"starting {what}", what, on_stdout, on_stderr, {}, None, agent=memory)[1]
        finally:
            os.close(memory)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_seconds: float = 10.0,
        env: Mapping[str, str] | None = None,
        service: str | None = None,
    ) -> Completed:
        """Run a program to its end. After the timeout it and its children are killed, and HarnessError is raised."""
        stdout, stderr = bytearray(), bytearray()
        what = f"{shlex.join(argv)} on {self.name}"
        deadline = time.monotonic() + timeout_seconds
        number, process = self._start(
            argv, f"{what} could not be started", what, stdout.extend, stderr.extend, env or {}, service
        )
        give_input(process, stdin, what)
        code = process.wait(max(0.0, deadline - time.monotonic()))
        if code is None:
            self._ask("kill", f"ending {what}", program=number)
            gone = process.wait(RUN_END_SECONDS) is not None
            process.abandon()
            raise HarnessError(
                f"{what} did not end within {timeout_seconds:g} s and {'was' if gone else 'could not be'} killed; "
                f"it had written {tail(stdout, stderr)}"
            )
        return Completed(code, bytes(stdout), bytes(stderr))

    def _start(
        self,
        argv: Sequence[str],
        doing: str,
        what: str,
        on_stdout: ChunkHandler,
        on_stderr: ChunkHandler,
        env: Mapping[str, str],
        service: str | None,
        *,
        agent: int | None = None,
    ) -> tuple[int, LocalProcess]:
        """`agent`: the descriptor of a parcel, which is started in the place of a command line."""
        within = None if service is None and self._tree is not None else self._the_service(service)
        own = self._tree if within is None else within.tree
        assert own is not None, "a node has a tree or a service of its own"
        channel = self._the_channel()
        number = channel.number()
        pipes = Pipes()
        process = LocalProcess(pipes, what, on_stdout, on_stderr)
        with self._lock:
            self._programs[number] = process
        try:
            environment = {**self._environment(own), **env}
            if agent is not None:
                self._ask("agent", doing, [*pipes.theirs, agent], number=number, env=environment)
            else:
                self._ask(
                    "spawn",
                    doing,
                    pipes.theirs,
                    number=number,
                    argv=list(argv),
                    env=environment,
                    in_service=None if within is None else within.part,
                )
        except BaseException:
            with self._lock:
                self._programs.pop(number, None)
            process.exited(KILLED_WITH_ITS_NODE)
            process.abandon()
            raise
        finally:
            pipes.close_theirs()
        return number, process

    def _environment(self, tree: Tree) -> dict[str, str]:
        return {"PATH": PATH, "HOSTNAME": self.name, "HOME": "/root", **tree.env}

    # -- the service --------------------------------------------------------------------------------------------------

    def start_service(self, spec: ServiceSpec) -> None:
        """Start the service in its own root, in this node's network and among its processes."""
        self.place.check()
        check_files(spec)
        part = check_name(spec, self.name, self.state.services)
        log = _append_only_memory()
        service = ServiceState(spec, self.place.tree(spec.image), part, log)
        weakref.finalize(service, os.close, log)
        self.state.services[spec.name] = service
        with self._starting:
            self._start_service(service)

    def restart_service(
        self, *, keep_data: bool = True, service: str | None = None, spec: ServiceSpec | None = None
    ) -> None:
        """Start a service again after it was killed; without its data it is created anew, and from another spec too.

        What it has written lies over the tree of the image, and lies over another's as well: all of it is kept then.
        """
        again = self._the_service(service)
        if spec is not None:
            check_files(spec)
            tree = self.place.tree(spec.image)
        with self._starting:
            if keep_data:
                self._await_end(again)
            else:
                what = f"the {again.part} on {self.name}"
                self._ask("end_service", f"ending {what}", part=again.part)
                self._await_end(again)
                self.place.channel.ask(
                    "forget", f"removing the data of {what}", name=self.name, part=again.part, life=again.life
                )
                again.life, again.fresh = again.life + 1, True
            if spec is not None:
                again.spec, again.tree, again.fresh = replace(spec, name=again.spec.name), tree, True
            self._start_service(again)

    def _start_service(self, service: ServiceState) -> None:
        tree, spec = service.tree, service.spec
        with self.state.changed:
            again = service.ended is not None
            service.generation += 1
            service.ended, service.process, service.started_ns = None, None, time.time_ns()
            if again:
                self._tell(service.part, None, service.started_ns)
        try:
            self._ask(
                "service",
                f"starting the {service.part} on {self.name}",
                [service.log],
                part=service.part,
                generation=service.generation,
                life=service.life,
                argv=[*tree.entrypoint, *(spec.command or tree.command)],
                env={**self._environment(tree), **spec.env},
                layers=[str(layer) for layer in tree.layers],
                files={path: base64.b64encode(data).decode() for path, data in spec.files.items()}
                if service.fresh
                else {},
                tmpfs=list(spec.tmpfs),
                workdir=tree.workdir or "/",
            )
        except BaseException:
            with self.state.changed:
                self._service_ended(service, Ended(127, time.time_ns()))
            raise
        service.fresh = False

    def _await_end(self, service: ServiceState) -> None:
        with self.state.changed:
            if not self.state.changed.wait_for(lambda: service.ended is not None, EXITED_WITHIN_SECONDS):
                raise HarnessError(
                    f"the {service.part} on {self.name} is to be started again but still runs after "
                    f"{EXITED_WITHIN_SECONDS:g} s (running); was it killed?"
                )

    def service_running(self, service: str | None = None) -> tuple[bool, str]:
        """Whether the service's main process runs, and how it ended if not."""
        ended = self._the_service(service).ended
        return (True, "running") if ended is None else (False, f"exited with code {ended.code}")

    def services(self) -> Sequence[str]:
        """The names of the services that were started here, the main one first."""
        return list(self.state.services)

    def logs(self, service: str | None = None) -> bytes:
        """All output of a service so far, stdout and stderr together; a node without one has none."""
        if not self.state.services and service is None:
            return b""
        log = self._the_service(service).log
        return os.pread(log, os.fstat(log).st_size, 0)

    def _the_service(self, name: str | None) -> ServiceState:
        return which(name, self.name, self.state.services)

    def how_to_enter(self) -> str:
        """The shell command with which a person looks inside this node."""
        inside = self.state.pid
        if self._tree is None and self.state.services:
            inside = self._the_service(None).process or inside
        # In two steps: from util-linux 2.41 on the others come before a user namespace that is named by its file, which
        # only root may. And the one of a service is no place to look around from: nobody has any right in it.
        return (
            f"nsenter --target {self.state.pid} --user --preserve-credentials "
            f"nsenter --target {inside} --mount --net --pid --uts --ipc --root --wd sh"
        )

    # -- what its pid 1 says ------------------------------------------------------------------------------------------

    def look(self) -> dict[str, Any]:
        """Its interface as it is now: `up`, `addresses`."""
        return self._ask("look", f"looking at node {self.name}")

    def _the_channel(self) -> Channel:
        if self._channel is None:
            raise HarnessError(f"node {self.name} was not created")
        return self._channel

    def _ask(self, op: str, doing: str, descriptors: Sequence[int] = (), **arguments: Any) -> dict[str, Any]:
        return self._the_channel().ask(op, doing, descriptors, **arguments)

    def _heard(self, message: dict[str, Any], sender: int) -> None:
        if "ended" in message:
            with self._lock:
                process = self._programs.pop(message["ended"], None)
            if process is not None:
                process.exited(message["code"])
            return
        with self.state.changed:
            part = message.get("part")
            service = next((each for each in self.state.services.values() if each.part == part), None)
            if "ready" in message:
                self.state.ready, self.state.pid = True, sender
            elif "fatal" in message:
                self.state.fatal = message["fatal"]
            elif service is not None and message.get("service_process") == service.generation:
                service.process = sender
            elif service is not None and message.get("service_ended") == service.generation:
                self._service_ended(service, Ended(message["code"], message["wall_ns"]))
            self.state.changed.notify_all()

    def _gone(self) -> None:
        """Its pid 1 is gone, and everything on the node with it."""
        with self.state.changed:
            ended = self.state.ended = Ended(KILLED_WITH_ITS_NODE, time.time_ns())
            for service in self.state.services.values():
                self._service_ended(service, ended)
            self._tell("node", ended, ended.wall_ns)
            self.state.changed.notify_all()
        with self._lock:
            programs, self._programs = list(self._programs.values()), {}
        for process in programs:
            process.exited(KILLED_WITH_ITS_NODE)

    def _service_ended(self, service: ServiceState, ended: Ended) -> None:
        if service.ended is None:
            service.ended = ended
            self._tell(service.part, ended, ended.wall_ns)


def _append_only_memory() -> int:
    """A file in memory that is only written to at its end, by however many that have it."""
    memory = os.memfd_create("service.log", os.MFD_CLOEXEC)
    try:
        return os.open(f"/proc/self/fd/{memory}", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    finally:
        os.close(memory)
