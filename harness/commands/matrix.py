"""`fencepost matrix`: many trials from a TOML file."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import click

from harness.commands.helping import GroupedCommand
from harness.commands.options import (
    HEADINGS,
    chosen,
    duration,
    folder_name,
    given,
    repeat_options,
    results_option,
    runtime_option,
    trial_options,
)
from harness.errors import UsageError
from harness.runtime.choice import AUTO


@click.command(cls=GroupedCommand, headings={"The matrix": ("jobs", "only_list"), **HEADINGS})
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Trials side by side (default: two a core, three on local).",
)
@click.option("--list", "only_list", is_flag=True, help="Only list the cells, and those left out.")
@repeat_options
@click.option(
    "--for", "time_", metavar="TIME", help="A soak: round after round for so long (90s, 30m, 8h), fewest runs first."
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Go on with the matrix in this folder; with --for for so much longer.",
)
@click.option(
    "--keep",
    type=click.Choice(("all", "telling")),
    help="Which runs keep their folders (default all); telling: not as expected, the first, the first seen, the worst.",
)
@trial_options
@results_option
@click.option("--name", metavar="NAME", help="The matrix's folder there (default: time and file name).")
@runtime_option
def command(
    file: Path | None,
    jobs: int | None,
    only_list: bool,
    time_: str | None,
    resume: Path | None,
    keep: str | None,
    results: Path,
    name: str | None,
    runtime_name: str,
    **options: Any,
) -> None:
    """Run the cells of FILE (TOML), or the default matrix, and compare them.

    `mistakes` as FILE is one that comes with Fencepost: what people do wrong with locks.

    Options of a trial go over the file's [defaults]. The format is in docs/matrix.md.

    \b
    Exit codes: 0 as expected, 1 a violation that was not expected, 2 usage,
    3 unknown or too little happened, 4 the harness or the clean-up failed.

    \b
    Examples:
      fencepost matrix
      fencepost matrix mistakes
      fencepost matrix -j 4 --guarded
      fencepost matrix mine.toml --ttl 3 --name nightly
      fencepost matrix mine.toml --repeat 20 --until violations=1
      fencepost matrix --for 8h --keep telling --name soak
      fencepost matrix --resume results/soak
      fencepost matrix mine.toml --list
    """
    from harness import matrix
    from harness.commands.many import get_images, left_out_line, run_plan, usual_jobs
    from harness.commands.view import console
    from harness.results import make, taken

    asked = given(options)
    seconds = duration("--for", time_) if time_ is not None else None
    budget: float | None = None
    if resume is not None:
        if asked or name is not None or only_list:
            words = ", ".join([*asked, *(["name"] if name is not None else []), *(["list"] if only_list else [])])
            raise UsageError(f"--resume goes on with what began in {resume}; it can't be told anything else ({words})")
        begun = matrix.read_plan(resume)
        plan, budget, keep = begun.plan, begun.budget, keep or begun.keep
        soak = bool(plan.source.get("soak"))
        if runtime_name not in (AUTO, begun.runtime):
            raise UsageError(f"{resume} began with --runtime {begun.runtime}; it can't go on with {runtime_name}")
        runtime_name = begun.runtime
        if file is not None:
            matrix.check_same(resume, plan, matrix.load(matrix.named(file), plan.source.get("given"), soak=soak))
        if seconds is not None and not soak:
            raise UsageError(f"{resume} is no soak, so --for can't lengthen it; begin one without --resume")
    else:
        if seconds is not None and "repeat" in asked:
            raise UsageError("--for goes on until the time is over, so --repeat says nothing; give one of them")
        plan = matrix.load(matrix.named(file), asked, soak=seconds is not None)
        if seconds is not None and plan.shortest > seconds:
            raise UsageError(
                f"--for {time_}: not one run can end in that time; the shortest takes at least {plan.shortest:g} s"
            )
    if only_list:
        screen = console()
        for cell, config in enumerate(plan.cells):
            runs = "" if plan.rules[cell].single else plan.rules[cell].words()
            screen.print(config.repeat_command() + (f"  # {runs}" if runs else ""), markup=False, soft_wrap=True)
        for left in plan.left_out:
            screen.print(left_out_line(left.cell, left.rule), markup=False, soft_wrap=True)
        return
    stem = re.sub(r"[^\w.+-]", "-", plan.path.stem)[:60]
    usual = folder_name(f"{time.strftime('%Y%m%dT%H%M%S')}-matrix-{stem}")
    if name is not None and (results / folder_name(name)).exists():
        raise taken(results / name)
    runtime = chosen(runtime_name)
    get_images(plan, runtime)

    def begin(cancel: threading.Event) -> matrix.MatrixRun:
        return matrix.MatrixRun(
            plan,
            resume or make(results, name, usual),
            jobs or usual_jobs(runtime.name),
            cancel,
            keep=keep or "all",
            seconds=seconds,
            budget=budget,
            resumed=resume is not None,
        )

    run_plan(plan, runtime, begin)
