"""Text as wide as the terminal that it goes to. Where there is none (a pipe, a file) it stays whole, for `grep`."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TextIO

LEAST = 40
"""Narrower ones are written to as if they had so many columns: a word has to fit."""


READABLE = 100


def columns(stream: TextIO | None = None) -> int | None:
    """How many columns the terminal has that a stream (default: standard output) goes to; None where it is none."""
    stream = sys.stdout if stream is None else stream
    try:
        if not stream.isatty():
            return None
        wide = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # closed, or no number
        return None
    return max(LEAST, wide) if wide else None


def readable() -> int:
    """How wide a paragraph on standard output may be: longer lines than READABLE are hard to read."""
    return min(READABLE, columns() or READABLE)


def wrapped(text: str, indent: int, stream: TextIO | None = None) -> str:
    """Each line of a text cut between words, the rest of it `indent` columns in. No word is cut: it may be a path."""
    wide = columns(stream)
    if wide is None:
        return text
    return "\n".join(
        textwrap.fill(
            line,
            wide,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        )
        for line in text.split("\n")
    )
