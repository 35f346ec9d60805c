"""Nobody is accused for what somebody else did, nor by a record that isn't whole."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from checkers import Verdict, judge
from harness.commands.check import command
from harness.history import from_events
from harness.history.events import History
from tests.checkers.make import grant, make


def fault(at: float, phase: str, name: str = "o", **keys: Any) -> tuple[Any, ...]:
    return (at, "nemesis", "info fault", {"phase": phase, "id": name, **keys})


def outside(start: float, stop: float | None, **keys: Any) -> list[tuple[Any, ...]]:
    begins = fault(start, "start", kind="outside", **{"receipt": "landed", **keys})
    return [begins] if stop is None else [begins, fault(stop, "stop", receipt="undone")]


def of(name: str, *events: Any, **meta: Any) -> Verdict:
    return judge(make(*events, **meta)).verdicts[name]


# -- outside -----------------------------------------------------------------------------------------------------------


def test_faults_is_unknown_and_tells_of_it() -> None:
    """Whatever its receipts; unless it was skipped, or a fault of ours was left."""
    for events in (outside(1, 2), outside(1, None), outside(1, 2, receipt=None), outside(1, 2, receipt="unproven")):
        verdict = of("faults", *events)
        assert (verdict.valid, [finding.kind for finding in verdict.findings]) == ("unknown", ["outside"])
    assert of("faults", *outside(1, 2, receipt="skipped")).valid is True
    left = of("faults", *outside(1, 2), fault(3, "start", "f", kind="kill", receipt="landed"))
    assert (left.valid, [finding.kind for finding in left.findings]) == (False, ["outside", "not-undone"])
    told = of("faults", *outside(1, 2, what="killed", targets=["n1"], processes=[3])).findings[0]
    assert told.text == "Somebody other than the nemesis did this to n1, contender 3: killed, for 1.000 s."
    assert told.events == (2, 3)


def test_what_faults_came_to() -> None:
    """Counted as their stops say; one that missed is no verdict."""
    events = []
    for name, bit in (("a", True), ("b", False), ("c", "immune"), ("d", None), ("e", False)):
        events += [fault(1, "start", name, kind="kill", receipt="landed")]
        events += [fault(2, "stop", name, receipt="undone", bit=bit)]
    verdict = of("faults", *events)
    assert verdict.valid is True
    assert [verdict.stats[name] for name in ("bit", "missed", "immune")] == [1, 2, 1]


@pytest.mark.parametrize(
    ("keys", "blame"),
    [({}, "pause"), ({"what": "paused"}, "pause"), ({"what": None}, "pause"), ({"receipt": "unproven"}, "pause"),
     ({"what": "killed"}, "client"), ({"receipt": "skipped"}, "client"), ({"processes": [1]}, "client")],
)  # fmt: skip
def test_a_holder_that_somebody_paused(keys: dict[str, Any], blame: str) -> None:
    """Was frozen, as if the nemesis had done it."""
    asleep = outside(2, 30, **{"processes": [0], **keys})
    verdict = of("exclusion", *grant(0, 1, 0, ttl=5), *asleep, *grant(9, 9, 1, ttl=90), (20, 0, "invoke release"))
    assert [finding.blame for finding in verdict.findings] == [blame]


def test_progress_is_unknown_where_it_is_hidden() -> None:
    """A wait that is too long but for what somebody else did: unknown. One that is too long anyway: false. One that
    wouldn't be: true."""
    wanting, end = (0, 1, "invoke acquire"), (20, "harness", "info note")

    def said(*events: Any) -> Any:
        return of("progress", wanting, *events, end, progress_bound=15).valid

    assert said(*outside(8, 9)) == "unknown"
    assert said(*outside(8, 9, receipt="skipped")) is False
    assert said(*outside(1, 2)) is False
    assert said(*outside(8, 9), *grant(10, 10, 2)) is True
    ours = [fault(8, "start", "f", kind="kill"), fault(9, "stop", "f", receipt="undone")]
    assert said(*outside(3, 4), *ours) is True


# -- cut off -----------------------------------------------------------------------------------------------------------

TWO = [*grant(0, 1, 0, ttl=9), *grant(2, 3, 1, ttl=9)]


def ending(count: int | None, *events: Any) -> History:
    """A history that promises its end, and has the line or not."""
    lines = []
    for number, (second, process, what, *more) in enumerate(events, 2):
        kind, f = what.split()
        keys = more[0] if more else {}
        lines.append((number, {"time": round(second * 1e9), "process": process, "type": kind, "f": f, **keys}))
    if count is not None:
        lines.append((len(events) + 2, {"type": "end", "events": count}))
    return from_events({"end": True}, lines, "made by hand")


@pytest.mark.parametrize(
    ("count", "missing"),
    [(None, "the end line that its meta promises is missing"), (9, "its end line counts 9 events, and here are 4")],
)
def test_a_record_that_is_not_whole_accuses_nobody(count: int | None, missing: str) -> None:
    """Every verdict is unknown, with what was found; `partial` judges what is there."""
    history = ending(count, *TWO)
    judgement = judge(history)
    assert {verdict.valid for verdict in judgement.verdicts.values()} == {"unknown"}
    assert (judgement.valid, judgement.cut_off, judgement.to_json()["cut_off"]) == ("unknown", missing, missing)
    assert all(missing in (verdict.note or "") for verdict in judgement.verdicts.values())
    assert [finding.kind for finding in judgement.verdicts["lease"].findings] == ["early-grant"]
    assert judge(history, require=["faults"]).valid == "unknown"
    partial = judge(history, partial=True)
    assert (partial.valid, partial.verdicts["lease"].valid, partial.cut_off) == (False, False, None)


def test_a_whole_one_is_judged() -> None:
    """Its end line counts its events."""
    judgement = judge(ending(4, *TWO))
    assert (judgement.valid, judgement.cut_off) == (False, None)
    assert "cut_off" not in judgement.to_json()


def test_the_command_says_so(tmp_path: Any) -> None:
    """Exit 3 with what was found in words; with --partial what it is worth as it stands."""
    path = tmp_path / "history.jsonl"
    rows = ['{"type": "meta", "end": true, "ttl": 9}']
    for second, process, what in ((0, 0, "invoke"), (1, 0, "ok"), (2, 1, "invoke"), (3, 1, "ok")):
        rows.append(f'{{"time": {second * 10**9}, "process": {process}, "type": "{what}", "f": "acquire"}}')
    path.write_text("\n".join(rows) + "\n")
    result = CliRunner().invoke(command, [str(path)])
    assert result.exit_code == 3
    assert "cut off: the end line that its meta promises is missing" in result.output
    assert "lease: early-grant (lines 3, 5)" in result.output
    assert CliRunner().invoke(command, [str(path), "--explain", "1"]).output.startswith("lease, finding 1 of 1")
    partial = CliRunner().invoke(command, [str(path), "--partial"])
    assert partial.exit_code == 1
    assert "cut off" not in partial.output


def test_an_empty_list_of_requirements_is_none() -> None:
    """As if the meta had none."""
    assert judge(make(*TWO, require=[])).required == judge(make(*TWO)).required != ()
