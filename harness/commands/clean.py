"""`fencepost clean`: remove what earlier runs left behind, in the Docker engine and on this machine."""

from __future__ import annotations

import click

from harness import plain
from harness.commands.terminal import wrapped
from harness.engine import Engine
from harness.errors import HarnessError, RuntimeUnavailable, UsageError
from harness.runtime import removal
from harness.runtime.cleaned import Cleaned
from harness.runtime.cleaning import clean
from harness.runtime.local import left


@click.command("clean", short_help="Remove what earlier runs left behind, by labels alone.")
@click.option("--site", "site_id", metavar="ID", help="Only this site (the run says its id when it is kept).")
@click.option("--all", "include_running", is_flag=True, help="Also what belongs to runs that still go on, or may.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, remove nothing.")
def command(site_id: str | None, include_running: bool, dry_run: bool) -> None:
    """Remove what earlier runs left behind, killed ones and those kept with --keep: containers, networks and volumes in
    the Docker engine, and sites of the runtime local.

    Everything that a run creates carries the label fencepost=1, its site and the process that it belongs to; nothing
    without these labels is touched, and images stay (`fencepost images`). What belongs to a process that still runs is
    spared unless --all is given. Frozen and paused containers go too. Exits with 4 when something would not go.

    \b
    Examples:
      fencepost clean
      fencepost clean --dry-run --all
      fencepost clean --site t1a2b3c4d
    """
    try:
        engine = Engine()
    except RuntimeUnavailable as error:
        engine = None
        click.echo(f"Docker is not looked at: {plain.line(str(error))}", err=True)
    sites = {site.id for site in left.find()} | ({site.id for site in removal.find(engine)} if engine else set())
    if site_id is not None and site_id not in sites:
        known = sorted(sites - {""})
        raise UsageError(f"there is nothing of a site {site_id!r} here (sites: {', '.join(known) or 'none'})")
    results = [left.clean(site_id=site_id, include_running=include_running, dry_run=dry_run)]
    if engine:
        results.insert(0, clean(engine, site_id=site_id, include_running=include_running, dry_run=dry_run))
    result = Cleaned(
        removed=[line for each in results for line in each.removed],
        spared=[line for each in results for line in each.spared],
        stayed=[line for each in results for line in each.stayed],
    )
    for line in result.removed:
        click.echo(wrapped(f"{'would remove' if dry_run else 'removed'} {plain.line(line)}", 2))
    for line in result.spared:
        click.echo(wrapped(f"{plain.line(line)}; --all removes it all the same", 2))
    if not result.removed and not result.spared and not result.stayed:
        click.echo("nothing is left of any run")
    if result.stayed:
        raise HarnessError("not removed: " + "; ".join(result.stayed))
