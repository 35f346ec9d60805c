"""The service of a node: the unmodified program of an image, on a root of its own, in the network of its node.

It has the node's network and processes, and a mount namespace of its own: by that the agent tells it from all else on
the node. It runs as user 999 of a user namespace below the site's, in which nobody else is: entry points see that they
aren't root, and leave out the chown and setuid that could only fail; all files are this user's, as trees know but one
owner; and no capability is left, in that namespace or any other.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from harness.runtime.local.inside import kernel, programs, roots

USER = 999
"""Who a service is. PostgreSQL's images know a user of this number, and it wants to be somebody."""


class Service(NamedTuple):
    """A service that was started: its process, and its mount namespace (by number), which nobody else is in."""

    pid: int
    namespace: int


def start(
    wanted: Mapping[str, Any], machine: int, files: Mapping[str, str], log: int, told: Callable[[], None]
) -> Service:
    """Start it; raises programs.NotStarted with the reason.

    `machine` is a descriptor of the mount namespace in which the machine's files are, `files` what is bound into its
    root, `log` where it writes to. `told` is called in its process right before it becomes the program.
    """
    receiving, sending = os.pipe()

    def prepare() -> None:
        kernel.setns(machine, kernel.CLONE_NEWNS, "the site's mounts")
        kernel.unshare(kernel.CLONE_NEWNS, "a mount namespace for the service")
        root = roots.overlay(wanted["folder"], wanted["layers"])
        roots.furnish(root, files, wanted["tmpfs"])
        kernel.enter_root(root)
        roots.write({path: base64.b64decode(content) for path, content in wanted["files"].items()})
        os.makedirs(wanted["workdir"], exist_ok=True)
        os.chdir(wanted["workdir"])
        os.write(sending, str(os.stat("/proc/self/ns/mnt").st_ino).encode())
        told()
        _be_somebody_else()
        kernel.keep_capabilities(())

    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    try:
        pid = programs.start(wanted["argv"], wanted["env"], (null, log, log), prepare)
        return Service(pid, int(os.read(receiving, 32)))
    finally:
        for descriptor in (null, receiving, sending):
            os.close(descriptor)


def _be_somebody_else() -> None:
    """Enter a user namespace in which the only user there is has another number."""
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(kernel.CLONE_NEWUSER, "a user namespace for the service")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{USER} {uid} 1"), ("gid_map", f"{USER} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def processes(namespace: int) -> list[int]:
    """All processes in a mount namespace, by its number; as seen from here."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}/ns/mnt").st_ino == namespace:
                    found.append(int(name))
            except OSError:
                continue  # it has ended
    return found
