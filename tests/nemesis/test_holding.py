"""When a fault on a contender bites, and when it misses: by the pure measure, for every way to miss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.systems.base import LeaseTerms
from nemesis import holding
from nemesis.bite import Bite, SeenHold, SeenWait

S = 1_000_000_000
TERMS = LeaseTerms(2.0, 1.0, 1.0, 2.0, 2.6, 3.5, "monotonic", "", True, "")
DELAYED = replace(TERMS, given_away_least_seconds=3.0, given_away_most_seconds=5.2)
"""As Consul's, with a lock-delay of a second."""
HOLD = SeenHold("c1", 1, 7, 9 * S, 11_500_000_000, True, None, None, None)
"""Granted at 9 s, last extended by a request sent at 9.5 s: promised until 11.5 s."""


def of(hold: SeenHold | None, lasts: float, terms: LeaseTerms = TERMS) -> Bite:
    """A fault that began at 10 s."""
    return holding.of_holder("c1", hold, terms, 10 * S, int((10 + lasts) * S))


def test_a_lease_that_runs_out_under_the_fault_is_a_bite() -> None:
    """Whatever came of it. The reason tells by how much, the evidence all moments."""
    bite = of(HOLD, 3.6)
    assert bite.bit is True
    assert bite.reason == "the lease of c1 ran out 2.1 s before the fault ended"
    assert bite.evidence["may_be_given_away_ns"] == bite.evidence["promise_end_ns"] == 11_500_000_000
    assert bite.remedy is None


def test_a_fault_that_is_shorter_than_the_lease_misses_and_says_how_long_it_must_be() -> None:
    """0.2 ttl: the holder comes back with its lease."""
    bite = of(HOLD, 0.4)
    assert bite.bit is False
    assert bite.reason == "it ended after 0.4 s, 1.1 s before the lease of c1 could have run out"
    assert bite.remedy == "fault_on of at least 3.6 s"


def test_a_delay_of_the_service_counts() -> None:
    """No right Consul gives the lock away before its lock-delay is over too."""
    assert of(HOLD, 2.4, DELAYED).bit is False
    assert of(HOLD, 2.4).bit is True
    assert of(HOLD, 2.6, DELAYED).bit is True


@pytest.mark.parametrize(("by", "words"), [("release", "released"), ("acquire", "asked for the lock again")])
def test_a_holder_that_gives_up_first_is_missed(by: str, words: str) -> None:
    """A hold that ends before its lease could proves nothing of leases. After that it doesn't matter any more."""
    at = 11 * S
    early = replace(HOLD, ended_ns=at, ended_by=by, released_ns=at if by == "release" else None)
    bite = of(early, 3.6)
    assert bite.bit is False
    assert bite.reason == f"c1 {words} 0.5 s before its lease could have run out"
    assert "holds until it is told" in str(bite.remedy)
    late = replace(early, ended_ns=12 * S, released_ns=12 * S if by == "release" else None)
    assert of(late, 3.6).bit is True


def test_a_guarded_holder_that_stops_believing_in_time_is_bitten_all_the_same() -> None:
    """It lost its belief, not the lock: that it stopped is what was tried. A release that follows gives it up."""
    lost = replace(HOLD, ended_ns=int(11.3 * S), ended_by="lost")
    assert of(lost, 3.6).bit is True
    assert of(replace(lost, released_ns=int(11.4 * S)), 3.6).bit is False


def test_nobody_who_held_nothing_is_bitten() -> None:
    """No live lease, nothing to run out: neither one that never was nor one that was over."""
    assert of(None, 60).bit is False
    over = of(replace(HOLD, promise_end_ns=int(9.5 * S)), 60)
    assert over.bit is False
    assert over.reason == "the lease of c1 had run out 0.5 s before the fault began"


def test_where_renewals_are_unseen_the_fault_alone_must_outlast_every_lease() -> None:
    """It may have been renewed until the last moment."""
    unseen = replace(HOLD, promise_end_ns=None, renewals_seen=False)
    short = of(unseen, 2.5)
    assert (short.bit, short.remedy) == (False, "fault_on of at least 3.6 s")
    assert of(unseen, 2.7).bit is True
    assert of(replace(unseen, ended_ns=11 * S, ended_by="release", released_ns=11 * S), 2.7).bit is False


