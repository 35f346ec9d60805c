"""`fencepost doctor`: what this machine can and can't do, each with the reason and the remedy."""

from __future__ import annotations

import json
import sys
import textwrap

import click

from harness import plain
from harness.commands.interrupt import attended
from harness.commands.terminal import columns
from harness.doctor import Examination, examine
from harness.runtime.docker import DockerRuntime

_COLOURS = {"ok": "green", "limited": "yellow", "missing": "cyan", "failed": "red", "unknown": "magenta"}
_WIDTH = 100
"""So wide it is at most: longer lines are hard to read."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(as_json: bool) -> None:
    """Say what this machine can and can't do, each with the reason and the remedy.

    Every kind of fault is tried in two throwaway containers, which are removed at the end. Exits with 0 when trials can
    run here (perhaps with limits), with 4 when they can't, or not before `fencepost images`.

    \b
    Examples:
      fencepost doctor
      fencepost doctor --json | jq .ok
    """
    runtimes: list[DockerRuntime] = []
    examination = attended(
        lambda: examine(lambda line: click.echo(f"{plain.line(line)} …", err=True), runtimes.append),
        sweep=lambda seconds: [word for runtime in runtimes for word in runtime.sweep(seconds)],
    )
    if as_json:
        click.echo(json.dumps(examination.as_json(), indent=2))
    else:
        _print(examination)
    if not examination.ok:
        sys.exit(4)


def _print(examination: Examination) -> None:
    left = max(len(finding.name) for finding in examination.findings) + 2
    room = min(_WIDTH, columns() or _WIDTH) - left - 9
    for finding in examination.findings:
        click.echo(
            click.style(f"{finding.status:<9}", fg=_COLOURS[finding.status]) + f"{finding.name:<{left}}", nl=False
        )
        lines = textwrap.wrap(finding.detail, room)
        lines += textwrap.wrap(f"→ {finding.remedy}", room) if finding.remedy else []
        click.echo(("\n" + " " * (left + 9)).join(plain.line(line) for line in lines))
    limits = [finding.name for finding in examination.findings if finding.status == "limited"]
    if examination.ok:
        click.echo("trials can run here" + (f", with limits: {', '.join(limits)}" if limits else ""))
    elif examination.only_images_missing:
        click.echo("trials can't run here yet: only images are missing, and `fencepost images` gets them")
    else:
        lacking = [f.name for f in examination.findings if f.needed and f.status not in ("ok", "limited")]
        click.echo(f"trials can't run here: {', '.join(lacking)}")
