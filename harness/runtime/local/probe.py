"""What of this machine the runtime `local` can use: each thing by trying it, with the reason and the remedy.

It takes some 50 ms: a stub makes the namespaces of a site, and its pid 1 tries the rest (inside/probe.py). Nothing is
left of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import FencepostError
from harness.plain import line
from harness.runtime.local.inside import wire
from harness.runtime.local.stub import START_SECONDS, Refused, Stub


@dataclass(frozen=True)
class Finding:
    """One thing that was tried: whether it works, what was seen, and what to do where it doesn't.

    `needed` says whether there can be a site without it.
    """

    name: str
    works: bool
    needed: bool
    detail: str
    remedy: str = ""


_NAMES = {
    "user namespace": "user namespaces",
    "namespaces": "namespaces for network, processes and mounts",
    "mounts": "mounts of a site's own",
    "proc": "a /proc of its own",
    "overlay": "overlay in a user namespace, on tmpfs",
    "programs": "programs in a site's files",
    "network": "a bridge with a node on it",
    "nested": "user namespaces in a user namespace",
}
_GUEST = (
    "inside Docker run the container with --privileged, or with --security-opt seccomp=unconfined, apparmor=unconfined "
    "and systempaths=unconfined; inside Podman with --security-opt unmask=ALL"
)


def findings() -> list[Finding]:
    """All that was tried, in order; what comes after the first thing that fails may be untried."""
    if sys.platform != "linux":
        return [Finding("Linux", False, True, f"this is {sys.platform}", "use Docker, or a Linux machine")]
    try:
        stub = Stub(f"probe-{os.getpid()}-{os.urandom(4).hex()}", "", probe=True)
    except Refused as refused:
        return [_failed(refused.doing, refused.reason)]
    except FencepostError as error:
        return [Finding(_NAMES["user namespace"], False, True, line(str(error)), "")]
    who = "root" if os.geteuid() == 0 else "an ordinary user, who is root inside"
    found = [Finding(_NAMES["user namespace"], True, True, f"run by {who}")]
    try:
        with stub.socket as sock:
            sock.settimeout(START_SECONDS)
            first = True
            while (received := wire.receive(sock)) is not None:
                if first:
                    found.append(Finding(_NAMES["namespaces"], True, True, "made"))
                    first = False
                name, reason = received[0]["tried"], received[0]["error"]
                works = Finding(_NAMES[name], True, True, "works")
                found.append(works if reason is None else _failed(name, reason))
            if first:
                found.append(_failed("namespaces", stub.why()))
    except TimeoutError:
        found.append(_failed("namespaces", f"nothing was heard of it for {START_SECONDS:g} s"))
    finally:
        stub.end(START_SECONDS)
    return found


def obstacle(tried: Sequence[Finding] | None = None) -> Finding | None:
    """The first thing that is needed and doesn't work here; of what was `tried`, else of what is tried now."""
    return next((each for each in (findings() if tried is None else tried) if each.needed and not each.works), None)


def _failed(name: str, reason: str) -> Finding:
    return Finding(_NAMES[name], False, True, line(reason), _remedy(name, reason))


def _remedy(name: str, reason: str) -> str:
    """What helps, as far as the machine's own settings tell."""
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        return (
            "AppArmor keeps user namespaces from ordinary users here: "
            "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run it as root"
        )
    if _setting("kernel/unprivileged_userns_clone") == "0" and os.geteuid() != 0:
        return "`sudo sysctl kernel.unprivileged_userns_clone=1`, or run it as root"
    if _setting("user/max_user_namespaces") == "0" or "No space left" in reason:
        return "no (more) user namespaces are allowed here: `sudo sysctl user.max_user_namespaces=15000`"
    if name == "user namespace":
        return f"in a chroot nobody can make one: enter it by pivot_root (unshare, bwrap); {_GUEST}"
    if name == "overlay":
        return "a kernel from 6.6 on, with overlayfs (`sudo modprobe overlay`)"
    if name == "network":
        return "load the kernel modules that it takes: `sudo modprobe -a bridge veth`"
    if name == "programs":
        return "nothing but noexec was seen to do this; set TMPDIR to a folder on another file system"
    return _GUEST


def _setting(name: str) -> str | None:
    try:
        return Path(f"/proc/sys/{name}").read_text().strip()
    except OSError:
        return None
