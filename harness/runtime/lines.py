"""Chunks of a program's output become lines."""

from __future__ import annotations

from collections.abc import Callable

from harness.runtime.base import LineHandler

ChunkHandler = Callable[[bytes], None]
"""Called with what a program has written, as it comes."""

LONGEST_LINE = 1 << 26
"""Bytes of one line that are kept; what goes on for longer is cut there."""


class Lines:
    """Puts chunks together to lines and hands each on without its newline; a last line without one at the end too."""

    def __init__(self, on_line: LineHandler) -> None:
        self._on_line = on_line
        self._partial: list[bytes] = []
        self._kept = 0

    def __call__(self, chunk: bytes) -> None:
        *whole, rest = chunk.split(b"\n")
        if not whole and self._kept + len(rest) > LONGEST_LINE:
            return  # the start of it tells enough, and a program without line ends must not eat the memory
        for line in whole:
            if self._partial:
                self._partial.append(line)
                line = b"".join(self._partial)
                self._partial, self._kept = [], 0
            self._on_line(line)
        if rest:
            self._partial.append(rest)
            self._kept += len(rest)

    def finish(self) -> None:
        """The stream has ended."""
        if self._partial:
            line, self._partial = b"".join(self._partial), []
            self._on_line(line)
