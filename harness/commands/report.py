"""`fencepost report`: write the HTML report of a trial, a matrix or a bare history again."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from harness.errors import ConfigError, UsageError
from harness.report import write_matrix, write_trial


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file (with one PATH only).")
@click.option("--open", "open_", is_flag=True, help="Open each page in the web browser.")
def command(paths: tuple[Path, ...], out: Path | None, open_: bool) -> None:
    """Write the HTML report of a trial, of a matrix, or of a bare history, and print where it is.

    PATH is a trial's folder, a matrix's folder (its trials' reports are left as they are), or a history file. A stored
    verdict.json is used; it is judged again only where that is missing or older than the history.

    \b
    Examples:
      fencepost report results/etcd-freeze-holder
      fencepost report results/matrix-1
      fencepost report cases/gc-pause-statement-job.jsonl --out story.html --open
    """
    if out is not None and len(paths) > 1:
        raise UsageError("--out takes one PATH, not several; leave it out, and each page lands beside what it tells of")
    for path in paths:
        page = _write(path, out)
        click.echo(page)
        if open_ and not webbrowser.open(page.resolve().as_uri()):
            click.echo("no web browser could be opened; open the page yourself", err=True)


def _write(path: Path, out: Path | None) -> Path:
    if not path.exists():
        raise ConfigError(path, None, "no such file or folder")
    if path.is_dir() and (path / "matrix.json").is_file():
        return write_matrix(path, out)
    if path.is_dir() and not any((path / name).is_file() for name in ("history.jsonl", "trial.json")):
        raise ConfigError(path, None, "neither a trial (history.jsonl) nor a matrix (matrix.json) is in this folder")
    return write_trial(path, out)
