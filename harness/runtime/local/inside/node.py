"""The pid 1 of a node: it reaps what ends, starts programs and services, and tells the harness of both.

Single-threaded. It speaks with the harness over a socket of its own, and goes on when that has ended: a site that was
kept outlives its harness.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from harness.runtime.local.inside import first, kernel, netlink, programs, roots, service, warm, wire

INTERFACE = "eth0"
LEFTOVERS_SECONDS = 5.0
"""How long what a service has left running may take to be gone after SIGKILL."""


class Plan(NamedTuple):
    """What a node is to be, as the harness asked for it (harness/runtime/local/node.py)."""

    hostname: str
    layers: list[str]
    addresses: list[str]
    capabilities: list[str]
    files: Mapping[str, str]
    """Path in the node's roots -> path of the machine."""


def run(plan: Plan, folder: str, machine: int, sock: socket.socket, await_link: Callable[[], None]) -> None:
    """Become the node, in its fresh namespaces, and serve until killed. `await_link` returns when eth0 is there."""
    try:
        _become(plan, folder, await_link)
        node = _Node(plan, folder, machine, sock)
        wire.send(sock, {"ready": True})
    except BaseException as error:  # noqa: BLE001 - told, and the node is gone
        with suppress(OSError):
            wire.send(sock, {"fatal": kernel.said(error)})
        os._exit(1)
    node.serve()


def _become(plan: Plan, folder: str, await_link: Callable[[], None]) -> None:
    with suppress(PermissionError):  # a name is for people; where it may not be set the node does without
        socket.sethostname(plan.hostname)
    root = roots.overlay(os.path.join(folder, "root"), plan.layers)
    roots.furnish(root, plan.files)
    await_link()
    netlink.set_up("lo")
    for address in plan.addresses:
        netlink.add_address(INTERFACE, address)
    netlink.set_up(INTERFACE)
    kernel.enter_root(root)


class _Node:
    def __init__(self, plan: Plan, folder: str, machine: int, sock: socket.socket) -> None:
        self._plan, self._folder, self._machine = plan, folder, machine
        self._sock: socket.socket | None = sock
        self._programs: dict[int, int] = {}
        """Process id -> the request that started it."""
        self._services: dict[str, tuple[service.Service, int]] = {}
        """Those that run, by part ("service", or a name): each with the number of its start."""
        self._woken = first.woken_by_children()

    def serve(self) -> None:
        """For ever; this process ends with its namespace."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._sock is not None:
            poll.register(self._sock, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._woken:
                    with suppress(BlockingIOError):
                        os.read(self._woken, 4096)
                elif self._sock is not None:
                    received = wire.receive(self._sock)
                    if received is None:
                        poll.unregister(self._sock)
                        self._sock.close()
                        self._sock = None
                    else:
                        self._answer(*received[:2])
            self._reap()

    def _answer(self, request: dict[str, Any], descriptors: list[int]) -> None:
        self._tell(first.answer(lambda op: getattr(self, "_op_" + op), request, descriptors))

    def _tell(self, message: Mapping[str, Any]) -> None:
        if self._sock is not None:
            with suppress(BrokenPipeError, ConnectionResetError):  # the loop finds out
                wire.send(self._sock, message)

    # -- what the harness asks for ------------------------------------------------------------------------------------

    def _op_spawn(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Start a program on the node, or in the root of one of its services (`in_service`)."""
        argv, env = request["argv"], request["env"]
        if (part := request["in_service"]) is not None:
            if part not in self._services:
                raise programs.NotStarted(f"its {part} does not run")
            with open(f"/proc/{self._services[part][0].pid}/ns/mnt") as mounts:
                pid = programs.start(argv, env, descriptors, lambda: _enter_service(mounts.fileno()))
        else:
            kept = self._plan.capabilities
            pid = programs.start(argv, env, descriptors, lambda: kernel.keep_capabilities(kept))
        self._programs[pid] = request["id"]
        return {"pid": pid}

    def _op_agent(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Start the agent as a fork of this process; its parcel is the last of the descriptors."""
        *stdio, memory = descriptors
        parcel, kept = warm.read(memory), self._plan.capabilities
        pid = programs.fork(
            "agent", request["env"], stdio, lambda: kernel.give_up_capabilities(kept), lambda: warm.run(parcel)
        )
        self._programs[pid] = request["id"]
        return {"pid": pid}

    def _op_kill(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """SIGKILL to a program and all that it has started, by its request's number."""
        pid = next((pid for pid, number in self._programs.items() if number == request["program"]), None)
        return {"killed": 0 if pid is None else _kill_all(lambda: _family(pid))}

    def _op_service(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Start a service; it must not run. `life` names the folder in which what it writes is kept."""
        part, generation = request["part"], request["generation"]
        if part in self._services:
            raise programs.NotStarted("it still runs")
        wanted = {**request, "folder": os.path.join(self._folder, f"{part}-{request['life']}")}
        started = service.start(
            wanted,
            self._machine,
            self._plan.files,
            descriptors[0],
            lambda: self._tell({"service_process": generation, "part": part}),
        )
        self._services[part] = started, generation
        return {"pid": started.pid}

    def _op_end_service(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """SIGKILL to all of a service; its end is told by an event."""
        known = self._services.get(request["part"])
        return {"killed": 0 if known is None else self._kill_service(known[0])}

    def _op_look(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """The node's interface as it is now."""
        up = any(link.name == INTERFACE and link.running for link in netlink.links())
        return {"up": up, "addresses": netlink.addresses(INTERFACE)}

    # -- what ends ----------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        for pid, ended in first.ended_children():
            if pid in self._programs:
                self._tell({"ended": self._programs.pop(pid), **ended})
                continue
            part = next((part for part, (each, _) in self._services.items() if each.pid == pid), None)
            if part is not None:
                gone, generation = self._services.pop(part)
                self._kill_service(gone)
                self._tell({"service_ended": generation, "part": part, **ended})

    def _kill_service(self, one: service.Service) -> int:
        """All processes of a service are gone when this returns: its data are at rest."""
        return _kill_all(lambda: [pid for pid in service.processes(one.namespace) if pid != os.getpid()])


def _enter_service(mounts: int) -> None:
    kernel.setns(mounts, kernel.CLONE_NEWNS, "the service's mounts")
    kernel.keep_capabilities(())


def _kill_all(find: Callable[[], list[int]]) -> int:
    """SIGKILL to what is found until nothing alive is found any more. Returns how many it was.

    What has ended by that and is not ours to reap yet counts as gone.
    """
    killed: set[int] = set()
    end = time.monotonic() + LEFTOVERS_SECONDS
    while time.monotonic() < end:
        alive = [pid for pid in find() if _stat(pid)[0] not in ("Z", "X", "")]
        if not alive:
            break
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(alive)
        time.sleep(0.0005)
    return len(killed)


def _family(pid: int) -> list[int]:
    """A process, its session, and all their children and children's children."""
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found = {each for each, (_, _, session) in stats.items() if session == pid or each == pid}
    while True:
        more = {each for each, (_, parent, _) in stats.items() if parent in found} - found
        if not more:
            return sorted(found)
        found |= more


def _stat(pid: int) -> tuple[str, int, int]:
    """State, parent and session of a process; ("", 0, 0) when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0, 0
    return fields[0], int(fields[1]), int(fields[3])
