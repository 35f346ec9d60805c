"""What the zoo's server does: right without a bug, and with each bug wrong in that one way. Pure, on clocks of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from workloads.zoo.rules import BUGS, EARLY, PLACE_TTLS, SETTLING_SECONDS, Answer, Known, Lock, Now

TTL = 2.0
WAIT = 0.4
PLACE = TTL * PLACE_TTLS


class Table:
    """A lock, its clocks, and what the journal was told. `told`: what became of each open request, by its owner."""

    def __init__(self, bug: str | None = None, known: Known | None = None) -> None:
        self.bug = bug
        self.at = Now(1000.0, 5000.0)
        self.known = known or Known()
        self.records: list[Mapping[str, Any]] = []
        self.lock = Lock(self._keep, bug, self.known, self.at)
        self.told: dict[str, Answer] = {}

    def _keep(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)
        self.known = self.known.after(record)

    def after(self, seconds: float, wall: float | None = None) -> Table:
        """Let time pass, on the wall clock as much unless it is said; answer what is due then."""
        self.at = Now(self.at.monotonic + seconds, self.at.wall + (seconds if wall is None else wall))
        self.told.update(self.lock.due(self.at))
        return self

    def restarted(self) -> Table:
        """The server that is started again on the same journal."""
        return Table(self.bug, self.known)

    def acquire(self, owner: str) -> Answer | None:
        """Ask for the lock. None: it waits."""
        self.told.pop(owner, None)
        return self.lock.acquire(owner, TTL, WAIT, self.at)

    def gets(self, owner: str) -> int:
        """Ask for the lock and get it: the token."""
        answer = self.acquire(owner)
        assert answer is not None, f"{owner} has to wait"
        return int(answer["granted"])

    def has(self, owner: str) -> bool:
        """Whether the server takes this one for the holder."""
        return "renewed" in self.lock.renew(owner, TTL, self.at)

    def release(self, owner: str) -> Answer:
        """Give the lock, or the place, up."""
        return self.lock.release(owner, self.at)

    def wait_for(self, owner: str, seconds: float) -> None:
        """Keep a place for so long, asking again and again."""
        for _ in range(round(seconds / WAIT) + 1):
            assert self.acquire(owner) is None
            self.after(WAIT)
            assert self.told.get(owner) != {"turn": True}


# -- the right one ----------------------------------------------------------------------------------------------------


def test_waiters_get_the_lock_in_the_order_in_which_they_came_with_rising_tokens() -> None:
    """One at a time: the head alone is told that it's his turn."""
    table = Table()
    assert table.gets("a") == 1
    assert (table.acquire("b"), table.acquire("c")) == (None, None)
    assert table.release("a") == {"released": True}
    table.after(0.0)
    assert table.told == {"b": {"turn": True}}
    assert table.acquire("c") is None
    assert table.gets("b") == 2
    table.release("b")
    assert table.after(0.0).told["c"] == {"turn": True}
    assert table.gets("c") == 3


def test_a_lease_counts_from_the_request_that_was_granted_and_ends_by_itself() -> None:
    """Not from when its owner began to wait; and each renewal begins it anew."""
    table = Table()
    table.gets("a")
    table.wait_for("b", TTL / 2)
    table.release("a")
    table.after(0.0)
    table.gets("b")
    assert table.after(TTL - 0.01).has("b")
    assert table.after(TTL - 0.01).has("b")
    assert not table.after(TTL).has("b")


def test_renewal_and_release_are_the_holders_alone() -> None:
    """Everybody else is told that he doesn't hold it, whoever he was."""
    table = Table()
    table.gets("a")
    table.after(TTL)
    table.gets("b")
    for other in ("a", "c"):
        assert table.lock.renew(other, TTL, table.at) == {"held": False}
        assert table.release(other) == {"held": False}
    assert table.has("b")


def test_a_lease_that_is_over_is_no_ones_though_nobody_took_the_lock() -> None:
    """A renewal that comes too late is refused, and stays so."""
    table = Table()
    table.gets("a")
    assert not table.after(TTL).has("a")
    assert table.restarted().lock.renew("a", TTL, table.at) == {"held": False}


def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    """Neither his place, nor what a request of his that comes late would be granted."""
    table = Table()
    table.gets("a")
    table.acquire("b")
    assert table.release("b") == {"left": True}
    table.release("a")
    assert table.acquire("b") == {"gone": True}
    assert table.gets("c") == 2


def test_a_place_lasts_as_long_as_its_owner_asks_and_then_the_next_one_has_his_turn() -> None:
    """A waiter who is dead, or asleep, keeps the others out for half a lease at most."""
    table = Table()
    table.gets("a")
    table.acquire("b")
    table.after(WAIT)
    assert table.told["b"] == {"queued": True}
    table.acquire("c")
    table.release("a")
    table.after(0.0)
    assert "c" not in table.told
    table.after(PLACE - WAIT)
    assert table.told["c"] == {"turn": True}
    table.gets("c")
    assert table.acquire("b") is None  # at the end of the queue


