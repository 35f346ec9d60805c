"""Reading a history file. `read` is the one door: native JSON lines here, other people's formats in `imports.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from harness.errors import HistoryError
from harness.history.events import Builder, Columns, History, Meta, finish, parse_meta

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
        return read_native(file)
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


def read_native(file: Path) -> History:
    """A `history.jsonl`. Raises `HistoryError`."""
    try:
        data = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise HistoryError(file, 0, error.strerror or str(error)) from None
    meta, columns = _read_exactly(data, file)
    return finish(meta, columns, file)


def _read_exactly(data: bytes, path: Path) -> tuple[Meta, Columns]:
    meta: Meta | None = None
    builder = Builder(path)
    first = True
    for number, text in enumerate(data.split(b"\n"), 1):
        if not text.strip(b" \t\r"):
            continue
        event = decode_line(text, number, path)
        if first and isinstance(event, dict) and event.get("type") == "meta":
            meta = parse_meta(event, number, path)
        else:
            builder.add(number, event)
        first = False
    return meta or Meta(), builder.columns()


def decode_line(text: bytes, number: int, path: Path) -> object:
    """One line as JSON. Raises `HistoryError` when it isn't."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise HistoryError(
            path, number, f"not UTF-8: byte 0x{text[error.start]:02x} at column {error.start + 1}"
        ) from None
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise HistoryError(path, number, "not JSON: nested too deeply") from None
    except msgspec.DecodeError as error:
        raise HistoryError(path, number, f"not JSON: {error}") from None
