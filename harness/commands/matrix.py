"""`fencepost matrix`: many trials from a TOML file."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click

from harness import plain
from harness.commands.options import folder_name, given, trial_options


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-j", "--jobs", type=click.IntRange(1, 64), help="Trials side by side (default: two for each core).")
@click.option("--list", "only_list", is_flag=True, help="Only list the cells, and those left out.")
@trial_options
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--name", help="The matrix's folder in the results (default: time and file name).")
@click.option("--runtime", "runtime_name", default="docker", show_default=True, help="Where the nodes live.")
def command(
    file: Path | None,
    jobs: int | None,
    only_list: bool,
    results: Path,
    name: str | None,
    runtime_name: str,
    **options: Any,
) -> None:
    """Run the cells of FILE (TOML), or the default matrix, and compare them.

    Options of a trial go over the file's [defaults]. The format is in docs/matrix.md.

    \b
    Exit codes: 0 as expected, 1 a violation that was not expected, 2 usage,
    3 unknown or too little happened, 4 the harness or the clean-up failed.

    \b
    Examples:
      fencepost matrix
      fencepost matrix -j 4 --guarded
      fencepost matrix mine.toml --ttl 3 --name nightly
      fencepost matrix mine.toml --list
    """
    from harness import matrix, registry
    from harness.commands.interrupt import attended
    from harness.commands.view import Watcher, console, needs, outcome_text, reason_lines, results_table
    from harness.report import write_matrix
    from harness.results import make, taken
    from harness.trial import Progress, TrialResult
    from harness.trial.outcome import EXIT_CODES, worst

    plan = matrix.load(file or matrix.DEFAULT, given(options))
    screen = console()
    if only_list:
        for config in plan.cells:
            screen.print(config.repeat_command(), markup=False, soft_wrap=True)
        for left in plan.left_out:
            screen.print(plain.line(f"left out: {_words(left.cell)}: {left.rule}"), markup=False, soft_wrap=True)
        return
    stem = re.sub(r"[^\w.+-]", "-", plan.path.stem)[:60]
    usual = folder_name(f"{time.strftime('%Y%m%dT%H%M%S')}-matrix-{stem}")
    if name is not None and (results / folder_name(name)).exists():
        raise taken(results / name)
    runtime = registry.load("runtimes", runtime_name)()
    for names, images in {(tuple(c.images_needed()), tuple(c.images.items())) for c in plan.cells}:
        runtime.image_versions(names, images=dict(images))  # what is missing ends it before anything is written
    jobs = jobs or min(8, 2 * (os.cpu_count() or 1))
    title = f"{len(plan.cells)} cells, {jobs} side by side"
    cancel = threading.Event()

    def trials() -> tuple[matrix.MatrixRun, list[TrialResult], Path]:
        run = matrix.MatrixRun(plan, make(results, name, usual), jobs, cancel)
        with Watcher(screen, lambda: dict(run.active), title=title) as watcher:
            watcher.line(title)
            for left in plan.left_out:
                watcher.line(plain.line(f"left out: {_words(left.cell)}: {left.rule}"))

            def started(cell: str, progress: Progress) -> None:
                if not screen.is_terminal:
                    progress.on_line = lambda line: watcher.line(f"{cell}: {line}")

            def finished(result: TrialResult) -> None:
                line = outcome_text(result.outcome)
                line.append(f"  {result.folder.name}: {result.outcome.grants} grants", style="default")
                for reason in result.outcome.reasons[:2]:
                    line.append(f"; {plain.line(reason)}", style="default")
                watcher.line(line)

            run.on_start, run.on_result = started, finished
            found = run.run(runtime)
        return run, found, write_matrix(run.folder)

    run, found, page = attended(trials, stop=cancel.set, sweep=runtime.sweep)
    screen.print()
    screen.print(results_table(found))
    word = worst([*(result.outcome.word for result in found), *(["harness-error"] if run.errors else [])])
    for error in run.errors:
        screen.print(f"  {plain.block(error, indent='    ')}")
    for result in found:
        if result.outcome.word != "as-expected":
            screen.print(reason_lines(result.outcome.reasons, f"{result.folder.name}: "))
    screen.print()
    not_run = len(plan.cells) - len(found)
    cut = f", {not_run} not run" if not_run else ""
    screen.print(f"{len(found)} cells{cut}: {word}")
    screen.print(f"report: {page}", markup=False, soft_wrap=True)
    for line in needs(name for config in plan.cells for name in config.variables()):
        screen.print(f"needs:  {line}", markup=False, soft_wrap=True)
    sys.exit(130 if cancel.is_set() else EXIT_CODES[word])


def _words(cell: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in cell.items())
