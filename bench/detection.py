"""How surely the default matrix shows what it is meant to show: in how many of n runs, and after how long.

    python -m bench.detection -n 20 -j 4 --name detection-1      # runs those cells of the default matrix, then prints
    python -m bench.detection results/detection-1 results/more   # prints, all of these together
    python -m bench.detection -n 3 --only redis                  # systems, faults, or "etcd freeze-leader"

Any folder of a matrix counts that has such cells, a soak of the default matrix too. Prints a Markdown table, a line for
each violation (`MEANT`): seen in k of n runs with the 95 % interval; the median seconds from the first fault of a run
to the first finding; and how often it is seen for each fault and for each minute of faults, counting up to the first
finding of a run, or all of it where there was none (for waiting times without memory, the most likely rate).

With -n an interrupt (Ctrl-C) keeps what has ended: `fencepost matrix --resume DIR` goes on with it.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import signals
from harness.commands.many import get_images, run_plan, usual_jobs
from harness.errors import FencepostError, UsageError
from harness.matrix import DEFAULT, MatrixRun, Plan, load
from harness.results import make
from harness.runs import intervals, spelled
from harness.runs.book import Run
from harness.runs.gathered import Gathered, gather
from harness.runs.pooled import FAULTS, Rate
from harness.runtime.choice import AUTO, choose

SYSTEMS = ("etcd", "zookeeper", "consul", "redis")
MEANT: dict[tuple[str, str], tuple[str, ...]] = {
    ("redis", "clock-leader"): ("lease",),
    ("etcd", "freeze-leader"): ("lease",),
    **{
        (system, fault): ("exclusion", "damage")
        for fault in ("freeze-holder", "partition-holder")
        for system in SYSTEMS
    },
}
"""System and fault -> the verdicts that are meant to be false there (docs/found.md)."""
HEAD = ("cell", "violation", "seen (95 % interval)", "median s to it", "per fault", "per minute", *FAULTS)


@dataclass(frozen=True)
class Seen:
    """How often one verdict was false in the runs of one cell, and what that took."""

    rate: Rate
    seconds: float
    """Of faults, up to the first finding of each run, or to its end where there was none."""
    faults: int
    """The same in faults."""

    @property
    def per_fault(self) -> float | None:
        """How often it is seen for each fault."""
        return self.rate.k / self.faults if self.faults else None

    @property
    def per_minute(self) -> float | None:
        """How often it is seen for each minute of faults."""
        return 60 * self.rate.k / self.seconds if self.seconds else None


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m bench.detection", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="folders of matrices that count too")
    parser.add_argument("-n", type=int, default=0, metavar="N", help="run each cell N times first")
    parser.add_argument("-j", "--jobs", type=int, help="trials side by side")
    parser.add_argument("--only", action="append", default=[], metavar="CELL", help="a system, a fault, or both")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--name", help="the folder of the new runs in the results")
    options = parser.parse_args()
    if not options.n and not options.folders:
        parser.error("give -n to run the cells, or folders of matrices to count")
    try:
        places = chosen(options.only)
        folders = [*options.folders]
        if options.n:
            folders.append(run(plan_of(places, options.n), options.results, options.name, options.jobs))
        print("\n".join(table(gather(folders), places)))
    except FencepostError as error:
        sys.exit(f"bench.detection: {error}")


def chosen(only: Iterable[str]) -> list[tuple[str, str]]:
    """The cells that are meant by `--only`: any of these; all without one. UsageError for one that fits none."""
    wanted: dict[tuple[str, str], None] = {}
    for text in only:
        fitting = [place for place in MEANT if text in (*place, " ".join(place))]
        if not fitting:
            cells = ", ".join(" ".join(place) for place in MEANT)
            raise UsageError(f"--only {text!r} is none of the cells that are meant to show anything: {cells}")
        wanted |= dict.fromkeys(fitting)
    return list(wanted or MEANT)


def plan_of(places: Sequence[tuple[str, str]], runs: int) -> Plan:
    """Those cells of the default matrix, each so many times."""
    whole = load(DEFAULT, {"repeat": runs})
    kept = [number for number, cell in enumerate(whole.cells) if (cell.system, cell.fault) in places]
    return dataclasses.replace(
        whole,
        cells=[whole.cells[number] for number in kept],
        rules=[whole.rules[number] for number in kept],
        same=[whole.same[number] for number in kept],
        left_out=[],
    )


def run(plan: Plan, results: Path, name: str | None, jobs: int | None) -> Path:
    """Run it before the user's eyes; the folder of the matrix. An interrupt ends the process, as everywhere."""
    runtime = choose(AUTO).runtime
    get_images(plan, runtime)
    folders: list[Path] = []

    def begin(cancel: threading.Event) -> MatrixRun:
        folders.append(make(results, name, f"{time.strftime('%Y%m%dT%H%M%S')}-detection"))
        return MatrixRun(plan, folders[0], jobs or usual_jobs(runtime.name), cancel)

    try:
        run_plan(plan, runtime, begin)
    except SystemExit as ended:
        if ended.code == 130:
            raise
    return folders[0]


def table(cells: Sequence[Gathered], places: Sequence[tuple[str, str]]) -> list[str]:
    """The lines of the table: what is meant to be seen in these places, of the cells that were run."""
    ruler = ["---", "---", "---", *("---:" for _ in HEAD[3:])]
    rows = [_row(cell, name) for place in places for cell in cells if cell.place == place for name in MEANT[place]]
    return [f"| {' | '.join(row)} |" for row in (HEAD, ruler, *rows)]


def _row(cell: Gathered, name: str) -> list[str]:
    found = seen(cell.runs, name)
    first = cell.pooled.first.get(name)
    return [
        cell.name,
        name,
        spelled.rate(found.rate),
        "" if first is None or first.median_seconds is None else f"{first.median_seconds:.1f}",
        "" if found.per_fault is None else f"{found.per_fault:.2f}",
        "" if found.per_minute is None else f"{found.per_minute:.1f}",
        *(str(cell.pooled.faults.get(kind, 0)) for kind in FAULTS),
    ]


def seen(runs: Sequence[Run], name: str) -> Seen:
    """How often a verdict was false in runs of one cell that were judged for it.

    The runs' number was set beforehand, or by a time; for those that a violation stopped see `Pooled.violations`.
    """
    judged = [run for run in runs if name in run.verdicts]
    firsts = [(run, run.figures.first.get(name) if run.verdicts[name] is False else None) for run in judged]
    k = sum(run.verdicts[name] is False for run in judged)
    by_chance = any(run.rule.violations is not None for run in judged)
    low, high = (None, None) if by_chance else intervals.binomial(k, len(judged))
    return Seen(
        Rate(k=k, n=len(judged), low=low, high=high),
        sum(
            (run.figures.fault_seconds or 0.0) if first is None else (first.since_fault or 0.0) for run, first in firsts
        ),
        sum(run.figures.faults.get("applied", 0) if first is None else first.faults for run, first in firsts),
    )


if __name__ == "__main__":
    signals.listen()
    main()
