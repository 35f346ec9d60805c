"""The grants of a running trial, as faults see them: whose, promised until when, ended by what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.trial.live import LiveState
from nemesis.bite import SeenHold, SeenWait

S = 1_000_000_000
NODES = {0: "c0", 1: "c1"}


def told(*events: tuple[float, int, str, str] | tuple[float, int, str, str, dict[str, Any]]) -> LiveState:
    """A live state that has heard these: (seconds, process, type, f, more keys)."""
    live = LiveState()
    live.grants_seen.ttl = 2.0
    for at, process, type_, f, *more in events:
        event = {"time": int(at * S), "process": process, "type": type_, "f": f, "lock": "lock"}
        live.feed({**event, **(more[0] if more else {})})
    return live


def only(live: LiveState) -> SeenHold:
    hold = live.hold_of(0, "c0")
    assert hold is not None
    return hold


GRANT = [(1.0, 0, "invoke", "acquire"), (1.1, 0, "ok", "acquire", {"token": 7})]


def test_a_grant_is_promised_from_when_it_was_asked_for() -> None:
    """Without `lease_from` the invoke counts; with it, that. The ttl is the meta's unless the grant has its own."""
    assert only(told(*GRANT)).promise_end_ns == 3 * S
    ok = {"token": 7, "lease_from": int(1.05 * S), "ttl": 3.0}
    hold = only(told(GRANT[0], (1.1, 0, "ok", "acquire", ok)))
    assert (hold.node, hold.process, hold.token, hold.since_ns) == ("c0", 0, 7, int(1.1 * S))
    assert hold.promise_end_ns == int(4.05 * S)
    assert (hold.ended_ns, hold.ended_by, hold.released_ns) == (None, None, None)


def test_a_renewal_that_succeeded_promises_anew_and_one_of_unknown_outcome_may_shorten() -> None:
    """As the contract derives promise(g)."""
    renewed = [*GRANT, (1.8, 0, "invoke", "renew"), (1.9, 0, "ok", "renew")]
    assert only(told(*renewed)).promise_end_ns == int(3.8 * S)
    failed = [*renewed, (2.5, 0, "invoke", "renew"), (2.6, 0, "fail", "renew")]
    assert only(told(*failed)).promise_end_ns == int(3.8 * S)
    unknown = [*renewed, (2.5, 0, "invoke", "renew", {"ttl": 0.5}), (2.6, 0, "info", "renew")]
    assert only(told(*unknown)).promise_end_ns == int(2.3 * S)
    proves_nothing = [*GRANT, (1.8, 0, "invoke", "renew"), (1.9, 0, "ok", "renew", {"proves": False})]
    assert only(told(*proves_nothing)).promise_end_ns == 3 * S


def test_nothing_is_known_of_a_promise_whose_renewals_are_unseen() -> None:
    """A library that renews by itself may have extended the lease until the last moment."""
    hold = only(told(GRANT[0], (1.1, 0, "ok", "acquire", {"renewals": "unseen"})))
    assert (hold.promise_end_ns, hold.renewals_seen) == (None, False)


@pytest.mark.parametrize(
    ("event", "by"),
    [
        ((2.0, 0, "invoke", "release"), "release"),
        ((2.0, 0, "info", "lost"), "lost"),
        ((2.0, 0, "info", "crash"), "crash"),
        ((2.0, 0, "invoke", "acquire"), "acquire"),
    ],
)
def test_a_hold_ends_once_and_says_by_what(event: Any, by: str) -> None:
    """Whatever comes first; what comes later changes nothing of it."""
    live = told(*GRANT, event, (2.5, 0, "info", "crash"))
    hold = only(live)
    assert (hold.ended_ns, hold.ended_by) == (2 * S, by)
    assert live.holds(None, NODES) == []
    assert live.holds(int(1.5 * S), NODES) == [hold]
    assert live.holds(2 * S, NODES) == []


