"""How what a library renews by itself is told in the history: never later than it was, and never as another's."""

from __future__ import annotations

from typing import Any

from tests.workloads.scripted import Stage, words
from workloads.clients.base import Acquired, Answered
from workloads.clocks import Stamp
from workloads.contender import Hold


def stage(*, numbers: list[int]) -> Stage:
    """A contender whose client renews by itself; its grants have these numbers, the last one failing at its end."""
    given = iter(numbers)

    def acquire() -> Acquired:
        number = next(given)
        if number < 0:
            return Acquired("fail", error="busy", grant=-number)
        return Acquired("ok", number, 60.0, Stamp.now(), grant=number)

    made = Stage(holder="trusting", acquire=acquire)
    made.contender.client.renews_itself = True
    return made


def granted(made: Stage) -> Hold:
    hold = made.contender.acquire(1.0)
    assert hold is not None
    return hold


def renewals(made: Stage) -> list[dict[str, Any]]:
    return [event for event in made.events() if event["f"] == "renew"]


def test_one_is_told_from_when_it_was_sent() -> None:
    """Its invoke bears the client's stamp, its ok the instant at which it was heard."""
    made = stage(numbers=[1])
    granted(made)
    sent = Stamp.now()
    made.contender.grant_renewed(1, sent, True)
    invoke, ok = renewals(made)
    assert invoke["time"] == made.contender.events.relative(sent.boot_ns) < ok["time"]
    assert ok["type"] == "ok"


def test_of_two_that_are_heard_late_the_second_promises_nothing() -> None:
    """It was sent before the first was told of, and a renew of its own would have to begin after that: too late."""
    made = stage(numbers=[1])
    granted(made)
    first, second = Stamp.now(), Stamp.now()
    made.contender.grant_renewed(1, first, True)
    made.contender.grant_renewed(1, second, True)
    told = renewals(made)
    assert [event["type"] for event in told] == ["invoke", "ok", "invoke", "info"]
    assert told[1]["time"] <= told[2]["time"]
    assert made.contender.counts["renewals_out_of_order"] == 1


def test_one_from_before_the_grant_was_told_promises_nothing() -> None:
    """Nobody's own, it would be taken for a stray one, and accuse the contender."""
    made = stage(numbers=[1])
    made.contender.grant_renewed(1, Stamp.now(), True)
    early = Stamp.now()
    granted(made)
    made.contender.grant_renewed(1, early, True)
    assert [event["type"] for event in renewals(made)] == ["invoke", "info"] * 2


def test_one_of_what_was_given_up_is_told_as_it_was() -> None:
    """A heartbeat that outlives the release keeps others out: `conduct` must see it."""
    made = stage(numbers=[1, -2])
    granted(made).release()
    made.contender.grant_renewed(1, Stamp.now(), True)
    assert made.contender.acquire(1.0) is None
    made.contender.grant_renewed(2, Stamp.now(), True)  # of a lock that it never got
    assert list(words(renewals(made))) == ["renew.invoke", "renew.ok"] * 2


def test_one_that_is_sent_while_the_release_is_on_its_way_to_the_library_is_no_misconduct() -> None:
    """The library could not know of it: by our stamp its release has begun, by its own nobody has asked for one. So it
    is told as sent before; where it beats on after it has answered, the test above holds.
    """
    made = stage(numbers=[1])
    made.client.script = {
        **made.client.script,
        "release": lambda: made.contender.grant_renewed(1, Stamp.now(), True) or Answered("ok"),
    }
    granted(made).release()
    told = sorted(made.events(), key=lambda event: event["time"])
    assert list(words(told))[2:4] == ["renew.invoke", "release.invoke"]
    assert list(words(told))[4:] == ["renew.ok", "release.ok"]


def test_one_of_an_older_grant_is_not_taken_for_the_next_one_s() -> None:
    """It would lengthen what was promised to that."""
    made = stage(numbers=[1, 2])
    granted(made).release()
    granted(made)
    made.contender.grant_renewed(1, Stamp.now(), True)
    assert renewals(made) == []
    assert made.contender.counts["renewals_of_others"] == 1


def test_what_is_lost_before_it_was_told_is_lost_at_once() -> None:
    """The word may come before the contender has heard that it was granted. Of what is over it ends nothing."""
    made = stage(numbers=[1, 2])
    made.contender.grant_lost(1, "expired")
    hold = granted(made)
    assert not hold.believes
    hold.release()
    made.contender.grant_lost(1, "expired")
    assert granted(made).believes
    said = list(words(made.events()))
    assert said[:3] == ["acquire.invoke", "acquire.ok", "lost.info"]
    assert said.count("lost.info") == 1
