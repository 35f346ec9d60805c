"""System calls that Python has no name for (before 3.12). Each raises OSError that says what was tried."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 32, 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_CAPBSET_DROP = 1, 4, 15, 24
_CAPABILITY_VERSION_3 = 0x20080522

CAPABILITIES = {"DAC_OVERRIDE": 1, "KILL": 5, "NET_ADMIN": 12, "NET_RAW": 13, "SYS_PTRACE": 19}
"""Those that a program in a node may have, with their numbers (include/uapi/linux/capability.h)."""

_libc = ctypes.CDLL(None, use_errno=True)


def _call(what: str, name: str, *arguments: Any) -> int:
    result: int = getattr(_libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def said(error: BaseException) -> str:
    """An error in words, without the number of it."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or repr(error)
    return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"


def unshare(flags: int, what: str) -> None:
    """Leave namespaces for new ones; `what` names them in the error."""
    _call(f"making {what}", "unshare", flags)


def setns(descriptor: int, kind: int, what: str) -> None:
    """Enter a namespace."""
    _call(f"entering {what}", "setns", descriptor, kind)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    _call(
        f"mounting {kind or source} on {target}",
        "mount",
        *(os.fsencode(word) for word in (source, target, kind)),
        ctypes.c_ulong(flags),
        data.encode() or None,
    )


def unmount(target: str) -> None:
    """Take a mount out of sight; it goes when nobody uses it any more."""
    _call(f"unmounting {target}", "umount2", os.fsencode(target), MNT_DETACH)


def enter_root(folder: str) -> None:
    """Make a mount the root of this mount namespace, and let go of the old one.

    By pivot_root: whoever stands in a chroot may make no user namespace.
    """
    os.chdir(folder)
    _call(f"entering {folder}", "pivot_root", b".", b".")
    unmount(".")
    os.chdir("/")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument."""
    _call(f"prctl {option}", "prctl", option, ctypes.c_ulong(value), 0, 0, 0)


def keep_capabilities(kept: Iterable[str]) -> None:
    """Take all other capabilities away from what this process executes, and from all that comes of it."""
    numbers = {CAPABILITIES[name] for name in kept}
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for number in range(last + 1):
        if number not in numbers:
            prctl(PR_CAPBSET_DROP, number)


def give_up_capabilities(kept: Iterable[str]) -> None:
    """The same for this process as it is, which executes nothing: it has no others any more."""
    kept = tuple(kept)
    keep_capabilities(kept)
    bits = sum(1 << CAPABILITIES[name] for name in kept)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # Effective, permitted, inheritable: of the first 32, and of those behind them.
    _call("giving up capabilities", "capset", header, (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0))


def name(word: str) -> None:
    """What this process is called in lists of processes; 15 bytes at most."""
    _call("prctl name", "prctl", PR_SET_NAME, ctypes.c_char_p(word.encode()), 0, 0, 0)
