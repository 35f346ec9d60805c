"""The bytes of a history's file, unpacked as they are read where it is compressed (gzip, Zstandard).

What a file is packed with its first bytes say, whatever it is called; streams one after the other in one file are one
text, as `cat a.gz b.gz` makes them. Reading takes constant memory however much there is, and a file that unpacks to
more than `MOST_TIMES` its size is refused: a history of JSON lines gets 10 to 20 times smaller, and a few bytes that
somebody made to grow without end are none.

zlib is as good as it gets here: igzip (the package isal) unpacks a million events in 0.07 s where zlib takes 0.19 s,
which is a tenth of what reading them takes, for one more dependency.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeAlias

Packing: TypeAlias = Literal["gzip", "zstd"]

#: The ends of names that stand for each, `gzip` and `zstd` themselves being told by content.
SUFFIXES = (".gz", ".zst")
#: So many times smaller compression makes a history at least, as a rule.
USUAL_TIMES = 8
MOST_TIMES = 1000
#: So many bytes are unpacked whatever the size of the file.
FREE = 256 << 20
_PIECE = 64 << 10
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
#: Of a frame that a reader skips (pzstd begins with one); the first byte may be from 0x50 to 0x5f.
_SKIPPABLE = b"\x2a\x4d\x18"


class Broken(Exception):
    """What is compressed can't be unpacked from here on; a sentence about the file."""

    line = 1
    """Where it breaks off, when `text` says so."""


class Source(Protocol):
    """Bytes in order."""

    def read(self, count: int) -> bytes:
        """The next bytes, `count` of them unless fewer are left. Raises `Broken` where there would be more."""


def packing(head: bytes) -> Packing | None:
    """What a file is compressed with, by its first four bytes."""
    if head.startswith(_GZIP):
        return "gzip"
    skippable = len(head) >= 4 and 0x50 <= head[0] <= 0x5F and head[1:4] == _SKIPPABLE
    return "zstd" if head.startswith(_ZSTD) or skippable else None


def bare(path: Path) -> Path:
    """A path without the end that says how it is compressed."""
    return path.with_suffix("") if path.suffix.lower() in SUFFIXES else path


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """The text of a file. What is written to it while it is read is left out. Raises OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        kind = packing(file.read(4))
        file.seek(0)
        plain = _Plain(file, size)
        yield plain if kind is None else _Unpacked(plain, size, kind)


def size(path: Path) -> int:
    """About how many bytes the text of a file has. Raises OSError."""
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_size * (1 if packing(file.read(4)) is None else USUAL_TIMES)


def text(path: Path) -> bytes:
    """The whole text of a file. Raises OSError, and `Broken` with its line."""
    pieces: list[bytes] = []
    with opened(path) as source:
        try:
            while piece := source.read(1 << 20):
                pieces.append(piece)
        except Broken as broken:
            broken.line = sum(each.count(b"\n") for each in pieces) + 1
            raise
    return b"".join(pieces)


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file's text, one by one, without their ends. Raises OSError and `Broken`."""
    rest = b""
    with opened(path) as source:
        while piece := source.read(1 << 20):
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
    if rest:
        yield rest


class _Plain:
    """A file as it is, up to the size that it had when it was opened."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, count: int) -> bytes:
        piece = self._file.read(min(count, self._left))
        self._left -= len(piece)
        return piece


class _Unpacked:
    """The text of one compressed stream after the other."""

    def __init__(self, raw: _Plain, size: int, kind: Packing) -> None:
        self._raw, self._size, self._kind = raw, size, kind
        self._stream: _Gzip | _Zstd | None = None
        self._rest = b""
        """Read from the file, and not given to a stream yet."""
        self._unpacked = 0
        self._begun = False
        self._broken: Broken | None = None

    def read(self, count: int) -> bytes:
        pieces: list[bytes] = []
        while count and self._broken is None:
            try:
                piece = self._some(count)
            except Broken as broken:  # after what came before it
                self._broken = broken
                break
            if piece is None:
                break
            if piece:  # an empty one means the end to who reads
                pieces.append(piece)
                count -= len(piece)
        if self._broken is not None and not pieces:
            raise self._broken
        return b"".join(pieces)

    def _some(self, most: int) -> bytes | None:
        """Some more bytes, perhaps none; None at the end."""
        if self._stream is None and not self._begin():
            return None
        assert self._stream is not None
        given = b""
        if self._stream.hungry:
            given = self._rest or self._raw.read(_PIECE)
            self._rest = b""
            if not given:
                raise Broken(f"the file is cut off: it ends inside its {self._kind} data")
        try:
            # Little at a time: what comes before an error in it is lost with it, and with that the place.
            piece = self._stream.unpack(given, min(most, _PIECE))
        except self._stream.error as error:
            raise Broken(f"spoilt {self._kind} data, from about here on: {error}") from None
        if self._stream.over is not None:
            self._rest, self._stream = self._stream.over, None
        self._unpacked += len(piece)
        if self._unpacked > max(FREE, MOST_TIMES * self._size):
            raise Broken(f"it unpacks to more than {MOST_TIMES:,} times its size, which no history does")
        return piece

    def _begin(self) -> bool:
        """Begins the next stream; False where the file ends."""
        filled_up = b"\0" if self._begun and self._kind == "gzip" else b""  # by some tools
        self._rest = self._rest.lstrip(filled_up)
        while len(self._rest) < 4 and (more := self._raw.read(_PIECE)):
            self._rest = (self._rest + more).lstrip(filled_up)
        if not self._rest:
            return False
        if packing(self._rest) != self._kind:
            raise Broken(f"something that is no {self._kind} data stands behind the end of it")
        self._stream = _Gzip() if self._kind == "gzip" else _Zstd()
        self._begun = True
        return True


class _Gzip:
    error: type[Exception] = zlib.error

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)

    @property
    def hungry(self) -> bool:
        """Whether it needs more input before it can go on."""
        return not self._stream.unconsumed_tail

    @property
    def over(self) -> bytes | None:
        """What was given to it beyond its end; None before that."""
        return self._stream.unused_data if self._stream.eof else None

    def unpack(self, given: bytes, most: int) -> bytes:
        return self._stream.decompress(given or self._stream.unconsumed_tail, most)


class _Zstd:
    def __init__(self) -> None:
        if sys.version_info >= (3, 14):  # only who reads such files pays for it
            from compression import zstd
        else:
            from backports import zstd
        self.error: type[Exception] = zstd.ZstdError
        self._stream = zstd.ZstdDecompressor()

    @property
    def hungry(self) -> bool:
        return self._stream.needs_input

    @property
    def over(self) -> bytes | None:
        return self._stream.unused_data if self._stream.eof else None

    def unpack(self, given: bytes, most: int) -> bytes:
        return self._stream.decompress(given, most)
