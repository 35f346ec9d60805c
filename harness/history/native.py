"""Reading `history.jsonl`: the meta, then chunk by chunk of whole lines, of a long file by two processes in turn.

Both processes go through all chunks, unpacking them where the file is compressed, and take every other one. The second
hands its columns back through a pipe, one after the other, so that nothing is there twice. What was measured (a million
events, 113 MB, two busy cores): 1.3 s by one process, 0.9 s by two. `lines.py` makes columns of a chunk.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.errors import HistoryError
from harness.history import packed
from harness.history.building import finish
from harness.history.events import Columns, History, Meta
from harness.history.joining import Told, Turn, join, own_columns, receive, send, sent_columns
from harness.history.lines import JSON_SPACE, Part, decode_line
from harness.history.parsing import parse_meta

#: Small, so that the structs of a chunk stay in the cache: 4 MB take a fifth longer.
_CHUNK = 512 << 10
#: From so many bytes of text on a second process takes every other chunk.
_FORK_FROM = 16 << 20
#: No line is longer: one that never ends would be kept until the memory is full.
_LONGEST = 256 << 20
_BOM = b"\xef\xbb\xbf"
_NEW_LINE = 10


def read(path: Path) -> History:
    """The history in a native file. Raises `HistoryError` with the line and the reason."""
    try:
        meta, columns = _by_two(path) if _is_long(path) and _may_fork() else _by_one(path)
    except OSError as error:
        raise HistoryError(path, 0, error.strerror or str(error)) from None
    return finish(meta, columns, path)


def _is_long(path: Path) -> bool:
    return path.stat().st_size * packed.USUAL_TIMES >= _FORK_FROM and packed.size(path) >= _FORK_FROM


def _by_one(path: Path) -> tuple[Meta, Columns]:
    part = Part(path)
    gone = _take(path, part, 0, 1)
    return gone.meta, join([Told.of(part, gone.lines)], [own_columns(part)], path)


# -- chunks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gone:
    """How far a process went through a file."""

    meta: Meta
    lines: int
    """All that it read, blank ones and those of the other process too."""


def _take(path: Path, part: Part, mine: int, of: int, turn: Turn | None = None) -> Gone:
    """Takes every chunk of a file whose number is `mine` modulo `of`. Raises `HistoryError`, OSError."""
    meta: Meta | None = None
    number = line = 0
    with packed.opened(path) as source:
        try:
            for line, chunk in _chunks(source, path):
                if meta is None:
                    found = _meta(chunk, line, path)
                    if found is None:
                        continue
                    meta, at, more = found
                    line, chunk = line + more, chunk[at:]
                if turn is not None and turn.is_over(number):
                    break
                if number % of == mine and chunk:
                    part.take(chunk, line)
                number += bool(chunk)
        except HistoryError:
            if turn is not None:
                turn.end_with(number, mine)
            raise
    return Gone(meta or Meta(), line)


def _meta(chunk: bytes, line: int, path: Path) -> tuple[Meta, int, int] | None:
    """The meta (that of none where there is none), where in its chunk the events begin, and how many lines lie before
    that. None for a chunk of nothing but blank lines. The first of all may begin with a byte order mark."""
    at = len(_BOM) if line == 0 and chunk.startswith(_BOM) else 0
    count = 0
    while at < len(chunk):
        end = chunk.find(b"\n", at) + 1 or len(chunk)
        text = chunk[at:end].rstrip(b"\n")
        if text.strip(JSON_SPACE):
            # Anything that isn't a meta is left to those who read events, errors included.
            if b'"meta"' in text or b"\\" in text:
                event = decode_line(text, line + count + 1, path)
                if isinstance(event, dict) and event.get("type") == "meta":
                    return parse_meta(event, line + count + 1, path), end, count + 1
            return Meta(), at, count
        at, count = end, count + 1
    return None


def _chunks(source: packed.Source, path: Path) -> Iterator[tuple[int, bytes]]:
    """The text in pieces that end with a line, each with the number of lines before it; an empty piece at the end.
    Raises `HistoryError` where it can't be unpacked any further, and for a line beyond all bounds."""
    rest: list[bytes] = []
    line = length = 0
    while True:
        try:
            piece = source.read(_CHUNK)
        except packed.Broken as broken:
            raise HistoryError(path, line + 1, str(broken)) from None
        if not piece:
            break
        cut = piece.rfind(b"\n") + 1
        if not cut:
            rest.append(piece)  # a line longer than a chunk
            length += len(piece)
            if length > _LONGEST:
                raise HistoryError(path, line + 1, f"a line of more than {_LONGEST >> 20} MiB")
            continue
        chunk = b"".join((*rest, piece[:cut]))
        yield line, chunk
        line += int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == _NEW_LINE))
        rest = [piece[cut:]]
        length = len(rest[0])
    if any(rest):
        yield line, b"".join(rest)
        line += 1
    yield line, b""


# -- two processes ----------------------------------------------------------------------------------------------------


def _may_fork() -> bool:
    """Whether a second process may and would help: a fork copies only the thread that calls it, so there must be no
    other, and it needs a core of its own."""
    return (
        hasattr(os, "fork")
        and hasattr(os, "sched_getaffinity")
        and len(os.sched_getaffinity(0)) > 1
        and threading.active_count() == 1
    )


def _by_two(path: Path) -> tuple[Meta, Columns]:
    """Takes the even chunks here, the odd ones in a child."""
    turn = Turn()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        # The child must not run anything of the parent's but this: no exit handlers, no buffers of its streams.
        code = 1
        try:
            os.close(read_end)
            with os.fdopen(write_end, "wb") as pipe:
                part, _, told = _half(path, 1, turn)
                send(told, part, pipe)
            code = 0
        except BrokenPipeError:
            pass  # the parent found an error, or was interrupted, and no longer listens
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)
    os.close(write_end)
    try:
        with os.fdopen(read_end, "rb") as pipe:
            part, meta, mine = _half(path, 0, turn)
            theirs = receive(pipe)
            if theirs is None:
                _, status = os.waitpid(child, 0)
                child = 0
                raise HistoryError(path, 0, f"the process that read every other chunk failed (wait status {status})")
            columns = join([mine, theirs], [own_columns(part), sent_columns(pipe, path)], path)
        return meta, columns
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _half(path: Path, number: int, turn: Turn) -> tuple[Part, Meta, Told]:
    """Every other chunk of a file, from the first (0) or the second (1) on; an error in it is told, not raised."""
    part = Part(path)
    gone, error = Gone(Meta(), 0), None
    try:
        gone = _take(path, part, number, 2, turn)
    except HistoryError as caught:
        error = caught
    return part, gone.meta, Told.of(part, gone.lines, error)
