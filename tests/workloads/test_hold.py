"""What a guarded and a naive contender believe, and when they stop believing."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from tests.waiting import until
from tests.workloads.scripted import TTL, Stage, pause, words
from workloads.clients.base import Answered
from workloads.contender import MARGIN, Hold


def hold_of(stage: Stage) -> Hold:
    hold = stage.contender.acquire(1.0, hold=0.5)
    assert hold is not None
    return hold


def no_answer() -> Answered:
    return Answered("info", error="timeout")


def not_held() -> Answered:
    return Answered("fail", held=False, error="not yours")


def test_a_guarded_contender_stops_believing_at_its_deadline() -> None:
    """Without a renewal it says `lost` a margin before the ttl has passed since the request was sent; not earlier."""
    stage = Stage(guarded=True, renew=no_answer)
    hold = hold_of(stage)
    assert hold.begin_write()
    until(lambda: not hold.believes, "the deadline")
    assert not hold.begin_write()
    hold.release()
    events = stage.events()
    granted = next(event for event in events if event["f"] == "acquire" and event["type"] == "ok")
    lost = [event for event in events if event["f"] == "lost"]
    assert [event["reason"] for event in lost] == ["deadline"]
    seconds = (lost[0]["time"] - granted["lease_from"]) / 1e9
    assert seconds >= TTL * (1 - MARGIN)  # the machine may be busy; never early


def test_a_lock_that_never_expires_has_no_deadline() -> None:
    """Nobody answers its questions, and it believes on; the service's word that it isn't held ends that."""
    answers = [no_answer]
    stage = Stage(guarded=True, renew=lambda: answers[-1](), expires=False)
    hold = hold_of(stage)
    end = time.monotonic() + 2 * TTL
    until(lambda: time.monotonic() > end, "two ttl")
    assert hold.begin_write()
    answers.append(not_held)
    until(lambda: not hold.believes, "the service's word")
    hold.release()
    events = stage.events()
    granted = next(event for event in events if event["f"] == "acquire" and event["type"] == "ok")
    assert "ttl" not in granted
    assert [event["reason"] for event in events if event["f"] == "lost"] == ["expired"]


def test_a_renewal_moves_the_deadline() -> None:
    """As long as renewals succeed the contender believes, far beyond its first deadline. On a machine so busy that the
    next one came too late it stops, at the deadline of the last one; then once more.
    """
    for _ in range(10):
        stage = Stage(guarded=True, ttl=1.0)
        hold = hold_of(stage)
        end = time.monotonic() + 2.0
        until(lambda end=end: time.monotonic() > end, "two ttl")  # type: ignore[misc]
        may_write = hold.begin_write()
        hold.release()
        events = stage.events()
        lost = [event["time"] for event in events if event["f"] == "lost"]
        assert may_write is not bool(lost)
        if not lost:
            return
        renewals = [event for event in events if event["f"] == "renew" and event["time"] <= lost[0]]
        sent = [before["time"] for before, after in pairwise(renewals) if after["type"] == "ok"]
        assert not sent or lost[0] - sent[-1] >= (1 - MARGIN) * 1e9
    pytest.fail("ten holds were never renewed in time")


def test_a_naive_contender_acts_until_it_releases() -> None:
    """It renews as well, but whatever became of that, it says no `lost` and goes on writing."""
    for renew in (no_answer, not_held):
        stage = Stage(guarded=False, renew=renew)
        hold = hold_of(stage)
        end = time.monotonic() + 1.5 * TTL
        until(lambda end=end: time.monotonic() > end, "one and a half ttl")  # type: ignore[misc]
        assert hold.begin_write()
        hold.release()
        said = list(words(stage.events()))
        assert "lost.info" not in said
        assert any(word.startswith("renew.") for word in said)


def test_the_service_s_word_is_lost_at_once_and_once() -> None:
    """A renewal that the service refuses as not held is `expired`; the deadline that passes later adds nothing."""
    stage = Stage(guarded=True, renew=not_held)
    hold = hold_of(stage)
    until(lambda: not hold.believes, "the renewal")
    end = time.monotonic() + 1.5 * TTL
    until(lambda: time.monotonic() > end, "the deadline")
    hold.release()
    events = stage.events()
    assert [event["reason"] for event in events if event["f"] == "lost"] == ["expired"]
    renewals = [event for event in events if event["f"] == "renew" and event["type"] != "invoke"]
    assert renewals == [{**renewals[0], "type": "fail", "held": False, "error": "not yours"}]


def test_a_client_s_own_word_is_heard() -> None:
    """What the service tells the client unasked (a session that has expired) ends the belief too."""
    stage = Stage(guarded=True)
    hold = hold_of(stage)
    stage.client.config.on_lost("expired")
    assert not hold.believes
    hold.release()
    stage.client.config.on_lost("expired")  # nobody holds any more: nothing to say
    assert list(words(stage.events())).count("lost.info") == 1


def test_a_doubtful_client_lets_a_guarded_contender_write_nothing() -> None:
    """Without a connection it keeps believing, but waits with its writes; a naive one doesn't ask."""
    for guarded in (True, False):
        stage = Stage(guarded=guarded)
        hold = hold_of(stage)
        stage.client.doubt = True
        assert hold.begin_write() is not guarded
        assert hold.believes
        hold.release()
        stage.events()


def test_after_an_unknown_renewal_the_next_comes_sooner() -> None:
    """There must be time for a second try before the lease runs out."""
    stage = Stage(guarded=True, renew=no_answer)
    hold = hold_of(stage)
    until(lambda: not hold.believes, "the deadline")
    hold.release()
    tries = [event["time"] for event in stage.events() if event["f"] == "renew" and event["type"] == "invoke"]
    gaps = [after - before for before, after in pairwise(tries)]
    assert min(gaps) < stage.client.renew_every_seconds * 0.7 * 1e9


def test_a_hold_that_was_lost_is_released_all_the_same() -> None:
    """A lease that is still alive would keep the others out for nothing."""
    stage = Stage(guarded=True, release=not_held)
    hold = hold_of(stage)
    hold.lose("expired")
    hold.release()
    assert list(words(stage.events()))[-3:] == ["lost.info", "release.invoke", "release.fail"]


def test_no_renewal_is_sent_after_the_release() -> None:
    """It could be answered "not held" and look like an early end; and lines stay in the order of their times."""
    for _ in range(20):
        stage = Stage(guarded=True, ttl=0.03)
        hold = hold_of(stage)
        pause(0.012)
        hold.release()
        events = stage.events()
        said = list(words(events))
        assert "renew.invoke" not in said[said.index("release.invoke") :]
        times = [event["time"] for event in events]
        assert times == sorted(times)


@pytest.mark.parametrize("error", ["x" * 10_000, "ü" * 5000])
def test_a_long_error_stays_within_one_pipe_write(error: str) -> None:
    """A line longer than PIPE_BUF could be torn by a kill."""
    stage = Stage(guarded=True, release=lambda: Answered("info", error=error))
    hold_of(stage).release()
    event = stage.events()[-1]
    assert error.startswith(event["error"])
    assert len(str(event).encode()) < 4096
