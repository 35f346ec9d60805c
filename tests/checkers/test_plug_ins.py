"""Verdicts that others wrote: what is wrong with one of them costs nobody else's answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkers import Finding, Verdict, answers, build
from checkers.explain import explain
from tests.checkers.make import grant, make

ANSWER: Any = Verdict  # whoever writes a checker may not ask a type checker
CASE = Path(__file__).parents[2] / "cases" / "clean-handover.jsonl"


def judged(answer: Any) -> Verdict:
    """What becomes of an answer of a checker that isn't ours; the history has two grants and one lock, 'lock'."""
    history = make(*grant(0, 1, 0, 1, ttl=5), (2, 0, "invoke release"), (2, 0, "ok release"), *grant(3, 4, 1, 2, ttl=5))
    model = build(history)
    verdict = answers.foreign(answer, model)
    json.dumps(verdict.to_json(), allow_nan=False)
    assert answers.decode(answers.encode(verdict), model).to_json() == verdict.to_json()
    return verdict


def finding(**changes: Any) -> Finding:
    return Finding(**{"kind": "odd", "lock": "lock", "events": (3, 7), "text": "It is odd.", "time": 4, **changes})


DEEP: dict[str, Any] = {}
for _ in range(100_000):
    DEEP = {"": DEEP}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "None where a checkers.Verdict is due"),
        (True, "a bool where a checkers.Verdict is due"),
        ({"valid": True}, "a dict where a checkers.Verdict is due"),
        (Verdict, "a type where a checkers.Verdict is due"),
        (ANSWER(valid=..., findings=[...]), "valid=Ellipsis (an ellipsis) where True, False or 'unknown' is due"),
        (ANSWER(True, findings=[...]), "an ellipsis as finding 1 where a checkers.Finding is due"),
        (ANSWER(1), "valid=1 (an int) where"),
        (ANSWER(None), "valid=None (None) where"),
        (ANSWER("true"), "valid='true' (a str) where"),
        (ANSWER(np.bool_(True)), "(a numpy.bool) where"),
        (ANSWER(False, findings=None), "None as findings where a list is due"),
        (ANSWER(False, findings="no"), "a str as findings where a list is due"),
        (ANSWER(False, [finding(), "text"]), "a str as finding 2 where"),
        (ANSWER(False, [finding(lock="other")]), "finding 1 with lock='other', which this history doesn't have"),
        (ANSWER(False, [finding(text=None)]), "finding 1 with a kind or text that isn't a string"),
        (ANSWER(False, [finding(events=(0, 3))]), "finding 1 with events=(0, 3) where the line numbers"),
        (ANSWER(False, [finding(events=3)]), "finding 1 with events=3 where the line numbers"),
        (ANSWER(False, [finding(events=(np.int64(3),))]), "where the line numbers of events are due"),
        (ANSWER(False, [finding(events=(3, 900))]), "finding 1 with line 900 among its events, which is no event"),
        (ANSWER(False, [finding(events=(1,))]), "finding 1 with line 1 among its events, which is no event"),
        (ANSWER(False, [finding(events=(10**30,))]), "which is no event of this history"),
        (ANSWER(False, [finding(events=(3,) * 101)]), "finding 1 with 101 events, more than 100"),
        (ANSWER(False, [finding(time=1.5)]), "finding 1 with a float as time where"),
        (ANSWER(False, [finding(seconds="2")]), "finding 1 with a str as seconds where"),
        (ANSWER(False, [finding(seconds=float("inf"))]), "finding 1 with seconds=inf"),
        (ANSWER(False, [finding(blame=3)]), "finding 1 with an int as blame where"),
        (ANSWER(False, [finding(certificate=[])]), "finding 1 with a list as certificate where"),
        (ANSWER(False, [finding(lock=["lock"])]), "finding 1 with lock=['lock'], which this history doesn't have"),
        (ANSWER(False, [finding(text="\ud800")]), "what can't be written as JSON: 'utf-8' codec can't encode"),
        (ANSWER(False, count=10**400), "with 0 findings"),
        (ANSWER(True, stats={"of": 10**400}), "what can't be read again"),
        (ANSWER(True, stats=DEEP), "what can't be written as JSON"),
        (ANSWER(False, [finding()], count=0), "count=0 with 1 findings"),
        (ANSWER(True, stats={"of": {1, 2}}), "what can't be written as JSON: Object of type set"),
        (ANSWER(True, stats={"of": np.int64(2)}), "what can't be written as JSON: Object of type int64"),
        (ANSWER(True, stats={"of": float("nan")}), "what can't be written as JSON: Out of range float"),
        (ANSWER(True, stats=None), "None as stats where a Mapping is due"),
        (ANSWER(True, note=3), "an int as note where a str is due"),
    ],
)
def test_what_is_no_verdict_is_unknown(answer: Any, reason: str) -> None:
    """Whatever a checker returns: a verdict, or "unknown" and a sentence that says what is wrong with it."""
    verdict = judged(answer)
    assert verdict.valid == "unknown"
    assert (verdict.note or "").replace("numpy.bool_", "numpy.bool").startswith("the checker returned")
    assert reason in (verdict.note or "").replace("numpy.bool_", "numpy.bool")