def test_a_lock_that_never_expires_is_kept_from_all_for_as_long_as_the_fault_lasts() -> None:
    """No lease runs out; but the fault has to outlast the time in which a lost connection would have freed it."""
    terms, hold = replace(TERMS, expires=False), replace(HOLD, promise_end_ns=None)
    assert of(hold, 2.7, terms).bit is True
    assert "doesn't expire" in of(hold, 2.7, terms).reason
    assert of(hold, 1.0, terms).bit is False
    assert of(replace(hold, ended_ns=11 * S, ended_by="release", released_ns=11 * S), 2.7, terms).bit is False


@settings(deadline=None)
@given(st.floats(0.1, 60), st.floats(0, 60), st.floats(0.5, 60))
def test_a_longer_fault_never_bites_less(lasts: float, more: float, ttl: float) -> None:
    """And one of the length that the remedy names always bites, whenever the lease was last renewed before it."""
    terms = replace(TERMS, ttl_seconds=ttl, given_away_least_seconds=ttl, given_away_most_seconds=ttl + 0.6)
    hold = replace(HOLD, promise_end_ns=10 * S + int(ttl * S))
    assert of(hold, lasts, terms).bit <= of(hold, lasts + more, terms).bit  # type: ignore[operator]
    assert of(hold, holding.lasting_seconds(terms), terms).bit is True


WAIT = SeenWait(2, 9 * S, None, None)


def waiter(wait: SeenWait, *hands: float) -> Bite:
    """A fault on c2 from 10 s to 14 s, while others were granted the lock at these seconds."""
    others = [replace(HOLD, since_ns=int(at * S)) for at in hands]
    return holding.of_waiter("c2", wait, others, TERMS, 10 * S, 14 * S)


def test_a_waiter_is_bitten_when_its_turn_could_have_come() -> None:
    """The lock changed hands under it, or was given to it."""
    assert waiter(WAIT, 11.0).reason == "the lock changed hands once while c2 waited for it and could not take it"
    assert waiter(WAIT, 11.0, 12.0).bit is True
    assert waiter(replace(WAIT, until_ns=12 * S, came_to="ok")).reason == "c2 was given the lock while the fault was on"


def test_a_waiter_that_would_have_waited_anyway_is_missed() -> None:
    """No hand-over in that time; or none before it gave up waiting."""
    assert waiter(WAIT).bit is False
    gave_up = waiter(replace(WAIT, until_ns=11 * S, came_to="fail"), 12.0)
    assert gave_up.bit is False
    assert "stopped waiting 1.0 s after" in gave_up.reason


class Seen:
    """A trial that has seen one grant and one wait of c1."""

    def __init__(self, hold: SeenHold | None, wait: SeenWait | None) -> None:
        self.hold, self.wait = hold, wait

    def terms(self) -> LeaseTerms:
        return TERMS

    def hold_of(self, node: str, at_ns: int | None = None) -> SeenHold | None:
        return self.hold

    def wait_of(self, node: str, at_ns: int) -> SeenWait | None:
        return self.wait

    def granted(self, since_ns: int, until_ns: int) -> list[SeenHold]:
        return [replace(HOLD, node="c0", since_ns=11 * S)]


@pytest.mark.parametrize(
    ("target", "hold", "bit"),
    [("holder", HOLD, True), ("holder", None, False), ("waiter", None, True), ("c1", HOLD, True), ("c1", None, True)],
)
def test_a_contender_is_measured_as_what_it_was_meant_for(target: str, hold: SeenHold | None, bit: bool) -> None:
    """A fault on the holder that came to one who had just let go missed, though he waits again; by its name a contender
    is hit as whatever it was.
    """
    env: Any = Seen(hold, WAIT)
    assert holding.bite(env, target, "c1", 10 * S, 14 * S).bit is bit
    broken = holding.bite(env, target, "c1", 10 * S, 14 * S, interrupted="it was woken")
    assert (broken.bit, broken.reason) == (False, "it did not last until its end: it was woken")