def test_a_hold_that_was_lost_can_be_released_later() -> None:
    """And one whose release was refused is not released by it."""
    lost = [*GRANT, (2.0, 0, "info", "lost"), (2.2, 0, "invoke", "release")]
    assert only(told(*lost)).released_ns == int(2.2 * S)  # under way: it may have been heard
    hold = only(told(*lost, (2.3, 0, "info", "release")))
    assert (hold.ended_by, hold.released_ns) == ("lost", int(2.2 * S))
    assert only(told(*lost, (2.3, 0, "fail", "release"))).released_ns is None


def test_requests_count_as_answered_when_both_ends_lie_in_the_time() -> None:
    """What was sent before it, or answered after it, says nothing about that time."""
    live = told(
        (1.0, 0, "invoke", "acquire"), (1.5, 1, "invoke", "acquire"), (2.0, 0, "ok", "acquire"),
        (2.5, 0, "invoke", "renew"), (2.6, 0, "fail", "renew"), (2.7, 0, "invoke", "release"),
        (2.8, 0, "ok", "release"), (3.0, 1, "ok", "acquire"),
    )  # fmt: skip
    assert live.answered(0, 4 * S) == 3
    assert live.answered(int(1.2 * S), 4 * S) == 2
    assert live.answered(int(1.2 * S), int(2.9 * S)) == 1
    assert live.answered(4 * S, 5 * S) == 0


def test_what_was_promised_at_a_moment_follows_from_what_had_been_sent_by_then() -> None:
    """A fault that stood until then is measured by it, whatever was renewed after it."""
    renews = [
        (1.8, 0, "invoke", "renew"),
        (1.9, 0, "ok", "renew"),
        (2.5, 0, "invoke", "renew"),
        (2.6, 0, "ok", "renew"),
    ]
    live = told(*GRANT, *renews)
    promised = [live.hold_of(0, "c0", int(at * S)) for at in (1.5, 1.8, 2.4, 2.5)]
    assert [hold and hold.promise_end_ns for hold in promised] == [3 * S, int(3.8 * S), int(3.8 * S), int(4.5 * S)]
    assert live.hold_of(0, "c0", 1 * S) is None  # it was not granted yet


def test_who_waited_at_a_moment_and_what_it_came_to() -> None:
    """From the invoke of an acquire to its completion, or the crash of its process."""
    live = told(
        (1.0, 0, "invoke", "acquire"),
        (2.0, 0, "fail", "acquire"),
        (3.0, 0, "invoke", "acquire"),
        (4.0, 0, "info", "crash"),
    )
    assert live.wait_of(0, S // 2) is None
    assert live.wait_of(0, int(1.5 * S)) == SeenWait(0, S, 2 * S, "fail")
    assert live.wait_of(0, int(2.5 * S)) is None
    assert live.wait_of(0, int(3.5 * S)) == SeenWait(0, 3 * S, 4 * S, "crash")
    assert [hold.node for hold in told(*GRANT).granted(S, 2 * S, NODES)] == ["c0"]


def test_an_order_to_hold_counts_only_from_one_who_holds() -> None:
    """A program that says so without holding anything is not taken at its word."""
    live = told(*GRANT, (1.2, 0, "info", "hold", {"id": "h1", "holds": True}))
    assert live.answer_to(0, "h1") is True
    assert live.answer_to(0, "h2") is None
    assert told((1.2, 0, "info", "hold", {"id": "h1", "holds": True})).answer_to(0, "h1") is False
    assert told(*GRANT, (1.2, 0, "info", "hold", {"id": "h1", "holds": False})).answer_to(0, "h1") is False


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["acquire", "renew", "release", "lost", "crash"]),
                          st.sampled_from(["ok", "fail", "info"])), max_size=30))  # fmt: skip
def test_at_any_time_at_most_one_hold_of_a_process_is_believed_in(steps: list[tuple[int, str, str]]) -> None:
    """Whatever the contenders say, in whatever order."""
    live, now = told(), 0
    for process, f, type_ in steps:
        for kind in ("invoke", type_) if f not in ("lost", "crash") else ("info",):
            now += 1
            live.feed({"time": now, "process": process, "type": kind, "f": f, "lock": "lock"})
    for at in (None, *range(now + 2)):
        believers = [hold.process for hold in live.holds(at, NODES)]
        assert len(believers) == len(set(believers))
    assert {hold.process for hold in live.holds(None, NODES)} == {hold.process for hold in live.believers()}
