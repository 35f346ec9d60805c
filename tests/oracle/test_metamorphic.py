"""Changes of a history that must not change what is said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from checkers import judge
from harness.history.reader import read
from tests.afresh import afresh
from tests.oracle.generate import Chooser, Event, encode, history

SEEDS = range(5000, 5400)
#: Verdicts whose findings are about one lock each, so that those of several locks add up.
BY_LOCK = ("exclusion", "lease", "fencing", "fenced", "damage", "conduct", "progress")
#: All but the one that says whether faults came about: what a history's contenders and its service are accused of.
ACCUSING = (*BY_LOCK, "linearizable")

Unchanged = Callable[[int], dict[str, Any]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changed") / "history.jsonl"


def judged(path: Path, events: list[Event], *, partial: bool = False) -> dict[str, Any]:
    afresh(path, encode(events))
    return judge(read(path), partial=partial).to_json()


def split(seed: int) -> tuple[Event, list[Event]]:
    events = history(Chooser.seeded(seed))
    meta = events.pop(0) if events[0]["type"] == "meta" else {"type": "meta"}
    return meta | {"end": None}, [event for event in events if event["type"] != "end"]


@pytest.fixture(scope="module")
def unchanged(path: Path) -> Unchanged:
    """What is said of the history of a seed as it is; judged once, for all the changes that are held against it."""

    @cache
    def judgement(seed: int) -> dict[str, Any]:
        meta, events = split(seed)
        return judged(path, [meta, *events])

    return judgement


def said(judgement: dict[str, Any]) -> dict[str, Any]:
    """Everything but the line numbers, the words, and what names a path."""
    return {
        "valid": judgement["valid"],
        "required": judgement["required"],
        "grants": judgement["grants"],
        "verdicts": {
            name: (
                verdict["valid"],
                verdict["count"],
                {key: value for key, value in verdict["stats"].items() if key != "decided_by"},
                Counter((f["kind"], f["lock"], f.get("blame"), f.get("seconds")) for f in verdict["findings"]),
            )
            for name, verdict in judgement["verdicts"].items()
        },
    }


def test_the_order_of_lines_does_not_matter(path: Path, unchanged: Unchanged) -> None:
    """Save among lines of one time."""
    for seed in SEEDS:
        meta, events = split(seed)
        order = sorted(range(len(events)), key=lambda i: hash((seed, events[i]["time"])))
        assert said(judged(path, [meta, *(events[i] for i in order)])) == said(unchanged(seed)), seed


def test_a_shift_of_all_times_does_not_matter(path: Path, unchanged: Unchanged) -> None:
    """The origin of the clock has no meaning: everything is the same, line numbers and words included."""
    for seed in SEEDS:
        meta, events = split(seed)
        shifted = [
            event | {key: event[key] + 123_456_789 for key in ("time", "lease_from") if event.get(key) is not None}
            for event in events
        ]
        assert judged(path, [meta, *shifted]) == unchanged(seed), seed


def test_each_lock_apart(path: Path, unchanged: Unchanged) -> None:
    """The findings of a history are those of its locks, each judged alone."""
    several = 0
    for seed in SEEDS:
        meta, events = split(seed)
        locks = sorted({event.get("lock") or "lock" for event in events if event["f"] not in ("fault", "crash", "end")})
        last = max((event["time"] for event in events if event["f"] != "audit"), default=0)
        end = {"time": last, "process": "harness", "type": "info", "f": "end"}
        whole = unchanged(seed)
        parts = []
        for lock in locks:
            of_no_lock = ("fault", "crash", "end", "note")
            mine = [event for event in events if event["f"] in of_no_lock or (event.get("lock") or "lock") == lock]
            parts.append(judged(path, [meta, *mine, end]))
        several += len(parts) > 1
        for name in BY_LOCK:
            counts = sum(part["verdicts"][name]["count"] for part in parts)
            assert whole["verdicts"][name]["count"] == counts, (seed, name)
        for name in (*BY_LOCK, "linearizable"):
            words = [part["verdicts"][name]["valid"] for part in parts]
            assert (whole["verdicts"][name]["valid"] is False) == (False in words), (seed, name)
        assert whole["grants"] == sum(part["grants"] for part in parts)
    assert several > 50


def test_an_acquire_of_unknown_outcome_accuses_nobody(path: Path, unchanged: Unchanged) -> None:
    """One more client that asked and never heard: nothing true turns false. (Progress can: somebody wants it then.)"""
    added = 0
    for seed in SEEDS:
        meta, events = split(seed)
        before = unchanged(seed)["verdicts"]
        choices = Chooser.seeded(seed)
        at = choices.among([event for event in events if event["f"] != "audit"] or events)
        asks = {"time": at["time"], "process": 77, "type": "invoke", "f": "acquire", "lock": at.get("lock")}
        after = judged(path, [meta, *events, asks])["verdicts"]
        for name in ("exclusion", "lease", "fencing", "fenced", "damage", "linearizable", "faults"):
            assert before[name]["valid"] is not True or after[name]["valid"] is not False, (seed, name)
            added += before[name]["valid"] is True
    assert added > 500


def test_a_holder_that_asks_again_accuses_nobody(path: Path, unchanged: Unchanged) -> None:
    """To acquire again is to stop believing: what nobody could be accused of stays so."""
    added = 0
    for seed in SEEDS:
        meta, events = split(seed)
        before = unchanged(seed)["verdicts"]
        for at, event in enumerate(events):
            if (event["f"], event["type"]) != ("acquire", "ok"):
                continue
            # Later lines of the same time come after it, so that this is right behind the grant.
            asks = event | {"type": "invoke", "token": None, "ttl": None, "lease_from": None}
            gives_up = [asks, asks | {"type": "info"}]
            changed = [*events[: at + 1], *gives_up, *events[at + 1 :]]
            after = judged(path, [meta, *changed])["verdicts"]
            for name in ("exclusion", "lease", "linearizable"):
                assert before[name]["valid"] is not True or after[name]["valid"] is not False, (seed, name)
            added += 1
            break
    assert added > 200


def test_a_mark_that_clears(path: Path, unchanged: Unchanged) -> None:
    """Renewals that are unseen, and answers that prove nothing: the service is accused of less, never of more."""
    cleared = Counter[str]()
    for seed in SEEDS:
        meta, events = split(seed)
        before = unchanged(seed)["verdicts"]
        for mark, of, spared in (
            ({"renewals": "unseen"}, ("acquire",), ("exclusion", "fencing", "fenced", "damage", "conduct", "faults")),
            ({"proves": False}, ("renew", "release"), ("exclusion", "fenced", "damage", "conduct", "faults")),
        ):
            marked = [event | mark if (event["f"] in of and event["type"] == "ok") else event for event in events]
            after = judged(path, [meta, *marked])["verdicts"]
            for name in spared:
                assert before[name]["valid"] == after[name]["valid"], (seed, mark, name)
            for name in ("lease", "fencing", "linearizable"):
                assert before[name]["valid"] is not True or after[name]["valid"] is not False, (seed, mark, name)
                cleared[name] += before[name]["valid"] is False and after[name]["valid"] is not False
    assert cleared["lease"], "no mark cleared anybody"


def test_a_fault_of_others_accuses_nobody(path: Path, unchanged: Unchanged) -> None:
    """The same fault, done by somebody else: no word turns to false that was not."""
    others = 0
    for seed in SEEDS:
        meta, events = split(seed)
        before = unchanged(seed)["verdicts"]
        outside = [event | ({"kind": "outside"} if event["f"] == "fault" else {}) for event in events]
        after = judged(path, [meta, *outside])["verdicts"]
        for name in (*ACCUSING, "faults"):
            assert before[name]["valid"] is False or after[name]["valid"] is not False, (seed, name)
        others += outside != events
    assert others > 50


def test_what_no_verdict_looks_at(path: Path) -> None:
    """`bit`, `started` and the kind at a fault's stop: nothing but the stats of `faults` differs."""
    for seed in SEEDS:
        meta, events = split(seed)
        before, after = (
            judged(path, [meta | {"started": started}, *changed])
            for started, changed in (
                (None, events),
                (
                    "2024-02-29T23:59:59.123456-07:00",
                    [event | ({"bit": True, "kind": "x"} if event.get("phase") == "stop" else {}) for event in events],
                ),
            )
        )
        for judgement in (before, after):
            judgement["verdicts"]["faults"]["stats"] = None
        assert before == after, seed


