"""Root file systems: shared read-only layers under one that can be written to, with /proc, /dev and the site's names.

Called in a mount namespace in which the machine's own files are still in sight, and in the pid and network namespace
whose /proc and /sys it shall have.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress

from harness.runtime.local.inside import kernel

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
"""What in /proc would change the machine. Its owner is the machine's root, who is root in here too where root runs us;
so it can't be written to, and nobody in a node has the right to change that."""
_QUIET = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def overlay(folder: str, layers: Sequence[str]) -> str:
    """Mount layers, the topmost first, with what was written in `folder` on top of them; returns the root's path.

    `folder` is made where it isn't there yet, and keeps what is written when the mount goes. Without layers it is an
    empty root.
    """
    upper, work, root = (os.path.join(folder, name) for name in ("upper", "work", "root"))
    for each in (upper, work, root):
        os.makedirs(each, mode=0o755, exist_ok=True)
    if not layers:
        kernel.mount(upper, root, flags=kernel.MS_BIND)
        return root
    with ExitStack() as stack:
        # By descriptor: a path may hold what means something here (a colon, a comma), and all of them may be too long.
        lower = []
        for layer in layers:
            descriptor = os.open(layer, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            lower.append(f"/proc/self/fd/{descriptor}")
        os.chdir(folder)
        # userxattr: in a user namespace the overlay's own notes can be kept in attributes of users' only. index: two
        # mounts of one upper layer, the old one of which is just going, are no error.
        data = f"userxattr,index=off,lowerdir={':'.join(lower)},upperdir=upper,workdir=work"
        kernel.mount("overlay", root, "overlay", data=data)
    return root


def furnish(root: str, files: Mapping[str, str], memory: Iterable[str] = ()) -> None:
    """Mount what every root has. `files`: path in the root -> path of the machine to bind there; `memory`: tmpfs."""
    for name in ("proc", "sys", "dev"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    proc, dev = os.path.join(root, "proc"), os.path.join(root, "dev")
    kernel.mount("proc", proc, "proc", _QUIET)
    for name in READ_ONLY:
        path = os.path.join(proc, name)
        if os.path.exists(path):
            kernel.mount(path, path, flags=kernel.MS_BIND | kernel.MS_REC)
            kernel.mount(path, path, flags=kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | _QUIET)
    with suppress(PermissionError):  # where the machine's own is covered in part there is none; nothing here needs it
        kernel.mount("sysfs", os.path.join(root, "sys"), "sysfs", kernel.MS_RDONLY | _QUIET)
    kernel.mount("tmpfs", dev, "tmpfs", kernel.MS_NOSUID, "mode=755,size=64k")
    for name in DEVICES:
        path = os.path.join(dev, name)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
        kernel.mount(f"/dev/{name}", path, flags=kernel.MS_BIND)
    for name, target in LINKS.items():
        os.symlink(target, os.path.join(dev, name))
    for name in ("pts", "shm"):
        os.mkdir(os.path.join(dev, name))
    kernel.mount(
        "devpts", os.path.join(dev, "pts"), "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "newinstance,ptmxmode=0666"
    )
    kernel.mount("tmpfs", os.path.join(dev, "shm"), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    for path, source in files.items():
        target = within(root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(target) or not os.path.exists(target):
            with suppress(FileNotFoundError):
                os.unlink(target)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.mount(source, target, flags=kernel.MS_BIND)
    for path in memory:
        target = within(root, path)
        os.makedirs(target, exist_ok=True)
        kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")


def within(root: str, path: str) -> str:
    """A path of the root as seen from outside of it."""
    return os.path.join(root, path.lstrip("/"))


def write(files: Mapping[str, bytes]) -> None:
    """Write files, as root's with mode 0644, and the folders that they need with 0755; the root is entered already."""
    for path, content in files.items():
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)


def remove(folder: str) -> None:
    """Remove a folder of `overlay` and all that was written in it."""

    def fail(error: OSError) -> None:
        raise error

    for at, folders, files in os.walk(folder, topdown=False, onerror=fail):
        for name in folders + files:
            path = os.path.join(at, name)
            if name in folders and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)
    os.rmdir(folder)
