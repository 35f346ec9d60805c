"""What a trial's history says of itself in its first line."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from harness.trial.clock import HistoryClock
from harness.trial.config import TrialConfig
from harness.trial.meta import meta, required

ALL = {"lease", "linearizable", "fencing", "fenced", "conduct", "progress", "faults"}


def hello(**client: Any) -> dict[str, Any]:
    return {"client": {"name": "mine", **client}}


@pytest.mark.parametrize(
    ("hellos", "missing"),
    [
        ([], set()),
        ([{}], set()),
        ([hello(), hello(tokens=True, renewals="seen")], set()),
        ([hello(tokens=False)], {"fencing", "fenced"}),
        ([hello(), hello(renewals="unseen")], {"lease", "linearizable"}),
        ([hello(tokens=False, renewals="unseen")], {"fencing", "fenced", "lease", "linearizable"}),
    ],
)
def test_a_trial_requires_what_its_client_can_come_to(hellos: list[dict[str, Any]], missing: set[str]) -> None:
    """A clean trial of a lock without tokens must be able to end true."""
    assert set(required(hellos)) == ALL - missing


class Agent:
    """The one answer that a clock asks for."""

    def call(self, command: str) -> dict[str, int]:
        assert command == "hello"
        return {"boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME)}


@pytest.mark.parametrize("expires", [True, False])
def test_a_lock_that_never_expires_is_judged_as_one(expires: bool) -> None:
    """By what its client said; a history that doesn't say otherwise has leases that end."""
    clock = HistoryClock()
    clock.start(Agent())  # type: ignore[arg-type]
    said = meta(TrialConfig(system="redis", fault="none"), "t", clock, iter([hello(), hello(expires=expires)]))
    assert said.get("expires", True) is expires


def test_it_says_when_time_0_was_on_people_s_clocks() -> None:
    """ISO 8601 with an offset, to be held against logs; the wall clock may be set later, it does not move."""
    clock = HistoryClock()
    before = datetime.now(UTC)
    clock.start(Agent())  # type: ignore[arg-type]
    after = datetime.now(UTC)
    said = meta(TrialConfig(system="redis", fault="none"), "t", clock, [])["started"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", said)
    assert (datetime.fromisoformat(said) - before).total_seconds() >= -0.002
    assert datetime.fromisoformat(said) <= after
