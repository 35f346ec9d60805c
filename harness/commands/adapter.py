"""`fencepost adapter check`: whether a program keeps the adapter protocol, rule by rule."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import plain, secrets
from harness.client import brought, compiled
from harness.commands.options import pairs
from harness.commands.terminal import wrapped
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.runtime.base import Runtime
    from harness.trial.examining import Examined
    from workloads.adapters.examine import Alone

TTL = 2.0
SLOW = 4.0
"""An acquire that takes so many times as long as it was given is told of."""


@click.group()
def command() -> None:
    """A lock of your own, in any language: see whether its adapter keeps the protocol (docs/adapters.md).

    \b
    Examples:
      fencepost adapter check ./mylock.py
      fencepost adapter check ./lock --dir ./build --system redis
      fencepost adapter check 'java -jar lock.jar' --dir . --json
    """


@command.command()
@click.argument("adapter", metavar="[COMMAND]", required=False)
@click.option(
    "--dir",
    "--client-dir",
    "folder",
    metavar="DIR",
    help="The folder that it is started in; all of it is sent to the node.",
)
@click.option("--client-image", metavar="REF", help="The image that it lives in; needs --system, and a Docker engine.")
@click.option("--system", metavar="NAME", help="Also at this system, on nodes of its own, with fixed faults.")
@click.option("--ttl", type=float, metavar="SECONDS", help="The lease (default: 2, or the shortest that is granted).")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option that it is told.")
@click.option("--image", "images", multiple=True, metavar="NAME=REF", help="Use this image, e.g. contender=REF.")
@click.option("--runtime", "runtime_name", default="auto", metavar="NAME", help="Where the nodes of --system live.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def check(
    adapter: str | None,
    folder: str | None,
    client_image: str | None,
    system: str | None,
    ttl: float | None,
    options: tuple[str, ...],
    images: tuple[str, ...],
    runtime_name: str,
    as_json: bool,
) -> None:
    """Start COMMAND, and see rule by rule whether it keeps the adapter protocol; the first that it breaks is told.

    Without --system it is run on this machine, at a port where nobody listens and at one where nobody answers: errors
    have their types, nothing hangs, nothing is left. With --system NAME all runs on nodes, with its files and the
    packages that it needs, as in a trial, and it then locks at a real one, while the servers freeze, while it is
    frozen itself, and while nobody reads what it wrote. With --client-image COMMAND is one in that image; without
    COMMAND the image says which.

    Exits with 0 when it keeps all rules, with 1 when it breaks one, with 2 for a bad command, with 4 when it could not
    be examined.

    \b
    Examples:
      fencepost adapter check ./mylock.py
      fencepost adapter check ./mylock.py --system redis
      fencepost adapter check './lock -v' --dir ./build --system etcd --json
      fencepost adapter check --client-image mylock:1 --system redis
    """
    from harness.commands.interrupt import attended
    from harness.images.halting import Halt
    from harness.runtime.choice import choose
    from harness.trial import examining
    from harness.trial.config import from_mapping, resolve

    if ttl is not None and not 0.5 <= ttl <= 3600:
        raise UsageError(f"--ttl must lie between 0.5 and 3600 s, not {ttl:g}")
    if adapter is None and client_image is None:
        raise UsageError("name the COMMAND that starts the adapter")
    if system is None and client_image is not None:
        raise UsageError("--client-image: what is in an image is started on nodes alone; give --system NAME too")
    told = pairs("--option", options)
    runtimes: list[Runtime] = []
    if system is None:
        assert adapter is not None
        words, where = _located(adapter, folder)
        work = lambda: _here(words, where, told, ttl or TTL)  # noqa: E731
    else:
        asked = {"client": adapter, "client_dir": folder, "client_image": client_image, "client_options": told}
        asked["images"] = pairs("--image", images)
        config = resolve(
            from_mapping(
                {"system": system, "ttl": examining.ttl_of(system, ttl)} | {k: v for k, v in asked.items() if v}
            )
        )
        if config.brought_client() is None:
            raise UsageError(f"{adapter} is a client of Fencepost's own, and no program; a file is written ./{adapter}")
        halt = Halt()

        def work() -> Examined:
            runtime = choose(runtime_name).runtime
            runtimes.append(runtime)
            return examining.examine(config, runtime, lambda line: click.echo(f"{plain.line(line)} …", err=True), halt)

    done = attended(work, sweep=lambda seconds: [word for each in runtimes for word in each.sweep(seconds)])
    rows = _rows(done.broken, served=system is not None)
    if as_json:
        said = {} if done.alone is None else {"adapter": dict(done.alone.said)}
        kept = not done.broken
        image = {} if client_image is None else {"image": client_image}
        click.echo(
            json.dumps({"command": adapter, **image, **said, "system": system, "kept": kept, "rules": rows}, indent=2)
        )
    else:
        _print(done.alone, rows)
        if adapter is not None and system is None and done.alone is None and (packages := _packages(adapter, folder)):
            hint = (
                f"it needs {', '.join(packages)}, which this machine may not have; with --system it runs where they are"
            )
            click.echo(plain.line(hint), err=True)
    sys.exit(1 if done.broken else 0)


def _here(words: list[str], where: str | None, options: dict[str, Any], ttl: float) -> Examined:
    """On this machine, against nothing."""
    from harness.trial.examining import Examined
    from workloads.adapters.examine import Broken, Subject, against_nothing

    try:
        own = {"command": words, "directory": where, "options": secrets.reveal(options)}
        alone = against_nothing(Subject(own, ttl, []))
    except Broken as broken:
        return Examined(None, [(broken.rule, broken.what)])
    return Examined(alone)


def _located(adapter: str, folder: str | None) -> tuple[list[str], str | None]:
    """The words of its command, and the folder it is started in. UsageError for one that can't be read."""
    try:
        words = shlex.split(adapter)
    except ValueError as error:
        raise UsageError(f"{adapter!r} can't be read as a command: {error}") from error
    if not words:
        raise UsageError("the command is empty")
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"--dir {folder}: there is no such folder")
    if folder is None and len(words) == 1 and (ours := brought.adapters().get(words[0])) is not None:
        words = [str(ours)]
    if folder is None and len(words) == 1 and words[0] in compiled.sources():
        words, folder = [f"./{words[0]}"], str(compiled.built(words[0]))
    if words[0].endswith(".py"):
        words = [sys.executable, "-u", *words]
    return words, None if folder is None else str(Path(folder).absolute())


