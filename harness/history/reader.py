"""Reading a history file: `read` is the one door to native JSON lines (`native.py`) and to others (`imports.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.errors import HistoryError
from harness.history import native
from harness.history.events import History

FORMATS = ("auto", "fencepost", "edn", "jepsen-json")
HISTORY_FILE = "history.jsonl"


def read(
    path: str | Path,
    *,
    format: str = "auto",
    release_fail: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> History:
    """Reads a history from a file, or from a folder that has a `history.jsonl`.

    `format` is one of `FORMATS`; `auto` tells by the file's name and first bytes. `release_fail` (`held`, `released` or
    `unknown`) and `fields` (our name: theirs) are for imported histories alone, see `harness.history.imports`.
    Raises `HistoryError` with the line and the reason, line 0 where the file itself can't be read.
    """
    file = find(path)
    format = detect(file) if format == "auto" else format
    if format == "fencepost":
        return native.read(file)
    from harness.history import imports  # only who reads other people's histories pays for it

    return imports.read(file, format=format, release_fail=release_fail, fields=fields)


def find(path: str | Path) -> Path:
    """The history file that a path means: itself, or the `history.jsonl` in that folder."""
    file = Path(path)
    if not file.is_dir():
        return file
    if not (file / HISTORY_FILE).exists():
        raise HistoryError(file, 0, f"a folder without a {HISTORY_FILE}")
    return file / HISTORY_FILE


def detect(file: Path) -> str:
    """What a file is written in, by its name and its first bytes: an entry of `FORMATS`, never `auto`.

    Raises `HistoryError` when it can't be opened.
    """
    try:
        return _guess(file)
    except OSError as error:
        raise HistoryError(file, 0, error.strerror or str(error)) from None


def _guess(file: Path) -> str:
    """`edn` for .edn, `jepsen-json` for .json; else by the first byte that isn't white space: `{"` is a native line."""
    if file.suffix == ".edn":
        return "edn"
    with file.open("rb") as stream:
        head = stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    if file.suffix == ".json" or (file.suffix != ".jsonl" and head.startswith(b"[") and not head.startswith(b"[{:")):
        return "jepsen-json"
    if file.suffix != ".jsonl" and head.startswith((b"{:", b"[{:", b"#jepsen", b";")):
        return "edn"
    return "fencepost"
