"""A contender's own record is true of it: no write and no renewal is told of outside its belief.

The races are forced: where the contender looks at what it believes, another thread is let loose on it and given time
to get in between. Whoever looks and tells in one step keeps it out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.waiting import until
from tests.workloads.scripted import Stage, pause, words
from tests.workloads.test_hold import hold_of, no_answer, not_held
from workloads.clients.base import Answered
from workloads.clocks import Flag, Stamp
from workloads.lock import LockWorkload
from workloads.resource import Attempts, Stale

GRACE_SECONDS = 0.3
"""How long an intruder is waited for. One that is kept out takes it all; one that gets in needs microseconds."""


class Intruder:
    """Another thread that acts once, at the moment when `strike` is called."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=act)
        self.struck = False

    def strike(self) -> None:
        if not self.struck:
            self.struck = True
            self._thread.start()
            self._thread.join(GRACE_SECONDS)

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive(), "the intruder never came to its end"


class Paper:
    """Twins that take every write, or refuse every read of the fenced one."""

    def __init__(self, *, stale: bool = False) -> None:
        self.stale, self.reconnects, self.taken = stale, 0, 0

    def read(self, resource: str, token: int | None) -> int:
        if self.stale and resource == "fenced":
            raise Stale(token)
        return 0

    def write(self, *what: Any) -> int:
        self.taken += 1
        return self.taken


def workload(stage: Stage, paper: Paper) -> LockWorkload:
    """The real job, on paper."""
    stage.contender.config = stage.contender.config.__class__(
        **{**vars(stage.contender.config), "resource": {"run": "run"}}
    )
    job = LockWorkload(stage.contender, {"think_min": 0, "think_max": 0})
    job._twins = paper  # type: ignore[assignment]
    return job


def doubt_that_strikes(stage: Stage, intruder: Intruder) -> None:
    """The client is asked whether it is connected while the contender looks whether it may write."""

    class Watched(type(stage.client)):  # type: ignore[misc]
        @property
        def doubtful(self) -> bool:
            intruder.strike()
            return False

    stage.client.__class__ = Watched


def outside_belief(events: list[dict[str, Any]], f: str) -> list[dict[str, Any]]:
    """The invokes of `f` that stand outside the belief of the one process there is, by line."""
    believes, found = False, []
    for event in events:
        kind = (event["f"], event["type"])
        if kind == ("acquire", "ok"):
            believes = True
        elif kind in (("release", "invoke"), ("acquire", "invoke"), ("lost", "info")):
            believes = False
        elif kind == (f, "invoke") and not believes:
            found.append(event)
    return found


@pytest.mark.parametrize("stale", [False, True])
def test_a_write_is_told_of_before_the_loss_that_came_while_it_was_considered(stale: bool) -> None:
    """The service's word arrives between the look and the write: then the write comes first, and none comes after it.

    So does one that was refused at its read already: it stands in the history like any other.
    """
    stage = Stage(guarded=True, ttl=60.0)
    job = workload(stage, Paper(stale=stale))
    hold = hold_of(stage)
    intruder = Intruder(lambda: stage.client.config.on_lost("expired"))
    doubt_that_strikes(stage, intruder)
    job._round(hold, 0.0)
    intruder.join()
    hold.release()
    events = stage.events()
    said = list(words(events))
    assert said.count("lost.info") == 1
    assert "write.invoke" in said
    assert outside_belief(events, "write") == []
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)


def test_a_lost_contender_tells_of_no_write_that_was_refused_at_its_read() -> None:
    """It stopped before it came to write."""
    stage = Stage(guarded=True, ttl=60.0)
    job = workload(stage, Paper(stale=True))
    hold = hold_of(stage)
    hold.lose("expired")
    job._round(hold, 0.0)
    hold.release()
    assert "write.invoke" not in words(stage.events())
    assert stage.contender.counts["refused"] == 1


def test_a_contender_that_has_lost_its_hold_renews_no_more() -> None:
    """It would keep everybody else out of a lock that nobody believes in."""
    stage = Stage(guarded=True, renew=no_answer)
    hold = hold_of(stage)
    until(lambda: not hold.believes, "the deadline")
    keeper = next(thread for thread in hold._threads if thread.name == "keeper")
    keeper.join(60)
    assert not keeper.is_alive(), "it renews a hold that was lost"
    hold.release()
    assert outside_belief(stage.events(), "renew") == []


def test_no_write_gets_in_between_the_service_s_refusal_and_the_loss() -> None:
    """From the answer "not held" on the contender knows."""
    stage = Stage(guarded=True, renew=not_held)
    hold = hold_of(stage)
    intruder = Intruder(lambda: hold.begin_write(resource="unfenced"))
    tell = stage.contender.events.event

    def event(type_: str, f: str, **keys: Any) -> int:
        time = tell(type_, f, **keys)
        if (type_, f) == ("fail", "renew"):
            intruder.strike()
        return time

    stage.contender.events.event = event  # type: ignore[method-assign]
    until(lambda: not hold.believes, "the refusal")
    intruder.join()
    hold.release()
    assert "write.invoke" not in words(stage.events())


def test_a_renewal_that_is_on_its_way_ends_before_the_release() -> None:
    """Its answer belongs to a hold that still stands: behind the release it could revive what was given up."""
    under_way, go_on = Flag(), Flag()

    def renew() -> Answered:
        under_way.set()
        assert go_on.wait(60)
        return Answered("ok")

    stage = Stage(guarded=True, ttl=3.0, renew=renew)
    hold = hold_of(stage)
    assert under_way.wait(60)
    releasing = threading.Thread(target=hold.release)
    releasing.start()
    releasing.join(GRACE_SECONDS)
    go_on.set()
    releasing.join(60)
    said = list(words(stage.events()))
    assert said[2:] == ["renew.invoke", "renew.ok", "release.invoke", "release.ok"]


def test_the_deadline_is_watched_while_a_release_waits_for_a_renewal() -> None:
    """A renewal that hangs makes nobody believe for longer."""
    under_way, go_on = Flag(), Flag()

    def renew() -> Answered:
        under_way.set()
        assert go_on.wait(60)
        return Answered("info", error="timeout")

    stage = Stage(guarded=True, renew=renew)
    hold = hold_of(stage)
    assert under_way.wait(60)
    releasing = threading.Thread(target=hold.release)
    releasing.start()
    until(lambda: not hold.believes, "the deadline")
    go_on.set()
    releasing.join(60)
    assert list(words(stage.events()))[2:] == [
        "renew.invoke",
        "lost.info",
        "renew.info",
        "release.invoke",
        "release.ok",
    ]


def test_an_answer_that_proves_nothing_is_told_as_such() -> None:
    """A service that says ok for anything must not be accused by it; and the answers of others say nothing of it."""
    stage = Stage(guarded=True, release=lambda: Answered("ok", proves=False))
    hold_of(stage).release()
    assert stage.events()[-1]["proves"] is False
    stage = Stage(guarded=True)
    hold_of(stage).release()
    assert "proves" not in stage.events()[-1]


def test_every_attempt_has_an_id_and_a_version_of_its_own() -> None:
    """However fast they come, and also when the contender is started again in the same trial."""
    made = []
    epoch = Stamp.now().boot_ns
    for _start in range(3):
        attempts = Attempts(7, epoch)
        made += [attempts.next() for _ in range(100)]
        pause(0.01)  # no process starts faster
    assert len({attempt.id for attempt in made}) == len(made)
    assert len({attempt.version for attempt in made}) == len(made)
    assert all(attempt.id % 1000 == attempt.version % 1000 == 7 for attempt in made)
