"""`fencepost images`: get the images that trials need, list them, or remove them."""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.table import Table

from harness import images, plain
from harness.commands.interrupt import attended
from harness.errors import UsageError


def parse_overrides(pairs: tuple[str, ...]) -> dict[str, str]:
    """`("etcd=REFERENCE", …)` as a mapping; a pair that isn't one is a UsageError."""
    found = {}
    for pair in pairs:
        name, equals, reference = pair.partition("=")
        if not (name and equals and reference):
            raise UsageError(f"--image {pair!r}: write NAME=REFERENCE, as in --image redis=redis:7.2")
        found[name] = reference
    return found


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--pull",
    type=click.Choice(["auto", "never", "always"]),
    default="auto",
    show_default=True,
    help="auto: pull what is missing where a registry answers, else build it. never: ask no registry. "
    "always: pull again, and build anew from fresh packages.",
)
@click.option(
    "--image",
    "pairs",
    multiple=True,
    metavar="NAME=REF",
    help="Use this image for NAME; `built` as REF means the one built here. Also: FENCEPOST_IMAGE_<NAME>.",
)
@click.option("--list", "show", is_flag=True, help="Only show what is there.")
@click.option(
    "--prune",
    is_flag=True,
    help="Remove the built images that this checkout no longer uses and no container does, other checkouts' too.",
)
@click.option("--remove", is_flag=True, help="Remove all images that Fencepost built. Pulled ones stay.")
def command(
    names: tuple[str, ...], pull: images.Pull, pairs: tuple[str, ...], show: bool, prune: bool, remove: bool
) -> None:
    """Pull or build the images that trials need; all of them without NAMES.

    \b
    Examples:
      fencepost images
      fencepost images etcd contender
      fencepost images --image redis=redis:7.2 redis
      fencepost images --pull never
      fencepost images --prune
    """
    overrides = parse_overrides(pairs)
    client = images.connect()
    if prune or remove:
        outcomes = images.remove_all(client) if remove else images.prune(client)
        for tag, outcome in outcomes.items():
            click.echo(plain.line(f"{tag}: {outcome}"))
        if not outcomes:
            click.echo("nothing to remove")
        return
    if show:
        _show(images.listing(client, overrides))
        return
    began = time.monotonic()
    wanted = list(names) or images.names()
    halt = images.Halt()

    def report(line: str) -> None:
        click.echo(plain.block(line))

    attended(
        lambda: images.ensure(client, wanted, report=report, pull=pull, overrides=overrides, halt=halt),
        stop=halt.stop,
        stopping="stopping: ending builds and pulls, removing what is half made",
        sweep=lambda seconds: ["a build may still be ending in the engine; `fencepost images` goes on from there"],
    )
    click.echo(f"{len(wanted)} image{'' if len(wanted) == 1 else 's'} ready in {time.monotonic() - began:.1f} s")


def _show(found: dict[str, images.ImageRef | None]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("image", "version", "origin", "reference", "id"):
        table.add_column(column, no_wrap=True)
    for name, image in found.items():
        if image is None:
            table.add_row(name, "", "missing", "", "")
        else:
            short = image.id.removeprefix("sha256:")[:12]
            table.add_row(name, image.version or "", image.origin, image.reference, short)
    Console(width=None if Console().is_terminal else 200).print(table)
