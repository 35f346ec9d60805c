"""`fencepost images`: get the images and file trees that trials need, list them, or remove them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal

import click
import docker
from rich.console import Console
from rich.table import Table

from harness import images, plain, trees
from harness.commands.interrupt import attended
from harness.errors import RuntimeUnavailable, UsageError

Kind = Literal["images", "trees"]


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
    "--only",
    type=click.Choice(["images", "trees"]),
    help="Only images of a Docker engine, or only file trees for the runtime that needs no engine. Default: both, "
    "where both can be had.",
)
@click.option(
    "--pull",
    type=click.Choice(["auto", "never", "always"]),
    default="auto",
    show_default=True,
    help="auto: pull what is missing where a registry answers, else build it. never: ask no registry. "
    "always: pull again, and build images and trees anew from fresh packages.",
)
@click.option(
    "--image",
    "pairs",
    multiple=True,
    metavar="NAME=REF",
    help="Use this image for NAME; `built` as REF means the one built here. Also: FENCEPOST_IMAGE_<NAME>.",
)
@click.option(
    "--export", is_flag=True, help="Take trees from the engine's images instead of making them from packages."
)
@click.option("--list", "show", is_flag=True, help="Only show what is there, and what it takes on disk.")
@click.option(
    "--prune",
    is_flag=True,
    help="Remove the built images and trees that this checkout no longer uses and nobody runs, other checkouts' too.",
)
@click.option("--remove", is_flag=True, help="Remove all images that Fencepost built, and all trees. Pulled ones stay.")
@click.option("--dockerfile", is_flag=True, help="Print the Dockerfile of each of NAMES, as its image.toml says.")
def command(
    names: tuple[str, ...],
    only: Kind | None,
    pull: images.Pull,
    pairs: tuple[str, ...],
    export: bool,
    show: bool,
    prune: bool,
    remove: bool,
    dockerfile: bool,
) -> None:
    """Get what trials need: images for Docker, and file trees for the runtime `local`; all of them without NAMES.

    Other versions than the usual ones only when they are named: `etcd@3.4.23` (`fencepost list systems` has them).

    \b
    Examples:
      fencepost images
      fencepost images etcd contender
      fencepost images etcd@3.4.23
      fencepost images --only trees
      fencepost images --image redis=redis:7.2 redis
      fencepost images --pull never
      fencepost images --prune
    """
    if dockerfile:
        for text in images.dockerfiles(names):
            click.echo(text, nl=False)
        return
    overrides = parse_overrides(pairs)
    client = _engine(only)
    if prune or remove:
        _clear(client, only, remove)
        return
    if show:
        _show(client, only, overrides)
        return
    _get(names, client, only, pull, overrides, export)


def _engine(only: Kind | None) -> docker.DockerClient | None:
    """The engine, if one answers; without one there are trees alone, and that is said where it wasn't asked for."""
    try:
        return images.connect()
    except RuntimeUnavailable as error:
        if only == "images":
            raise
        if only is None:
            click.echo(plain.line(f"file trees only, for {error}"))
        return None


def _get(
    names: tuple[str, ...],
    client: docker.DockerClient | None,
    only: Kind | None,
    pull: images.Pull,
    overrides: dict[str, str],
    export: bool,
) -> None:
    began = time.monotonic()
    halt = images.Halt()
    wanted = list(dict.fromkeys(map(images.spelled, names))) or images.names()
    for_engine = wanted if client is not None and only != "trees" else []
    for_local = wanted if only != "images" else []
    # The engine is enough; whoever wants trees as well asks for them, and is refused with the same words.
    optional = bool(for_engine) and only is None
    if optional and (pull == "always" or trees.missing(for_local, overrides)) and (reason := trees.why_not()):
        click.echo(plain.line(f"no file trees: {reason}"))
        for_local = []
    exported = [name for name in for_local if export or trees.must_be_exported(name, overrides)]
    made = [name for name in for_local if name not in exported]

    def report(line: str) -> None:
        click.echo(plain.block(line))

    def get_images() -> None:
        if for_engine:
            assert client is not None
            images.ensure(client, for_engine, report=report, pull=pull, overrides=overrides, halt=halt)
        if exported:
            get_trees(exported)

    def get_trees(some: list[str]) -> None:
        if some:
            trees.ensure(
                some,
                report=report,
                client=client,
                overrides=overrides,
                always=pull == "always",
                exporting=export,
                halt=halt,
            )

    attended(
        lambda: _side_by_side(get_images, lambda: get_trees(made)),
        stop=halt.stop,
        stopping="stopping: ending builds and pulls, removing what is half made",
        sweep=lambda seconds: ["a build may still be ending in the engine; `fencepost images` goes on from there"],
    )
    counted = [
        f"{count} {what}{'' if count == 1 else 's'}"
        for count, what in ((len(for_engine), "image"), (len(for_local), "tree"))
        if count
    ]
    click.echo(f"{' and '.join(counted)} ready in {time.monotonic() - began:.1f} s")


def _side_by_side(*works: Callable[[], None]) -> None:
    """Does both, each to its end; then the first error is raised, after the others were said."""
    errors: list[BaseException] = []

    def do(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    threads = [threading.Thread(target=do, args=[work], daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors[1:]:
        if str(error) != str(errors[0]):
            click.echo(plain.block(str(error)), err=True)
    if errors:
        raise errors[0]


def _clear(client: docker.DockerClient | None, only: Kind | None, everything: bool) -> None:
    outcomes: dict[str, str] = {}
    images.forget_brought()  # they are made again in seconds, when a client needs them
    if client is not None and only != "trees":
        outcomes |= images.remove_all(client) if everything else images.prune(client)
    if only != "images":
        outcomes |= trees.remove_all() if everything else trees.prune()
    for tag, outcome in outcomes.items():
        click.echo(plain.line(f"{tag}: {outcome}"))
    if not outcomes:
        click.echo("nothing to remove")


def _show(client: docker.DockerClient | None, only: Kind | None, overrides: dict[str, str]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("image", "kind", "version", "origin", "reference", "id", "size"):
        table.add_column(column, no_wrap=True, justify="right" if column == "size" else "left")
    sums: list[str] = []
    for_engine = images.listing(client, overrides) if client is not None and only != "trees" else {}
    sizes = images.sizes(client, for_engine.values()) if client is not None and for_engine else None
    for_local = trees.listing(overrides) if only != "images" else {}
    for name in sorted({*for_engine, *for_local}):
        if name in for_engine:
            image = for_engine[name]
            size = _megabytes(sizes.each[image.id]) if sizes and image else ""
            table.add_row(name, "image", *_row(image), size)
        if name in for_local:
            tree = for_local[name]
            table.add_row(name, "tree", *_row(tree), _megabytes(trees.size(tree)) if tree else "")
    Console(width=None if Console().is_terminal else 200).print(table)
    if sizes:
        sums.append(f"images: {_megabytes(sizes.total)}, what they share counted once")
    if for_local:
        kept = trees.kept()
        unused = f", {_megabytes(kept.unused_bytes)} of it unused (--prune)" if kept.unused_bytes else ""
        sums.append(f"trees: {_megabytes(kept.bytes)} in {kept.folder}{unused}")
    for line in sums:
        click.echo(plain.line(line))


def _row(found: images.ImageRef | trees.Tree | None) -> Iterator[str]:
    """Version, origin, reference and short id."""
    if found is None:
        yield from ("", "missing", "", "")
    else:
        yield from (found.version or "", found.origin, found.reference, found.id.removeprefix("sha256:")[:12])


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
