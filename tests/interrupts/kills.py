"""`kill -9` of the harness or of an agent, in trials on the runtime `local`, at moments that are drawn; by the hundred.

    python -m tests.interrupts.kills [ROUNDS] [--seed N] [--victim harness|agent] [--system redis|etcd]

Each round starts a trial with a fault, kills at some time of its life, and then looks for what is left of it: processes
that came of it, the network, mount and process namespaces that those were in, mounts and interfaces of the machine's,
files among its temporary ones. When the harness is killed all is gone in a moment; when an agent is, the trial ends by
itself, with a harness error that names it, unless it was over. Exit code 1 when one round was wrong. Others may run
trials meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness.runtime.local import left
from harness.runtime.owner import Owner

GONE_SECONDS = 10.0
"""Long after the 0.1 s that it takes, on a machine in full use."""
ENDS_SECONDS = 180.0
"""So long a trial may take to end by itself."""
SHORT = ("--warmup", "0.5", "--duration", "4", "--recovery", "0.5", "--contenders", "2", "--min-grants", "1")
FAULTS = ("freeze-leader", "freeze-holder", "partition-leader", "clock-leader")
EARLY = 0.1
"""This share of the moments counts from the start of the command."""
TICKS = os.sysconf("SC_CLK_TCK")
AGENT = "agent"
"""What an agent is called: it is a fork, with the command line of its site's first process."""

Life = tuple[int, str]
"""A process: its id, and when it started, as ids are given again."""


@dataclass(frozen=True)
class Machine:
    """What a trial may add nothing to."""

    mounts: frozenset[str]
    devices: frozenset[str]
    files: frozenset[str]

    @classmethod
    def now(cls) -> Machine:
        """As it is. Docker's devices come and go with others' containers."""
        mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if "fencepost" in line]
        devices = [name for name in os.listdir("/sys/class/net") if not name.startswith(("veth", "br-"))]
        folder = Path(tempfile.gettempdir()) / f"fencepost-local-{os.getuid()}"
        return cls(frozenset(mounts), frozenset(devices), frozenset(map(str, folder.glob("*"))))

    def more_than(self, before: Machine) -> list[str]:
        """What has come since."""
        return sorted({*(self.mounts - before.mounts), *(self.devices - before.devices), *(self.files - before.files)})


