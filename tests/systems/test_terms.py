"""On which terms the systems grant leases: what every one of them must say, at any ttl."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import registry
from harness.systems.base import LeaseTerms, Settings, Termed, terms_of

SYSTEMS = ("consul", "etcd", "redis", "redis-sentinel", "zoo", "zookeeper")


def terms(system: str, ttl: float, **options: Any) -> LeaseTerms:
    return terms_of(registry.load("systems", system)(), Settings(ttl, 3, "image", options))


@pytest.mark.parametrize("system", SYSTEMS)
@settings(deadline=None)
@given(ttl=st.floats(0.5, 60))
def test_a_lock_is_given_away_no_earlier_than_it_was_promised_and_no_later_than_it_is_said(
    system: str, ttl: float
) -> None:
    """The numbers are in order, for a ttl that isn't granted too, and each claim has a reason."""
    assert isinstance(registry.load("systems", system)(), Termed)
    found = terms(system, ttl)
    assert found.ttl_seconds == ttl
    assert ttl <= found.given_away_least_seconds < found.given_away_most_seconds
    assert found.hand_over_seconds > 0
    assert found.lease_clock in ("monotonic", "realtime")
    assert found.lease_clock_reason
    assert found.survives_kill_reason


def test_what_is_granted_follows_from_the_options() -> None:
    """Elections, delays and persistence are options of the systems."""
    assert (terms("etcd", 2).granularity_seconds, terms("etcd", 2).least_seconds) == (1.0, 1.0)
    assert terms("etcd", 2, election_ms=3000).least_seconds == 5.0
    assert terms("consul", 2, lock_delay_seconds=4.0).given_away_least_seconds == 6.0
    assert terms("consul", 2, lock_delay_seconds=4.0).given_away_most_seconds > 8.0
    assert terms("zookeeper", 2, tick_ms=500).least_seconds == 1.0
    assert [terms("redis", 2, persistence=word).survives_kill for word in ("none", "everysec", "always")] == [
        False,
        False,
        True,
    ]


def test_a_system_that_does_not_say_has_its_terms_assumed() -> None:
    """And they say so."""

    class Theirs:
        name = "theirs"

    found = terms_of(Theirs(), Settings(3.0, 1, "image"))  # type: ignore[arg-type]
    assert (found.given_away_least_seconds, found.given_away_most_seconds) == (3.0, 7.0)
    assert found.lease_clock is None
    assert "doesn't say" in found.lease_clock_reason
