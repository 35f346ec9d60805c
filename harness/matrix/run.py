"""Running the cells of a plan side by side, run after run, and what they come to together.

What has ended stands in the book (`runs.jsonl`) before anything else is begun; matrix.json is made from it, at most so
often that writing it takes a small share of the time.
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from checkers import RULES
from harness import documents, redaction, report
from harness.errors import FencepostError, HarnessError, UsageError
from harness.matrix import stored
from harness.matrix.plan import Plan, least_seconds
from harness.matrix.rounds import Rounds
from harness.results import held
from harness.runs import book, pooled
from harness.runs.book import Book, Figures, Run
from harness.runs.measure import measure, size
from harness.runtime.base import Runtime
from harness.trial import Progress, Trial, TrialResult
from harness.trial.config import TrialConfig
from harness.trial.lane import Lane
from harness.trial.outcome import Outcome
from harness.trial.recorder import write_json
from harness.trial.running import giving_up
from nemesis.bite import Tally

WRITING_SHARE = 0.05
"""Of the time, that keeping matrix.json up to date may take."""
MOST_FAILURES = 10
"""So many harness errors one after the other end a matrix of many runs: it would only fail through the night."""
PAUSES = (0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds that a lane of such a matrix waits after so many of them: an engine that is started again needs a moment."""