def test_one_whose_place_was_lost_while_he_waited_is_told_so() -> None:
    """As after a freeze of the server: nobody waits for an answer that never comes."""
    table = Table()
    table.gets("a")
    table.acquire("b")
    assert table.after(10 * TTL).told["b"] == {"queued": False}


def test_a_grant_whose_answer_was_lost_is_told_again() -> None:
    """To the same owner, with the same token; its lease counts from the new request."""
    table = Table()
    assert table.gets("a") == table.after(1.5).gets("a") == 1
    assert table.after(1.5).has("a")


def test_what_was_granted_outlives_the_server() -> None:
    """Holder and count of tokens; the lease begins anew, because nobody knows how long the server was away."""
    table = Table()
    table.gets("a")
    table.after(1.9)
    again = table.restarted()
    assert again.acquire("b") is None
    assert again.after(1.9).has("a")
    again.release("a")
    again.release("b")
    assert again.gets("c") == 2


def test_a_jump_of_the_wall_clock_ends_nothing() -> None:
    """Neither a lease nor a place."""
    table = Table()
    table.gets("a")
    table.acquire("b")
    table.after(0.1, wall=3600.0)
    assert table.has("a")
    assert "b" not in table.told


# -- the wrong ones ---------------------------------------------------------------------------------------------------


def foreign_release(table: Table) -> bool:
    table.gets("a")
    return table.release("b") == {"released": True} and not table.has("a")


def foreign_renewal(table: Table) -> bool:
    table.gets("a")
    table.after(TTL)
    table.gets("b")
    return table.has("a") and table.after(0.0).has("b")


def renewal_of_one_that_ran_out(table: Table) -> bool:
    table.gets("a")
    table.after(TTL)
    table.gets("b")
    return table.has("a") and not table.has("c")


def leases_by_the_wall_clock(table: Table) -> bool:
    table.gets("a")
    return not table.after(0.0, wall=TTL).has("a")


def ends_early(table: Table) -> bool:
    table.gets("a")
    return not table.after(TTL * EARLY).has("a")


def forgets_its_tokens(table: Table) -> bool:
    table.gets("a")
    table.release("a")
    return table.restarted().gets("b") == 1


def gives_a_token_twice(table: Table) -> bool:
    first = table.gets("a")
    table.acquire("b")
    table.release("a")
    table.after(0.0)
    return table.gets("b") == first


def grants_to_one_who_lost_his_place(table: Table) -> bool:
    table.gets("a")
    table.acquire("b")
    table.release("a")
    table.after(0.0)
    table.after(PLACE)
    table.gets("c")
    answer = table.acquire("b")
    return answer is not None and not table.has("c")


def grants_twice_at_once(table: Table) -> bool:
    table.acquire("a")
    table.after(0.0).acquire("b")
    table.after(SETTLING_SECONDS)
    return "granted" in table.told.get("a", {}) and "granted" in table.told.get("b", {})


def is_wedged_by_one_who_gave_up(table: Table) -> bool:
    table.gets("a")
    table.acquire("b")
    table.release("b")
    table.release("a")
    waits = table.after(100 * TTL).acquire("c") is None
    return waits and table.after(0.0).acquire("c") is None


SHOWS = {
    "release-unowned": foreign_release,
    "renew-unowned": foreign_renewal,
    "renews-the-over": renewal_of_one_that_ran_out,
    "wall-clock": leases_by_the_wall_clock,
    "early-expiry": ends_early,
    "forgets-tokens": forgets_its_tokens,
    "token-twice": gives_a_token_twice,
    "grants-the-gone": grants_to_one_who_lost_his_place,
    "grants-in-a-race": grants_twice_at_once,
    "leaks-waiters": is_wedged_by_one_who_gave_up,
}


def test_every_bug_has_what_shows_it() -> None:
    """None is a switch that switches nothing."""
    assert set(SHOWS) == set(BUGS)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_shows_where_it_is_and_nowhere_else(bug: str) -> None:
    """What shows it is right in a server without it."""
    assert SHOWS[bug](Table(bug))
    assert not SHOWS[bug](Table())


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug != "grants-in-a-race"])
def test_a_bug_leaves_alone_who_does_nothing_that_it_is_about(bug: str) -> None:
    """One holder after another, each in time: every one of these is a lock then, which is why such bugs live long."""
    table = Table(bug)
    for owner in "abc":
        table.gets(owner)
        assert table.after(TTL / 3).has(owner)
        assert table.release(owner) == {"released": True}
