"""`fencepost report`: write the HTML report of a trial, a matrix or a bare history again."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import click

from harness import plain, results
from harness.errors import ConfigError, FencepostError, UsageError
from harness.history import reader
from harness.report import write_matrix, write_trial
from harness.report.files import INDEX, REPORT


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Write to this file; with several PATHs or an existing folder, one page each into this folder.",
)
@click.option("--again", is_flag=True, help="Judge anew, even where verdict.json is up to date (trials and histories).")
@click.option("--open", "open_", is_flag=True, help="Open each page in the web browser.")
def command(paths: tuple[Path, ...], out: Path | None, again: bool, open_: bool) -> None:
    """Write the HTML report of a trial, of a matrix, or of a bare history, and print where it is.

    PATH is a trial's folder, a matrix's folder (its trials' reports are left as they are), or a history file. A stored
    verdict.json is used; it is judged again only where that is missing, older than the history, or lacks a verdict that
    is installed now. A PATH that fails is told, and the others still get their pages; the exit code is then 2.

    \b
    Examples:
      fencepost report results/etcd-freeze-holder
      fencepost report results/matrix-1
      fencepost report cases/gc-pause-statement-job.jsonl --out story.html --open
      fencepost report cases/*.jsonl --out pages
    """
    for path in paths:
        try:
            path.exists()
        except OSError as error:
            raise ConfigError(path, None, error.strerror or str(error)) from None
    if out is None and sum(path.is_file() for path in paths) > 1:
        raise UsageError("several histories: name a folder for their pages with --out DIR")
    targets = _targets(paths, out)
    codes: list[int] = []
    for path, target in zip(paths, targets, strict=True):
        try:
            page = _write(path, target, again, paths)
        except FencepostError as error:
            click.echo(f"fencepost: {plain.block(error, indent='  ')}", err=True)
            codes.append(error.exit_code)
            continue
        click.echo(plain.line(page))
        if open_ and not webbrowser.open(page.resolve().as_uri()):
            click.echo("no web browser could be opened; open the page yourself", err=True)
    if codes and len(paths) > 1:
        click.echo(f"{len(codes)} of {len(paths)} paths have no page", err=True)
    sys.exit(max(codes, default=0))


def _targets(paths: tuple[Path, ...], out: Path | None) -> list[Path | None]:
    """Where each page goes; None for its usual place. Pages that would have the same name in a folder are numbered."""
    if out is None:
        return [None] * len(paths)
    if len(paths) == 1 and not out.is_dir():
        return [out]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if out.is_file() else error.strerror or str(error)
        raise UsageError(f"--out must name a folder for several PATHs, and {out} can't be one: {reason}") from None
    taken: dict[str, int] = {}
    targets: list[Path | None] = []
    for path in paths:
        # Trials call their history alike; the folder tells them apart.
        named = path.resolve().parent if path.name in reader.HISTORY_FILES else path.resolve()
        name = named.name if path.is_dir() or named.is_dir() else named.stem
        taken[name] = taken.get(name, 0) + 1
        targets.append(out / (f"{name}.html" if taken[name] == 1 else f"{name}-{taken[name]}.html"))
    return targets


def _write(path: Path, out: Path | None, again: bool, paths: Sequence[Path]) -> Path:
    if not path.exists():
        raise ConfigError(path, None, "no such file or folder")
    if out is not None:
        results.spare(out, paths)
    if not path.is_dir() and not path.is_file():
        raise ConfigError(path, None, "neither a file nor a folder")
    if path.is_dir() and (path / "matrix.json").exists():
        if again:
            raise UsageError(f"{path}: --again judges trials and histories; name the trials' folders in it")
        results.free(out or path / INDEX)
        return write_matrix(path, out)
    if path.is_dir() and not any((path / name).is_file() for name in (*reader.HISTORY_FILES, "trial.json")):
        raise ConfigError(path, None, "neither a trial (history.jsonl) nor a matrix (matrix.json) is in this folder")
    results.free(out or path / REPORT)
    return write_trial(path, out, again=again)
