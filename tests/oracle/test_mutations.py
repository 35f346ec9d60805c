"""One thing is changed in a history where nothing is wrong: the right verdicts turn false, and only those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers import judge
from harness.history.reader import read
from tests.afresh import afresh
from tests.oracle.generate import encode

SECOND = 10**9
ALL = {"exclusion", "lease", "fencing", "fenced", "damage", "conduct", "linearizable", "progress", "faults"}

Event = dict[str, Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutated") / "history.jsonl"


def words(path: Path, events: list[Event], *, partial: bool = False) -> dict[str, Any]:
    afresh(path, encode(events))
    verdicts = judge(read(path), partial=partial).verdicts
    return {name: verdicts[name].valid for name in ALL}


def false_verdicts(path: Path, events: list[Event]) -> set[str]:
    return {name for name, word in words(path, events).items() if word is False}


def place(events: list[Event], **keys: Any) -> int:
    """Where the one event with these keys is."""
    (found,) = (i for i, event in enumerate(events) if keys.items() <= event.items())
    return found


@st.composite
def valid(draw: st.DrawFn, ttl: int = 30) -> list[Event]:
    """Hand-overs of one lock, one after the other within the ttl, each with a write to both resources, a fault that was
    undone, and an audit of each resource. All nine verdicts are true. Grant n has token 10 n, reads version n - 1 and
    writes with the id n."""
    events: list[Event] = [{"type": "meta", "format": 1, "ttl": ttl, "progress_bound": 1000}]
    time = 0

    def add(process: int | str, type_: str, f: str, **keys: Any) -> None:
        nonlocal time
        time += draw(st.integers(1, 2)) * SECOND
        events.append({"time": time, "process": process, "type": type_, "f": f, **keys})

    waiting: set[int] = set()
    processes = draw(st.lists(st.integers(0, 3), min_size=3, max_size=6))
    for n, process in enumerate(processes, 1):
        if process not in waiting:
            add(process, "invoke", "acquire")
        waiting.discard(process)
        add(process, "ok", "acquire", token=10 * n)
        following = processes[n] if n < len(processes) else None
        if following is not None and following != process and draw(st.booleans()):
            add(following, "invoke", "acquire")
            waiting.add(following)
        for resource in ("fenced", "unfenced"):
            add(process, "invoke", "write", resource=resource, token=10 * n, read=n - 1, version=n, id=n)
            add(process, "ok", "write", resource=resource, seq=n)
        add(process, "invoke", "release")
        add(process, "ok", "release")
        if n == 2:
            fault = {"id": "f", "kind": "kill", "targets": ["n1"], "processes": []}
            add("nemesis", "info", "fault", phase="start", receipt="landed", **fault)
            add("nemesis", "info", "fault", phase="stop", receipt="undone", **fault)
    for resource in ("fenced", "unfenced"):
        add("harness", "info", "audit", resource=resource, ids=[*range(1, len(processes) + 1)])
    return events


def test_nothing_is_wrong_before(path: Path) -> None:
    """What the mutations start from: all nine verdicts are true."""

    @settings(max_examples=40, deadline=None)
    @given(events=valid())
    def check(events: list[Event]) -> None:
        assert words(path, events) == dict.fromkeys(ALL, True)

    check()


@settings(max_examples=60, deadline=None)
@given(events=valid(), n=st.integers(2, 3), lower=st.sampled_from([-5, 0, 1, 9]))
def test_a_lower_token(path: Path, events: list[Event], n: int, lower: int) -> None:
    """Fencing, and with it the order of the holds; the writes kept the tokens that they had."""
    at = place(events, f="acquire", type="ok", token=10 * n)
    events[at] = events[at] | {"token": 10 * (n - 1) - 10 + lower}
    assert false_verdicts(path, events) == {"fencing", "linearizable"}


@settings(max_examples=60, deadline=None)
@given(events=valid(), n=st.integers(2, 3))
def test_the_token_of_another(path: Path, events: list[Event], n: int) -> None:
    """Two processes with one token; one process may be given its own again."""
    before = events[place(events, f="acquire", type="ok", token=10 * (n - 1))]
    at = place(events, f="acquire", type="ok", token=10 * n)
    same = before["process"] == events[at]["process"]
    events[at] = events[at] | {"token": before["token"]}
    assert false_verdicts(path, events) == (set() if same else {"fencing", "linearizable"})


@settings(max_examples=60, deadline=None)
@given(events=valid(), n=st.integers(2, 3))
def test_a_grant_moved_earlier(path: Path, events: list[Event], n: int) -> None:
    """Into the hold before it: both were held at once, and both believed. Tokens still rise."""
    before = place(events, f="acquire", type="ok", token=10 * (n - 1))
    holder = events[before]["process"]
    release = next(i for i in range(before, len(events)) if events[i]["f"] == "release")
    at = place(events, f="acquire", type="ok", token=10 * n)
    process = events[at]["process"]
    invoke = max(i for i in range(at) if events[i].get("f") == "acquire" and events[i]["process"] == process)
    time = events[release]["time"] - SECOND // 2
    events[at] = events[at] | {"time": time}
    if events[invoke]["time"] > time:
        events[invoke] = events[invoke] | {"time": time - SECOND // 4}
    # The same process can't hold it twice: to acquire again is to give up, and its release then gives up the new hold,
    # under which it writes on.
    expected = {"conduct"} if process == holder else {"exclusion", "lease", "linearizable"}
    assert false_verdicts(path, events) == expected


@settings(max_examples=60, deadline=None)
@given(events=valid(ttl=300), n=st.integers(1, 2))  # longer than any of these histories
def test_a_release_taken_away_within_the_promise(path: Path, events: list[Event], n: int) -> None:
    """Then the next grant comes inside the time that was promised, and the holder believes on."""
    at = place(events, f="acquire", type="ok", token=10 * n)
    process, following = events[at]["process"], events[place(events, f="acquire", type="ok", token=10 * (n + 1))]
    _take_release(events, at)
    expected = set() if process == following["process"] else {"exclusion", "lease", "linearizable"}
    assert false_verdicts(path, events) == expected


@settings(max_examples=60, deadline=None)
@given(events=valid(ttl=1), n=st.integers(1, 2))
def test_a_release_taken_away_after_the_promise(path: Path, events: list[Event], n: int) -> None:
    """The lease had run out: the service may give it on, and only the holder is wrong, who believes on."""
    at = place(events, f="acquire", type="ok", token=10 * n)
    process, following = events[at]["process"], events[place(events, f="acquire", type="ok", token=10 * (n + 1))]
    _take_release(events, at)
    assert false_verdicts(path, events) == (set() if process == following["process"] else {"exclusion"})


def _take_release(events: list[Event], grant: int) -> None:
    for type_ in ("invoke", "ok"):
        del events[
            next(i for i in range(grant, len(events)) if (events[i]["f"], events[i]["type"]) == ("release", type_))
        ]


@settings(max_examples=40, deadline=None)
@given(events=valid(), n=st.integers(2, 3), resource=st.sampled_from(["fenced", "unfenced"]))
def test_a_write_with_an_older_token(path: Path, events: list[Event], n: int, resource: str) -> None:
    """A stale write: the verdict on that resource alone."""
    at = place(events, f="write", type="invoke", token=10 * n, resource=resource)
    events[at] = events[at] | {"token": 10 * n - 11}
    assert false_verdicts(path, events) == {"fenced" if resource == "fenced" else "damage"}


@settings(max_examples=40, deadline=None)
@given(events=valid(), n=st.integers(2, 3), resource=st.sampled_from(["fenced", "unfenced"]))
def test_a_write_from_an_older_version(path: Path, events: list[Event], n: int, resource: str) -> None:
    """A lost update, even under the right token."""
    at = place(events, f="write", type="invoke", token=10 * n, resource=resource)
    events[at] = events[at] | {"read": n - 2}
    assert false_verdicts(path, events) == {"fenced" if resource == "fenced" else "damage"}


@settings(max_examples=20, deadline=None)
@given(events=valid())
def test_an_undo_without_proof(path: Path, events: list[Event]) -> None:
    """A fault that may still be there."""
    at = place(events, f="fault", phase="stop")
    events[at] = events[at] | {"receipt": "unproven"}
    assert false_verdicts(path, events) == {"faults"}


@settings(max_examples=40, deadline=None)
@given(events=valid())
def test_nobody_gets_it_any_more(path: Path, events: list[Event]) -> None:
    """Somebody asks after the last release, and waits longer than the bound."""
    time = events[-1]["time"]
    asks = {"time": time + SECOND, "process": 9, "type": "invoke", "f": "acquire"}
    end = {"time": time + 1002 * SECOND, "process": "harness", "type": "info", "f": "end"}
    assert false_verdicts(path, [*events, asks, end]) == {"progress"}
    assert false_verdicts(path, [*events, asks, end | {"time": time + 1001 * SECOND}]) == set()


@settings(max_examples=40, deadline=None)
@given(events=valid(), n=st.integers(1, 3))
def test_the_service_ends_it_early(path: Path, events: list[Event], n: int) -> None:
    """Its word that the lock is lost, inside the time that it had promised; the release after it then revives it. The
    contender heard it, and wrote all the same."""
    at = place(events, f="acquire", type="ok", token=10 * n)
    lost = {
        "time": events[at]["time"],
        "process": events[at]["process"],
        "type": "info",
        "f": "lost",
        "reason": "expired",
    }
    events.insert(at + 1, lost)
    assert false_verdicts(path, events) == {"lease", "linearizable", "conduct"}


RESOURCES = {"fenced": "fenced", "unfenced": "damage"}


@settings(max_examples=60, deadline=None)
@given(events=valid(), n=st.integers(1, 3), resource=st.sampled_from(sorted(RESOURCES)))
def test_a_row_deleted_behind_the_back(path: Path, events: list[Event], n: int, resource: str) -> None:
    """An acknowledged write that the audit doesn't find: the verdict on that resource alone."""
    at = place(events, f="audit", resource=resource)
    events[at] = events[at] | {"ids": [each for each in events[at]["ids"] if each != n]}
    assert false_verdicts(path, events) == {RESOURCES[resource]}
    # Had its answer been lost, nobody could say that it should be there.
    answer = place(events, f="write", type="ok", resource=resource, seq=n)
    events[answer] = {key: value for key, value in events[answer].items() if key != "seq"} | {"type": "info"}
    assert false_verdicts(path, events) == set()


