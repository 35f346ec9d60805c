"""How fast `fencepost check` is and how much memory it takes.

Makes histories from a seed, runs the command on them, prints a table:

    python -m bench                       # a million events
    python -m bench 100000 1000000 10000000
    python -m bench --soak                # 30 million, as they are and compressed: minutes to make, 4 GB of disk
    python -m bench 1000000 --packed zst  # a compressed history

Wall and CPU time are of the whole command, start-up included, as the shell sees it; peak memory is that of all its
processes together (their PSS, looked at five times a second) or of the biggest, if that is more. Other programs on the
machine lengthen the wall time, so each is run several times and the best one is given.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import histories

SOAK = 30_000_000
"""Events of a long soak, which are to be judged in 60 s and 2 GiB on two cores."""


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of its processes, user and system."""
    peak: int
    """Bytes; of its processes together."""
    code: int


def measure(command: Sequence[str]) -> Run:
    """Runs a command to its end, its output thrown away."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    over = threading.Event()
    seen = [0]

    def look() -> None:
        while not over.wait(0.2):
            seen[0] = max(seen[0], sum(map(_share, _family(process.pid))))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    finally:
        over.set()
        looking.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    peak = max(usage.ru_maxrss * 1024, seen[0])
    return Run(wall, usage.ru_utime + usage.ru_stime, peak, process.returncode)


def _family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it is gone
        return
    for child in children:
        yield from _family(int(child))


def _share(pid: int) -> int:
    """The memory of a process in bytes, of what it shares with others its share; 0 of one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("events", nargs="*", type=int, default=[1_000_000], help="lengths of the histories")
    parser.add_argument("--soak", action="store_true", help=f"{SOAK:,} events: plain, .zst and .gz, once each")
    parser.add_argument("--packed", choices=["gz", "zst"], help="compress the histories")
    parser.add_argument("--contenders", type=int, default=20)
    parser.add_argument("--info", type=float, default=0.01, help="share of operations of unknown outcome")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    fencepost = Path(sys.executable).with_name("fencepost")  # the script of this very environment
    if options.soak:
        options.runs = 1
    jobs = [(SOAK, end) for end in ("", ".zst", ".gz")] if options.soak else []
    jobs = jobs or [(events, f".{options.packed}" if options.packed else "") for events in options.events]
    print(f"{options.contenders} contenders, {options.info:.0%} info, seed {options.seed}; best of {options.runs} runs")
    print(f"{'events':>12} {'file':>9} {'wall':>9} {'cpu':>9} {'peak':>9} {'events/s':>12}  exit code")
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as folder:
        for events, end in jobs:
            path = Path(folder) / f"{events}.jsonl{end}"
            histories.write(path, events, contenders=options.contenders, info=options.info, seed=options.seed)
            command = [str(fencepost), "check", str(path)]
            best = min((measure(command) for _ in range(options.runs)), key=lambda run: run.wall)
            size = path.stat().st_size / 1e6
            print(
                f"{events:>12,} {size:>6,.0f} MB {best.wall:>7.2f} s {best.cpu:>7.2f} s {best.peak / 2**20:>5,.0f} MiB "
                f"{events / best.wall:>12,.0f}  {best.code}",
                flush=True,
            )
            path.unlink()


if __name__ == "__main__":
    main()
