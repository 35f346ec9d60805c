"""`fencepost adapter check`: whether a program keeps the adapter protocol, rule by rule."""

from __future__ import annotations

import io
import json
import shlex
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import plain
from harness.commands.options import pairs
from harness.commands.terminal import wrapped
from harness.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from harness.runtime.base import Node, Runtime
    from workloads.adapters.examine import Alone

TTL = 2.0
FOLDER = "/opt/fencepost/examined"
"""Where its files are, on a node."""
SLOW = 4.0
"""An acquire that takes so many times as long as it was given is told of."""
SEND_SECONDS = 60.0


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
@click.argument("adapter", metavar="COMMAND")
@click.option("--dir", "folder", metavar="DIR", help="The folder that it is started in; all of it is sent to the node.")
@click.option("--system", metavar="NAME", help="Also at this system, on nodes of its own, with fixed faults.")
@click.option("--ttl", type=float, metavar="SECONDS", help="The lease (default: 2, or the shortest that is granted).")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option that it is told.")
@click.option("--runtime", "runtime_name", default="auto", metavar="NAME", help="Where the nodes of --system live.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def check(
    adapter: str,
    folder: str | None,
    system: str | None,
    ttl: float | None,
    options: tuple[str, ...],
    runtime_name: str,
    as_json: bool,
) -> None:
    """Start COMMAND, and see rule by rule whether it keeps the adapter protocol; the first that it breaks is told.

    Without --system it is run on this machine, at a port where nobody listens and at one where nobody answers: errors
    have their types, nothing hangs, nothing is left. With --system NAME it then locks at a real one, on nodes of its
    own, while the servers freeze, while it is frozen itself, and while nobody reads what it wrote.

    Exits with 0 when it keeps all rules, with 1 when it breaks one, with 2 for a bad command, with 4 when it could not
    be examined.

    \b
    Examples:
      fencepost adapter check ./mylock.py
      fencepost adapter check ./mylock.py --system redis
      fencepost adapter check './lock -v' --dir ./build --system etcd --json
    """
    from harness.commands.interrupt import attended
    from harness.runtime.choice import choose
    from harness.trial import examining
    from workloads.adapters.examine import Broken, Subject, against_nothing

    if ttl is not None and not 0.5 <= ttl <= 3600:
        raise UsageError(f"--ttl must lie between 0.5 and 3600 s, not {ttl:g}")
    words, where = _located(adapter, folder)
    told = pairs("--option", options)
    if system is not None:
        ttl = examining.ttl_of(system, ttl)
    subject = Subject({"command": words, "directory": where, "options": told}, ttl or TTL, [])
    runtimes: list[Runtime] = []

    def work() -> tuple[Alone | None, tuple[str, str] | None]:
        try:
            alone = against_nothing(subject)
        except Broken as broken:
            return None, (broken.rule, broken.what)
        return alone, None if system is None else at_system(system, subject.ttl)

    def at_system(name: str, ttl: float) -> tuple[str, str] | None:
        runtime = choose(runtime_name).runtime
        runtimes.append(runtime)
        there, send = _sent(adapter, folder)
        say = lambda line: click.echo(f"{line} …", err=True)  # noqa: E731
        return examining.examine(name, {**there, "options": told}, ttl, runtime, send, say)

    alone, broken = attended(work, sweep=lambda seconds: [word for each in runtimes for word in each.sweep(seconds)])
    rows = _rows(broken, served=system is not None)
    if as_json:
        more = {} if alone is None else {"adapter": alone.adapter.more["adapter"]}
        click.echo(
            json.dumps({"command": words, **more, "system": system, "kept": broken is None, "rules": rows}, indent=2)
        )
    else:
        _print(alone, rows)
    sys.exit(0 if broken is None else 1)


def _sent(adapter: str, folder: str | None) -> tuple[dict[str, Any], Callable[[Node], None]]:
    """What a contender is told of it on its node, and what brings its files there: those of the folder, or the one."""
    words = shlex.split(adapter)
    root = Path(folder) if folder is not None else Path(words[0]).parent
    if folder is None and not Path(words[0]).is_file():
        raise UsageError(f"{words[0]} is no file that could be sent to a node; --dir DIR names a folder to send")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(root, ".") if folder is not None else tar.add(words[0], Path(words[0]).name)
    if folder is None:
        words[0] = f"./{Path(words[0]).name}"
    if words[0].endswith(".py"):
        words = ["python3", "-u", *words]

    def send(node: Node) -> None:
        unpack = 'mkdir -p "$1" && cd "$1" && exec tar -x --no-same-owner'
        done = node.run(["sh", "-c", unpack, "sh", FOLDER], stdin=buffer.getvalue(), timeout_seconds=SEND_SECONDS)
        if done.exit_code != 0:
            raise HarnessError(
                f"its files can't be unpacked on the node: {done.stderr.decode(errors='replace').strip()}"
            )

    return {"command": words, "directory": FOLDER}, send


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
    if words[0].endswith(".py"):
        words = [sys.executable, "-u", *words]
    return words, None if folder is None else str(Path(folder).absolute())


def _rows(broken: tuple[str, str] | None, *, served: bool) -> list[dict[str, Any]]:
    """Every rule in order: kept, broken (and how), or not looked at (None) because of an earlier one."""
    from workloads.adapters.examine import EVERY, SERVED

    names = [name for name in EVERY if served or name not in SERVED]
    rows: list[dict[str, Any]] = []
    for name in names:
        row: dict[str, Any] = {"rule": name, "means": EVERY[name], "kept": True}
        if broken is not None and name == broken[0]:
            row |= {"kept": False, "said": broken[1]}
        elif broken is not None:
            row["kept"] = None
        rows.append(row)
    return rows


def _print(alone: Alone | None, rows: list[dict[str, Any]]) -> None:
    """A line for the adapter, and one for each rule."""
    if alone is not None:
        click.echo(f"{plain.line(alone.adapter.library)}, renewals {alone.adapter.renewals}")
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
