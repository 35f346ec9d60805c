"""Reading a trial's folder and a matrix for the report; every complaint names the file and the key (docs/layout.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness import documents
from harness.errors import ConfigError, HistoryError
from harness.history import packed, reader
from harness.runs import book, pooled
from harness.runs.pooled import Pooled

HISTORY = "history.jsonl"
TRIAL = "trial.json"
FAULTS = "faults.jsonl"
VERDICT = "verdict.json"
MATRIX = "matrix.json"
REPORT = "report.html"
INDEX = "index.html"
DEMO = "demo.html"


def history(folder: Path) -> Path:
    """The history in a trial's folder, as it was recorded or compressed since; its usual place where there is none.
    Raises `HistoryError` where there are several."""
    there = any((folder / name).exists() for name in reader.HISTORY_FILES)
    return reader.find(folder) if there else folder / HISTORY


MOST_JOURNAL = 1 << 30
"""Bytes of the faults' journal."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried: one system, one workload, one fault, and the parameters that aren't usual."""

    system: str
    workload: str = "lock"
    fault: str = "none"
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)

    def words(self) -> str:
        """`etcd · lock · freeze-holder`."""
        return " · ".join((self.system, self.workload, self.fault))


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the trial ended."""

    word: str
    exit_code: int | None = None
    valid: bool | str | None = None
    grants: int | None = None
    handovers: int | None = None
    reasons: list[str] = msgspec.field(default_factory=list)
    faults: dict[str, Any] | None = None
    """How many `landed`, `bit`, `missed`, were `immune`, and why (`missed_by`, `immune_by`); None in a cell without
    faults, and in older results."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the trial; ns on the history's clock. `end` is None when the trial broke off in it."""

    name: str
    start: int
    end: int | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One host of the trial."""

    role: str = "?"
    addresses: list[str] = msgspec.field(default_factory=list)


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """One process that competes; `hello` is what it said of itself, `bye` what it counted (polls, reconnects, …)."""

    node: str | None = None
    holder: str | None = None
    guarded: bool | None = None
    """What records of an earlier version say in the place of `holder`."""
    hello: dict[str, Any] | None = None
    bye: dict[str, Any] | None = None

    @property
    def kind(self) -> str | None:
        """The kind of holder that it was."""
        return self.holder or (None if self.guarded is None else "guarded" if self.guarded else "naive")

    @property
    def client(self) -> str | None:
        """`etcd (requests 2.32)` or `redis 8.1.0`, from what it said of itself."""
        said = (self.hello or {}).get("client")
        if isinstance(said, Mapping):
            name, library = str(said.get("name") or ""), str(said.get("library") or "")
            return (library if library.startswith(name) else f"{name} ({library})" if library else name) or None
        return str(said) if said else None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """`trial.json`, as far as the report uses it. All is optional: a trial that failed early knows little."""

    format: int = 1
    id: str | None = None
    cell: Cell | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    repeat: str | None = None
    versions: dict[str, Any] = msgspec.field(default_factory=dict)
    images: dict[str, Any] = msgspec.field(default_factory=dict)
    nodes: dict[str, Node] = msgspec.field(default_factory=dict)
    contenders: dict[str, Contender] = msgspec.field(default_factory=dict)
    system: Any = None
    endpoints: dict[str, Any] | None = None
    """Of a trial at a cluster that exists: where it is, and what nobody could see of it."""
    epoch: dict[str, Any] = msgspec.field(default_factory=dict)
    phases: list[Phase] = msgspec.field(default_factory=list)
    outcome: Outcome | None = None
    expect: dict[str, Any] = msgspec.field(default_factory=dict)
    expect_reason: str | None = None
    """Why that is expected, in the words of whoever expects it."""
    error: str | None = None
    tally: dict[str, Any] | None = None
    """What the job came to, where the resource counts that: `counted` by it, and `words` for people."""


class FaultLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `faults.jsonl`: one phase of one fault, with the evidence of its receipt."""

    format: int = 1
    id: str | int
    phase: str
    time: int | None = None
    kind: str | None = None
    target: str | None = None
    targets: list[str] | None = None
    processes: list[int] | None = None
    receipt: str | None = None
    reason: str | None = None
    bit_reason: str | None = None
    """On the stop: what was measured of whether it could matter, or why it can't; or why that isn't known."""
    evidence: Any = None

    @property
    def remedy(self) -> str | None:
        """Of one that missed: what to set."""
        bite = self.evidence.get("bite") if isinstance(self.evidence, dict) else None
        told = bite.get("remedy") if isinstance(bite, dict) else None
        return told if isinstance(told, str) else None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of `fencepost check --json`."""

    kind: str
    lock: str | None = None
    events: list[int] = msgspec.field(default_factory=list)
    seconds: float | None = None
    blame: str | None = None
    text: str = ""


class VerdictPart(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict of `fencepost check --json`."""

    valid: bool | str
    count: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)
    stats: dict[str, Any] = msgspec.field(default_factory=dict)
    note: str | None = None


