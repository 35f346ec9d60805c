"""The pid 1 of a site: the switch of its network, the files of all its nodes, and the nodes' parent.

Single-threaded. It ends when the harness is gone, unless it was told to stay, and with it ends all that is in its
process namespace. What nodes write is in a tmpfs that only this mount namespace knows; so nothing is ever left.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from harness.runtime.local.inside import first, kernel, netlink, node, roots, wire

BRIDGE = "switch"
RESOLVER = "options timeout:1 attempts:1\n"
"""No name server: a name that is none of the site's is asked of the node itself, where nobody answers."""
REMOVED_SECONDS = 20.0
"""How long the processes of a node may take to end."""


class _Node:
    def __init__(self, pid: int, folder: str, interface: str) -> None:
        self.pid, self.folder, self.interface = pid, folder, interface
        self.ended = False


class Site:
    """In its own namespaces already. `folder` is a folder of the machine over which the site's tmpfs is mounted."""

    def __init__(self, folder: str, sock: socket.socket, stub: int) -> None:
        self._folder, self._sock, self._stub = folder, sock, stub
        self._nodes: dict[str, _Node] = {}
        self._serial = 0
        self._kept = False
        self._held: list[int] = []

    def run(self) -> None:
        """Set the site up, tell that it is ready, and serve until the harness is gone."""
        try:
            self._set_up()
            wire.send(self._sock, {"ready": True, "ipv6": os.path.exists("/proc/self/net/if_inet6")})
        except BaseException as error:  # noqa: BLE001 - told, and the site is gone
            with suppress(OSError):
                wire.send(self._sock, {"fatal": kernel.said(error)})
            os._exit(1)
        self._serve()

    def _set_up(self) -> None:
        # What the machine unmounts is let go here too; what is mounted here is nobody else's to see.
        kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_SLAVE)
        kernel.mount("fencepost", self._folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
        self._bridge = netlink.add_bridge(BRIDGE)
        self._machine = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._hosts, self._resolver = (os.path.join(self._folder, name) for name in ("hosts", "resolv.conf"))
        with open(self._resolver, "w") as file:
            file.write(RESOLVER)
        self._op_hosts({"text": "127.0.0.1 localhost\n"}, [])
        self._woken = first.woken_by_children()

    def _serve(self) -> None:
        poll = select.poll()
        for descriptor in (self._woken, self._stub, self._sock.fileno()):
            poll.register(descriptor, select.POLLIN)
        harness = self._sock.fileno()
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._woken:
                    with suppress(BlockingIOError):
                        os.read(self._woken, 4096)
                elif descriptor == self._stub:
                    os._exit(0)
                elif descriptor == harness:
                    received = wire.receive(self._sock)
                    if received is None:
                        if not self._kept:
                            os._exit(0)
                        poll.unregister(harness)
                    else:
                        self._answer(*received[:2])
            self._reap()

    def _answer(self, request: dict[str, Any], descriptors: list[int]) -> None:
        self._tell(first.answer(lambda op: getattr(self, "_op_" + op), request, descriptors))

    def _tell(self, message: Mapping[str, Any]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the loop finds out
            wire.send(self._sock, message)

    # -- what the harness asks for ------------------------------------------------------------------------------------

    def _op_node(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Make a node; its pid 1 says over its own socket when it is ready, or why it can't be."""
        self._serial += 1
        folder = os.path.join(self._folder, f"node-{self._serial}")
        os.mkdir(folder, 0o755)
        hostname = os.path.join(folder, "hostname")
        with open(hostname, "w") as file:
            file.write(request["hostname"] + "\n")
        plan = node.Plan(
            request["hostname"],
            request["layers"],
            request["addresses"],
            request["capabilities"],
            {"/etc/hosts": self._hosts, "/etc/resolv.conf": self._resolver, "/etc/hostname": hostname},
        )
        pid_end, pid_told = os.pipe()
        linked, link = os.pipe()
        child = os.fork()
        if child == 0:
            self._be_parent(plan, folder, socket.socket(fileno=descriptors[0]), (pid_told, linked), (pid_end, link))
        os.close(pid_told)
        os.close(linked)
        try:
            with open(pid_end) as file:
                told = file.read()
            os.waitpid(child, 0)
            if not told:
                raise OSError(f"the namespaces of node {request['name']} could not be made")
            if not told.isdigit():
                raise OSError(told)
            made = self._nodes[request["name"]] = _Node(int(told), folder, f"to-{self._serial}")
            try:
                netlink.add_veth(made.interface, self._bridge, node.INTERFACE, made.pid)
            except OSError:
                self._op_remove({"names": [request["name"]]}, [])
                raise
            os.write(link, b"1")
        finally:
            os.close(link)
        return {"pid": made.pid}

    def _be_parent(
        self, plan: node.Plan, folder: str, sock: socket.socket, used: tuple[int, int], unused: tuple[int, int]
    ) -> None:
        """In a child: make the namespaces, fork the node's pid 1 into them, tell its process id, and go.

        A process can't enter a process namespace that it has made, only its children do. This one's child is then the
        site's, who gets all orphans in here.
        """
        pid_told, linked = used
        try:
            kernel.unshare(
                kernel.CLONE_NEWNET
                | kernel.CLONE_NEWNS
                | kernel.CLONE_NEWPID
                | kernel.CLONE_NEWUTS
                | kernel.CLONE_NEWIPC,
                "the namespaces of a node",
            )
            _calm_ipv6()
            for descriptor in (*unused, self._stub, self._woken):
                os.close(descriptor)
            self._sock.close()
            pid = os.fork()
            if pid == 0:
                os.close(pid_told)

                def await_link() -> None:
                    if os.read(linked, 1) != b"1":
                        raise OSError("the node got no interface")
                    os.close(linked)

                node.run(plan, folder, self._machine, sock, await_link)
            os.write(pid_told, str(pid).encode())
        except BaseException as error:  # noqa: BLE001 - told
            os.write(pid_told, kernel.said(error).encode()[:4000])
        finally:
            os._exit(0)

    def _op_remove(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """End nodes with all that runs in them, and remove what they have written. Those that aren't there are gone."""
        going = {name: self._nodes[name] for name in request["names"] if name in self._nodes}
        for each in going.values():
            if not each.ended:
                os.kill(each.pid, signal.SIGKILL)
        end = time.monotonic() + REMOVED_SECONDS
        while waiting := [name for name, each in going.items() if not each.ended]:
            if time.monotonic() > end:
                raise OSError(f"{', '.join(waiting)} did not end within {REMOVED_SECONDS:g} s after SIGKILL")
            select.select([self._woken], [], [], 0.01)
            self._reap()
        for name, each in going.items():
            roots.remove(each.folder)
            del self._nodes[name]

    def _op_forget(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Remove what a service of a node has written in an earlier life."""
        roots.remove(os.path.join(self._nodes[request["name"]].folder, f"{request['part']}-{request['life']}"))

    def _op_hosts(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Say who has which address: the one /etc/hosts of all nodes. One write: nobody reads a part of it."""
        text = request["text"].encode()
        descriptor = os.open(self._hosts, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, text, 0)
            os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)

    def _op_keep(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Stay when the harness goes, and keep descriptors open that its trees are held by."""
        self._held = [os.dup(descriptor) for descriptor in descriptors]
        self._kept = True

    def _op_look(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Which nodes are there, and whether each is on the switch."""
        linked = {link.name for link in netlink.links() if link.master == self._bridge and link.running}
        return {
            "nodes": {
                name: {"alive": not each.ended, "linked": each.interface in linked}
                for name, each in self._nodes.items()
            }
        }

    # -- what ends ----------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        for pid, ended in first.ended_children():
            for name, each in self._nodes.items():
                if each.pid == pid and not each.ended:
                    each.ended = True
                    self._tell({"node_ended": name, "pid": pid, **ended})


def _calm_ipv6() -> None:
    """In a fresh network namespace: IPv6 is on, asks nobody for routes, and uses an address without asking who has it.

    A namespace inherits some of it from the machine, where it may be otherwise.
    """
    for name, value in (("disable_ipv6", "0"), ("accept_dad", "0"), ("accept_ra", "0")):
        for scope in ("all", "default", "lo"):
            path = f"/proc/sys/net/ipv6/conf/{scope}/{name}"
            with suppress(FileNotFoundError):  # a kernel without IPv6
                with open(path) as file:
                    known = file.read().strip()
                if known != value:
                    with suppress(OSError), open(path, "w") as file:  # where it matters, giving the address fails
                        file.write(value)
