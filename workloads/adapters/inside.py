"""The file system of another image than ours, in which an adapter lives: found on the node, and gone into.

A container of that image shares the contender's network and its processes, and does nothing but sleep. The adapter is
a child of the contender all the same, so whatever hits the contender hits it; only its files are the image's, and so
are its user, its environment and the folder that it is started in, as that container has them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workloads.adapters.wire import Breach

IDLE = "fencepost-idle"
"""The name of the process that sleeps in there."""
THERE_SECONDS = 10.0
"""How long it may take to be there: its container was started before, and the engine has said so."""
LOOK_SECONDS = 0.01
HELPER = "/opt/fencepost/python"
"""Where the helper package for Python lies in there."""


@dataclass(frozen=True)
class Inside:
    """What a program in there has. `root` leads to its file system from ours."""

    root: Path
    folder: str
    variables: Mapping[str, str]
    user: int
    group: int
    groups: tuple[int, ...]

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """What an adapter finds in its environment: what the image says, and the given; the helper package is on its
        PYTHONPATH, before the image's.
        """
        path = self.variables.get("PYTHONPATH")
        own = f"{HELPER}{os.pathsep}{path}" if path else HELPER
        return {**self.variables, "PYTHONPATH": own, **more}

    def enter(self, folder: str | None) -> None:
        """Go there, for good: between the fork and the exec of a child."""
        os.chroot(self.root)
        os.chdir(folder or self.folder)
        os.setgroups(self.groups)
        os.setgid(self.group)
        os.setuid(self.user)

    def why(self, error: Exception, command: str, folder: str | None) -> str:
        """Why a program can't be started in there, in words."""
        found = self._find(command, folder)
        if isinstance(error, FileNotFoundError):
            if found is None:
                where = "" if "/" in command else f" (in {self.variables.get('PATH', '')})"
                return f"there is no program {command!r} in the image{where}"
            with found.open("rb") as file:
                first = file.read(200)
            if first.startswith(b"#!"):
                line = first.splitlines()[0].decode(errors="replace")
                return f"its interpreter is not in the image (its first line is {line!r})"
            return "its loader is not in the image: it is no static binary, and needs the libraries that it was made on"
        if isinstance(error, PermissionError):
            by = f", for user {self.user}" if self.user else ""
            return f"{command!r} is not executable in the image{by}"
        if isinstance(error, OSError) and error.strerror == "Exec format error":
            return f"{command!r} is no program for this machine ({os.uname().machine})"
        return str(error)

    def _find(self, command: str, folder: str | None) -> Path | None:
        """The file of a program, as seen from here; a link that leads elsewhere is followed as in there."""
        names = [os.path.join(folder or self.folder, command)]
        if "/" not in command:
            names = [os.path.join(each, command) for each in self.variables.get("PATH", os.defpath).split(":")]
        return next((found for name in names if (found := self._followed(name)) is not None), None)

    def _followed(self, name: str) -> Path | None:
        for _ in range(40):
            path = self.root / name.lstrip("/")
            if not path.is_symlink():
                return path if path.is_file() else None
            name = os.path.join(os.path.dirname(name), os.readlink(path))
        return None


def find() -> Inside:
    """The file system that this node has beside its own. Breach when there is none, or it can't be gone into."""
    end = time.monotonic() + THERE_SECONDS
    while (pid := _sleeper()) is None:
        if time.monotonic() > end:
            raise Breach("starts", "nothing holds the client's image on this node: its container has gone")
        time.sleep(LOOK_SECONDS)
    try:
        where = Path(f"/proc/{pid}")
        said = dict(line.split(":\t", 1) for line in (where / "status").read_text().splitlines() if ":\t" in line)
        entries = (where / "environ").read_bytes().split(b"\0")
        pairs = (entry.decode(errors="surrogateescape").partition("=") for entry in entries if entry)
        return Inside(
            root=where / "root",
            folder=os.readlink(where / "cwd"),
            variables={name: value for name, _, value in pairs},
            user=int(said["Uid"].split()[1]),
            group=int(said["Gid"].split()[1]),
            groups=tuple(map(int, said["Groups"].split())),
        )
    except OSError as error:
        raise Breach("starts", f"the client's image can't be gone into on this node: {error}") from None


def _sleeper() -> int | None:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if Path(f"/proc/{name}/comm").read_text() == f"{IDLE}\n":
                    return int(name)
            except OSError:  # gone meanwhile
                continue
    return None
