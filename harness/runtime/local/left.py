"""Sites that are there, of whatever process: found by the command lines of their stubs, ended by ending those.

There is nothing else to look for. A site has no file, and no interface, process or mount that outlives its stub.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.runtime import labels
from harness.runtime.cleaned import Cleaned, why_spared
from harness.runtime.owner import Owner, State

REMOVE_SECONDS = 30.0
PROGRAM = b"/harness/runtime/local/inside/start.py"


@dataclass(frozen=True)
class LeftSite:
    """A site by its stub. `processes` counts all that it has."""

    id: str
    owner: str
    pid: int
    processes: int

    @property
    def state(self) -> State:
        """Whether the process that it belongs to still runs."""
        owner = Owner.parse(self.owner)
        return owner.state() if owner else "unknown"

    def owner_in_words(self) -> str:
        """The process that it belongs to."""
        return str(Owner.parse(self.owner) or "nobody known")

    def __str__(self) -> str:
        return f"the namespaces under process {self.pid} ({self.processes} processes)"


def find(site_id: str | None = None) -> list[LeftSite]:
    """All sites on this machine that this user may end, or the one of an id."""
    found, parents = [], {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parents[int(folder.name)] = _parent(folder)
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if any(word.endswith(PROGRAM) for word in words[:5]) and _ours(folder):
            marks = dict(word.decode(errors="replace").partition("=")[::2] for word in words)
            found.append((marks.get(labels.SITE, ""), marks.get(labels.OWNER, ""), int(folder.name)))
    stubs = {pid for _, _, pid in found}
    # The site's first processes are copies of the stub, with its command line.
    return [
        LeftSite(name, owner, pid, _count(pid, parents))
        for name, owner, pid in sorted(found)
        if site_id in (None, name) and not _ancestors(pid, parents) & stubs
    ]


def clean(*, site_id: str | None = None, include_running: bool = False, dry_run: bool = False) -> Cleaned:
    """End all sites that are left over, or only one; with `include_running` also those whose process still runs."""
    result = Cleaned()
    for site in find(site_id):
        if site.state != "gone" and not include_running:
            result.spared.append(f"site {site.id} stays ({site}): {why_spared(site.state, site.owner_in_words())}")
        elif dry_run or remove(site, REMOVE_SECONDS):
            result.removed.append(f"{site}, of site {site.id}")
        else:
            result.stayed.append(f"{site}: still there {REMOVE_SECONDS:g} s after SIGKILL, of site {site.id}")
    return result


def remove(site: LeftSite, within_seconds: float) -> bool:
    """End a site by its stub; whether all of it has gone in that time. One that is gone already is no error."""
    try:
        descriptors = [os.pidfd_open(pid) for pid in (site.pid, *_children(site.pid))]
    except ProcessLookupError:
        return True
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptors[0], signal.SIGKILL)
        # The site's pid 1, the stub's only child, is gone when all that was in the site is.
        return all(_readable(descriptor, within_seconds) for descriptor in descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _readable(descriptor: int, within_seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(within_seconds * 1000))


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _ours(folder: Path) -> bool:
    """Whether this user may end a process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (folder / "status").read_text().splitlines():
            if line.startswith("Uid:"):
                return os.geteuid() in (0, int(line.split()[1]))
    return False


def _parent(folder: Path) -> int:
    return int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


def _count(pid: int, parents: dict[int, int]) -> int:
    return 1 + sum(pid in _ancestors(other, parents) for other in parents)