@settings(max_examples=60, deadline=None)
@given(events=valid(), n=st.integers(1, 3), resource=st.sampled_from(sorted(RESOURCES)))
def test_a_refused_write_that_is_there(path: Path, events: list[Event], n: int, resource: str) -> None:
    """A ghost; the same where the audit doesn't have it, or has one that nobody wrote, is nothing."""
    release = [i for i, event in enumerate(events) if (event.get("f"), event["type"]) == ("release", "invoke")][n - 1]
    now = {"time": events[release]["time"], "process": events[release]["process"], "f": "write", "resource": resource}
    events[release:release] = [now | {"type": "invoke", "id": 99}, now | {"type": "fail"}]
    assert false_verdicts(path, events) == set()
    at = place(events, f="audit", resource=resource)
    assert false_verdicts(path, _with(events, at, ids=[*events[at]["ids"], 77])) == set()
    assert false_verdicts(path, _with(events, at, ids=[*events[at]["ids"], 99])) == {RESOURCES[resource]}


def _with(events: list[Event], at: int, **keys: Any) -> list[Event]:
    return [*events[:at], events[at] | keys, *events[at + 1 :]]


def _after_release(events: list[Event], n: int, f: str, **keys: Any) -> list[Event]:
    """One more operation, ok, of the one who had grant n, between its release and whatever comes next."""
    given = [i for i, event in enumerate(events) if (event.get("f"), event["type"]) == ("release", "ok")][n - 1]
    now = {"time": events[given]["time"], "process": events[given]["process"], "f": f, **keys}
    return [*events[: given + 1], now | {"type": "invoke"}, now | {"type": "ok"}, *events[given + 1 :]]


