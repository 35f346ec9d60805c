"""Reading a whole small file that anybody may have written: only so much, only so long, and never a device.

What a trial and a matrix store, and the TOML files of a matrix, are read through here.
"""

from __future__ import annotations

import json
import os
import select
import stat
import time
from pathlib import Path
from typing import Any

from harness.errors import ConfigError

MOST_BYTES = 64 << 20
"""Of a stored document. A matrix of 10,000 cells takes 10 MiB."""
PIPE_SECONDS = 10.0
"""How long a pipe may stay silent."""
KNOWN_FORMAT = 1


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The contents of a file, or of a pipe that somebody writes to.

    Raises FileNotFoundError where there is none, and ConfigError with the reason for what can't be read: a folder, a
    device, more than `most` bytes, a pipe that says nothing for `PIPE_SECONDS`, a path that is none.
    """
    try:
        # Without O_NONBLOCK the opening of a pipe that nobody writes to would not come back.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(path, None, f"can't be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the path
        raise ConfigError(path, None, f"can't be read: {error}") from None
    try:
        return _read(file, path, most)
    except OSError as error:
        raise ConfigError(path, None, f"can't be read: {error.strerror or error}") from None
    finally:
        os.close(file)


def _read(file: int, path: Path, most: int) -> bytes:
    mode = os.fstat(file).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISDIR(mode)):
        raise ConfigError(path, None, "can't be read: it is a device, not a file")
    data = bytearray()
    deadline = time.monotonic() + PIPE_SECONDS
    while len(data) <= most:
        if not stat.S_ISREG(mode) and not select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise ConfigError(path, None, f"can't be read: nothing came out of it for {PIPE_SECONDS:.0f} s")
        piece = os.read(file, min(1 << 20, most + 1 - len(data)))
        if not piece:
            return bytes(data)
        data += piece
        deadline = time.monotonic() + PIPE_SECONDS
    raise ConfigError(path, None, f"is longer than {most:,} bytes, more than such a file ever has")


def read_json(path: Path) -> Any:
    """A stored JSON document; raises as `read_bytes` does, and ConfigError where it is no JSON, or another format."""
    try:
        data = json.loads(read_bytes(path))
    except RecursionError:
        raise ConfigError(path, None, "not JSON: nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError and numbers of thousands of digits among them
        raise ConfigError(path, None, f"not JSON: {error}") from None
    if isinstance(data, dict):
        check_format(path, data.get("format", KNOWN_FORMAT))
    return data


def check_format(path: Path, value: object) -> None:
    """ConfigError unless a stored file is of the format that this version knows."""
    if isinstance(value, bool) or value != KNOWN_FORMAT:
        raise ConfigError(
            path,
            "format",
            f"is {value!r}, and this version of Fencepost knows {KNOWN_FORMAT}; use the one that wrote it",
        )
