"""What the statement job came to, in numbers and words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import tally


def account(**changes: Any) -> dict[str, Any]:
    """One world's account, of a month in which all went well."""
    plain = {"batches": 5, "refused": 0, "statements": 100, "swallowed": 0, "months": 1, "twice": 0, "doubled": []}
    return {**plain, **changes}


def twice(*customers: int, month: int = 1) -> list[dict[str, Any]]:
    return [{"month": month, "customer": customer, "times": 2, "ids": [1, 1001]} for customer in customers]


@given(st.sets(st.integers(1, 300), min_size=1))
def test_ranges_are_read_back_as_they_were_written(numbers: set[int]) -> None:
    """What an event says of its customers is all of them, in order, once."""
    assert tally.numbers(tally.ranges(numbers)) == sorted(numbers)


def test_each_world_is_told_in_a_sentence() -> None:
    """Who got two, and what kept the others from it."""
    said = {
        "unfenced": account(twice=3, doubled=twice(7, 8, 20)),
        "fenced": account(refused=1),
        "idempotent": account(swallowed=2),
    }
    assert tally.told(said) == [
        "unfenced: 3 customers got two statements (7-8, 20)",
        "fenced: of 100 statements none was a customer's second; 1 batch refused",
        "idempotent: of 100 statements none was a customer's second; 2 statements swallowed",
    ]


def test_customers_of_several_months_are_told_apart() -> None:
    """Customer 7 of March isn't customer 7 of April; and a long list is cut, and says so."""
    said = account(months=2, twice=3, doubled=[*twice(7), *twice(7, 9, month=2)])
    assert tally.Counted.of(said).whom() == "7 in month 1; 7, 9 in month 2"
    many = account(twice=8, doubled=twice(*range(1, 16, 2)))
    assert tally.Counted.of(many).whom(most=3) == "1, 3, 5, …"


def test_a_world_to_which_nothing_was_sent_is_left_out() -> None:
    """A lock without tokens can't be fenced."""
    assert list(tally.read({"unfenced": account()})) == ["unfenced"]
    assert tally.told({}) == []


@pytest.mark.parametrize("wrong", [{}, account(refused=-1), account(twice=True), account(doubled=[{"month": 1}])])
def test_what_is_no_account_is_refused(wrong: dict[str, Any]) -> None:
    """A count that is missing or impossible must not become a nought."""
    with pytest.raises(ValueError, match="no account of a mail room"):
        tally.Counted.of(wrong)
