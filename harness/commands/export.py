"""`fencepost export`: a history in the notation of Jepsen or of Porcupine."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TextIO

import click

from harness import plain, results
from harness.errors import HistoryError, UsageError
from harness.history import History, read, reader
from harness.history.exports import to_edn, to_porcupine


@click.command(
    "export",
    epilog="""\b
Examples:
  fencepost export edn results/my-trial history.edn
  fencepost export porcupine cases/clean-handover.jsonl handover.log
  fencepost export edn results/my-trial - | gzip > history.edn.gz""",
)
@click.argument("notation", metavar="NOTATION", type=click.Choice(["edn", "porcupine"]))
@click.argument("source", metavar="HISTORY", type=click.Path(exists=True, allow_dash=True))
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--lock", metavar="NAME", help="Which lock to write (porcupine; needed when there are several).")
def command(notation: str, source: str, target: str, lock: str | None) -> None:
    """Write a history in another notation, for other checkers.

    NOTATION is edn (Jepsen's history.edn, everything) or porcupine (the line form that Porcupine's examples read: the
    acquires and releases of one lock, in order, without times). HISTORY may be - for standard input, OUT - for standard
    output.
    """
    if lock is not None and notation == "edn":
        raise click.UsageError("--lock is for porcupine; an edn has all locks")
    try:
        with reader.kept(source) as kept:
            history = read(kept)
    except HistoryError as error:
        raise HistoryError(source, error.line, error.reason) from None
    if target == "-":
        # What was written is told on stderr: standard output is the history.
        out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")
        try:
            told = _write(history, notation, lock, out)
            out.flush()
        finally:
            out.detach()
        click.echo(f"{plain.line(source)}: {told}", err=True)
        return
    out_path = Path(target)
    results.spare(out_path, [Path(source)] if source != "-" else [])
    results.free(out_path)
    if _is_record(out_path):
        raise UsageError(f"{target} is there already, and holds what looks like a history; name another file")
    with results.replaced(out_path) as file:
        told = _write(history, notation, lock, file)
    click.echo(f"{plain.line(target)}: {told}")


def _is_record(path: Path) -> bool:
    """Whether a file begins like a history or another record of ours; no notation that is written here does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(2) == b'{"'


def _write(history: History, notation: str, lock: str | None, file: TextIO) -> str:
    if notation == "edn":
        to_edn(history, file)
        return f"{len(history)} events"
    return f"{to_porcupine(history, file, lock)} operations"
