"""The service of a node: the unmodified program of an image, on a root of its own, in the network of its node.

It has the node's network and processes, and a mount namespace of its own: by that the agent tells it from all else on
the node. Where only one user is known in here (an ordinary user runs us), it runs in a user namespace below as user
999: entry points then see that they aren't root, and leave out the chown and setuid that could only fail.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.runtime.local.inside import kernel, programs, roots

CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
"""What root has in a container: the default of engines, which entry points are written for."""
USER = 999
"""Who a service is where there is but one user."""


@dataclass
class Service:
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
        if wanted["single"]:
            _be_somebody_else()
        kernel.keep_capabilities(() if wanted["single"] else CAPABILITIES)
        if not wanted["single"]:
            programs.become(wanted["user"])

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
