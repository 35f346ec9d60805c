"""Columns that take little memory are read like arrays that take much."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.history import columns
from harness.history.columns import Growing, Sparse
from harness.history.events import NONE, Ints

_INTEGERS = st.one_of(st.just(NONE), st.integers(-3, 3), st.integers(-(2**62), 2**62))


@given(pieces=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200), max_size=5)))
def test_a_column_grows_as_wide_as_it_must(pieces: list[list[int]]) -> None:
    """What was taken comes out, in the narrowest integers; then it begins anew."""
    column = Growing()
    everything = [value for piece in pieces for value in piece]
    for _ in range(2):
        for piece in pieces:
            column.extend(np.array(piece, np.int64))
        assert len(column) == len(everything)
        taken = column.taken()
        assert taken.tolist() == everything
        narrow = columns.narrowed(np.array(everything, np.int64)).dtype if everything else np.dtype(np.int8)
        assert taken.dtype == narrow
        column = Growing()


def test_a_long_column_grows_in_place() -> None:
    """Beyond the first piece it has room ahead, which nobody sees."""
    column = Growing(np.float64)
    for at in range(3000):
        column.extend(np.array([at / 2]))
    assert column.taken().tolist() == [at / 2 for at in range(3000)]
    assert len(column.taken()) == 0


@pytest.mark.parametrize("short", [0, 1 << 16])
@given(whole=st.lists(_INTEGERS, min_size=1, max_size=12), data=st.data())
def test_a_sparse_column_is_read_like_an_array(short: int, whole: list[int], data: st.DataObject) -> None:
    """By row, rows (from the end too), mask and slice; as a whole; moved; pickled. Long ones and short ones."""
    array = np.array(whole, np.int64)
    before, columns._SHORT, columns._AT_ONCE = (columns._SHORT, columns._AT_ONCE), short, 2
    try:
        column = Sparse.of(array, NONE)
        rows: Any = data.draw(st.lists(st.integers(-len(whole), len(whole) - 1)))
        mask = data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        asked: list[Any] = [np.array(rows, np.int32), np.array(mask), slice(1, None, 2), *rows]
        for each in asked:
            np.testing.assert_array_equal(column[each], array[each])
            assert np.asarray(column[each]).dtype == np.int64
        place: Ints = np.array(data.draw(st.permutations(range(len(whole)))))
        moved = np.empty_like(array)
        moved[place] = array
        for one, other in ((column, array), (column.moved(place), moved), (pickle.loads(pickle.dumps(column)), array)):
            assert one.tolist() == other.tolist()
            np.testing.assert_array_equal(one != NONE, other != NONE)
        assert (len(column), column.size, column.shape) == (len(array), len(array), array.shape)
        with pytest.raises(IndexError):
            column[len(whole)]
        with pytest.raises(TypeError):
            column[0] = 1  # type: ignore[index]
    finally:
        columns._SHORT, columns._AT_ONCE = before
    assert (column.rows == np.flatnonzero(array != NONE)).all()
    assert column.nbytes <= 9 * len(column.rows)


def test_numbers_that_are_absent() -> None:
    """NaN stands for an absent duration."""
    column = Sparse.of(np.array([np.nan, 2.5, np.nan]), np.nan)
    assert column.rows.tolist() == [1]
    np.testing.assert_array_equal(column[np.array([0, 1])], [np.nan, 2.5])