def _packages(adapter: str, folder: str | None) -> tuple[str, ...]:
    """What it needs of Python, as it is brought to a node; nothing where it can't be brought."""
    try:
        return brought.read(adapter, folder).packages
    except UsageError:
        return ()


def _rows(broken: Sequence[tuple[str, str]], *, served: bool) -> list[dict[str, Any]]:
    """Every rule in order: kept, broken (and how), or not looked at to its end (None) because of one that was."""
    from workloads.adapters.examine import EVERY, HANGS, SERVED

    said = dict(broken)
    passed = set(EVERY) if not said else set(SERVED) if len(broken) == 1 and HANGS in said else set()
    rows: list[dict[str, Any]] = []
    for name in (name for name in EVERY if served or name not in SERVED):
        row: dict[str, Any] = {"rule": name, "means": EVERY[name], "kept": True if name in passed else None}
        rows.append(row | ({"kept": False, "said": said[name]} if name in said else {}))
    return rows


def _print(alone: Alone | None, rows: list[dict[str, Any]]) -> None:
    """A line for the adapter, and one for each rule."""
    if alone is not None:
        click.echo(f"{plain.line(alone.library)}, renewals {alone.said['renewals']}")
        if alone.slowest > SLOW * alone.given:
            click.echo(
                f"slow: an acquire that was given {alone.given:.1f} s took {alone.slowest:.1f} s at {alone.where} "
                "(retries of the library's own?)"
            )
    words = {True: ("kept", "green"), False: ("BROKEN", "red"), None: ("-", "yellow")}
    left = max(len(row["rule"]) for row in rows) + 2
    for row in rows:
        word, colour = words[row["kept"]]
        told = row["means"] if row["kept"] is not False else f"{row['said']} (the rule: {row['means']})"
        line = wrapped(f"{row['rule']:{left}}{word:8}{plain.line(told)}", left + 8)
        click.echo(line[:left] + click.style(line[left : left + 8], fg=colour) + line[left + 8 :])
