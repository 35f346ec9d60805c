"""One node of the Docker runtime: a pod of the node container and, joined to it, the container of each service."""

from __future__ import annotations

import io
import logging
import posixpath
import shlex
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import IO, Any

from docker.errors import NotFound
from docker.types import EndpointConfig, Healthcheck, LogConfig

from harness.engine import Engine, telling
from harness.errors import HarnessError
from harness.runtime import idle, labels, removal
from harness.runtime.base import MAIN, Completed, LineHandler, NodeSpec, ServiceSpec
from harness.runtime.creations import Creations
from harness.runtime.lines import Lines
from harness.runtime.network import Network
from harness.runtime.specs import check_files, check_name, which
from harness.runtime.stdio import give_input, tail
from harness.runtime.stream import ExecProcess, start_exec

log = logging.getLogger(__name__)

CAPABILITIES = ("NET_ADMIN", "NET_RAW", "SYS_PTRACE", "KILL", "DAC_OVERRIDE")
"""All that a faultable node has, and the only container that has any:

NET_ADMIN    iptables, ip6tables, tc in its own network namespace
NET_RAW      iptables-legacy opens a raw socket even to list; it is what older kernels have
SYS_PTRACE   read and write the memory of the service (another user's process, another container's) through /proc
KILL         signal processes of other users: SIGSTOP, SIGCONT, SIGKILL
DAC_OVERRIDE open /proc/PID/mem and environ, which belong to the service's user with mode 0600
"""

ENTERING = ("SYS_CHROOT", "SETUID", "SETGID")
"""What a node has besides, whose programs go into the file system of another image, as that one's user; containers
usually have all three."""

NODE_COMMAND = ("sh", "-c", "ip route del default; ip -6 route del default; exec sleep infinity")
"""There is no way out of a site (harness/runtime/network.py); without a route the kernel says so at once, not after
3 s. Where there is none to delete, or no capability to do it, the node's log says so, and the node goes on."""
NAMESERVER = "127.0.0.1"
"""Where the engine's DNS forwards what it does not know: to nobody, so that no question leaves the machine either."""
RESOLVER_OPTIONS = ("timeout:1", "attempts:3")
"""Before engine 25 a question for an unknown name gets no answer: 3 s then, instead of the resolver's usual 10 s."""
EXITED_WITHIN_SECONDS = 10.0
"""How long the engine may take to notice that a killed service has ended."""
HELD = "client-image"
"""As which part of its node a container is known that only holds the file system of an image."""
LOG_LIMITS = {"max-size": "64m", "max-file": "2"}


@dataclass(frozen=True)
class Place:
    """The site that a node stands on, as far as the node needs it: one object for all nodes of a site.

    `reference` gives the reference behind an image name; `starting` holds the machine's turn for heavy start-ups;
    `creations` is told of all that is created; `check` is called before each step of a start-up, and may raise to give
    up.
    """

    engine: Engine
    site_id: str
    labels: Mapping[str, str]
    network: Network
    reference: Callable[[str], str]
    starting: Callable[[], AbstractContextManager[None]]
    creations: Creations
    check: Callable[[], None]


@dataclass
class _Service:
    """A service on a node: its container, what it was made from, and what an earlier container of it had written.

    `part` is how the container is labelled: MAIN, or the service's name.
    """

    container: str
    spec: ServiceSpec
    part: str = MAIN
    earlier_logs: bytes = b""


