"""What enters a history: on disk first, checked at the border."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.trial.recorder import Border, LineFile, Recorder

GOOD = {"time": 5, "process": 0, "type": "ok", "f": "acquire", "token": 7}


def test_an_event_is_on_disk_before_the_call_returns(tmp_path: Path) -> None:
    """A harness that is killed in the next instant has lost nothing: a killed child leaves all its lines."""
    code = (
        "import os,sys,signal;from pathlib import Path;from harness.trial.recorder import Recorder;"
        "r=Recorder(Path(sys.argv[1]),{'ttl':2.0});"
        "[r.event({'time':n,'process':0,'type':'invoke','f':'acquire'}) for n in range(100)];"
        "os.kill(os.getpid(),signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60)
    assert ended.returncode == -9
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert len(lines) == 101
    assert json.loads(lines[0]) == {"type": "meta", "format": 1, "ttl": 2.0}
    assert json.loads(lines[100])["time"] == 99


def test_a_full_disk_is_a_clear_error_and_keeps_what_was_written(tmp_path: Path) -> None:
    """A history with holes would be worse than none: the write fails loudly, naming the file."""
    file = LineFile(tmp_path / "history.jsonl")
    file.append(GOOD)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._fd)  # the very descriptor now meets ENOSPC, as on a full disk
    os.close(full)
    with pytest.raises(HarnessError, match=r"history\.jsonl can't be written: No space left"):
        file.append(GOOD)
    assert json.loads((tmp_path / "history.jsonl").read_text()) == GOOD


def test_a_fault_goes_to_history_and_journal(tmp_path: Path) -> None:
    """The history has the event, the journal the evidence besides, and the live state knows it as active."""
    recorder = Recorder(tmp_path, {})
    event = {"time": 1, "id": "f1", "kind": "freeze", "phase": "start", "targets": ["c1"], "receipt": "landed"}
    recorder.fault(event, {"state": "T"}, "holder")
    assert recorder.live.active_faults == {"f1": "freeze c1"}
    recorder.fault({"time": 2, "id": "f1", "kind": "freeze", "phase": "stop", "receipt": "undone"}, {}, "holder")
    recorder.close()
    assert recorder.live.active_faults == {}
    history = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    journal = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert history[1] == {"process": "nemesis", "type": "info", "f": "fault", **event}
    assert journal[0] == {**event, "target": "holder", "evidence": {"state": "T"}}


def test_live_state_follows_grants_holders_and_handovers(tmp_path: Path) -> None:
    """The holder is the latest grant that is still believed in; a crash ends belief."""
    recorder = Recorder(tmp_path, {})

    def say(time: int, process: int, kind: str, f: str, **more: object) -> None:
        recorder.event({"time": time, "process": process, "type": kind, "f": f, **more})

    say(0, 0, "invoke", "acquire")
    say(1, 0, "ok", "acquire", token=4)
    say(2, 1, "ok", "acquire", token=5)
    live = recorder.live
    assert [hold.process for hold in live.believers()] == [0, 1]
    assert live.holder() is not None
    assert live.holder().process == 1  # type: ignore[union-attr]
    say(3, 1, "info", "crash")
    assert live.holder().process == 0  # type: ignore[union-attr]
    say(4, 0, "invoke", "release")
    assert live.holder() is None
    assert (live.grants, live.handovers) == (2, 1)
    assert live.outcomes[("acquire", "ok")] == 2


INVOKE = {"time": 4, "process": 0, "type": "invoke", "f": "acquire"}


def problems(*events: object) -> list[str]:
    """What the border says of the last of some lines of contender 0; those before it must pass."""
    border = Border(0)
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
