"""What runs inside the namespaces in which a layer is made: it mounts, pretends, enters, and becomes the command.

A program of its own, with the standard library alone: `unshare` starts it by its path, as root of a new user namespace
in which there is one user, one group and nobody else. There every chown fails, and every setuid and setgroups, which
dpkg and apt call hundreds of times. So a filter answers these calls with success and does nothing. What is lost is who
owns a file, and nothing that runs from a tree asks for that. The filter is for making only: a service that gives up its
rights would believe that it had. It answers fsync as well, for which dpkg waits at every package.

Its argument is a JSON object: `command`; `root`, a directory to enter (none: stay in the machine's own); `layers`, the
directories that lie below each other there, topmost first; `written`, a directory with `upper` and `work` for what is
written, and whether it is to be `memory`; `binds`, paths in the root -> paths of the machine, which are seen there;
`pretend`, whether to answer so.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys

_MS_BIND, _MS_REC, _MNT_DETACH = 0x1000, 0x4000, 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}

#: Machine -> its number for the kernel's audit, and the calls that are answered: chown, fchown, lchown, fchownat,
#: setuid, setgid, setreuid, setregid, setgroups, setresuid, setresgid, setfsuid, setfsgid, capset;
#: and fsync, fdatasync, sync, syncfs, sync_file_range, with which dpkg waits for the disk at every package.
_CALLS = {
    "x86_64": (
        0xC000003E,
        (92, 93, 94, 260, 105, 106, 113, 114, 116, 117, 119, 122, 123, 126, 74, 75, 162, 306, 277),
    ),
    "aarch64": (0xC00000B7, (54, 55, 143, 144, 145, 146, 147, 149, 151, 152, 159, 91, 82, 83, 81, 267, 84)),
}

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Do what the argument says; leaves with a sentence on standard error where the kernel refuses."""
    wanted = json.loads(sys.argv[1])
    os.umask(0o022)
    try:
        if wanted.get("root"):
            if wanted.get("memory"):
                mount("tmpfs", wanted["written"], "tmpfs", data="mode=700")
            for name in ("upper", "work"):
                os.makedirs(f"{wanted['written']}/{name}", exist_ok=True)
            enter(wanted["root"], wanted["layers"], wanted["written"], wanted.get("binds") or {})
        if wanted.get("pretend"):
            pretend()
        os.execvp(wanted["command"][0], wanted["command"])
    except OSError as error:
        sys.exit(str(error))


def enter(root: str, layers: list[str], written: str, binds: dict[str, str]) -> None:
    """Make the layers one root file system at `root`, with /proc, /dev and the binds, and enter it for good."""
    # userxattr: what overlayfs notes down it can note in a user namespace only in attributes of users'.
    options = f"userxattr,lowerdir={':'.join(layers)},upperdir={written}/upper,workdir={written}/work"
    mount("overlay", root, "overlay", data=options)
    mount("proc", f"{root}/proc", "proc")
    mount("tmpfs", f"{root}/dev", "tmpfs", data="mode=755")
    for name in _DEVICES:
        open(f"{root}/dev/{name}", "wb").close()
        mount(f"/dev/{name}", f"{root}/dev/{name}", flags=_MS_BIND)
    for name, target in _LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    for name in ("shm", "pts"):
        os.mkdir(f"{root}/dev/{name}", 0o1777)
    for target, source in binds.items():
        if os.path.isdir(source):
            os.makedirs(f"{root}{target}", exist_ok=True)
        elif not os.path.exists(f"{root}{target}"):
            open(f"{root}{target}", "wb").close()
        mount(source, f"{root}{target}", flags=_MS_BIND | _MS_REC)
    # Not chroot, from which no further user namespace can be made.
    os.chdir(root)
    _check(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root", root)
    _check(_libc.umount2(b".", _MNT_DETACH), "umount", "the old root")
    os.chdir("/")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); OSError with the kernel's reason and both names."""
    words = [each.encode() or None for each in (source, target, kind, data)]
    _check(_libc.mount(words[0], words[1], words[2], flags, words[3]), f"mount {kind or source}", target)


def pretend() -> None:
    """From here on, and in all children, the calls of `_CALLS` answer 0 and do nothing."""
    audit, calls = _CALLS[platform.machine()]
    load, equal, give = 0x20, 0x15, 0x06
    allow, succeed = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with the error 0
    program = [(load, 0, 0, 4), (equal, 1, 0, audit), (give, 0, 0, allow), (load, 0, 0, 0)]
    program += [(equal, len(calls) - index, 0, call) for index, call in enumerate(calls)]
    program += [(give, 0, 0, allow), (give, 0, 0, succeed)]

    class Line(ctypes.Structure):
        _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.POINTER(Line)))

    lines = (Line * len(program))(*(Line(*line) for line in program))
    whole = Program(len(program), lines)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl", "no new privileges")
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0), "prctl", "seccomp")


def _check(result: int, doing: str, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}", what)


if __name__ == "__main__":
    main()
