"""What the injector records of a fault: its receipts, and whether it bit, as the fault itself measured it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from harness.errors import AgentError
from harness.trial.injector import Injector, TrialEnvironment
from harness.trial.recorder import Recorder
from nemesis.base import Fault, Started, Stopped
from nemesis.bite import Bite


class Plain:
    """A fault of somebody else's, that doesn't know of bites."""

    kind = "pretend"
    summary = "nothing"
    targets: Sequence[str] = ("leader",)

    def __init__(self, target: str = "leader", parameters: Mapping[str, Any] | None = None) -> None:
        self.calls: list[Any] = []
        self.receipt: Any = "landed"

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        return None

    def start(self, env: Any) -> Started:
        self.calls.append("start")
        return Started(self.receipt, ("n1",), evidence={"begin_ns": 2_500})

    def stop(self, env: Any) -> Stopped:
        self.calls.append("stop")
        return Stopped("undone", {"end_ns": 2_700})


class Measuring(Plain):
    """One that looks, and says what it was told to say."""

    says: Bite | Exception = Bite(True, "it was measured", {"moved": 1})
    sees: Exception | None = None

    def look(self, env: Any) -> None:
        self.calls.append("look")
        if self.sees is not None:
            raise self.sees

    def bite(self, env: Any, began_ns: int, ended_ns: int) -> Bite:
        self.calls.append(("bite", began_ns, ended_ns))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


class Seeking(Measuring):
    """One for which somebody was told to hold."""

    def ripe(self, env: Any) -> bool:
        return False

    def seen(self, env: Any) -> bool:
        return True

    def told(self) -> Mapping[str, Any] | None:
        return {"node": "c1"}


class Nowhere:
    """The trial of these tests: nothing is done to it. `settled` counts how often all were let go."""

    def __init__(self) -> None:
        self.settled = 0

    def settle(self) -> None:
        self.settled += 1


class Broken(Exception):
    """The trial was broken off while the fault stood."""


def applied(
    folder: Path,
    fault: Plain,
    hold: Any = lambda: None,
    after: Any = lambda: None,
    nowhere: Nowhere | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The stop of a fault as the history and as the journal have it."""
    recorder, environment = Recorder(folder, {}), cast(TrialEnvironment, nowhere or Nowhere())
    injector = Injector(environment, recorder, itertools.count(900, 1_000).__next__, 1_000)
    try:
        injector.apply(cast(Fault, fault), "leader", hold, after)
    finally:
        recorder.close()
        read = [
            [json.loads(line) for line in (folder / name).read_text().splitlines()]
            for name in ("history.jsonl", "faults.jsonl")
        ]
    return tuple(next(line for line in lines if line.get("phase") == "stop") for lines in read)  # type: ignore[return-value]


def test_a_fault_is_looked_at_while_it_stands_and_measured_when_it_is_undone(tmp_path: Path) -> None:
    """By the moments that are recorded; the word and its reason stand on the stop, all of it in the journal."""
    fault = Measuring()
    history, journal = applied(tmp_path, fault, lambda: fault.calls.append("stands"))
    assert fault.calls == ["start", "stands", "look", "stop", ("bite", 1_500, 1_700)]
    assert (history["time"], history["bit"], history["bit_reason"]) == (1_700, True, "it was measured")
    assert (journal["bit"], journal["evidence"]) == (True, {"end_ns": 2_700, "bite": {"moved": 1}})


def test_a_fault_that_missed_says_what_to_set(tmp_path: Path) -> None:
    """The remedy goes to the journal."""
    fault = Measuring()
    fault.says = Bite(False, "too short", remedy="set fault_on to 5 s")
    history, journal = applied(tmp_path, fault)
    assert history["bit"] is False
    assert journal["evidence"]["bite"]["remedy"] == "set fault_on to 5 s"


def test_a_fault_that_does_not_measure_says_nothing_of_it(tmp_path: Path) -> None:
    """Others' faults go on working, and their cells are judged as before."""
    history, _ = applied(tmp_path, Plain())
    assert not {"bit", "bit_reason"} & set(history)


@pytest.mark.parametrize("where", ["sees", "says"])
def test_a_measure_that_failed_leaves_the_word_out_and_says_why(tmp_path: Path, where: str) -> None:
    """Neither bit nor missed is known then. The fault is undone all the same."""
    fault = Measuring()
    setattr(fault, where, AgentError("n1 was silent"))
    history, _ = applied(tmp_path, fault)
    assert "bit" not in history
    assert history["bit_reason"] == "not measured: n1 was silent"
    assert history["receipt"] == "undone"


def test_a_fault_that_did_not_land_has_no_bite(tmp_path: Path) -> None:
    """Nobody knows what was there to bite."""
    fault = Measuring()
    fault.receipt = "unproven"
    history, _ = applied(tmp_path, fault)
    assert "bit" not in history


def test_a_fault_that_was_broken_off_is_not_measured(tmp_path: Path) -> None:
    """It did not stand for its time, and nobody waits for its measure."""
    fault = Measuring()

    def broken() -> None:
        raise Broken

    with pytest.raises(Broken):
        applied(tmp_path, fault, broken)
    assert fault.calls == ["start", "stop"]


def test_whoever_was_told_to_hold_is_let_go_when_it_was_seen_what_became_of_it(tmp_path: Path) -> None:
    """The fault is undone and measured by then; what was sought and seen goes to the journal."""
    fault, nowhere = Seeking(), Nowhere()

    def after() -> None:
        fault.calls.append(("after", nowhere.settled))

    history, journal = applied(tmp_path, fault, after=after, nowhere=nowhere)
    assert fault.calls == ["start", "look", "stop", ("bite", 1_500, 1_700), ("after", 0)]
    assert nowhere.settled == 1
    assert journal["evidence"]["witness"] == {"node": "c1"}
    assert "witness" not in history


@pytest.mark.parametrize("where", ["hold", "after"])
def test_everybody_is_let_go_on_the_way_out(tmp_path: Path, where: str) -> None:
    """Ctrl-C while the fault stands, or while one looks at what became of it: undone, let go, and written down."""
    nowhere, fault = Nowhere(), Seeking()

    def broken() -> None:
        raise Broken

    with pytest.raises(Broken):
        applied(tmp_path, fault, **{where: broken}, nowhere=nowhere)
    assert "stop" in fault.calls
    assert nowhere.settled == 1
    lines = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert [(line["phase"], line["receipt"]) for line in lines] == [("start", "landed"), ("stop", "undone")]
