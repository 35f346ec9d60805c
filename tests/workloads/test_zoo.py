"""The locks that are wrong on purpose are wrong in the way that they say, and in no other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from workloads.clients.base import Checked, ClientConfig
from workloads.clients.zoo import buddies, forever, late
from workloads.clocks import Flag

TTL = 0.4


def config(process: int) -> ClientConfig:
    """Both buddies on this host, each at an address of its own, which no other process of the tests has."""
    mine = f"127.{1 + os.getpid() % 250}.{os.getpid() // 250 % 256}"
    settings = {"endpoints": [["127.0.0.1", 1]], "buddies": [f"{mine}.1", f"{mine}.2"]}
    return ClientConfig(settings, "lock", TTL, process, TTL / 3, lambda reason: None)


class Wire:
    """Whether a buddy's words reach the other one."""

    def __init__(self) -> None:
        self.cut = False


class Local(buddies.BuddyLock):
    """A buddy that listens at its own address only, on a wire that can be cut."""

    wire: Wire
    listening: Callable[[], object] = staticmethod(lambda: None)
    """Called whenever it begins to listen for a word."""

    def connect(self, timeout_seconds: float) -> str | None:
        """As it is, but beside the other one on one host."""
        own, other = self._names[self._config.process], self._names[1 - self._config.process]
        self._other = (other, buddies.PORT)
        self._socket.bind((own, buddies.PORT))
        return None

    def _hear(self, seconds: float) -> bytes | None:
        self.listening()
        return super()._hear(seconds)

    def _say(self, word: bytes) -> None:
        if not self.wire.cut:
            super()._say(word)


@pytest.fixture
def pair() -> Iterator[tuple[Checked, Checked, Wire]]:
    wire = Wire()
    made = []
    for process in range(2):
        lock = Local(config(process))
        lock.wire = wire
        assert lock.connect(1.0) is None
        made.append(Checked(lock))
    yield made[0], made[1], wire
    for each in made:
        each.close()


def test_one_buddy_leads_while_it_is_heard_and_the_other_when_it_says_bye(pair: tuple[Checked, Checked, Wire]) -> None:
    """As long as the wire holds the pair is a lock, which is why people build it.

    The first one's heart beats whenever the second listens: by itself it could miss a beat on a busy machine.
    """
    first, second, _ = pair
    never = Flag()
    assert first.acquire(5.0, never).type == "ok"
    waiting = second.client
    assert isinstance(waiting, Local)
    waiting.listening = first.renew
    refused = second.acquire(4 * TTL, never)
    waiting.listening = lambda: None
    assert (refused.type, refused.error) == ("fail", "the other one is alive")
    first.release()
    assert second.acquire(5.0, never).type == "ok"
    assert not second.renew().proves
    never.close()


def test_both_buddies_lead_when_the_wire_is_cut(pair: tuple[Checked, Checked, Wire]) -> None:
    """The first one goes on as if nothing had happened: nobody tells it."""
    first, second, wire = pair
    never = Flag()
    assert first.acquire(5.0, never).type == "ok"
    wire.cut = True
    assert second.acquire(5.0, never).type == "ok"
    assert first.renew().type == "ok"
    never.close()


def test_a_third_buddy_is_refused() -> None:
    """Two is what the mistake is about."""
    lock = buddies.BuddyLock(config(2))
    assert lock.connect(0.1) == "there are two buddies, and this would be number 3"
    lock.close()


def test_the_lock_without_expiry_sets_none() -> None:
    """Neither with the acquire, nor by a renewal, which would mend it."""
    scripts = forever.ForeverLock.acquire_script + forever.ForeverLock.renew_script
    assert "setnx" in scripts
    assert not any(word in scripts.lower() for word in ("px", "expire", "'ex'"))


def test_the_late_lock_renews_when_its_lease_is_over() -> None:
    """Not a moment before, whatever is asked for."""
    assert late.LateLock(config(0)).renew_every_seconds == TTL