def test_a_right_one_is_kept() -> None:
    """Its findings in order of time, at most 1,000 of them, and counted."""
    verdict = judged(Verdict(False, [finding(time=n) for n in reversed(range(1500))], stats={"a": [1.5]}))
    assert (verdict.valid, verdict.count, len(verdict.findings)) == (False, 1500, 1000)
    assert [found.time for found in verdict.findings] == list(range(1000))
    assert judged(Verdict("unknown", note="too little is known")).note == "too little is known"


def test_a_finding_of_lines_that_are_not_there_is_still_told() -> None:
    """Nothing can be shown around them; the text stands."""
    assert explain(make(*grant(0, 1, 0, 1)), finding(events=(900,))) == "It is odd."


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which a package is installed that registers four verdicts, one of them right."""
    (tmp_path / "theirs-1.0.dist-info").mkdir()
    (tmp_path / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (tmp_path / "theirs-1.0.dist-info" / "entry_points.txt").write_text(
        "[fencepost.verdicts]\nmissing = theirs_missing:check\ntypo = theirs_typo:check\nquits = theirs_quits:check\n"
        "stub = theirs:stub\nright = theirs:right\n"
    )
    (tmp_path / "theirs_typo.py").write_text("def check(model:\n")
    (tmp_path / "theirs_quits.py").write_text("raise SystemExit('I need a newer Python')\n")
    (tmp_path / "theirs.py").write_text(
        "from checkers import Verdict\n"
        "def stub(model):\n    return Verdict(valid=..., findings=[...])\n"
        "def right(model):\n    return Verdict(True, stats={'grants': len(model)})\n"
    )
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def test_plug_ins_that_fail_take_nobody_along(installed: dict[str, str]) -> None:
    """One that can't be imported, isn't Python, quits, or returns a stub: each is unknown, and all others stand."""
    fencepost = Path(sys.executable).with_name("fencepost")

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(fencepost), "check", str(CASE), *map(str, arguments)]
        return subprocess.run(command, env=installed, capture_output=True, text=True, timeout=60, check=False)

    done = run("--json")
    assert (done.returncode, done.stderr) == (0, "")
    verdicts = json.loads(done.stdout)[0]["verdicts"]
    assert {name: verdicts[name]["valid"] for name in ("missing", "typo", "quits", "stub", "right", "lease")} == {
        "missing": "unknown", "typo": "unknown", "quits": "unknown", "stub": "unknown", "right": True, "lease": True,
    }  # fmt: skip
    table = run()
    assert table.returncode == 0
    rows = {row.split()[0]: row for row in table.stdout.splitlines() if row.strip()}
    assert "theirs_missing" in rows["missing"]
    assert "SyntaxError" in rows["typo"]
    assert "I need a newer Python" in rows["quits"]
    assert "valid=Ellipsis" in rows["stub"]
    assert run("--require", "lease,missing").returncode == 3
    listed = subprocess.run(
        [str(fencepost), "list", "verdicts"], env=installed, capture_output=True, text=True, timeout=60, check=False
    )
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.count("BROKEN") == 3
    assert run("--require", "right").returncode == 0
