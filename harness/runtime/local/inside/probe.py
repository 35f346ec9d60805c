"""Trying, in namespaces of a site's own, whatever a site needs of the machine; each thing by doing it.

Runs in the place of a site's pid 1, and tells of each try as it is done: `{"tried": NAME, "error": SENTENCE or null}`.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from harness.runtime.local.inside import kernel, netlink, roots, wire


def run(folder: str, sock: socket.socket) -> None:
    """Try everything, and leave. What comes after a failure is tried all the same, where it can be."""
    for name, what in TRIES.items():
        error = None
        try:
            what(folder)
        except OSError as found:
            error = kernel.said(found)
        wire.send(sock, {"tried": name, "error": error})
    os._exit(0)


def _mounts(folder: str) -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_SLAVE)
    kernel.mount("fencepost", folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")


def _proc(folder: str) -> None:
    """/proc of our own process namespace: refused where the machine's own is covered in part."""
    place = os.path.join(folder, "proc")
    os.mkdir(place)
    kernel.mount("proc", place, "proc")


def _overlay(folder: str) -> None:
    """A new directory is renamed, and a file of the lower layer removed: both need notes that overlayfs keeps."""
    lower = os.path.join(folder, "lower")
    os.makedirs(os.path.join(lower, "below"))
    with open(os.path.join(lower, "below", "file"), "w"):
        pass
    root = roots.overlay(os.path.join(folder, "overlay"), [lower])
    os.unlink(os.path.join(root, "below", "file"))
    os.mkdir(os.path.join(root, "below", "one"))
    os.rename(os.path.join(root, "below", "one"), os.path.join(root, "below", "two"))
    os.chdir("/")


def _programs(folder: str) -> None:
    """Files of a tree are executed where it lies, so that must not be mounted noexec; here, the tmpfs on top of it."""
    path = os.path.join(folder, "program")
    with open(path, "w") as file:
        file.write("#!/bin/sh\nexit 0\n")
    os.chmod(path, 0o755)
    if os.waitstatus_to_exitcode(os.waitpid(_forked(lambda: os.execv(path, [path])), 0)[1]):
        raise OSError(f"a program in {folder} can't be executed")


def _network(folder: str) -> None:
    ours, theirs = os.pipe()

    def wait() -> None:
        kernel.unshare(kernel.CLONE_NEWNET, "a network namespace")
        os.write(theirs, b"1")
        signal.pause()

    child = _forked(wait)
    os.close(theirs)
    try:
        if os.read(ours, 1) != b"1":
            raise OSError("a node's network namespace can't be made")
        netlink.add_veth("probe", netlink.add_bridge("switch"), "eth0", child)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _nested(folder: str) -> None:
    """A user namespace in a user namespace: an ordinary user's services run in one."""
    child = _forked(lambda: kernel.unshare(kernel.CLONE_NEWUSER, "a user namespace"))
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError("a user namespace can't be made in another one")


def _forked(action: Callable[[], object]) -> int:
    """The process id of a child that does this, and leaves; with 1 when it fails."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(OSError):
            action()
            code = 0
        os._exit(code)
    return pid


TRIES: dict[str, Callable[[str], None]] = {
    "mounts": _mounts,
    "proc": _proc,
    "overlay": _overlay,
    "programs": _programs,
    "network": _network,
    "nested": _nested,
}