@dataclass
class MatrixRun:
    """A matrix on its way: what the live view reads, and what `run` leaves behind."""

    plan: Plan
    folder: Path
    jobs: int
    cancel: threading.Event = field(default_factory=threading.Event)
    keep: str = "all"
    """Which runs keep their folders, one of `stored.KEEP`."""
    seconds: float | None = None
    """How long the matrix may work from now on; None = as long as `budget` says."""
    budget: float | None = None
    """How long it may work, all sessions together; None = until its cells have had enough."""
    resumed: bool = False
    """Whether it goes on in a folder in which it began before."""
    trial: Callable[..., Trial] = Trial
    active: dict[str, Progress] = field(default_factory=dict)
    runs: dict[int, list[Run]] = field(default_factory=dict)
    """The runs that have ended, by cell, in the order of their numbers; those of earlier sessions too."""
    broken_off: dict[int, Run] = field(default_factory=dict)
    """The last run of a cell that the user broke off; such a run counts in no figure."""
    errors: list[str] = field(default_factory=list)
    aside: list[Path] = field(default_factory=list)
    """Where the folders went that were left by runs that had not ended."""
    on_start: Callable[[str, Progress], None] = lambda name, progress: None
    on_result: Callable[[TrialResult], None] = lambda result: None
    now: Callable[[], float] = time.monotonic
    """The clock by which the time of a soak runs."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _rounds: Rounds | None = None
    _before: float = 0.0
    """Seconds that earlier sessions worked."""

    def __post_init__(self) -> None:
        self._started = self.now()

    def run(self, runtime: Runtime) -> list[TrialResult]:
        """Run all cells on `jobs` lanes until each has had enough runs, or the time is over.

        Returns for each cell that has a run the result that stands for it, in the plan's order. Never loses a run that
        has ended. The folder must be there (`harness.results.make`). Raises UsageError when another process writes into
        it, or what stands in it can't be gone on with.
        """
        with held(self.folder):
            return self._run(runtime)

    @property
    def words(self) -> Counter[str]:
        """How many runs had which outcome."""
        with self._lock:
            return Counter(run.word for runs in self.runs.values() for run in runs)

    @property
    def left(self) -> int | None:
        """How many more runs the cells want; None where only the time ends them."""
        with self._lock:
            return self._rounds.left() if self._rounds is not None else None

    # -- the whole

    def _run(self, runtime: Runtime) -> list[TrialResult]:
        self._names = _folder_names(self.plan.cells)
        self._failures, self._written, self._cost = 0, 0.0, 0.0
        pages = book.read(self.folder) if self.resumed else None
        self._before = pages.spent if pages is not None else 0.0
        if self.seconds is not None:
            self.budget = self._before + self.seconds
        elif pages is not None and pages.sessions:
            self.budget = pages.sessions[-1].budget
        if not self.resumed:
            stored.write_plan(self.folder, self.plan, self.budget, self.keep, runtime.name)
        self._book = Book(self.folder)
        report.load()
        try:
            self._recover(pages)
            self._lanes(runtime, self._session())
        finally:
            self._book.close()
        with self._lock:
            return [self._shown(cell) for cell in sorted({*self.runs, *self.broken_off})]

    def _session(self) -> Rounds:
        done = [run for runs in self.runs.values() for run in runs]
        nominal = [least_seconds(config) for config in self.plan.cells]
        rounds = Rounds(self.plan.rules, _interleaved(self.plan.cells), nominal, done, self.budget)
        began = datetime.now(UTC).isoformat(timespec="seconds")
        self._book.append(book.Session(began=began, jobs=self.jobs, spent=self._before, budget=self.budget))
        with self._lock:
            self._rounds = rounds
            self._write()
        return rounds

    def _lanes(self, runtime: Runtime, rounds: Rounds) -> None:
        wanted = rounds.left()
        threads = [
            threading.Thread(target=self._lane, args=(runtime, rounds, number), name=f"lane-{number}")
            for number in range(self.jobs if wanted is None else min(self.jobs, wanted))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        missing = len(self.plan.cells) - len(self.runs)
        if missing and not self.cancel.is_set() and self.budget is None:
            self._tell(f"{missing} cells were not run")
        self._save(always=True)

    def _lane(self, runtime: Runtime, rounds: Rounds, lane_number: int) -> None:
        lane: Lane | None = None
        images: Mapping[str, str] = {}
        try:
            while not self.cancel.is_set() and not self._gives_up():
                if self.cancel.wait(self._pause()):
                    return
                with self._lock:
                    place = rounds.next(self.spent)
                if place is None:
                    return
                config = self.plan.config(*place)
                if lane is not None and images != config.images:
                    self._close(lane, lane_number)
                    lane = None
                if lane is None:
                    images = config.images
                    lane = Lane(
                        runtime, f"m{secrets.token_hex(4)}-{lane_number}", images=images, check=giving_up(self.cancel)
                    )
                if self._one(runtime, lane, rounds, *place, config).outcome.word == "harness-error":
                    # Whatever it was, the next run shall not inherit it.
                    self._close(lane, lane_number)
                    lane = None
        except BaseException as error:  # noqa: BLE001 - a lane that ends must be told, or its cells are missed by nobody
            self._tell(f"lane {lane_number} has ended: {type(error).__name__}: {error}")
        finally:
            if lane is not None:
                self._close(lane, lane_number)

    def _close(self, lane: Lane, number: int) -> None:
        try:
            lane.close()
        except FencepostError as error:
            self._tell(f"lane {number}: {error}; {lane.site.how_to_remove()} removes what stays")

    def _gives_up(self) -> bool:
        """Whether nothing but harness errors came lately, where there is still much to come."""
        if self._failures < max(MOST_FAILURES, 2 * self.jobs) or not self.plan.repeated:
            return False
        self._tell(f"{self._failures} runs one after the other were harness errors, so no more were begun")
        return True

    def _pause(self) -> float:
        failures = self._failures if self.plan.repeated else 0
        return PAUSES[min(failures, len(PAUSES)) - 1] if failures else 0.0

    def _tell(self, error: str) -> None:
        error = redaction.text(error)
        with self._lock:
            if error in self.errors:
                return
            self.errors.append(error)
        with suppress(HarnessError):  # a disk that takes nothing more is told of by whoever meets it first
            self._book.append(book.Error(error=error))

    @property
    def spent(self) -> float:
        """Seconds that the matrix has worked, all sessions together."""
        return self._before + self.now() - self._started

    # -- one run

    def _one(
        self, runtime: Runtime, lane: Lane, rounds: Rounds, cell: int, number: int, config: TrialConfig
    ) -> TrialResult:
        name = stored.run_name(self._names[cell], number, repeated=self.plan.repeated)
        folder = self.folder / name
        progress = Progress(config.describe())
        with self._lock:
            self.active[name] = progress
        self.on_start(name, progress)
        began = self.now()
        try:
            result = self.trial(config, folder, runtime, lane=lane, cancel=self.cancel, progress=progress).run()
        except (FencepostError, OSError) as error:
            # Not even its folder could be written: there is nothing to judge, and the matrix must say so.
            outcome = Outcome("harness-error", [redaction.text(str(error))], None, 0, 0)
            result = TrialResult(folder, config, outcome, {}, None)
        run = self._entry(cell, number, result, self.now() - began)
        with self._lock:
            self.active.pop(name)
        self._enter(run)
        with self._lock:
            rounds.ended(run)
            self._failures = self._failures + 1 if run.word == "harness-error" else 0
        self._save()
        self.on_result(result)
        return result

    def _entry(self, cell: int, number: int, result: TrialResult, wall: float) -> Run:
        """The line of a run that has ended."""
        try:
            figures = measure(result.folder)
        except (FencepostError, OSError, ValueError, KeyError) as error:
            self._tell(f"{result.folder.name} has no figures: {type(error).__name__}: {error}")
            figures = Figures()
        return Run(
            cell=cell,
            run=number,
            trial=result.folder.name,
            seed=result.config.seed,
            same=self.plan.same[cell],
            rule=self.plan.rules[cell],
            place=result.config.cell(),
            version=result.version,
            outcome=result.outcome.to_json(),
            verdicts=dict(result.verdicts),
            required=list(result.required),
            expect=dict(result.config.expect),
            expect_reason=result.config.expect_reason,
            rules=RULES,
            interrupted=self.cancel.is_set(),
            wall=round(wall, 3),
            spent=round(self.spent, 3),
            size=size(result.folder),
            figures=figures,
        )

    def _enter(self, run: Run) -> None:
        """Into the book, and into what is shown."""
        try:
            self._book.append(run)
        except HarnessError as error:
            self._tell(str(error))
        with self._lock:
            if run.interrupted:
                self.broken_off[run.cell] = run
                return
            self.broken_off.pop(run.cell, None)
            runs = self.runs.setdefault(run.cell, [])
            runs.append(run)
            runs.sort(key=lambda each: each.run)
        self._prune(run.cell)

    def _prune(self, cell: int) -> None:
        """Removes the folders of a cell that tell nothing, where the user wants that."""
        if self.keep == "all":
            return
        with self._lock:
            runs = self.runs[cell]
            telling = pooled.kept(runs)
            going = [run.trial for run in runs if run.trial not in telling and run.trial not in self._gone]
            self._gone.update(going)
        for name in going:
            try:
                shutil.rmtree(self.folder / name)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._tell(f"{self.folder / name} can't be removed: {error.strerror or error}")

    # -- what was there before

    def _recover(self, pages: book.Pages | None) -> None:
        """Takes up what earlier sessions left: what ended counts, what did not is kept aside and run again."""
        self._gone: set[str] = set()
        if not self.resumed:
            return
        for run in pages.counted() if pages is not None else ():
            self._check(run)
            self.runs.setdefault(run.cell, []).append(run)
        known = {run.trial for runs in self.runs.values() for run in runs}
        have = {(run.cell, run.run) for runs in self.runs.values() for run in runs}
        for cell, number, name in stored.left_behind(self.folder, self._names, known):
            config = self.plan.config(cell, number)
            trial = None if (cell, number) in have else stored.ended_well(self.folder / name, config)
            broken = pages is not None and any(run.trial == name and run.interrupted for run in pages.runs)
            if trial is None or broken:
                self.aside.append(stored.set_aside(self.folder, name))
            else:
                self._enter(self._adopted(cell, number, config, trial))
        for cell in list(self.runs):
            self._prune(cell)

    def _check(self, run: Run) -> None:
        place = f"{self.folder / book.BOOK}: run {run.run} of cell {run.cell + 1}"
        if run.cell >= len(self.plan.cells) or run.same != self.plan.same[run.cell]:
            raise UsageError(f"{place} is none of the plan's; this folder can't be gone on with")
        if run.rules != RULES:
            raise UsageError(
                f"{place} was judged by rules {run.rules}, today's are rules {RULES}, and one cell can't have both; "
                "begin a matrix of its own"
            )

    def _adopted(self, cell: int, number: int, config: TrialConfig, trial: Mapping[str, Any]) -> Run:
        """The entry of a run that ended, and whose process was killed before it wrote one."""
        folder = self.folder / stored.run_name(self._names[cell], number, repeated=self.plan.repeated)
        verdict = documents.read_json(folder / "verdict.json")
        if not (folder / "report.html").exists():
            report.write_trial(folder)
        verdicts = {name: part["valid"] for name, part in verdict["verdicts"].items()}
        result = TrialResult(
            folder, config, _outcome(trial["outcome"]), verdicts, folder / "report.html", verdict["required"]
        )
        result = dataclasses.replace(result, version=trial.get("versions", {}).get("system"))
        return self._entry(cell, number, result, max(0.0, measure(folder).seconds or 0.0))

    # -- what it comes to

    def _shown(self, cell: int) -> TrialResult:
        """The result that stands for a cell. Needs the lock."""
        run = pooled.representative(self.runs[cell]) if cell in self.runs else self.broken_off[cell]
        page = self.folder / run.trial / "report.html"
        return TrialResult(
            self.folder / run.trial,
            self.plan.config(cell, run.run),
            _outcome(run.outcome),
            run.verdicts,
            page if page.is_file() else None,
            run.required,
            version=run.version,
        )

    def _save(self, *, always: bool = False) -> None:
        """Write matrix.json; what the disk doesn't take is an error of the matrix, and the cells go on."""
        try:
            with self._lock:
                if always or time.monotonic() - self._written >= self._cost / WRITING_SHARE:
                    self._write()
        except HarnessError as error:
            self._tell(str(error))

    def _write(self) -> None:
        """matrix.json, so that a matrix that is cut short still has its page. Needs the lock."""
        began = time.monotonic()
        runs = [run for runs in self.runs.values() for run in runs]
        broken = [run for cell, run in self.broken_off.items() if cell not in self.runs]
        cells = pooled.cells([*runs, *broken])
        record = {
            "format": 1,
            "rules": RULES,
            "id": self.folder.name,
            "file": self.plan.path.name,
            "cells": cells,
            "left_out": [{"cell": dict(left.cell), "rule": left.rule} for left in self.plan.left_out],
            "planned": [config.cell() for config in self.plan.cells],
            "not_run": len(self.plan.cells) - len(cells),
            "seconds": round(self.spent, 1),
            "jobs": self.jobs,
            "errors": list(self.errors),
        }
        if self.plan.repeated:
            record["runs"] = len(runs)
        write_json(self.folder / "matrix.json", record)
        self._written = time.monotonic()
        self._cost = self._written - began


def _outcome(data: Mapping[str, Any]) -> Outcome:
    """An outcome as it was written down."""
    known = {field.name: data[field.name] for field in dataclasses.fields(Outcome) if field.name in data}
    tally = Tally.from_json(data["faults"]) if data.get("faults") is not None else None
    return Outcome(**{**known, "tally": tally})


def _interleaved(cells: Sequence[TrialConfig]) -> list[int]:
    """The order in which cells start: systems take turns, so that heavy and light ones run side by side."""
    rank: dict[str, int] = {}
    keys = []
    for number, cell in enumerate(cells):
        rank[cell.system] = rank.get(cell.system, -1) + 1
        keys.append((rank[cell.system], number))
    return [number for _, number in sorted(keys)]


def _folder_names(cells: Sequence[TrialConfig]) -> list[str]:
    """A folder name for each cell; cells that look alike get what differs, then a number."""
    names = [cell.slug() for cell in cells]
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return unique
