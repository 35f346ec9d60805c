"""The checkers say what a brute-force reading of the contract says, on random histories.

A long run of this is `python -m tests.oracle.longrun`; here are a few thousand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkers import fencing, intervals, lease, linearizable, progress
from checkers.intervals import build
from harness.history import building, columns
from harness.history.reader import read
from tests.afresh import afresh
from tests.oracle.compare import disagreements
from tests.oracle.generate import Chooser, encode, encode_doubled, history
from tests.oracle.malformed import corrupt

COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("histories") / "history.jsonl"


@st.composite
def histories(draw: st.DrawFn, /, **settings: Any) -> bytes:
    """Histories that Hypothesis can shrink: the first option of every choice is the simplest."""
    choices = Chooser(lambda n: draw(st.integers(0, n - 1)))
    return encode(history(choices, **settings))


@pytest.mark.parametrize("start", range(0, 3000, 500))
def test_random_histories(path: Path, start: int) -> None:
    """Words, kinds, events, blames, counts and stats, on seeded histories of all kinds of events."""
    for seed in range(start, start + 500):
        data = encode(history(Chooser.seeded(seed)))
        found = disagreements(data, path)
        assert not found, f"seed {seed}\n{data.decode()}" + "\n".join(found)


def test_large_histories_are_judged_as_small_ones(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few fallen tokens are looked at one by one, short columns are whole, and all is looked at in one piece; what is
    done where there is more of everything agrees too."""
    for module, name, value in (
        (fencing, "_FEW", -1), (progress, "_PIECE", 2), (intervals, "_FELT", 0), (columns, "_SHORT", 0),
        (columns, "_AT_ONCE", 3), (building, "_AT_ONCE", 2), (building, "_PAIRED_AT_ONCE", 3),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    for seed in range(20_000, 20_700):
        data = encode(history(Chooser.seeded(seed), tokens="wild" if seed % 2 else None))
        found = disagreements(data, path)
        assert not found, f"seed {seed}\n{data.decode()}" + "\n".join(found)


def test_keys_given_twice(path: Path) -> None:
    """The last one counts, whatever the first was."""
    for seed in range(30_000, 30_300):
        choices = Chooser.seeded(seed)
        data = encode_doubled(choices, history(choices))
        found = disagreements(data, path)
        assert not found, f"seed {seed}\n{data.decode()}" + "\n".join(found)


def test_malformed_histories(path: Path) -> None:
    """Both refuse the same line."""
    for seed in range(1000):
        choices = Chooser.seeded(seed)
        data = corrupt(choices, history(choices))
        found = disagreements(data, path)
        assert not found, f"seed {seed}\n{data.decode(errors='replace')}" + "\n".join(found)


@settings(COMMON, max_examples=500)
@given(data=histories(most=16))
def test_histories_that_shrink(path: Path, data: bytes) -> None:
    """The same, with the smallest history on which they differ when they do."""
    assert not disagreements(data, path), data.decode()


@settings(COMMON, max_examples=300)
@given(data=histories(owners=False, most=14))
def test_histories_without_owners(path: Path, data: bytes) -> None:
    """The mutex decider against a search through all orders."""
    assert not disagreements(data, path), data.decode()


@pytest.mark.parametrize("tokens", ["rising", "wild", "none"])
def test_linearizable_is_false_exactly_when_lease_or_fencing_is(path: Path, tokens: str) -> None:
    """With owners, and tokens for all grants or none: what the theory behind the checkers promises."""
    both = {True: 0, False: 0}
    for seed in range(1000):
        afresh(path, encode(history(Chooser.seeded(seed), owners=True, tokens=tokens)))
        model = build(read(path))  # of what is there, whether or not it is cut off
        either = lease.check(model).valid is False or fencing.check(model).valid is False
        assert (linearizable.check(model).valid is False) == either, path.read_text()
        both[either] += 1
    assert min(both.values()) > 20, "too few of one kind to mean anything"