class DockerNode:
    """One pod (`harness.runtime.base.Node`)."""

    def __init__(self, place: Place, spec: NodeSpec, host_number: int) -> None:
        self.place, self.spec, self.host_number = place, spec, host_number
        self.engine = place.engine
        self._addresses = place.network.subnets.addresses(host_number)
        self._container = labels.container_name(place.site_id, spec.name)
        self._services: dict[str, _Service] = {}
        if spec.service is not None:
            self._services[spec.service.name] = _Service(self._container, spec.service)

    @property
    def name(self) -> str:
        """Its name on the trial's network."""
        return self.spec.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its addresses on the trial's network: IPv4 first, then IPv6 when the network has it."""
        return self._addresses

    def spawn(
        self,
        argv: Sequence[str],
        *,
        on_line: LineHandler,
        on_error_line: LineHandler,
        env: Mapping[str, str] | None = None,
        service: str | None = None,
    ) -> ExecProcess:
        """Start a program with open stdio, in the node's own container or a service's. Its lines go to the handlers."""
        return start_exec(
            self.engine,
            self._container_of(service),
            argv,
            f"{argv[0]} on {self.name}",
            on_stdout=Lines(on_line),
            on_stderr=Lines(on_error_line),
            env=[f"{key}={value}" for key, value in (env or {}).items()],
        )

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
        mark = uuid.uuid4().hex
        deadline = time.monotonic() + timeout_seconds
        what = f"{shlex.join(argv)} on {self.name}"
        process = start_exec(
            self.engine,
            self._container_of(service),
            argv,
            what,
            on_stdout=stdout.extend,
            on_stderr=stderr.extend,
            env=[*(f"{key}={value}" for key, value in (env or {}).items()), f"{_RUN_MARK}={mark}"],
        )
        give_input(process, stdin, what)
        code = process.wait(max(0.0, deadline - time.monotonic()))
        if code is None:
            killed = self._kill_marked(mark)
            process.abandon()
            raise HarnessError(
                f"{what} did not end within {timeout_seconds:g} s and {killed}; it had written {tail(stdout, stderr)}"
            )
        if code in (126, 127) and b"OCI runtime exec failed" in (said := bytes(stdout + stderr)):
            raise HarnessError(f"{what} could not be started: {said.decode(errors='replace').strip()}")
        return Completed(code, bytes(stdout), bytes(stderr))

    def _kill_marked(self, mark: str) -> str:
        """Kill what a `run` started, found by the mark in its environment; the outcome in words.

        The engine has no call to kill an exec, and the process ids that it gives are the host's.
        """
        stdout, stderr = bytearray(), bytearray()
        killer = start_exec(
            self.engine,
            self._container,
            ["sh", "-c", _KILL_SCRIPT, "sh", f"{_RUN_MARK}={mark}"],
            f"killing a program on {self.name}",
            on_stdout=stdout.extend,
            on_stderr=stderr.extend,
        )
        killer.close_stdin()
        code = killer.wait(5.0)
        if code == 0:
            return "was killed"
        return f"could not be killed ({bytes(stdout + stderr).decode(errors='replace').strip() or f'exit code {code}'})"

    def start_service(self, spec: ServiceSpec) -> None:
        """Create the service's container, joined to this node, and start it."""
        part = check_name(spec, self.name, self._services)
        service = _Service(labels.container_name(self.place.site_id, self.name, part), spec, part)
        with self.place.starting():
            self.place.check()
            self._create_service(service)
            self._services[spec.name] = service
            self.place.check()
            self._start(service.container)

    def hold_image(self, image: str, archive: bytes) -> None:
        """Have the file system of another image beside the node's own; see `HoldsImages`."""
        container = labels.container_name(self.place.site_id, self.name, HELD)
        joined = f"container:{self._container}"
        with self.place.starting():
            self.place.check()
            self._create(
                container,
                image,
                part=HELD,
                entrypoint=[idle.PATH],
                host_config={"network_mode": joined, "pid_mode": joined},
            )
            with telling(f"writing files for {container}"):
                program = idle.program(self.engine.describe()["architecture"])
                self.engine.api.put_archive(container, "/", _archive({idle.PATH: program}, mode=0o755))
                self.engine.api.put_archive(container, "/", archive)
            self.place.check()
            self._start(container)

    def restart_service(
        self, *, keep_data: bool = True, service: str | None = None, spec: ServiceSpec | None = None
    ) -> None:
        """Start a service again after it was killed; without its data it is created anew, and from another spec too."""
        the = self._the_service(service)
        if keep_data:
            self._wait_exited(the)
        if spec is None and keep_data:
            self._start(the.container)
            return
        with ExitStack() as kept:
            data = [self._copied(kept, the, path) for path in spec.data] if spec is not None and keep_data else []
            the.earlier_logs += self._container_logs(the.container)
            stayed = removal.remove_containers(self.engine, [the.container])
            if stayed:
                raise HarnessError(f"the {the.part} on {self.name} can't be created anew: {stayed[0]}")
            the.spec = the.spec if spec is None else replace(spec, name=the.spec.name)
            self._create_service(the)
            for folder, archive in data:
                with telling(f"putting {folder} of {the.container} back"):
                    self.engine.api.put_archive(the.container, folder, archive)
        self._start(the.container)

    def _copied(self, kept: ExitStack, service: _Service, path: str) -> tuple[str, IO[bytes]]:
        """A folder of a container, as (the folder that it lies in, a tar of it in a file), for as long as `kept` is."""
        archive = kept.enter_context(tempfile.TemporaryFile(prefix="fencepost-"))  # noqa: SIM115
        with telling(f"copying {path} of {service.container}"):
            stream, _ = self.engine.api.get_archive(service.container, path)
            for chunk in stream:
                archive.write(chunk)
        archive.seek(0)
        return posixpath.dirname(path.rstrip("/")) or "/", archive

    def service_running(self, service: str | None = None) -> tuple[bool, str]:
        """Whether the service's main process runs, and the engine's word on it."""
        state = self._state(self._the_service(service).container)
        if state is None:
            return False, "was removed"
        if state["Running"]:
            return True, str(state["Status"])
        words = f"{state['Status']} with code {state['ExitCode']}"
        if state.get("OOMKilled"):
            words += ", out of memory"
        return False, words + (f": {state['Error']}" if state.get("Error") else "")

    def services(self) -> Sequence[str]:
        """The names of the services that were started here, the main one first."""
        return list(self._services)

    def logs(self, service: str | None = None) -> bytes:
        """All output of a service so far, stdout and stderr together; of the node's own program without one."""
        if not self._services and service is None:
            return self._container_logs(self._container)
        the = self._the_service(service)
        return the.earlier_logs + self._container_logs(the.container)

    def how_to_enter(self) -> str:
        """The shell command with which a person looks inside this node."""
        return f"docker exec -it {self._container} sh"

    def create_and_start(self) -> None:
        """Create the node container and start it (`Site.start_nodes` calls this, in parallel)."""
        spec = self.spec
        self.place.check()
        if self._services:
            self._create_service(self._the_service(None))
        else:
            self._create(
                self._container,
                self.place.reference(spec.image),
                part="node",
                entrypoint=list(NODE_COMMAND),
                host_config={
                    "init": True,
                    "cap_drop": ["ALL"],
                    "cap_add": [*(CAPABILITIES if spec.faultable else ()), *(ENTERING if spec.enters else ())],
                },
            )
        self.place.check()
        self._start(self._container)

    def _the_service(self, name: str | None) -> _Service:
        return which(name, self.name, self._services)

    def _container_of(self, service: str | None) -> str:
        """The container in which a program is started: the node's own, or that of a service."""
        return self._container if service is None else self._the_service(service).container

    def _create_service(self, service: _Service) -> None:
        spec = service.spec
        check_files(spec)
        host_config: dict[str, Any] = {"tmpfs": dict.fromkeys(spec.tmpfs, "")}
        if service.container != self._container:
            joined = f"container:{self._container}"
            host_config |= {"network_mode": joined, "pid_mode": joined}
        self._create(
            service.container,
            self.place.reference(spec.image),
            part=service.part,
            command=list(spec.command) or None,
            environment=dict(spec.env),
            host_config=host_config,
        )
        if spec.files:
            with telling(f"writing files for {service.container}"):
                self.engine.api.put_archive(service.container, "/", _archive(spec.files))

    def _create(self, container: str, image: str, *, part: str, host_config: dict[str, Any], **config: Any) -> None:
        """Create a container; one that owns its network gets the node's addresses and names."""
        api = self.engine.api
        if "network_mode" not in host_config:
            ipv4, *ipv6 = self._addresses
            aliases = [self.name] + (["resource"] if self.spec.role == "resource" and self.name != "resource" else [])
            endpoint = EndpointConfig(
                api.api_version, aliases=aliases, ipv4_address=ipv4, ipv6_address=ipv6[0] if ipv6 else None
            )
            host_config = {**host_config, "network_mode": self.place.network.name}
            config["networking_config"] = {"EndpointsConfig": {self.place.network.name: endpoint}}
            host_config |= {"dns": [NAMESERVER], "dns_opt": list(RESOLVER_OPTIONS)}
            config["hostname"] = self.name
        marks = {labels.NODE: self.name, labels.ROLE: self.spec.role, labels.PART: part}
        with telling(f"creating {container} from {image}"), self.place.creations.asking(f"container {container}"):
            api.create_container(
                image,
                name=container,
                labels={**self.place.labels, **marks},
                stop_signal="SIGKILL",
                healthcheck=Healthcheck(test=["NONE"]),  # an image's own would run programs in the middle of a trial
                host_config=api.create_host_config(
                    log_config=LogConfig(type=LogConfig.types.JSON, config=LOG_LIMITS), **host_config
                ),
                **config,
            )

    def _start(self, container: str) -> None:
        with telling(f"starting {container}"):
            self.engine.api.start(container)

    def _state(self, container: str) -> dict[str, Any] | None:
        found = self.engine.inspect(container, f"{container}")
        return None if found is None else found["State"]

    def _wait_exited(self, service: _Service) -> None:
        """A killed service is running to the engine until it has noticed; starting it before that does nothing."""
        deadline = time.monotonic() + EXITED_WITHIN_SECONDS
        while True:
            state = self._state(service.container)
            if state is None:
                raise HarnessError(f"the {service.part} on {self.name} was removed; it can only be created anew")
            if not state["Running"]:
                return
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"the {service.part} on {self.name} is to be started again but still runs after "
                    f"{EXITED_WITHIN_SECONDS:g} s ({state['Status']}); was it killed?"
                )
            time.sleep(0.01)

    def _container_logs(self, container: str) -> bytes:
        with telling(f"reading the logs of {container}"):
            try:
                text: bytes = self.engine.api.logs(container, stdout=True, stderr=True)
            except NotFound:
                return b""
        return text


_RUN_MARK = "FENCEPOST_RUN"
_KILL_SCRIPT = """
for environ in /proc/[0-9]*/environ; do
  if grep -q "$1" "$environ" 2>/dev/null; then
    pid=${environ#/proc/}; kill -KILL "${pid%/environ}" 2>/dev/null
  fi
done
exit 0
"""


def _archive(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    """A tar of the files, owned by root, as the engine unpacks it at /."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.mtime = len(content), mode, int(time.time())
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
