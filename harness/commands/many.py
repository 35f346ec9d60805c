"""What `matrix` and `run --repeat` share: running a plan before somebody's eyes, and saying what it came to."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import images, plain
from harness.commands.interrupt import attended
from harness.commands.view import (
    STYLES,
    Watcher,
    console,
    left_out,
    needs,
    outcome_text,
    phase_words,
    print_results,
    reason_lines,
    system_words,
)
from harness.matrix import MatrixRun, Plan
from harness.report import write_matrix
from harness.runs import pooled, spelled
from harness.runs.pooled import Pooled
from harness.runtime.base import Runtime
from harness.trial import Progress, TrialResult, arriving
from harness.trial.attachment import examine_first
from harness.trial.config import TrialConfig
from harness.trial.outcome import EXIT_CODES, worst

CAME_TO = (
    "(bit: the fault met a moment in which it could matter; missed: it met none; immune: by design it can't matter)"
)


def usual_jobs(runtime: str) -> int:
    """Trials side by side, where nobody says how many: two a core, and three where nodes are no containers.

    A trial mostly waits, for leases to end and for faults: its nodes take 0.1 to 0.25 s of a processor a second. What
    a container costs to start and to remove lets fewer get along.
    """
    each, most = (3, 16) if runtime == "local" else (2, 8)
    return min(most, each * (os.cpu_count() or 1))


def have_client(configs: Sequence[TrialConfig], runtime: Runtime) -> None:
    """Have what clients of the user's own need, and see on a node that each can be started; nothing is left of that."""
    brought = {config.client_digest: config for config in configs if config.brought_client() is not None}
    if not brought:
        return
    halt = images.Halt()

    def get() -> None:
        arriving.get_image(list(brought.values()), runtime, lambda line: click.echo(plain.block(line), err=True), halt)

    def look() -> None:
        for config in brought.values():
            said = arriving.look_first(config, runtime)
            click.echo(plain.line(f"client: {config.client_words()} is {said}"), err=True)

    attended(get, stop=halt.stop, sweep=lambda seconds: [], stopping="stopping: removing what is half made")
    attended(look, sweep=runtime.sweep)


def get_images(plan: Plan, runtime: Runtime) -> None:
    """Have all that the plan's cells need, and look at the clusters that exist; what is missing, or can't be used, ends
    it before anything is written.
    """
    have_client(plan.cells, runtime)
    for names, given in {(tuple(c.images_needed()), tuple(c.images.items())) for c in plan.cells}:
        runtime.image_versions(names, images=dict(given))
    places = {
        str((c.system, c.endpoints, c.endpoint_options, c.system_options, c.ttl)): c for c in plan.cells if c.endpoints
    }
    for config in places.values():
        if (found := examine_first(config)) is not None:
            click.echo(plain.line(f"found:  {found.words} at {', '.join(config.endpoints)}"), err=True)


def run_plan(plan: Plan, runtime: Runtime, begin: Callable[[threading.Event], MatrixRun]) -> None:
    """Run what `begin` makes (it is given the user's wish to stop), show it, and exit with what it came to."""
    screen = console()
    cancel = threading.Event()

    def trials() -> tuple[MatrixRun, list[TrialResult], Path]:
        run = begin(cancel)
        with Watcher(screen, lambda: dict(run.active), title=lambda: _title(run)) as watcher:
            watcher.line(_title(run))
            for left in plan.left_out:
                watcher.line(left_out_line(left.cell, left.rule))

            def started(cell: str, progress: Progress) -> None:
                if not screen.is_terminal:
                    progress.on_line = lambda line: watcher.line(f"{cell}: {phase_words(line)}")

            def finished(result: TrialResult) -> None:
                line = outcome_text(result.outcome)
                line.append(f"  {result.folder.name}: {result.outcome.grants} grants", style="default")
                if result.outcome.faults:
                    line.append(f", {result.outcome.faults}", style="default")
                beside = left_out(result)
                for reason in [*result.outcome.reasons[:2], *([] if beside is None else [beside])]:
                    line.append(f"; {plain.line(reason)}", style="default")
                watcher.line(line)

            run.on_start, run.on_result = started, finished
            found = run.run(runtime)
        return run, found, write_matrix(run.folder)

    run, found, page = attended(trials, stop=cancel.set, sweep=runtime.sweep)
    screen.print()
    word = _tell(screen, run, found)
    screen.print(f"report: {page}", markup=False, soft_wrap=True)
    if cancel.is_set() or (run.budget is not None and plan.repeated):
        screen.print(f"go on:  {_go_on(run, over=not cancel.is_set())}", markup=False, soft_wrap=True)
    for line in needs(name for config in plan.cells for name in config.variables()):
        screen.print(f"needs:  {line}", markup=False, soft_wrap=True)
    sys.exit(130 if cancel.is_set() else EXIT_CODES[word])


