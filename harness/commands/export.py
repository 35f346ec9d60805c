"""`fencepost export`: a history in the notation of Jepsen or of Porcupine."""

from __future__ import annotations

from pathlib import Path

import click

from harness.history import read
from harness.history.exports import to_edn, to_porcupine


@click.command(
    "export",
    epilog="""\b
Examples:
  fencepost export edn results/my-trial history.edn
  fencepost export porcupine cases/clean-handover.jsonl handover.log --lock lock""",
)
@click.argument("notation", metavar="NOTATION", type=click.Choice(["edn", "porcupine"]))
@click.argument("source", metavar="HISTORY", type=click.Path(exists=True, path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--lock", help="Which lock to write (porcupine; needed when there are several).")
def command(notation: str, source: Path, target: Path, lock: str | None) -> None:
    """Write a history in another notation, for other checkers.

    NOTATION is edn (Jepsen's history.edn, everything) or porcupine (the line form that Porcupine's examples read: the
    acquires and releases of one lock, in order, without times).
    """
    history = read(source)
    if lock is not None and notation == "edn":
        raise click.UsageError("--lock is for porcupine; an edn has all locks")
    with target.open("w") as file:
        if notation == "edn":
            to_edn(history, file)
            count = len(history)
            click.echo(f"{target}: {count} events")
        else:
            count = to_porcupine(history, file, lock)
            click.echo(f"{target}: {count} operations")
