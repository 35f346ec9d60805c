"""What may enter a history from a program that is not ours."""

from __future__ import annotations

from typing import Any

import pytest

from harness.trial.border import Border, Claims

GOOD = {"time": 5, "process": 0, "type": "ok", "f": "acquire", "token": 7}
INVOKE = {"time": 4, "process": 0, "type": "invoke", "f": "acquire"}


def problems(*events: object) -> list[str]:
    """What the border says of the last of some lines of contender 0; those before it must pass."""
    border = Border(0, Claims())
    for event in events[:-1]:
        assert border.problems(event) == []
    return border.problems(events[-1])


def test_what_a_contender_prints_in_order_may_enter() -> None:
    """Invoke and completion, and what isn't known; the same operation again once it was completed."""
    assert problems(INVOKE, GOOD, INVOKE, {**GOOD, "type": "info"}) == []
    assert problems({"time": 1, "process": 0, "type": "info", "f": "lost", "reason": "deadline"}) == []
    assert problems({"time": 1, "process": 0, "type": "info", "f": "note", "anything": [1]}) == []


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ([1], "not a JSON object"),
        ({**INVOKE, "time": 1.5}, "time"),
        ({**INVOKE, "time": True}, "time"),
        ({**INVOKE, "time": 2**80}, "time"),
        ({**INVOKE, "process": 1}, "process must be 0"),
        ({**INVOKE, "process": False}, "process must be 0"),
        ({**INVOKE, "type": "okay"}, "type"),
        ({**INVOKE, "type": ["ok"]}, "type"),
        ({**INVOKE, "f": 3}, "f"),
        ({**INVOKE, "f": "fault"}, "f must be"),
        ({**INVOKE, "f": ["acquire"]}, "f"),
        ({**INVOKE, "lock": ["a"]}, "lock"),
        ({**INVOKE, "f": "write"}, "resource"),
        (GOOD, "a completion of acquire without an invoke"),
    ],
)
def test_what_no_contender_prints_is_refused_with_its_reason(event: object, words: str) -> None:
    """A hostile program can neither forge a fault or another's event nor make the history unreadable."""
    assert any(words in problem for problem in problems(event))


def test_the_border_knows_what_is_open() -> None:
    """An invoke while the same one is open, a token that no history can hold, a lease from the future."""
    assert "while the same one is open" in problems(INVOKE, INVOKE)[0]
    assert problems(INVOKE, {**INVOKE, "lock": "other"}) == []
    assert "token" in problems(INVOKE, {**GOOD, "token": "7"})[0]
    assert "token" in problems(INVOKE, {**GOOD, "token": 2**63})[0]
    assert "lease_from" in problems(INVOKE, {**GOOD, "lease_from": 6})[0]


WRITE: dict[str, Any] = {"time": 4, "process": 0, "type": "invoke", "f": "write", "resource": "fenced", "id": 1}
DONE: dict[str, Any] = {**WRITE, "time": 5, "type": "ok", "seq": 1}


def test_each_attempt_to_write_has_an_id_of_its_own() -> None:
    """The same one again in another resource or lock is another one; on the completion it may be left out."""
    assert problems(WRITE, DONE, {**WRITE, "id": 2}, {**DONE, "id": 2, "seq": 2}) == []
    assert problems(WRITE, DONE, {**WRITE, "resource": "unfenced"}, {**DONE, "resource": "unfenced"}) == []
    assert problems(WRITE, DONE, {**WRITE, "lock": "other"}, {**DONE, "lock": "other"}) == []
    completion = {key: value for key, value in DONE.items() if key != "id"}
    assert problems(WRITE, completion) == []
    assert "id 1 is that of another write" in problems(WRITE, completion, WRITE)[0]
    invoke = {key: value for key, value in WRITE.items() if key != "id"}
    assert "id 1 is that of another write" in problems(WRITE, completion, invoke, {**DONE, "seq": 2})[0]


def test_what_was_refused_claims_nothing() -> None:
    """A write that fails has had its id; but a place in the order belongs to those that were accepted."""
    assert problems(WRITE, {**DONE, "type": "fail"}, {**WRITE, "id": 2}, {**DONE, "id": 2}) == []
    assert "another write" in problems(WRITE, {**DONE, "type": "fail"}, WRITE)[0]


@pytest.mark.parametrize("identity", ["0-1", True, [1], 1.5])
def test_an_id_that_the_resource_can_t_keep_is_refused(identity: object) -> None:
    """It is looked for there at the end, and there it is a number."""
    assert "id must be" in problems({**WRITE, "id": identity})[0]


def test_a_completion_can_t_take_another_s_id() -> None:
    """Its keys count before those of the invoke."""
    assert "id 1001 on the completion of the write 1" in problems(WRITE, {**DONE, "id": 1001})[0]


def test_ids_and_places_are_one_contender_s_among_all() -> None:
    """What would make the file unreadable is refused whoever said it first."""
    claims = Claims()
    first, second = Border(0, claims), Border(1, claims)
    assert first.problems(WRITE) == []
    assert "id 1 is that of another write to fenced" in second.problems({**WRITE, "process": 1})[0]
    assert first.problems(DONE) == []
    assert second.problems({**WRITE, "process": 1, "id": 1001}) == []
    assert "seq 1 is that of another accepted write" in second.problems({**DONE, "process": 1, "id": 1001})[0]
    assert second.problems({**DONE, "process": 1, "id": 1001, "seq": 2}) == []


@pytest.mark.parametrize(
    "event",
    [
        {"time": 9, "process": 0, "type": "info", "f": "audit", "resource": "fenced", "ids": []},
        {"time": 9, "process": "harness", "type": "info", "f": "audit", "resource": "fenced", "ids": []},
        {"time": 9, "process": 0, "type": "end", "f": "acquire", "events": 3},
        {"type": "end", "events": 3, "f": "end"},
        {"type": "meta", "f": "acquire"},
    ],
)
def test_nobody_audits_or_ends_a_history_but_the_harness(event: object) -> None:
    """Else a program could end the record before what accuses it, or lose a write that was there."""
    assert problems(event) != []