@dataclass
class Trace:
    """What was seen of one process and all that came of it: their lives, and the namespaces that were theirs alone at
    the last look, which was `looked` seconds after the machine started. (The kernel gives a namespace's number again.)
    """

    root: int
    lives: dict[Life, list[str]] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)
    looked: float = 0.0
    parents: dict[int, int] = field(default_factory=dict)
    """As it was at the last look."""

    def look(self) -> None:
        """Add what there is now."""
        began, parents, known = time.clock_gettime(time.CLOCK_BOOTTIME), {}, {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                called = Path(f"/proc/{pid}/comm").read_bytes().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            told = [word.decode(errors="replace") for word in (called, *words)]
            parents[pid], known[pid] = int(stat[1]), (stat[19], told)
        tree = [self.root] if self.root in parents else []
        for each in tree:
            tree += [pid for pid, parent in parents.items() if parent == each]
        if tree:
            self.namespaces, self.looked = set(), began
        for pid in tree:
            self.lives[pid, known[pid][0]] = known[pid][1]
            self.namespaces |= namespaces(pid)
            self.parents[pid] = parents[pid]
        self.namespaces -= namespaces(os.getpid())

    def agents(self) -> list[int]:
        """The agents that were seen, by their numbers on this machine; not what they fork for a moment."""
        found = {pid for (pid, _), words in self.lives.items() if words[0] == AGENT}
        return sorted(pid for pid in found if self.parents[pid] not in found)

    def left(self) -> list[str]:
        """What lives of it, and who else was in its namespaces."""
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if stat[0] in "ZX":
                continue
            later = int(stat[19]) > self.looked * TICKS
            if (pid, stat[19]) in self.lives or (not later and namespaces(pid) & self.namespaces):
                words = " ".join(self.lives.get((pid, stat[19]), ["one that was not seen before"]))
                found.append(f"process {pid} ({stat[0]}): {words[:120]}")
        return found


def namespaces(pid: int) -> set[str]:
    """Those of a process; none when it has ended, or is somebody else's."""
    try:
        return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt", "pid", "user")}
    except OSError:
        return set()


def sites_of(pid: int) -> list[str]:
    """Sites that carry the label of an owner with this process id."""
    owners = [(site, Owner.parse(site.owner)) for site in left.find()]
    return [f"site {site.id}: {site}" for site, owner in owners if owner is not None and owner.pid == pid]


def one(system: str, victim: str, at: float, fault: str, *, early: bool) -> tuple[str, list[str]]:
    """One round: what it came to in words, and what was wrong. `at` counts from the first process of the site on, with
    `early` from that of the harness: a trial waits for its turn before it has anything.
    """
    before = Machine.now()
    with tempfile.TemporaryDirectory(prefix="fencepost-kills-") as folder:
        words = ["run", system, "--runtime", "local", "--fault", fault, "--fault-on", "2", *SHORT]
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *words, "--results", folder, "--name", "t"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        trace = Trace(process.pid)
        end = time.monotonic() + at
        while process.poll() is None and (time.monotonic() < end or (victim == "agent" and not trace.agents())):
            trace.look()
            if len(trace.lives) == 1 and not early:
                end = time.monotonic() + at
            time.sleep(0.02)
        trace.look()
        hit, killed = process.poll() is None, process.pid
        if hit and victim == "agent":
            killed = random.Random(at).choice(trace.agents())
        try:
            os.kill(killed, signal.SIGKILL)
        except ProcessLookupError:
            hit = False
        wrong = []
        try:
            while process.poll() is None:
                trace.look()
                if time.monotonic() > end + ENDS_SECONDS:
                    wrong.append(f"the trial did not end within {ENDS_SECONDS:g} s")
                    process.kill()
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()
        began = time.monotonic()
        while (alive := trace.left() + sites_of(process.pid)) and time.monotonic() < began + GONE_SECONDS:
            time.sleep(0.01)
        took = time.monotonic() - began
        wrong += alive + Machine.now().more_than(before)
        if victim == "agent" and hit and process.returncode not in (0, 1, 3, 4):
            wrong.append(f"exit code {process.returncode}")
        if victim == "agent" and process.returncode == 4:
            error = json.loads((Path(folder) / "t" / "trial.json").read_text())["error"] or ""
            wrong += [] if "agent" in error else [f"its error names no agent: {error}"]
    came_to = f"{len(trace.lives)} processes, all gone {took * 1000:.0f} ms later" if hit else "had ended by itself"
    return f"{came_to}, exit code {process.returncode}", wrong


def main() -> int:
    """All rounds; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("rounds", nargs="?", type=int, default=50, help="how many must hit a trial that runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--victim", choices=("harness", "agent"), default="harness")
    parser.add_argument("--system", default="redis")
    parser.add_argument("--life", type=float, default=9.0, help="a trial's seconds, for the moments")
    asked = parser.parse_args()
    hits, bad, number = 0, 0, 0
    while hits < asked.rounds:
        chance = random.Random(f"{asked.seed}/{asked.victim}/{number}")
        at, fault = chance.uniform(0.0, asked.life), chance.choice(FAULTS)
        if asked.system == "redis" and fault == "partition-leader":
            fault = "kill-leader"
        told, wrong = one(asked.system, asked.victim, at, fault, early=chance.random() < EARLY)
        hits += "had ended" not in told
        bad += bool(wrong)
        print(f"{number:4} {asked.victim} at {at:5.2f} s, {fault}: {'; '.join(wrong) or told}", flush=True)
        number += 1
    print(f"{hits} kills of {asked.victim}, {number - hits} came too late, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
