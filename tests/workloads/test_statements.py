"""The statement job on paper: how a batch becomes events, and when it is not sent."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.workloads.scripted import Stage, pause
from tests.workloads.test_hold import hold_of
from workloads import statements
from workloads.contender import Hold, Order
from workloads.mailing import Look
from workloads.resource import Attempts, ResourceError, Stale
from workloads.statements import StatementsWorkload
from workloads.validate import BadConfig

CUSTOMERS = (3, 4, 5)


class Paper:
    """A mail room on paper, that takes everything but what the test says. What it is sent is in `came`."""

    def __init__(self, *, stale_look: bool = False, refusal: ResourceError | None = None, taken: int = 3) -> None:
        self.stale_look, self.refusal, self.taken, self.reconnects = stale_look, refusal, taken, 0
        self.came: list[str] = []

    def look(self, world: str, token: int | None, **_: Any) -> Look:
        if self.stale_look and world == "fenced":
            raise Stale(token)
        return Look(1, None if world == "idempotent" else 70, CUSTOMERS)

    def send(self, world: str, token: int | None, look: Look, attempt: Any) -> int:
        if self.refusal is not None and world == "fenced":
            raise self.refusal
        self.came.append(world)
        return 9

    def file(self, token: int | None, look: Look, attempt: Any) -> int:
        self.came.append("idempotent")
        return self.taken


def job(stage: Stage, paper: Paper, **parameters: float) -> StatementsWorkload:
    """The real job, on paper."""
    config = stage.contender.config
    stage.contender.config = config.__class__(**{**vars(config), "resource": {"run": "run"}})
    made = StatementsWorkload(stage.contender, {"render_min": 0, "render_max": 0, **parameters})
    made._mail = paper  # type: ignore[assignment]
    made._attempts = Attempts(3, config.epoch_ns)
    return made


def batches(stage: Stage) -> list[dict[str, Any]]:
    return [event for event in stage.events() if event["f"] in ("write", "send")]


def test_a_batch_is_a_write_to_each_twin_and_a_send_to_the_third_world() -> None:
    """The twins' are judged by the verdicts, with all that these ask for; the third has no place among them."""
    stage, paper = Stage(guarded=False), Paper(taken=1)
    hold = hold_of(stage)
    job(stage, paper)._batch(hold, 0.0)
    hold.release()
    told = batches(stage)
    assert [(event["f"], event["type"], event.get("resource") or event["world"]) for event in told] == [
        (f, kind, world)
        for f, world in (("write", "unfenced"), ("write", "fenced"), ("send", "idempotent"))
        for kind in ("invoke", "ok")
    ]
    for event in told[:4]:
        assert (event["read"], event["token"], event["month"], event["customers"]) == (70, 1, 1, "3-5")
    assert [event.get("seq") for event in told[:4]] == [None, 9, None, 9]
    assert (told[5]["taken"], told[5]["swallowed"]) == (1, 2)
    assert len({event["id"] for event in told}) == 3


def test_a_batch_that_is_refused_at_the_look_is_told_of_and_the_other_worlds_go_on() -> None:
    """They are worlds of one job."""
    stage, paper = Stage(guarded=False), Paper(stale_look=True)
    hold = hold_of(stage)
    job(stage, paper)._batch(hold, 0.0)
    hold.release()
    fenced = [event for event in batches(stage) if event.get("resource") == "fenced"]
    assert [event["type"] for event in fenced] == ["invoke", "fail"]
    assert "customers" not in fenced[0]
    assert paper.came == ["unfenced", "idempotent"]


@pytest.mark.parametrize("refusal", [Stale(1), ResourceError("info", "no answer")])
def test_a_refusal_and_an_answer_that_is_missing_are_told_as_what_they_are(refusal: ResourceError) -> None:
    """`fail` when nothing was sent, `info` when nobody knows."""
    stage, paper = Stage(guarded=False), Paper(refusal=refusal)
    hold = hold_of(stage)
    made = job(stage, paper)
    made._batch(hold, 0.0)
    hold.release()
    assert [event["type"] for event in batches(stage) if event.get("resource") == "fenced"] == ["invoke", refusal.type]
    assert stage.contender.counts["refused"] == isinstance(refusal, Stale)


def test_whoever_knows_that_its_lease_is_over_sends_nothing() -> None:
    """A guarded holder is paused in the middle of a batch: what it has rendered stays with it."""
    stage, paper = Stage(guarded=True), Paper()
    hold = hold_of(stage)
    made = job(stage, paper)
    made._contender.random.seed(1)
    hold.lose("expired")
    made._batch(hold, 0.0)
    hold.release()
    assert batches(stage) == []
    assert paper.came == []


def test_whoever_is_told_to_hold_stays_with_the_batch_in_its_hands() -> None:
    """So that a pause finds it between the look and the sending; let go, it sends."""
    stage, paper = Stage(guarded=False), Paper()
    hold, order = hold_of(stage), Order("h1", 60.0)
    assert hold.keep(order)
    thread = threading.Thread(target=job(stage, paper)._batch, args=(hold, 0.0))
    thread.start()
    pause(0.2)  # it would have sent a thousand times
    assert paper.came == []
    order.let_go()
    thread.join(60)
    assert paper.came == ["unfenced", "fenced", "idempotent"]
    hold.release()
    stage.events()


def test_whoever_wakes_from_a_pause_sends_what_it_had_in_its_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is told to hold still: it knows of no pause, and whoever hit it lets it go once it has seen that."""
    ticks = itertools.count()  # each look comes a second later than the last
    monkeypatch.setattr(statements, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    stage, paper = Stage(guarded=False), Paper()
    hold, order = hold_of(stage), Order("h1", 60.0)
    assert stage.contender.config.ttl < 2
    assert hold.keep(order)
    job(stage, paper)._batch(hold, 0.0)
    assert hold.told_to_hold
    assert paper.came == ["unfenced", "fenced", "idempotent"]
    order.let_go()
    hold.release()
    stage.events()


def test_whoever_was_told_to_hold_leaves_when_it_is_let_go_whatever_it_had_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Having slept through its lease, it would go on for longer than another: nobody could blame the pause for that."""
    stage, paper = Stage(guarded=False), Paper()
    made, hold, order = job(stage, paper), hold_of(stage), Order("h1", 60.0)
    batch = made._batch

    def paused(hold: Hold, seconds: float) -> None:
        """The order comes in a batch, and so does its end."""
        assert hold.keep(order)
        order.let_go()
        batch(hold, seconds)

    monkeypatch.setattr(made, "_batch", paused)
    made._work(hold, 50)
    hold.release()
    assert paper.came == ["unfenced", "fenced", "idempotent"]
    stage.events()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"batch": 2.5}, "must be a whole number"),
        ({"customers": 0}, "must lie between 1 and 100000"),
        ({"batches_min": 9, "batches_max": 2}, r"must not be above batches_max \(2\)"),
        ({"costumers": 3}, "unknown"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_named(given: dict[str, float], reason: str) -> None:
    """At the border, before anything is started."""
    with pytest.raises(BadConfig, match=reason):
        StatementsWorkload.resolve(given)
