"""The certificates of `linearizable` can be checked by somebody who trusts nobody: a `true` order replays, a `false`
cycle holds stamp by stamp. And the answers are those of trying every order."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from checkers import judge, linearizable
from checkers.intervals import INF, build
from harness.errors import HistoryError
from harness.history import read
from harness.history.events import NONE, History
from tests.checkers.make import grant, make, random_grants, random_triples

CASES = Path(__file__).parents[2] / "cases"


def facts(history: History) -> dict[int, dict[str, Any]]:
    """What is known of each grant, by the line of its ok."""
    model = build(history)
    return {
        model.line(int(model.ok_row[g])): {
            "place": g,
            "lock": model.lock_name(g),
            "process": model.process_id(g),
            "token": None if model.token[g] == NONE else int(model.token[g]),
            "invoke": int(model.invoke[g]),
            "ok": int(model.ok[g]),
            "L": None if model.L[g] == NONE else float("inf") if model.L[g] >= INF else int(model.L[g]),
        }
        for g in range(len(model))
    }


def replay(certificate: dict[str, Any], grants: dict[int, dict[str, Any]]) -> None:
    """Walks along a `true` certificate: every grant once, in its window, after the one before, tokens never falling."""
    assert sorted(hold["line"] for lock in certificate["locks"] for hold in lock["order"]) == sorted(grants)
    for lock in certificate["locks"]:
        free, seen = float("-inf"), []
        for hold in lock["order"]:
            g, end = grants[hold["line"]], float("inf") if hold["end"] is None else hold["end"]
            assert g["lock"] == lock["lock"]
            assert g["invoke"] <= hold["start"] <= g["ok"] + certificate["uncertainty"]
            assert free <= hold["start"] <= end
            assert g["L"] is None or end >= g["L"]
            tokened = [x for x in seen if x["token"] is not None and g["token"] is not None]
            assert all(x["token"] <= g["token"] for x in tokened)
            assert all(x["process"] == g["process"] for x in tokened if x["token"] == g["token"])
            assert all(x["place"] < g["place"] for x in seen if x["process"] == g["process"])
            free, seen = end, [*seen, g]


def check_cycle(certificate: dict[str, Any], grants: dict[int, dict[str, Any]]) -> None:
    """Checks a `false` certificate: each hold must come before the next, and the last before the first."""
    holds, u = certificate["holds"], certificate["uncertainty"]
    assert len(holds) > 1
    for a, b in zip(holds, holds[1:] + holds[:1], strict=True):
        for hold in (a, b):
            known = grants[hold["line"]]
            assert {key: known[key] for key in ("process", "token", "invoke", "ok")} == {
                key: hold[key] for key in ("process", "token", "invoke", "ok")
            }
            latest = known["invoke"] if known["L"] is None else max(known["invoke"], known["L"])
            assert latest == (float("inf") if hold["earliest_end"] is None else hold["earliest_end"])
        why = a["before_next"]
        if why == "process":
            assert a["process"] == b["process"]
            assert grants[a["line"]]["place"] < grants[b["line"]]["place"]
        elif why == "hold":  # b can't have ended before a had begun
            assert a["process"] != b["process"]
            assert b["earliest_end"] is None or b["earliest_end"] > a["ok"] + u
        elif why == "token":
            assert a["token"] < b["token"]
        else:
            assert why == "shared-token"
            assert a["token"] == b["token"]
            assert a["process"] != b["process"]


def orderable(grants: list[dict[str, Any]], u: int) -> bool:
    """Whether any order of some grants of one lock works, by trying them all, each hold as early as it can be."""
    for order in permutations(grants):
        free: float = float("-inf")
        for number, g in enumerate(order):
            before = order[:number]
            start = max(free, g["invoke"])
            tokened = [x for x in before if x["token"] is not None and g["token"] is not None]
            if (
                start > g["ok"] + u
                or any(x["place"] > g["place"] for x in before if x["process"] == g["process"])
                or any(x["token"] > g["token"] for x in tokened)
                or any(x["token"] == g["token"] and x["process"] != g["process"] for x in tokened)
            ):
                break
            free = max(start, start if g["L"] is None else g["L"])
        else:
            return True
    return False


def judged(history: History) -> tuple[bool, dict[str, Any]]:
    """Whether there is an order, as `linearizable` sees it, its certificates checked."""
    verdict = linearizable.check(build(history, certificates=True))
    grants = facts(history)
    json.dumps(verdict.to_json())
    cycles = [finding for finding in verdict.findings if finding.kind == "no-order"]
    for finding in cycles:
        assert finding.certificate is not None
        check_cycle(dict(finding.certificate), grants)
    if verdict.valid is True:
        assert verdict.certificate is not None
        replay(dict(verdict.certificate), grants)
    return not cycles, grants


@pytest.mark.parametrize("tokens", ["all", "none", "some"])
def test_it_answers_as_trying_every_order_does(tokens: str) -> None:
    """On small histories with all, no and some tokens; both answers are met often."""
    answers = []
    for seed in range(600):
        history = random_grants(seed, tokens=tokens)
        found, grants = judged(history)
        assert found == orderable(list(grants.values()), build(history).u), seed
        answers.append(found)
    assert 60 < sum(answers) < 540


def test_certificates_of_the_recorded_cases() -> None:
    """Every recorded history that can be read has certificates that hold."""
    answers = set()
    for path in sorted(CASES.glob("*.jsonl")):
        try:
            history = read(path)
        except HistoryError:
            continue  # the malformed ones are for test_cases
        if history.meta.owners:
            answers.add(judged(history)[0])
    assert answers == {True, False}


def test_longer_cycles_with_some_tokens_missing() -> None:
    """Aimed at cycles of three, of which no two holds are at odds: neither `lease` nor `fencing` sees those."""
    longest = []
    for seed in range(800):
        history = random_triples(seed)
        found, grants = judged(history)
        assert found == orderable(list(grants.values()), 0), seed
        judgement = judge(history, certificates=True)
        for finding in judgement.verdicts["linearizable"].findings:
            assert finding.certificate is not None
            longest.append(len(finding.certificate["holds"]))
            if longest[-1] > 2:
                assert judgement.verdicts["lease"].count in (0, None)
                assert judgement.verdicts["fencing"].count in (0, None)
                assert not judgement.verdicts["lease"].findings
                assert not judgement.verdicts["fencing"].findings
    assert longest.count(3) > 10


def test_a_late_grant_can_end_before_one_that_it_must_follow() -> None:
    """Without tokens the order of earliest ends is not one: the late grant ends at 3 s, and yet must follow the one
    that was held from 1 s to 5 s."""
    history = make(
        *grant(0, 1, 0),
        *grant(0, 6, 1, ttl=3),  # late: its lease ran out before its ok
        (5, 0, "invoke release"),
        (5.5, 0, "ok release"),
        (20, 1, "info lost"),
    )
    found, _ = judged(history)
    assert found


def test_certificates_are_made_only_when_asked_for() -> None:
    """They can be as long as the history."""
    history = make(*grant(0, 1, 0, 1, ttl=5), *grant(7, 8, 1, 2, ttl=5))
    assert judge(history).verdicts["linearizable"].certificate is None
    assert judge(history, certificates=True).verdicts["linearizable"].certificate is not None
