"""Running a command in namespaces of its own, as anybody: root there, alone with its processes, and gone with them.

Whatever is mounted inside nobody else sees, and it goes with the last process. The first process inside has the number
1 there: when it is killed all others are, and it is killed when the thread that started it ends, however it ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import RuntimeUnavailable

_INSIDE = Path(__file__).with_name("inside.py")
_POLL_SECONDS = 0.05

TAIL_LINES = 15
"""So much of what a program printed is shown when it fails."""

_NETWORK = (
    "Temporary failure resolving",
    "Could not resolve",
    "Failed to fetch",
    "Unable to connect",
    "Could not connect",
)


def search_path() -> str:
    """This process's PATH, with the folders of programs for root, which a user's often lacks."""
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"


def chambered(command: Sequence[str], **inside: Any) -> list[str]:
    """The command line that runs a command inside; `harness/images/inside.py` tells what else can be wished for.

    Raises:
        RuntimeUnavailable: this machine lacks the programs that make namespaces.
    """
    for program in ("unshare", "setpriv"):
        if not shutil.which(program, path=search_path()):
            raise RuntimeUnavailable(f"{program} is missing: install util-linux")
    # Processes of its own only: files, mounts and the network's addresses are reached as the machine's own.
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    wanted = json.dumps({"command": list(command), **inside})
    return ["setpriv", "--pdeathsig", "KILL", "--", *unshare, sys.executable, "-I", str(_INSIDE), wanted]


def tried(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A command in there, to see what comes of it; its words are in English."""
    return subprocess.run(
        chambered(command),
        env={**os.environ, "PATH": search_path(), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def why_not() -> str | None:
    """Why this machine refuses such namespaces to this user, and what to do; None when it grants them. By trying."""
    done = tried(["true"])
    if done.returncode == 0:
        return None
    words = done.stderr.strip()
    if "failed to execute" in words:
        program = words.rpartition("failed to execute ")[2]
        return f"namespaces are granted, but {program}: use a Python that this user owns"
    if "No space left on device" in words:
        remedy = "this machine allows none: `sudo sysctl user.max_user_namespaces=100000`"
    elif "mount" in words:
        remedy = (
            "/proc can't be mounted, as in a container without privileges: run it with --privileged (Docker also: "
            "--security-opt systempaths=unconfined, Podman: --security-opt unmask=ALL)"
        )
    else:
        remedy = (
            "on Ubuntu `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`; in a container run that with "
            "--privileged; elsewhere `sudo sysctl kernel.unprivileged_userns_clone=1`"
        )
    return f"user namespaces are refused ({words}): {remedy}"


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    stop: threading.Event,
    what: str,
    folder: Path | None = None,
) -> str:
    """Runs a command to its end, in a process group of its own, so that all of it can be ended; `what` names it.

    Returns:
        what it printed.

    Raises:
        RuntimeUnavailable: it failed; with the end of what it printed. Or `stop` was set: then it was killed.
    """
    # In memory: on a full disk there is no room for the words that say so.
    with os.fdopen(os.memfd_create("output"), "w+b") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                if stop.wait(_POLL_SECONDS):
                    raise RuntimeUnavailable(f"{what} was interrupted")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode != 0:
        tail = "\n".join(text.splitlines()[-TAIL_LINES:])
        raise RuntimeUnavailable(
            f"{what} failed with exit code {process.returncode}{hint(text)}; its last lines:\n{tail}"
        )
    return text


def hint(text: str) -> str:
    """What the words of a program that failed tell of the cause, in parentheses after a space; "" for nothing."""
    if "No space left on device" in text:
        return " (the disk is full)"
    if any(words in text for words in _NETWORK):
        return (
            " (Debian's mirror can't be reached: it is the one in this machine's apt sources, else Debian's own; "
            "behind a proxy set http_proxy and https_proxy)"
        )
    return ""
