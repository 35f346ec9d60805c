"""`fencepost doctor`: what this machine can and can't do, each with the reason and the remedy."""

from __future__ import annotations

import json
import sys
import textwrap

import click

from harness import plain
from harness.commands.interrupt import attended
from harness.commands.terminal import readable
from harness.doctor import Examination, Finding, examine
from harness.runtime.base import Runtime
from harness.runtime.choice import ORDER

_COLOURS = {"ok": "green", "limited": "yellow", "missing": "cyan", "failed": "red", "unknown": "magenta"}
_PLACES = {
    "docker": "trials in containers of a Docker engine",
    "local": "trials in namespaces of this machine, without one",
}


@click.command()
@click.option("--runtime", "only", type=click.Choice(ORDER), help="Look at this one alone. Default: at both.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(only: str | None, as_json: bool) -> None:
    """Say what this machine can and can't do, each with the reason and the remedy.

    Trials run in a Docker engine (the runtime docker), or in namespaces of this machine (local). For each, every kind
    of fault is tried on two throwaway nodes, which are removed at the end. Exits with 0 when trials can run on one of
    them (perhaps with limits), with 4 when they can't, or not before `fencepost images`.

    \b
    Examples:
      fencepost doctor
      fencepost doctor --runtime local
      fencepost doctor --json | jq .ok
    """
    runtimes: list[Runtime] = []
    examination = attended(
        lambda: examine(lambda line: click.echo(f"{plain.line(line)} …", err=True), runtimes.append, only),
        sweep=lambda seconds: [word for runtime in runtimes for word in runtime.sweep(seconds)],
    )
    if as_json:
        click.echo(json.dumps(examination.as_json(), indent=2))
    else:
        _print(examination)
    if not examination.ok:
        sys.exit(4)


def _print(examination: Examination) -> None:
    for runtime in (None, *examination.runtimes):
        left = max((len(finding.name) for finding in examination.of(runtime)), default=0) + 2
        room = readable() - left - 9
        if runtime is not None:
            click.echo(click.style(f"\n{runtime}", bold=True) + f": {_PLACES[runtime]}")
        for finding in examination.of(runtime):
            click.echo(
                click.style(f"{finding.status:<9}", fg=_COLOURS[finding.status]) + f"{finding.name:<{left}}", nl=False
            )
            lines = textwrap.wrap(finding.detail, room)
            lines += textwrap.wrap(f"→ {finding.remedy}", room) if finding.remedy else []
            click.echo(("\n" + " " * (left + 9)).join(plain.line(line) for line in lines))
    click.echo()
    for runtime in examination.runtimes:
        click.echo(_conclusion(examination, runtime))


def _conclusion(examination: Examination, runtime: str) -> str:
    """Whether trials can run on one runtime, in a line."""
    findings: list[Finding] = [*examination.of(None), *examination.of(runtime)]
    able = examination.runtimes[runtime]
    if able.ok:
        limits = [finding.name for finding in findings if finding.status == "limited"]
        return f"{runtime}: trials can run here" + (f", with limits: {', '.join(limits)}" if limits else "")
    if able.only_images_missing:
        what = "images are" if runtime == "docker" else "file trees are"
        return f"{runtime}: trials can't run here yet: only {what} missing, and `fencepost images` gets them"
    return f"{runtime}: trials can't run here: {', '.join(f.name for f in findings if f.lacking)}"
