"""Hold until told: one that has said that it holds doesn't release before it is let go, whatever its job planned."""

from __future__ import annotations

import itertools
import json
import threading
import time
from typing import Any

import pytest

from tests.waiting import until
from tests.workloads.scripted import Stage, pause, words
from tests.workloads.test_conduct import Paper, workload
from tests.workloads.test_hold import hold_of, no_answer
from tests.workloads.test_process import Process, spawn  # noqa: F401 - a fixture
from workloads.contender import Hold
from workloads.lock import LockWorkload


def thinking(stage: Stage, paper: Paper) -> LockWorkload:
    """A job that takes its time, so that all that it says fits into the pipe that nobody reads yet."""
    job = workload(stage, paper)
    job.resolved |= {"think_min": 0.01, "think_max": 0.02}
    return job


def answers(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(event["id"], event["holds"]) for event in events if event["f"] == "hold"]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_job_that_is_done_goes_on_until_it_is_let_go(guarded: bool) -> None:
    """It writes on, round after round, and releases soon after it was let go. A naive one obeys like a guarded one."""
    stage = Stage(guarded=guarded)
    paper = Paper()
    job = thinking(stage, paper)
    hold = hold_of(stage)
    stage.contender.hold_until_told("h1", 60.0)
    thread = threading.Thread(target=lambda: (job._work(hold, 0.0), hold.release()))
    thread.start()
    until(lambda: paper.taken >= 6, "three rounds of a job of none")
    assert thread.is_alive()
    stage.contender.let_go("h1")
    thread.join(60)
    assert not thread.is_alive()
    events = stage.events()
    assert answers(events) == [("h1", True)]
    said = list(words(events))
    assert said.index("let_go.info") < said.index("release.invoke")
    assert next(event for event in events if event["f"] == "hold")["token"] == 1


def test_a_workload_that_never_asks_is_kept_from_releasing_too() -> None:
    """Somebody else's workload just releases: that waits."""
    stage = Stage(guarded=False)
    hold = hold_of(stage)
    stage.contender.hold_until_told("h1", 60.0)
    thread = threading.Thread(target=hold.release)
    thread.start()
    pause(0.1)
    stage.contender.let_go("h1")
    thread.join(60)
    said = list(words(stage.events()))
    assert said.index("hold.info") < said.index("let_go.info") < said.index("release.invoke")


def test_whoever_does_not_hold_says_so() -> None:
    """Nothing is held; or the job has begun to leave; or the hold was lost."""
    stage = Stage(guarded=True)
    stage.contender.hold_until_told("h1", 60.0)
    hold = hold_of(stage)
    hold.lose("expired")
    stage.contender.hold_until_told("h2", 60.0)
    stage.contender.let_go("h2")
    hold.release()
    leaving = hold_of(stage)
    assert leaving.leave()
    stage.contender.hold_until_told("h3", 60.0)
    leaving.release()
    assert answers(stage.events()) == [("h1", False), ("h2", False), ("h3", False)]


def test_an_order_and_the_end_of_a_job_exclude_each_other() -> None:
    """Whichever comes first, in one step: no release follows an order that was taken, and none is taken in leaving."""
    for number in itertools.count():
        stage = Stage(guarded=False, ttl=60.0)
        hold = hold_of(stage)
        left: list[bool] = []
        ordering = threading.Thread(target=lambda stage=stage: stage.contender.hold_until_told("h1", 60.0))
        leaving = threading.Thread(target=lambda hold=hold, left=left: left.append(hold.leave()))
        for thread in (ordering, leaving) if number % 2 else (leaving, ordering):
            thread.start()
        ordering.join()
        leaving.join()
        stage.contender.let_go("h1")
        hold.release()
        assert answers(stage.events()) == [("h1", not left[0])]
        if number == 50:
            break


def test_a_contender_that_loses_its_hold_while_it_is_told_writes_no_more_and_waits() -> None:
    """What it holds at the service is not given up: its lease is to run out. What it believes is over."""
    stage = Stage(guarded=True, renew=no_answer)
    paper = Paper()
    job = thinking(stage, paper)
    hold = hold_of(stage)
    stage.contender.hold_until_told("h1", 60.0)
    thread = threading.Thread(target=lambda: (job._work(hold, 0.0), hold.release()))
    thread.start()
    until(lambda: not hold.believes, "the deadline")
    taken = paper.taken
    pause(0.1)
    assert thread.is_alive()
    assert paper.taken <= taken + 2  # the round that was under way
    stage.contender.let_go("h1")
    thread.join(60)
    said = list(words(stage.events()))
    assert said.index("lost.info") < said.index("let_go.info") < said.index("release.invoke")


def test_a_stop_ends_it_and_so_does_its_own_bound() -> None:
    """A harness that forgot must not keep the lock from everybody for ever."""

    def released(hold: Hold) -> float:
        began = time.monotonic()
        hold.release()
        return time.monotonic() - began

    stage = Stage(guarded=False, ttl=60.0)
    hold = hold_of(stage)
    stage.contender.hold_until_told("h1", 0.2)
    assert 0.1 < released(hold) < 10
    hold = hold_of(stage)
    stage.contender.hold_until_told("h2", 60.0)
    stage.contender.stopping.set()
    assert released(hold) < 10
    stage.events()


def test_orders_come_over_stdin_and_are_answered_on_stdout(spawn: Any) -> None:  # noqa: F811
    """In the words of the protocol; the hello says that they are understood, a malformed one is left unheeded."""
    process: Process = spawn()
    assert process.hear()["hello"]["holds"] is True
    process.say('{"cmd": "hold", "id": "h0", "seconds": 60}')
    heard = process.hear()
    assert (heard["f"], heard["type"], heard["id"], heard["holds"]) == ("hold", "info", "h0", False)
    process.say('{"cmd": "start"}')
    for number in itertools.count(1):
        process.say(json.dumps({"cmd": "hold", "id": f"h{number}", "seconds": 60}))
        while (heard := process.hear())["f"] != "hold":
            pass
        if heard["holds"]:
            break
    process.say('{"cmd": "hold", "id": true, "seconds": 60}')
    process.say('{"cmd": "hold", "id": "h"}')
    process.say(json.dumps({"cmd": "let_go", "id": heard["id"]}))
    following = [process.hear() for _ in range(2)]
    assert [event["f"] for event in following] == ["let_go", "release"]
    process.say('{"cmd": "stop"}')
    process.rest()
    assert process.popen.stderr is not None
    assert process.popen.stderr.read().decode().count("not a command") == 2