def test_audits_are_no_events_for_other_verdicts(path: Path) -> None:
    """However late they come."""
    audited = 0
    for seed in SEEDS:
        meta, events = split(seed)
        with_audits = [event | ({"time": event["time"] + 10**12} if event["f"] == "audit" else {}) for event in events]
        before = said(judged(path, [meta, *(event for event in events if event["f"] != "audit")]))["verdicts"]
        after = said(judged(path, [meta, *with_audits]))["verdicts"]
        for name in before:
            assert name in ("fenced", "damage") or before[name] == after[name], (seed, name)
        audited += with_audits != events
    assert audited > 50


def test_a_kept_promise_of_an_end_changes_nothing(path: Path, unchanged: Unchanged) -> None:
    """With the end that it promised, a history is judged as without the promise; so is what is there of one without."""
    for seed in SEEDS:
        meta, events = split(seed)
        before = said(unchanged(seed))
        promised = [meta | {"end": True}, *events]
        assert said(judged(path, [*promised, {"type": "end", "events": len(events)}])) == before, seed
        assert said(judged(path, promised, partial=True)) == before, seed
        verdicts = judged(path, promised)["verdicts"]
        assert {verdict["valid"] for verdict in verdicts.values()} == {"unknown"}, seed
        assert {name: verdict["count"] for name, verdict in verdicts.items()} == {
            name: verdict[1] for name, verdict in before["verdicts"].items()
        }, seed
