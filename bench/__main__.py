"""How fast `fencepost check` is and how much memory it takes.

Makes histories from a seed, runs the command on them, prints a table:

    python -m bench                       # a million events
    python -m bench 100000 1000000 10000000

Wall and CPU time are of the whole command, start-up included, as the shell sees it; peak memory is that of its biggest
process. Other programs on the machine lengthen the wall time, so each is run several times and the best one is given.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import histories


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of its processes, user and system."""
    peak: int
    """Bytes; of its biggest process."""
    code: int


def measure(command: Sequence[str]) -> Run:
    """Runs a command to its end, its output thrown away."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, process.returncode)


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("events", nargs="*", type=int, default=[1_000_000], help="lengths of the histories")
    parser.add_argument("--contenders", type=int, default=20)
    parser.add_argument("--info", type=float, default=0.01, help="share of operations of unknown outcome")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    fencepost = Path(sys.executable).with_name("fencepost")  # the script of this very environment
    print(f"{options.contenders} contenders, {options.info:.0%} info, seed {options.seed}; best of {options.runs} runs")
    print(f"{'events':>12} {'file':>9} {'wall':>9} {'cpu':>9} {'peak':>9} {'events/s':>12}  exit code")
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as folder:
        for events in options.events:
            path = Path(folder) / f"{events}.jsonl"
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