@settings(max_examples=60, deadline=None)
@given(events=valid(), n=st.integers(1, 3), resource=st.sampled_from(sorted(RESOURCES)))
def test_a_write_after_the_release(path: Path, events: list[Event], n: int, resource: str) -> None:
    """By the contender's own account it held nothing; the resource need not mind."""
    assert false_verdicts(path, _after_release(events, n, "write", resource=resource, seq=100)) == {"conduct"}


@settings(max_examples=60, deadline=None)
@given(events=valid(), n=st.integers(1, 3), proves=st.sampled_from([None, True, False]))
def test_a_renewal_after_the_release(path: Path, events: list[Event], n: int, proves: bool | None) -> None:
    """Whatever its ok proves: who gave the lock up keeps it from everybody else. A refused one harms nobody."""
    changed = _after_release(events, n, "renew", proves=proves)
    assert false_verdicts(path, changed) == {"conduct"}
    refused = _with(changed, place(changed, f="renew", type="ok"), type="fail")
    assert false_verdicts(path, refused) == set()


@settings(max_examples=60, deadline=None)
@given(events=valid(ttl=1), n=st.integers(1, 2))
def test_renewals_that_nobody_sees(path: Path, events: list[Event], n: int) -> None:
    """A hold that outlasts its first ttl, and is given on: the service or the client, nobody can tell which."""
    at = place(events, f="acquire", type="ok", token=10 * n)
    same = events[at]["process"] == events[place(events, f="acquire", type="ok", token=10 * (n + 1))]["process"]
    _take_release(events, at)
    seen = words(path, events)
    unseen = words(path, _with(events, at, renewals="unseen"))
    assert seen == dict.fromkeys(ALL, True) | ({} if same else {"exclusion": False})
    assert unseen == seen | ({} if same else {"lease": "unknown", "linearizable": "unknown"})


