"""Which process a site belongs to, as a label that `fencepost clean` can judge later: still running, gone, or unknown.

A process id alone says little: ids are used again, a machine restarts, and the harness may run in a container, with
ids of its own. The label so carries the boot, the pid namespace and the start time too, and where one of them can't be
compared the answer is "unknown", never a guess.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

State = Literal["running", "gone", "unknown"]


@dataclass(frozen=True)
class Owner:
    """A process on a machine. `boot` and `namespace` are empty where the system has no such thing."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(platform.node(), _boot(), _namespace(), pid, _started(pid) or "")

    def label(self) -> str:
        """As one line."""
        return "|".join((self.host, self.boot, self.namespace, str(self.pid), self.started))

    @classmethod
    def parse(cls, label: str) -> Owner | None:
        """From a label; None when it is not one."""
        parts = label.split("|")
        if len(parts) != 5 or not parts[3].isdigit():
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), parts[4])

    def state(self) -> State:
        """Whether it still runs, seen from this process.

        Another boot of the same host is gone; a process of another host, or of another pid namespace of this one, is
        unknown.
        """
        if self.host == platform.node() and self.boot != _boot():
            return "gone"
        if self.boot != _boot() or self.namespace != _namespace():
            return "unknown"
        if not self.boot and self.host != platform.node():
            return "unknown"
        return "running" if _started(self.pid) == self.started else "gone"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@cache
def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


@cache
def _namespace() -> str:
    path = Path("/proc/self/ns/pid")
    return path.readlink().name if path.is_symlink() else ""


def _started(pid: int) -> str | None:
    """When the process began, in the system's own words; None when there is no such process (a zombie is none)."""
    if not _boot():  # no /proc: macOS and the BSDs
        answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return " ".join(answer.stdout.split()) or None
    try:
        # Fields after the name, which is in brackets and may hold anything: state is the 1st, starttime the 20th.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]
