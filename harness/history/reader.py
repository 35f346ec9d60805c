"""Reading a history file: `read` is the one door to native JSON lines (`native.py`) and to others (`imports.py`)."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO

from harness import documents, signals
from harness.errors import ConfigError, HistoryError
from harness.history import native, packed
from harness.history.events import History

FORMATS = ("auto", "fencepost", "edn", "jepsen-json")
HISTORY_FILE = "history.jsonl"
#: What a folder's history may be called.
HISTORY_FILES = (HISTORY_FILE, *(f"{HISTORY_FILE}{end}" for end in packed.SUFFIXES))
MATRIX_FILE = "matrix.json"
STDIN = "-"


def read(
    path: str | Path,
    *,
    format: str = "auto",
    release_fail: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> History:
    """Reads a history from a file, or from a folder that has a `history.jsonl`. Compressed ones (gzip, Zstandard) are
    read as they are.

    `format` is one of `FORMATS`; `auto` tells by the file's name and first bytes. `release_fail` (`held`, `released` or
    `unknown`) and `fields` (our name: theirs) are for imported histories alone, see `harness.history.imports`.
    Raises `HistoryError` with the line and the reason, line 0 where the file itself can't be read.
    """
    file = find(path)
    if file.exists() and not file.is_file():
        raise HistoryError(file, 0, "not a file")  # a pipe or a device may never end
    format = detect(file) if format == "auto" else format
    if format == "fencepost":
        return native.read(file)
    from harness.history import imports  # only who reads other people's histories pays for it

    return imports.read(file, format=format, release_fail=release_fail, fields=fields)


def find(path: str | Path) -> Path:
    """The history file that a path means: itself, or the `history.jsonl` (`.zst`, `.gz`) in that folder."""
    file = Path(path)
    if "\0" in str(path):
        raise HistoryError(path, 0, "a name with a null byte in it")
    try:
        if not file.is_dir():
            return file
        there = [name for name in HISTORY_FILES if (file / name).exists()]
        if not there:
            raise HistoryError(file, 0, f"a folder without a {HISTORY_FILE}, and without trials in it")
        if len(there) > 1:
            raise HistoryError(file, 0, f"a folder with a {' and a '.join(there)}: name the one that you mean")
        inner = file / there[0]
        if not inner.is_file():
            raise HistoryError(inner, 0, "not a file")
    except OSError as error:  # a name that is too long
        raise HistoryError(path, 0, error.strerror or str(error)) from None
    return inner


def inside(name: str) -> bool:
    """Whether a stored name of a trial's folder is one, below the folder of its matrix."""
    path = PurePath(name)
    try:
        short = all(len(os.fsencode(part)) < 256 for part in path.parts)
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return short and bool(path.parts) and len(path.parts) < 10 and not path.is_absolute() and not {"..", "\0"} & {
        *path.parts, *name
    }  # fmt: skip


def trials(path: str | Path) -> list[str]:
    """The histories that a path means: itself, or each trial in a folder that is none.

    The trials of a matrix come in its order, those that left no history among them (reading them is an error, as it
    should be); after them any other sub-folders with a `history.jsonl` or a matrix, by name. A folder without any
    stands for itself. Raises `HistoryError` for a `matrix.json` that can't be read, and for folders that lead back to
    themselves.
    """
    try:
        return _trials(str(path), ())
    except OSError as error:
        raise HistoryError(path, 0, error.strerror or str(error)) from None


def _trials(path: str, above: tuple[tuple[int, int], ...]) -> list[str]:
    folder = Path(path)
    if not folder.is_dir() or any((folder / name).exists() for name in HISTORY_FILES):
        return [path]
    here = (folder.stat().st_dev, folder.stat().st_ino)
    if here in above:
        raise HistoryError(path, 0, "a link that leads back to a folder above it")
    if len(above) >= _DEEPEST:
        raise HistoryError(path, 0, f"more than {_DEEPEST} folders of trials, one in the other")
    inner = {child.parent.name for file in (*HISTORY_FILES, MATRIX_FILE) for child in folder.glob(f"*/{file}")}
    names = dict.fromkeys([*_of_matrix(folder / MATRIX_FILE), *sorted(inner)])
    return [trial for name in names for trial in _trials(os.path.join(path, name), (*above, here))] or [path]


_DEEPEST = 16


def _of_matrix(file: Path) -> list[str]:
    """The names of a matrix' trials, none where it isn't one."""
    try:
        matrix = documents.read_json(file)
    except FileNotFoundError:
        return []
    except ConfigError as error:
        raise HistoryError(file, 0, f"{error.key}: {error.reason}" if error.key else error.reason) from None
    try:
        names = [cell["trial"] for cell in matrix["cells"]]
    except (TypeError, KeyError):
        raise HistoryError(file, 0, "not the matrix.json of a matrix") from None
    for number, name in enumerate(names, 1):
        if not isinstance(name, str) or not inside(name):
            raise HistoryError(file, 0, f"cells[{number}].trial: {name!r} is no folder inside the matrix's")
    return names


@contextmanager
def kept(path: str | Path) -> Iterator[Path]:
    """A path whose file can be read more than once: standard input (`-`) and pipes are copied to a temporary file.

    Readers look at the first bytes to tell the notation, and long files are read by two processes. What is compressed
    stays so in the copy.
    """
    file = Path(path)
    if str(path) != STDIN and (file.is_file() or file.is_dir() or not file.exists()):
        yield file
        return
    with _temporary() as copy:
        try:
            if str(path) == STDIN:
                shutil.copyfileobj(sys.stdin.buffer, copy)
            else:
                if file.is_char_device() or file.is_block_device():
                    raise HistoryError(path, 0, "a device, not a file")
                with file.open("rb") as source:
                    shutil.copyfileobj(source, copy)
        except OSError as error:
            raise HistoryError(path, 0, error.strerror or str(error)) from None
        copy.flush()
        yield Path(copy.name)


@contextmanager
def _temporary() -> Iterator[IO[bytes]]:
    """A new file that goes however this ends, by a signal too: its name is noted before it exists."""
    path = Path(tempfile.gettempdir()) / f"fencepost-{secrets.token_hex(8)}"
    signals.temporary.add(str(path))
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as copy:
            yield copy
    finally:
        path.unlink(missing_ok=True)
        signals.temporary.discard(str(path))


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
    suffix = packed.bare(file).suffix
    if suffix in (".edn", ".jsonl"):
        return "edn" if suffix == ".edn" else "fencepost"
    with packed.opened(file) as source:
        try:
            head = source.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        except packed.Broken as broken:
            raise HistoryError(file, 1, str(broken)) from None
    if suffix == ".json" or (head.startswith(b"[") and not head.startswith(b"[{:")):
        return "jepsen-json"
    if head.startswith((b"{:", b"[{:", b"#jepsen", b";")):
        return "edn"
    return "fencepost"
