"""`runs.jsonl`: the book of a matrix. One line for each run that ended, pushed to the disk before the next begins.

A run costs one line, however many there were before it; all else that a matrix writes (matrix.json, the page) is made
from these lines, and can be made again. A line that was cut off by the end of its process, or of the machine's power,
is none, and goes when the book is opened for more. Of several lines of one run of one cell the last counts: a run that
was broken off has a line too (`interrupted`), and is run again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from harness import documents, redaction
from harness.errors import ConfigError, HarnessError
from harness.expectations import wanted
from harness.history import reader
from harness.runs.rule import Rule

BOOK = "runs.jsonl"
MOST_BYTES = 1 << 30
"""Of a book: half a million runs and more."""


class First(msgspec.Struct, frozen=True, kw_only=True):
    """The first finding of one verdict in a run, by the last of its events. Seconds of the trial."""

    seconds: float
    """Since the history began."""
    since_fault: float | None = None
    """Since the first fault began; None where none had by then."""
    faults: int = 0
    """How many faults had begun by then."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a run when its folder goes: all that is compared or added up."""

    seconds: float | None = None
    """Of the trial, from its first phase to its last."""
    fault_seconds: float | None = None
    """Of the phase in which faults come."""
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    """How many were `applied` (skipped ones aren't), and of these `landed`, `bit`, `missed` and were `immune`."""
    first: dict[str, First] = msgspec.field(default_factory=dict)
    """By verdict, of those that are false."""
    measures: dict[str, float | None] = msgspec.field(default_factory=dict)
    """What the page compares (`harness.runs.measure.MEASURES`)."""


class Run(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="run"):
    """One run of one cell."""

    cell: int
    """Which cell of the plan, from 0."""
    run: int
    """Which run of that cell, from 1."""
    trial: str
    """Its folder, relative to the matrix's."""
    seed: int | None = None
    same: str = ""
    """Tells cells apart wherever they are run: of everything that was asked for, save the seed."""
    rule: Rule = Rule()
    """How many runs the cell gets."""
    place: dict[str, Any] = msgspec.field(default_factory=dict)
    """System, workload, fault and parameters, as in matrix.json."""
    version: str | None = None
    """Of the system, as its servers told; None where they didn't, and in older books."""
    outcome: dict[str, Any] = msgspec.field(default_factory=dict)
    verdicts: dict[str, bool | str] = msgspec.field(default_factory=dict)
    required: list[str] = msgspec.field(default_factory=list)
    expect: dict[str, bool | str] = msgspec.field(default_factory=dict)
    expect_reason: str | None = None
    rules: int | None = None
    """By which rules (`checkers.RULES`) it was judged."""
    interrupted: bool = False
    """Broken off by the user: it counts in no figure."""
    wall: float = 0.0
    """Seconds that it took, all in all."""
    spent: float = 0.0
    """Seconds that the matrix had worked when it ended, all sessions together."""
    size: int = 0
    """Bytes of its folder."""
    figures: Figures = msgspec.field(default_factory=Figures)

    @property
    def word(self) -> str:
        """The word of its outcome."""
        return str(self.outcome.get("word"))

    @property
    def broken(self) -> list[str]:
        """The verdicts that are false and that the cell is about: required, or expected by name to be anything.

        `faults` is none of them: that one is false by the harness's own failure.
        """
        asked = dict.fromkeys([*self.required, *self.expect])
        return [name for name in asked if name != "faults" and self.verdicts.get(name) is False]

    @property
    def violates(self) -> bool:
        """Whether it shows a violation, expected or not."""
        return bool(self.broken)

    @property
    def surprises(self) -> list[str]:
        """Those of `broken` that were not expected to be false."""
        return [name for name in self.broken if wanted(name, self.expect) not in (False, "any")]

    @property
    def wrongly_red(self) -> bool:
        """Whether it counts as a violation only because one that was expected did not show."""
        return self.word == "violation" and not self.surprises


class Session(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="session"):
    """One process that worked on the matrix; its first line."""

    format: int = documents.KNOWN_FORMAT
    began: str
    """UTC."""
    jobs: int = 1
    spent: float = 0.0
    """Seconds that the matrix had worked before."""
    budget: float | None = None
    """Seconds that it may work, all sessions together; None = until its cells have had enough."""


class Error(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="error"):
    """What went wrong outside of any run."""

    error: str


class Pages(msgspec.Struct, frozen=True):
    """What a book says."""

    runs: list[Run]
    """The last line of each run, by cell and run."""
    sessions: list[Session]

    @property
    def spent(self) -> float:
        """Seconds that the matrix has worked, as far as it was written down."""
        return max([0.0, *(run.spent for run in self.runs), *(session.spent for session in self.sessions)])

    def counted(self) -> list[Run]:
        """The runs that ended by themselves."""
        return [run for run in self.runs if not run.interrupted]


def read(folder: Path) -> Pages | None:
    """What the book in a matrix's folder says; None where there is none. ConfigError names the line that is malformed.

    A last line without its end is left out: whoever wrote it is still writing, or was cut off.
    """
    path = folder / BOOK
    try:
        data = documents.read_bytes(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    runs: dict[tuple[int, int], Run] = {}
    sessions: list[Session] = []
    for line in _lines(path, data):
        if isinstance(line, Session):
            sessions.append(line)
        elif isinstance(line, Run):
            runs[(line.cell, line.run)] = line
    return Pages([runs[place] for place in sorted(runs)], sessions)


def _lines(path: Path, data: bytes) -> Iterator[Run | Session | Error]:
    decoder = msgspec.json.Decoder(Run | Session | Error)
    for number, text in enumerate(data.split(b"\n")[:-1], 1):
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(path, f"line {number}", f"not a line of a book of runs: {error}") from None
        if isinstance(line, Session):
            documents.check_format(path, line.format)
        if isinstance(line, Run) and (line.cell < 0 or line.run < 1 or not reader.inside(line.trial)):
            raise ConfigError(path, f"line {number}", f"{line.trial!r} is no folder inside the matrix's, or no run")
        yield line


class Book:
    """The book, open for more lines. Not for two processes: the matrix's folder is held. Safe from several threads."""

    def __init__(self, folder: Path) -> None:
        """Opens it, a new one where there is none; half a line at its end goes. Raises HarnessError."""
        self._path = folder / BOOK
        self._turn = threading.Lock()
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
            self._cut()
        except OSError as error:
            raise self._unwritten(error) from error

    def append(self, line: Run | Session | Error) -> None:
        """One line, on the disk when this returns. Raises HarnessError when the disk doesn't take it."""
        data = json.dumps(redaction.data(msgspec.to_builtins(line)), ensure_ascii=False).encode() + b"\n"
        with self._turn:
            try:
                if os.write(self._file, data) != len(data):
                    self._cut()
                    raise OSError("the disk took half a line")
                os.fsync(self._file)  # the power may go
            except OSError as error:
                raise self._unwritten(error) from error

    def close(self) -> None:
        """Take no more."""
        os.close(self._file)

    def _cut(self) -> None:
        """Take off what stands behind the last whole line."""
        size = os.fstat(self._file).st_size
        end = size
        while end:
            begin = max(0, end - (1 << 16))
            found = os.pread(self._file, end - begin, begin).rfind(b"\n")
            if found >= 0:
                end = begin + found + 1
                break
            end = begin
        if end != size:
            os.ftruncate(self._file, end)

    def _unwritten(self, error: OSError) -> HarnessError:
        return HarnessError(f"{self._path} can't be written: {error.strerror or error}")