def left_out_line(cell: Any, rule: str) -> str:
    """A line for a cell that makes no sense."""
    return plain.line(f"left out: {', '.join(f'{key}={value}' for key, value in cell.items())}: {rule}")


def _title(run: MatrixRun) -> str:
    """`27 cells, 4 side by side`; with several runs also how many there were, are to come, and were what."""
    said = f"{len(run.plan.cells)} cells, {run.jobs} side by side"
    if not run.plan.repeated:
        return said
    words = run.words
    done = sum(words.values())
    left = run.left
    said += f", {done} runs" + (f", {left} to come" if left is not None else "")
    if run.budget is not None:
        said += f", {max(0.0, run.budget - run.spent) / 60:.0f} min left"
    odd = [f"{count} {word}" for word, count in words.most_common() if word != "as-expected"]
    return said + "".join(f", {each}" for each in odd)


def _tell(screen: Console, run: MatrixRun, found: Sequence[TrialResult]) -> str:
    """The tables and the last lines; returns the word for the whole."""
    if run.plan.repeated:
        screen.print(pooled_table(run))
    else:
        print_results(found, screen)
        if any(result.outcome.faults for result in found):
            screen.print(Text(CAME_TO, style="dim"))
    words = list(run.words) or [result.outcome.word for result in found]
    if run.budget is not None and len(found) < len(run.plan.cells):
        words.append("inconclusive")  # there was no time for some of the cells
    word = worst([*words, *(["harness-error"] if run.errors else [])])
    for error in run.errors:
        screen.print(f"  {plain.block(error, indent='    ')}")
    for result in found:
        if result.outcome.word != "as-expected":
            screen.print(reason_lines(result.outcome.reasons, f"{result.folder.name}: "))
    for path in run.aside:
        screen.print(f"  left by a run that did not end, which was run again: {path}", markup=False, soft_wrap=True)
    if run.aside:
        screen.print("  (`fencepost clean` removes the nodes that a killed process left)")
    screen.print()
    not_run = len(run.plan.cells) - len(found)
    cut = f", {not_run} not run" if not_run else ""
    counted = sum(run.words.values())
    runs = f", {counted} runs" if run.plan.repeated else ""
    screen.print(f"{len(found)} cells{cut}{runs}: {word}")
    if run.plan.repeated and counted:
        every = [each for runs in run.runs.values() for each in runs]
        total = sum(each.size for each in every)
        kept = " (before --keep telling removed any)" if run.keep == "telling" else ""
        screen.print(f"disk:   {spelled.size(total / counted)} a run, {spelled.size(total)} in all{kept}")
    return word


def _go_on(run: MatrixRun, *, over: bool) -> str:
    return f"fencepost matrix --resume {run.folder}" + (" --for TIME" if over else "")


def pooled_table(run: MatrixRun) -> Table:
    """One row for each cell: how many runs, how they ended, what was seen in how many, and what it took."""
    table = Table(box=None, pad_edge=False)
    for heading in ("system", "fault", "contenders", "runs", "outcome", "seen (95 % interval)", "faults", "first seen"):
        table.add_column(heading, no_wrap=heading in ("system", "fault", "contenders"))
    for cell, runs in sorted(run.runs.items()):
        config, all_of_it = run.plan.cells[cell], pooled.pool(runs)
        table.add_row(
            system_words(config, pooled.versions(runs)),
            config.fault_words(),
            config.kind,
            spelled.runs(all_of_it),
            Text(spelled.outcomes(all_of_it), style=STYLES[pooled.representative(runs).word]),
            "\n".join(spelled.shown(all_of_it)) or "nothing",
            spelled.faults(all_of_it) or "-",
            _first(all_of_it),
        )
    return table


def _first(all_of_it: Pooled) -> str:
    seen = spelled.seen(all_of_it)
    if seen is None:
        return "-"
    name, first = seen
    worst_run = all_of_it.telling.get("worst")
    lines = [f"{name}: {spelled.to_first(first)}", first.trial]
    if worst_run is not None and worst_run != first.trial:
        lines.append(f"{worst_run} (most unsafe time)")
    return "\n".join(lines)