@settings(max_examples=40, deadline=None)
@given(events=valid(), n=st.integers(1, 3))
def test_a_renewal_after_its_end(path: Path, events: list[Event], n: int) -> None:
    """The service said that the lease was over, in its time, and then renewed it. An ok that proves nothing says
    no such thing; what the contender does then, it does without the lock."""
    at = place(events, f="acquire", type="ok", token=10 * n)
    now = {"time": events[at]["time"], "process": events[at]["process"]}
    events[at] = events[at] | {"ttl": 0}
    lost = now | {"type": "info", "f": "lost", "reason": "expired"}
    renewed = [now | {"type": "invoke", "f": "renew"}, now | {"type": "ok", "f": "renew"}]
    release = next(i for i in range(at, len(events)) if (events[i].get("f"), events[i]["type"]) == ("release", "ok"))
    events[release] = events[release] | {"proves": False}
    revived = [*events[: at + 1], lost, *renewed, *events[at + 1 :]]
    assert false_verdicts(path, revived) == {"lease", "linearizable", "conduct"}
    silent = [event | ({"proves": False} if event.get("f") == "renew" else {}) for event in revived]
    assert false_verdicts(path, silent) == {"conduct"}


@settings(max_examples=40, deadline=None)
@given(events=valid(), kind=st.sampled_from(["outside", "kill"]))
def test_what_somebody_else_did(path: Path, events: list[Event], kind: str) -> None:
    """Nobody gets the lock any more while a fault is there: one of ours that stays is false, another a doubt."""
    time = events[-1]["time"]
    fault = {"process": "nemesis", "type": "info", "f": "fault", "phase": "start", "id": "o", "kind": kind}
    asks = {"time": time + SECOND, "process": 9, "type": "invoke", "f": "acquire"}
    end = {"time": time + 1002 * SECOND, "process": "harness", "type": "info", "f": "end"}
    said = words(path, [*events, fault | {"time": time, "receipt": "landed"}, asks, end])
    ours = {"faults": False} if kind == "kill" else {"faults": "unknown", "progress": "unknown"}
    assert said == dict.fromkeys(ALL, True) | ours


@settings(max_examples=40, deadline=None)
@given(events=valid(), data=st.data())
def test_a_file_that_was_cut_off(path: Path, events: list[Event], data: st.DataObject) -> None:
    """Lines are gone behind some point, or one in the middle: nothing can be said, unless as if it were whole."""
    end = {"type": "end", "events": len(events) - 1}
    promised = [events[0] | {"end": True}, *events[1:]]
    assert words(path, [*promised, end]) == dict.fromkeys(ALL, True)
    left = data.draw(st.integers(1, len(promised)))
    assert words(path, promised[:left]) == dict.fromkeys(ALL, "unknown")
    assert words(path, promised[:left], partial=True) == words(path, events[:left])
    audit = place(promised, f="audit", resource="fenced")
    assert words(path, [*promised[:audit], *promised[audit + 1 :], end]) == dict.fromkeys(ALL, "unknown")
