"""Columns that take no more memory than their values need: of a history with tens of millions of events it counts.

`Growing` collects a column piece by piece, in integers as narrow as what came so far; `Sparse` is a column of which
most rows are absent, kept as the rows that aren't.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

_STEPS: tuple[tuple[type[np.integer[Any]], int, int], ...] = tuple(
    (step, int(np.iinfo(step).min), int(np.iinfo(step).max)) for step in (np.int8, np.int16, np.int32, np.int64)
)
#: A growing column gets a quarter more room at a time, at most so many entries: what is too much is never touched.
_MOST_ROOM = 1 << 20
#: So many rows of a sparse column are looked up at a time, so that what that takes stays in the cache.
_AT_ONCE = 1 << 16
#: A column with fewer rows is made whole when it is first asked for something: it is small, and that is faster.
_SHORT = 1 << 16


def fitting(low: int, high: int) -> type[np.integer[Any]]:
    """The narrowest signed integers that hold both."""
    for step, least, most in _STEPS:
        if least <= low and high <= most:
            return step
    raise OverflowError(f"{low if low < 0 else high} in 64 bits")


def narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same integers, as narrow as they may be; floats as they are."""
    if not len(values) or values.dtype.kind != "i":
        return values
    return values.astype(fitting(int(values.min()), int(values.max())), copy=False)


class Growing:
    """A column that grows at its end, in one piece of memory that the system extends in place where it can."""

    def __init__(self, dtype: npt.DTypeLike = np.int8) -> None:
        self._array: npt.NDArray[Any] = np.empty(0, dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, values: npt.NDArray[Any]) -> None:
        """Takes some more values; integers that don't fit widen all."""
        if not len(values):
            return
        if values.dtype.kind == "i" and values.dtype.itemsize > self._array.itemsize:
            needed = np.dtype(fitting(int(values.min()), int(values.max())))
            if needed.itemsize > self._array.itemsize:
                self._array = self._array[: self._size].astype(needed)
        size = self._size + len(values)
        if not self._size:  # the first: most histories are no longer
            self._array, self._size = values.astype(self._array.dtype), size
            return
        if size > len(self._array):
            room = min(max(size // 4, 1024), _MOST_ROOM)
            self._array.resize(size + room, refcheck=False)  # nobody else ever sees this array
        self._array[self._size : size] = values
        self._size = size

    def taken(self) -> npt.NDArray[Any]:
        """The whole column. It begins anew, empty."""
        array, self._array = self._array, np.empty(0, self._array.dtype)
        if len(array) > self._size:
            array.resize(self._size, refcheck=False)
        self._size = 0
        return array


class Sparse(NDArrayOperatorsMixin):
    """A column of which most rows are absent: the others and their values. To be read like an array, never written to.

    Rows are looked up as in an array (`column[row]`, `column[rows]`, `column[mask]`). Whatever needs it whole (a
    comparison, arithmetic, a function of numpy's) makes an array of it, which takes the memory that was saved: ask for
    the rows that matter where there are millions.
    """

    ndim = 1

    def __init__(self, rows: npt.NDArray[Any], values: npt.NDArray[Any], size: int, absent: Any, dtype: str) -> None:
        self.rows = rows
        """The rows that have a value, ascending."""
        self.values = values
        """Their values, perhaps in narrower integers than `dtype`."""
        self.absent = absent
        """What all other rows have."""
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shape = (size,)
        self._whole: npt.NDArray[Any] | None = None

    @classmethod
    def of(cls, column: npt.NDArray[Any], absent: Any) -> Sparse:
        """A column that is whole, as a sparse one."""
        there = ~np.isnan(column) if isinstance(absent, float) else column != absent
        rows = np.flatnonzero(there)
        return cls(narrowed(rows), narrowed(column[rows]), len(column), absent, column.dtype.str)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.values.nbytes)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        whole = np.full(self.shape, self.absent, self.dtype if dtype is None else dtype)
        whole[self.rows] = self.values
        return whole

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        whole = [np.asarray(each) if isinstance(each, Sparse) else each for each in inputs]
        return getattr(ufunc, method)(*whole, **kwargs)

    def __repr__(self) -> str:
        return f"Sparse({np.asarray(self)!r})"

    def tolist(self) -> list[Any]:
        whole: list[Any] = np.asarray(self).tolist()
        return whole

    def __getitem__(self, asked: Any) -> Any:
        """A value, or those of some rows; a row beyond the end has none, or is an IndexError."""
        if self.shape[0] < _SHORT:
            if self._whole is None:
                self._whole = np.asarray(self)
                self._whole.flags.writeable = False
            return self._whole[asked]
        if isinstance(asked, int | np.integer):
            at = range(len(self))[int(asked)]  # which also says what is out of range
            return self._look_up(np.array([at]))[0]
        if isinstance(asked, slice):
            return self._look_up(np.arange(*asked.indices(len(self))))
        rows = np.asarray(asked)
        if rows.dtype == bool:
            if rows.shape != self.shape:
                raise IndexError(f"a mask of {rows.shape} for a column of {self.shape}")
            rows = np.flatnonzero(rows)
        return self._look_up(rows)

    def _look_up(self, asked: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.full(asked.shape, self.absent, self.dtype)
        if len(self.rows):
            for start in range(0, len(asked), _AT_ONCE):
                self._fill(out[start : start + _AT_ONCE], asked[start : start + _AT_ONCE])
        return out

    def _fill(self, out: npt.NDArray[Any], asked: npt.NDArray[Any]) -> None:
        rows = asked
        if rows.min() < 0:  # from the end
            rows = np.where(rows < 0, rows + len(self), rows)
        at = self.rows.searchsorted(rows.astype(self.rows.dtype))
        np.minimum(at, len(self.rows) - 1, out=at)
        there = self.rows[at] == rows
        out[there] = self.values[at[there]]

    def moved(self, place: npt.NDArray[Any]) -> Sparse:
        """The column after its rows have moved: that of row r is now `place[r]`."""
        rows = place[self.rows]
        order = np.argsort(rows, kind="stable")
        return Sparse(rows[order], self.values[order], len(self), self.absent, self.dtype.str)
