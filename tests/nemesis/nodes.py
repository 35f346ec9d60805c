"""Nodes made of namespaces, for tests: a network, pid and mount namespace each, no Docker needed.

`Lan` is a bridge in a network namespace of its own, to which nodes are joined with an IPv4 and an IPv6 address. Nothing
of the machine's own network, firewall or processes is touched. Needs root.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.errors import HarnessError
from harness.runtime.base import Completed, LineHandler
from nemesis.agent.journal import Journal

PATIENCE = 60.0


@functools.cache
def why_not() -> str | None:
    """Why such nodes can't be made here; None when they can."""
    if os.geteuid() != 0:
        return "needs root, to make namespaces"
    missing = [tool for tool in ("unshare", "nsenter", "ip", "iptables") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--net", "--pid", "--mount", "--fork", "--mount-proc", "iptables", "-S"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    return f"namespaces can't be made here: {tried.stderr.strip()}" if tried.returncode else None


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait for a condition; fails with what was awaited and what the condition returned last."""
    end = time.monotonic() + seconds
    while not (seen := condition()):
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s; last seen: {seen!r}"
        time.sleep(0.005)


class Spawned:
    """A local program with open stdio (harness.runtime.base.Process)."""

    def __init__(self, argv: Sequence[str], on_line: LineHandler, on_error: LineHandler, env: Mapping[str, str]):
        self.popen = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env}
        )
        self._threads = [
            threading.Thread(target=self._read, args=(self.popen.stdout, on_line), daemon=True),
            threading.Thread(target=self._read, args=(self.popen.stderr, on_error), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: object, handler: LineHandler) -> None:
        for line in stream:  # type: ignore[attr-defined]
            handler(line.rstrip(b"\n"))

    def send(self, data: bytes) -> None:
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(data)
            self.popen.stdin.flush()
        except (OSError, ValueError) as error:
            raise HarnessError(str(error)) from error

    def close_stdin(self) -> None:
        assert self.popen.stdin is not None
        with contextlib.suppress(OSError):
            self.popen.stdin.close()

    def wait(self, timeout_seconds: float) -> int | None:
        try:
            code = self.popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None
        for thread in self._threads:
            thread.join(60)
        return code

    def abandon(self) -> None:
        self.close_stdin()


class NamespaceNode:
    """One node: a sleeper as pid 1 of its namespaces, and what is spawned next to it."""

    def __init__(self, name: str, addresses: Sequence[str] = ()) -> None:
        self.name, self.addresses = name, tuple(addresses)
        self._children: list[subprocess.Popen[bytes]] = []
        self._sleeper = subprocess.Popen(
            ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity"],
            stderr=subprocess.DEVNULL,  # it complains when it is killed
        )
        until(self._inner, f"the sleeper of {name}")
        self.pid = self._inner()
        inodes = [os.stat(f"/proc/{self.pid}/ns/{kind}").st_ino for kind in ("pid", "net")]
        self._journal = "-".join(map(str, inodes))
        self.shell("ip link set lo up")

    def _inner(self) -> int:
        children = Path(f"/proc/{self._sleeper.pid}/task/{self._sleeper.pid}/children").read_text().split()
        ready = children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "sleep"
        return int(children[0]) if ready else 0

    def enter(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs something inside."""
        return ["nsenter", "-t", str(self.pid), "--net", "--pid", "--mount", "--", *argv]

    def shell(self, script: str) -> str:
        """Run a shell script inside; returns its output. Fails the test when it fails."""
        done = subprocess.run(self.enter(["sh", "-ec", script]), capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout

    def spawn(
        self,
        argv: Sequence[str],
        *,
        on_line: LineHandler,
        on_error_line: LineHandler,
        env: Mapping[str, str] | None = None,
    ) -> Spawned:
        spawned = Spawned(self.enter(argv), on_line, on_error_line, env or {})
        self._children.append(spawned.popen)
        return spawned

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_seconds: float = 10.0) -> Completed:
        done = subprocess.run(self.enter(argv), input=stdin, capture_output=True, timeout=timeout_seconds)
        return Completed(done.returncode, done.stdout, done.stderr)

    def service(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a program as the node's service: in a mount namespace of its own, as the container of one has."""
        child = subprocess.Popen(self.enter(["unshare", "--mount", "--", *argv]), stdout=subprocess.PIPE)
        self._children.append(child)
        return child

    def outer_pids(self) -> list[int]:
        """All processes of the node, by the numbers that they have outside it."""
        mine = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{name}/ns/pid") == mine:
                        found.append(int(name))
        return found

    def inner(self, outer: int) -> int:
        """The number inside of a process known by its number outside."""
        for line in Path(f"/proc/{outer}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
        raise AssertionError(f"process {outer} has no NSpid")

    def outer(self, inner: int) -> int:
        """The number outside of a process known by its number inside."""
        for pid in self.outer_pids():
            with contextlib.suppress(OSError):
                if self.inner(pid) == inner:
                    return pid
        raise AssertionError(f"no process {inner} in {self.name}")

    def close(self) -> None:
        """End everything inside: the namespace's first process takes the others along."""
        for root in Journal.ROOTS:  # the file systems are the machine's, where an agent's journal would stay
            shutil.rmtree(Path(root, "fencepost", self._journal), ignore_errors=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        for child in self._children:
            # nsenter stops itself when the program that it waits for is stopped, and then never reaps it
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, 18)
        self._sleeper.wait(60)
        for child in self._children:
            child.wait(60)
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


class Lan:
    """Nodes on one bridge, dual stack: 10.77.0.N and fd77::N."""

    def __init__(self, names: Sequence[str]) -> None:
        self._switch = NamespaceNode("switch")
        self.nodes: dict[str, NamespaceNode] = {}
        self._switch.shell("ip link add br0 type bridge && ip link set br0 up")
        for number, name in enumerate(names, 1):
            addresses = (f"10.77.0.{number}", f"fd77::{number}")
            node = self.nodes[name] = NamespaceNode(name, addresses)
            subprocess.run(
                [
                    *("nsenter", "-t", str(self._switch.pid), "--net", "--"),
                    *(
                        "ip",
                        "link",
                        "add",
                        f"v{number}",
                        "type",
                        "veth",
                        "peer",
                        "name",
                        "eth0",
                        "netns",
                        str(node.pid),
                    ),
                ],
                check=True,
            )
            self._switch.shell(f"ip link set v{number} master br0 && ip link set v{number} up")
            node.shell(
                f"ip addr add {addresses[0]}/24 dev eth0 && ip addr add {addresses[1]}/64 dev eth0 nodad"
                " && ip link set eth0 up"
            )

    def close(self) -> None:
        """Remove all of it."""
        for node in (*self.nodes.values(), self._switch):
            node.close()


@contextlib.contextmanager
def lan(*names: str) -> Iterator[dict[str, NamespaceNode]]:
    """Nodes on one network, by name."""
    network = Lan(names)
    try:
        yield network.nodes
    finally:
        network.close()