class CheckError(msgspec.Struct, frozen=True, kw_only=True):
    """Why the history could not be read."""

    line: int = 0
    reason: str = ""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """`verdict.json`: one object of `fencepost check --json`."""

    format: int = 1
    rules: int | None = None
    """By which rules (`checkers.RULES`) it was judged; None in one from before there were marks."""
    valid: bool | str = "unknown"
    required: list[str] = msgspec.field(default_factory=list)
    verdicts: dict[str, VerdictPart] = msgspec.field(default_factory=dict)
    events: int | None = None
    grants: int | None = None
    cut_off: str | None = None
    """What is missing of a history that isn't whole; None when it is, or was judged as if it were."""
    error: CheckError | None = None


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """One trial of a matrix; `trial` is its folder, relative to the matrix's."""

    trial: str
    cell: Cell
    outcome: Outcome
    version: str | None = None
    """Of the system, as its servers told."""
    verdicts: dict[str, bool | str] = msgspec.field(default_factory=dict)
    expect: dict[str, bool | str] = msgspec.field(default_factory=dict)
    expect_reason: str | None = None
    """Why that is expected, in the words of the matrix file's rule."""
    repeats: Pooled | None = None
    """What all runs of a cell say that has several; `trial` and `outcome` are those of the run that stands for it."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that makes no sense, and the rule that says so."""

    cell: Cell
    rule: str


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """`matrix.json`."""

    format: int = 1
    rules: int | None = None
    """By which rules (`checkers.RULES`) its cells were judged; None in one from before there were marks."""
    id: str | None = None
    file: str | None = None
    cells: list[MatrixCell] = msgspec.field(default_factory=list)
    left_out: list[LeftOut] = msgspec.field(default_factory=list)
    not_run: int = 0
    """Cells that were cut short."""
    planned: list[Cell] | None = None
    """Every cell that the file plans, those that ran included; None where that isn't recorded."""
    seconds: float | None = None
    jobs: int | None = None
    runs: int | None = None
    """How many there were, where cells have several."""
    errors: list[str] = msgspec.field(default_factory=list)
    """What went wrong outside of any cell."""


@dataclass(frozen=True)
class Injection:
    """Both lines of one fault in the journal, joined by its id."""

    start: FaultLine | None = None
    stop: FaultLine | None = None


@dataclass(frozen=True)
class Journal:
    """`faults.jsonl`, by fault id. `present` is False when there is no such file."""

    faults: Mapping[str, Injection] = field(default_factory=dict)
    present: bool = False


def read_trial(folder: Path) -> Trial | None:
    """The trial's own record; None when there is no `trial.json`. Raises ConfigError with file, key and reason."""
    return _document(folder / TRIAL, Trial)


def read_matrix(folder: Path) -> Matrix:
    """A matrix, its cells as the book of its runs has them where there is one: matrix.json may be older by some runs.

    Raises ConfigError when there is no `matrix.json`, or when it or the book is malformed.
    """
    matrix = _document(folder / MATRIX, Matrix)
    if matrix is None:
        raise ConfigError(folder / MATRIX, None, "no such file; a matrix is a folder that `fencepost matrix` wrote")
    pages = book.read(folder)
    if pages is not None and pages.runs:
        matrix = _with_book(matrix, folder / book.BOOK, pages.runs)
    for number, cell in enumerate(matrix.cells, 1):
        if not reader.inside(cell.trial):
            raise ConfigError(
                folder / MATRIX, f"cells[{number}].trial", f"{cell.trial!r} is no folder inside the matrix's"
            )
    return matrix


def _with_book(matrix: Matrix, path: Path, runs: list[book.Run]) -> Matrix:
    try:
        cells = msgspec.convert(pooled.cells(runs), type=list[MatrixCell])
    except msgspec.ValidationError as error:
        raise ConfigError(path, None, str(error)) from None
    planned = len(matrix.planned) if matrix.planned is not None else len(cells) + matrix.not_run
    count = sum(not run.interrupted for run in runs)
    return msgspec.structs.replace(
        matrix, cells=cells, not_run=max(0, planned - len(cells)), runs=count if count > len(cells) else matrix.runs
    )


def read_verdict(path: Path) -> Checked | None:
    """The stored verdicts; None when there is no such file. Raises ConfigError with file, key and reason."""
    return _document(path, Checked)


def read_journal(folder: Path) -> Journal:
    """The journal of the faults. A malformed line is a HistoryError that names it."""
    path = folder / FAULTS
    try:
        data = documents.read_bytes(path, MOST_JOURNAL)
    except FileNotFoundError:
        return Journal()
    decoder = msgspec.json.Decoder(FaultLine)
    faults: dict[str, Injection] = {}
    for number, text in enumerate(data.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HistoryError(path, number, _reason(error)) from None
        try:
            documents.check_format(path, line.format)
        except ConfigError as error:
            raise HistoryError(path, number, f"{error.key} {error.reason}") from None
        known = faults.get(str(line.id), Injection())
        if line.phase == "start":
            known = Injection(line, known.stop)
        elif line.phase == "stop":
            known = Injection(known.start, line)
        else:
            raise HistoryError(path, number, f"phase must be start or stop, not {line.phase!r}")
        faults[str(line.id)] = known
    return Journal(faults, present=True)


def read_lines(path: Path, wanted: Iterable[int]) -> dict[int, Mapping[str, Any]]:
    """The events that stand on these lines (from 1) of a history in our own format, by line number.

    For the handful of events that a finding names; the whole history is never held as dicts. Lines that aren't there
    (or, in a history of another format, aren't objects) are left out.
    """
    numbers = set(wanted)
    found: dict[int, Mapping[str, Any]] = {}
    if not numbers:
        return found
    last = max(numbers)
    for number, text in enumerate(packed.lines(path), 1):
        if number > last:
            break
        if number in numbers:
            try:
                event = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                found[number] = event
    return found


D = TypeVar("D", Trial, Checked, Matrix)


def _document(path: Path, kind: type[D]) -> D | None:
    try:
        data = documents.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        if isinstance(head := msgspec.json.decode(data, type=dict[str, Any]), dict):
            documents.check_format(path, head.get("format", documents.KNOWN_FORMAT))
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `")
        raise ConfigError(path, where.rstrip("`").lstrip("$.") or None, reason) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(path, None, _reason(error)) from None


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"
