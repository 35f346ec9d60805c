"""`fencepost run`: one trial."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import plain
from harness.commands.helping import GroupedCommand
from harness.commands.options import (
    HEADINGS,
    chosen,
    folder_name,
    given,
    repeat_options,
    results_option,
    runtime_option,
    trial_options,
)
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.runs.rule import Rule
    from harness.runtime.base import Runtime
    from harness.trial.config import TrialConfig


@click.command(cls=GroupedCommand, headings=HEADINGS)
@click.argument("system")
@click.option(
    "--fault",
    metavar="KIND-TARGET",
    default="none",
    show_default=True,
    help="What is broken, and where; `fencepost list faults` has them all.",
)
@click.option("--workload", metavar="NAME", help="What contenders do (default lock).")
@click.option("--servers", type=int, metavar="N", help="How many servers (default: the system's usual number).")
@repeat_options
@click.option("-j", "--jobs", type=click.IntRange(1, 64), metavar="N", help="Trials side by side, with --repeat.")
@trial_options
@results_option
@click.option("--name", metavar="NAME", help="The trial's folder there (default: time, system, fault).")
@click.option("--keep", is_flag=True, help="Leave the nodes running afterwards, and say how to look inside.")
@runtime_option
def command(
    system: str, results: Path, name: str | None, keep: bool, runtime_name: str, jobs: int | None, **options: Any
) -> None:
    """Run one trial of SYSTEM and say what its history proves; with --repeat several, and in how many it was seen.

    `fencepost list` names the systems and what can be broken.

    \b
    Exit codes: 0 as expected, 1 a violation that was not expected, 2 usage,
    3 unknown or too little happened, 4 the harness or the clean-up failed.

    \b
    Examples:
      fencepost run etcd
      fencepost run redis --fault clock-leader --fault-option offset=60
      fencepost run zookeeper --fault freeze-holder --naive --ttl 3
      fencepost run etcd --servers 5 --fault kill-leader --keep
      fencepost run redis --client ./mylock.py --fault freeze-holder
      fencepost run redis --fault clock-leader --repeat 20 --until violations=1
    """
    from harness.commands.interrupt import attended
    from harness.commands.many import have_client
    from harness.commands.view import (
        Watcher,
        beside_lines,
        console,
        look,
        needs,
        outcome_text,
        phase_words,
        print_results,
        reason_lines,
    )
    from harness.matrix import take_rule
    from harness.results import make, taken
    from harness.systems.attached import UNSEEN
    from harness.trial import Progress, Trial, TrialResult
    from harness.trial.attachment import examine_first
    from harness.trial.config import check_marks, from_mapping, resolve

    asked = {"system": system, **given(options)}
    rule = take_rule(asked, path=None, key=None)
    config = from_mapping(asked)
    check_marks([config], path=None)
    config = resolve(config)
    usual = folder_name(f"{time.strftime('%Y%m%dT%H%M%S')}-{config.slug()}")
    if name is not None and (results / folder_name(name)).exists():
        raise taken(results / name)
    runtime = chosen(runtime_name)
    if not rule.single:
        if keep:
            raise UsageError("--keep leaves the nodes of one trial running; it can't be given with --repeat or --until")
        _many(config, rule, runtime, lambda: make(results, name, usual), jobs or 1)
        return
    if jobs is not None:
        raise UsageError("--jobs are trials side by side, and here is one; give --repeat too")
    # before anything is written: it ends here or not at all
    have_client([config], runtime)
    runtime.image_versions(config.images_needed(), images=config.images)
    if (found := examine_first(config)) is not None:
        click.echo(plain.line(f"found:  {found.words}"), err=True)

    screen = console()
    cancel = threading.Event()
    progress = Progress(config.describe())

    def trial() -> TrialResult:
        folder = make(results, name, usual)
        with Watcher(screen, lambda: {folder.name: progress}, title=config.describe()) as watcher:
            progress.on_line = lambda line: watcher.line(phase_words(line))
            return Trial(config, folder, runtime, cancel=cancel, progress=progress, keep=keep).run()

    result = attended(trial, stop=cancel.set, sweep=(lambda seconds: []) if keep else runtime.sweep)

    screen.print()
    print_results([result], screen)
    if told := [*result.outcome.reasons, *beside_lines(result)]:
        screen.print(reason_lines(told))
    for line in (result.tally or {}).get("words", ()):
        screen.print(f"  {plain.line(line)}", markup=False, soft_wrap=True)
    if result.config.expect_reason and result.outcome.word != "as-expected":
        screen.print(f"  expected: {plain.line(result.config.expect_reason)}", markup=False)
    screen.print()
    screen.print(outcome_text(result.outcome), f"- history, verdicts and logs are in {result.folder}")
    if result.report is not None:
        screen.print(f"report: {result.report}", markup=False, soft_wrap=True)
    if (command_line := look(result)) is not None:
        screen.print(f"look:   {command_line}  (what led to it, event by event)", markup=False, soft_wrap=True)
    screen.print(f"again:  {config.repeat_command(runtime.name)}", markup=False, soft_wrap=True)
    for line in needs(config.variables()):
        screen.print(f"needs:  {line}", markup=False, soft_wrap=True)
    if found is not None:
        told = [*UNSEEN, *found.unseen]
        screen.print(plain.line(f"unseen: {'; '.join(told)}"), markup=False, soft_wrap=True)
    for line in result.kept:
        screen.print(f"kept:   {line}", markup=False, soft_wrap=True)
    sys.exit(130 if cancel.is_set() else result.outcome.exit_code)


def _many(config: TrialConfig, rule: Rule, runtime: Runtime, make: Callable[[], Path], jobs: int) -> None:
    """Several runs of the one cell: a matrix of one."""
    from harness.commands.many import get_images, run_plan
    from harness.matrix import MatrixRun, single

    plan = single(config, rule)
    get_images(plan, runtime)
    run_plan(plan, runtime, lambda cancel: MatrixRun(plan, make(), jobs, cancel))
