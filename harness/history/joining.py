"""Two processes that read one file in turn: when to stop, what each tells, and one history's columns out of both's.

Process w of n took the chunks w, w + n, w + 2n and so on. What comes out is what one process alone would have read: the
rows and names in the order of the file, and of several errors the first.
"""

from __future__ import annotations

import mmap
import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from harness.errors import HistoryError
from harness.history.building import not_last
from harness.history.columns import Sparse, fitting, narrowed
from harness.history.events import COLUMN_TYPES, STRING_ID, WHOLE, AuditRow, Columns, End, FaultRow, Ints
from harness.history.lines import Part

#: Of a column of `WHOLE` its values; of another the rows that have one, and the values.
Column: TypeAlias = tuple[Ints, ...]


class Turn:
    """A word between the two: a chunk in which something is wrong, behind which nothing matters."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16)  # of two processes after a fork; each writes its own half
        struct.pack_into("qq", self._memory, 0, _NEVER, _NEVER)

    def is_over(self, number: int) -> bool:
        mine, theirs = struct.unpack_from("qq", self._memory)
        return bool(number > min(mine, theirs))

    def end_with(self, number: int, who: int = 0) -> None:
        struct.pack_into("q", self._memory, 8 * who, number)


_NEVER = 2**62


@dataclass(frozen=True)
class Told:
    """What a process found, save the columns."""

    counts: list[int]
    """Events in each of its chunks."""
    known: list[tuple[int, int, int]]
    """How many of the names below it knew after each of them."""
    names: tuple[list[str], list[str], list[str]]
    """Locks, fs and ids."""
    faults: dict[int, FaultRow]
    audits: dict[int, AuditRow]
    end: End | None
    last_line: int
    lines: int
    error: tuple[int, str] | None
    """Its line and reason."""

    @classmethod
    def of(cls, part: Part, lines: int, error: HistoryError | None = None) -> Told:
        return cls(
            part.counts, part.known, (list(part.locks), list(part.fs), list(part.ids)), part.faults, part.audits,
            part.end, part.last_line, lines, None if error is None else (error.line, error.reason),
        )  # fmt: skip


def own_columns(part: Part) -> Iterator[Column]:
    """The columns of a part in the order of `COLUMN_TYPES`; each is gone from it then."""
    for name in COLUMN_TYPES:
        if name in WHOLE:
            yield (part.whole[name].taken(),)
        else:
            yield tuple(each.taken() for each in part.sparse[name])


def send(told: Told, part: Part, pipe: BinaryIO) -> None:
    """What `receive` and `sent_columns` take. Without columns where there was an error."""
    _send(pickle.dumps(told), pipe)
    for column in own_columns(part) if told.error is None else ():
        for array in column:
            _send(pickle.dumps((array.dtype.str, len(array))), pipe)
            pipe.write(memoryview(array))  # type: ignore[arg-type]
    pipe.flush()


def _send(message: bytes, pipe: BinaryIO) -> None:
    pipe.write(struct.pack("q", len(message)) + message)


def receive(pipe: BinaryIO) -> Told | None:
    """What the other process found, None when it ended before it told."""
    told: Told | None = _receive(pipe)
    return told


def _receive(pipe: BinaryIO) -> Any:
    length = pipe.read(8)
    message = pipe.read(struct.unpack("q", length)[0]) if len(length) == 8 else b""
    return pickle.loads(message) if message else None


def sent_columns(pipe: BinaryIO, path: Path) -> Iterator[Column]:
    """The columns of the other process, in the order of `COLUMN_TYPES`."""
    for name in COLUMN_TYPES:
        yield tuple(_array(pipe, path) for _ in range(1 if name in WHOLE else 2))


def _array(pipe: BinaryIO, path: Path) -> Ints:
    dtype, length = _receive(pipe) or ("i1", 0)
    array = np.empty(length, dtype)
    view = memoryview(array.view(np.uint8))  # type: ignore[arg-type]
    while len(view):
        count = pipe.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise HistoryError(path, 0, "the process that read every other chunk ended before it had told all")
        view = view[count:]
    return array


def join(told: Sequence[Told], columns: Sequence[Iterator[Column]], path: Path) -> Columns:
    """The columns of all. Raises `HistoryError` for the first error in the file."""
    end = _end(told, path)
    if len({each.lines for each in told}) > 1:
        raise HistoryError(path, 0, "it changed while it was read")
    segments = _segments([each.counts for each in told])
    names, tables = zip(*(_names(told, which, segments.order) for which in range(3)), strict=True)
    whole: dict[str, Any] = {}
    for name, parts in zip(COLUMN_TYPES, zip(*columns, strict=True), strict=True):
        if len(told) > 1 and name in ("lock", "f"):
            table = tables[0 if name == "lock" else 1]
            parts = tuple((_recoded(codes, table[at]),) for at, (codes,) in enumerate(parts))
        if len(told) > 1 and name == "id":
            parts = tuple((rows, _ids(codes, tables[2][at])) for at, (rows, codes) in enumerate(parts))
        if len(parts) > 1:
            parts = (_interleaved(parts, segments),)
        (column,) = parts
        if name in WHOLE:
            (whole[name],) = column
        else:
            dtype, absent = COLUMN_TYPES[name]
            whole[name] = Sparse(column[0], column[1], segments.total, absent, dtype)
        del parts, column
    return Columns(
        **whole,
        locks=names[0],
        fs=names[1],
        ids=names[2],
        faults={segments.place(at, row): fault for at, each in enumerate(told) for row, fault in each.faults.items()},
        audits={segments.place(at, row): audit for at, each in enumerate(told) for row, audit in each.audits.items()},
        end=end,
    )


def _end(told: Sequence[Told], path: Path) -> End | None:
    """The end line, if there is one. Raises `HistoryError` for the first error, that of an end line that isn't the last
    one among them."""
    errors = [HistoryError(path, *each.error) for each in told if each.error is not None]
    ends = [each.end for each in told if each.end is not None]
    last = max(max(each.last_line, each.error[0] if each.error is not None else 0) for each in told)
    errors += [not_last(end, path) for end in ends if end.line < last]
    if errors:
        raise min(errors, key=lambda error: error.line)
    return ends[0] if ends else None


@dataclass(frozen=True)
class _Segments:
    """Where the rows of each chunk lie: `starts[w][i]` in what process w has, `places[w][i]` in the whole."""

    starts: list[Ints]
    places: list[Ints]
    order: list[tuple[int, int]]
    """(process, chunk of its) in the order of the file."""
    total: int

    def place(self, who: int, row: int) -> int:
        """Where a row of a process lies in the whole."""
        at = int(np.searchsorted(self.starts[who], row, "right")) - 1
        return int(self.places[who][at]) + row - int(self.starts[who][at])


def _segments(counts: Sequence[list[int]]) -> _Segments:
    order = [(who, at) for at in range(max(map(len, counts))) for who in range(len(counts)) if at < len(counts[who])]
    places: list[Ints] = [np.zeros(len(each), np.int64) for each in counts]
    total = 0
    for who, at in order:
        places[who][at] = total
        total += counts[who][at]
    starts: list[Ints] = [np.concatenate(([0], np.cumsum(each, dtype=np.int64)))[:-1] for each in counts]
    return _Segments(starts, places, order, total)


def _interleaved(parts: Sequence[Column], segments: _Segments) -> Column:
    """The column of the whole, from those of the processes."""
    if len(parts[0]) == 1:
        sizes = [len(part[0]) for part in parts]
        bounds = [np.append(start, size) for start, size in zip(segments.starts, sizes, strict=True)]
        return (_laid_out([part[0] for part in parts], bounds, segments),)
    bounds = [
        np.searchsorted(part[0], np.append(start, np.iinfo(np.int64).max))
        for part, start in zip(parts, segments.starts, strict=True)
    ]
    wide = fitting(0, segments.total)
    rows = []
    for (own, _), bound, start, place in zip(parts, bounds, segments.starts, segments.places, strict=True):
        rows.append(own.astype(wide) + np.repeat(place - start, np.diff(bound)).astype(wide))
    return (
        _laid_out(rows, bounds, segments),
        _laid_out([part[1] for part in parts], bounds, segments),
    )


def _laid_out(arrays: Sequence[Ints], bounds: Sequence[Ints], segments: _Segments) -> Ints:
    """The pieces of arrays, piece i of array w being `bounds[w][i]` to `bounds[w][i + 1]`, in the order of the file."""
    out = np.empty(sum(map(len, arrays)), np.result_type(*arrays))
    ends = [bound.tolist() for bound in bounds]
    to = 0
    for who, at in segments.order:
        low, high = ends[who][at], ends[who][at + 1]
        out[to : to + high - low] = arrays[who][low:high]
        to += high - low
    return out


# -- names ------------------------------------------------------------------------------------------------------------


def _names(told: Sequence[Told], which: int, order: Sequence[tuple[int, int]]) -> tuple[list[str], list[Ints]]:
    """The names of all in the order in which the file has them first, and for each process the codes of its own."""
    codes: dict[str, int] = {}
    tables: list[Ints] = [np.zeros(len(each.names[which]), np.int64) for each in told]
    done = [0] * len(told)

    def meet(who: int, until: int) -> None:
        for code in range(done[who], until):
            tables[who][code] = codes.setdefault(told[who].names[which][code], len(codes))
        done[who] = until

    for who, at in order:
        meet(who, told[who].known[at][which])
    for who, each in enumerate(told):  # of one that had no chunk, what all know from the beginning
        meet(who, len(each.names[which]))
    return list(codes), tables


def _recoded(codes: Ints, table: Ints) -> Ints:
    """Codes of one table of names as those of another."""
    if bool((table == np.arange(len(table))).all()):
        return codes
    recoded: Ints = narrowed(table)[codes]
    return recoded


def _ids(codes: Ints, table: Ints) -> Ints:
    """The same for ids, of which those that are strings are codes."""
    if not len(table) or bool((table == np.arange(len(table))).all()):
        return codes
    strings = codes >= STRING_ID
    recoded = codes.copy()
    recoded[strings] = table[codes[strings] - STRING_ID] + STRING_ID
    return recoded
