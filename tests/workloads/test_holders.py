"""Kinds of holders: what a contender makes of what it is told about its own hold."""

from __future__ import annotations

import time
from itertools import count

import pytest

from harness.errors import ConfigError
from harness.trial.config import TrialConfig, from_mapping, resolve
from tests.waiting import until
from tests.workloads.scripted import TTL, Stage, words
from tests.workloads.test_conduct import Paper, workload
from tests.workloads.test_hold import hold_of, no_answer, not_held
from workloads.clients.base import Acquired
from workloads.holders import holder_of


def refused() -> Acquired:
    return Acquired("fail", error="held by another")


def lost(stage: Stage) -> list[str]:
    return [event["reason"] for event in stage.events() if event["f"] == "lost"]


def test_a_trusting_contender_has_no_deadline_of_its_own() -> None:
    """Its library says nothing, so it goes on beyond its lease; once that says that it is lost, no more."""
    stage = Stage(holder="trusting", renew=no_answer)
    hold = hold_of(stage)
    end = time.monotonic() + 2 * TTL
    until(lambda: time.monotonic() > end, "two ttl")
    stage.client.doubt = True  # nor does it look at the connection
    assert hold.begin_write()
    stage.client.config.on_lost("disconnected")
    assert not hold.begin_write()
    hold.release()
    assert lost(stage) == ["disconnected"]


def test_a_trusting_contender_believes_a_renewal_that_was_refused() -> None:
    """`held: false` is the service's word."""
    stage = Stage(holder="trusting", renew=not_held)
    hold = hold_of(stage)
    until(lambda: not hold.believes, "the refusal")
    assert not hold.begin_write()
    hold.release()
    assert lost(stage) == ["expired"]


def test_a_careless_contender_is_told_and_goes_on() -> None:
    """What it was told stands in its history, and it writes all the same."""
    stage = Stage(holder="careless", renew=not_held)
    hold = hold_of(stage)
    until(lambda: not hold.believes, "the refusal")
    assert hold.begin_write()
    assert hold.goes_on
    hold.release()
    said = list(words(stage.events()))
    assert said.index("lost.info") < said.index("write.invoke")


def test_a_careless_contender_does_its_job_without_a_grant() -> None:
    """It writes to what knows no tokens, renews nothing, gives nothing back, and is no holder for anybody's order."""
    answers = count()
    stage = Stage(holder="careless", acquire=refused, renew=lambda: next(answers))
    hold = hold_of(stage)
    assert not hold.granted
    assert stage.contender.holding is None
    paper = Paper()
    workload(stage, paper)._work(hold, 0.0)
    stage.contender.hold_until_told("h1", 60)
    hold.release()
    said = list(words(stage.events()))
    assert [word for word in said if not word.startswith("write")] == ["acquire.invoke", "acquire.fail", "hold.info"]
    assert said.count("write.ok") == paper.taken == 1
    assert next(answers) == 0


@pytest.mark.parametrize("holder", ["guarded", "trusting", "naive"])
def test_nobody_else_presumes(holder: str) -> None:
    """An acquire that did not succeed is no hold."""
    assert Stage(holder=holder, acquire=refused).contender.acquire(1.0) is None


def test_the_kind_can_be_said_in_its_older_words() -> None:
    """`guarded` is taken wherever `holder` is; both at once are refused, as is a kind that there isn't."""
    assert [holder_of({}), holder_of({"guarded": True}), holder_of({"guarded": False})] == [
        "guarded",
        "guarded",
        "naive",
    ]
    assert holder_of({"holder": "careless", "guarded": False}) == "careless"
    with pytest.raises(ValueError, match="guarded = true says guarded"):
        holder_of({"holder": "naive", "guarded": True})
    assert from_mapping({"system": "redis", "guarded": False}).kind == "naive"
    with pytest.raises(ConfigError, match="guarded: is an older form of holder, which is given too"):
        from_mapping({"system": "redis", "guarded": False, "holder": "naive"})
    with pytest.raises(ConfigError, match="guarded: must be true or false, not 'no'"):
        from_mapping({"system": "redis", "guarded": "no"})
    with pytest.raises(ConfigError, match="must be one of guarded, trusting, naive, careless, not 'brave'"):
        resolve(from_mapping({"system": "redis", "holder": "brave"}))


def test_a_lock_of_the_user_s_own_is_trusted_unless_said_otherwise() -> None:
    """As applications do. What is usual goes without saying, so it tells no cell from another."""
    assert TrialConfig(system="redis").kind == "guarded"
    assert TrialConfig(system="redis", client="zoo-late").kind == "guarded"
    own = TrialConfig(system="redis", client="adapter")
    assert (own.kind, own.slug()) == ("trusting", "redis-none-adapter-trusting")
    said = resolve(TrialConfig(system="redis", holder="guarded"))
    assert said.holder is None
    careless = resolve(TrialConfig(system="redis", holder="careless"))
    assert "--holder careless" in careless.repeat_command()
    assert careless.cell()["parameters"]["holder"] == "careless"
