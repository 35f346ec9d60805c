"""What enters a history: on disk first, checked at the border."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.trial.recorder import LineFile, Recorder

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
    assert json.loads(lines[0]) == {"type": "meta", "format": 1, "ttl": 2.0, "end": True}
    assert json.loads(lines[100])["time"] == 99


FULL = """
import json, os, resource, signal, sys
from pathlib import Path
from harness.errors import HarnessError
from harness.trial.recorder import Recorder

recorder = Recorder(Path(sys.argv[1]), {"ttl": 2.0})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))  # so much fits, as on a small disk
told, number = [], 0
def say():
    global number
    number += 1
    event = {"time": number, "process": 0, "type": "invoke" if number % 2 else "ok", "f": "acquire"}
    try:
        recorder.event(event)
    except HarnessError as error:
        told.append(str(error))
while not told:
    say()
written = number - 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # somebody made room
say()
for close in (recorder.close, recorder.close):
    try:
        close()
        told.append("closed")
    except HarnessError as error:
        told.append(str(error))
print(json.dumps([written, recorder.live.events, told]))
"""


def test_nothing_is_written_behind_a_failed_write(tmp_path: Path) -> None:
    """A disk that was full for one line would leave a hole that nobody sees, and that line may clear somebody.

    The kernel refuses the write in the middle of a line; then there is room again. The file ends with the last whole
    line before, has no end line, so that whoever reads it knows, and every later event is refused, loudly.
    """
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    written, seen, told = json.loads(done.stdout)
    assert all("history.jsonl can't be written: File too large" in reason for reason in told[:3]), told
    assert told[3:] == ["closed"]  # the second time there is nothing left to do
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["time"] for line in lines[1:]] == list(range(1, written + 1))
    assert seen == written > 10


def test_a_full_device_is_a_clear_error(tmp_path: Path) -> None:
    """Also when it takes nothing at all."""
    file = LineFile(tmp_path / "history.jsonl")
    file.append(GOOD)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._fd)  # the very descriptor now meets ENOSPC, as on a full disk
    os.close(full)
    for _ in range(2):
        with pytest.raises(HarnessError, match=r"history\.jsonl can't be written: No space left"):
            file.append(GOOD)
    assert json.loads((tmp_path / "history.jsonl").read_text()) == GOOD


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def test_a_history_ends_with_the_number_of_its_events(tmp_path: Path) -> None:
    """It promised to; audits count, the meta doesn't."""
    recorder = Recorder(tmp_path, {})
    recorder.event(GOOD)
    recorder.audit(9, "lock", "fenced", [1])
    recorder.close()
    recorder.close()
    meta, _, audit, end = lines(tmp_path)
    assert meta["end"] is True
    assert audit == {
        "time": 9,
        "process": "harness",
        "type": "info",
        "f": "audit",
        "lock": "lock",
        "resource": "fenced",
        "ids": [1],
    }
    assert end == {"type": "end", "events": 2}
    with pytest.raises(HarnessError, match="is closed"):
        recorder.event(GOOD)
    assert len(lines(tmp_path)) == 4


def test_a_history_in_which_something_is_missing_has_no_end(tmp_path: Path) -> None:
    """What a contender did when nobody listened to it any more could accuse others."""
    recorder = Recorder(tmp_path, {})
    recorder.event(GOOD)
    recorder.incomplete("contender 0 was not listened to any more")
    recorder.event(GOOD)
    recorder.close()
    assert [line["type"] for line in lines(tmp_path)] == ["meta", "ok", "ok"]


def test_what_is_said_before_the_meta_is_known_comes_behind_it(tmp_path: Path) -> None:
    """A contender may die before all have told what their client is like."""
    recorder = Recorder(tmp_path)
    recorder.event(GOOD)
    assert not (tmp_path / "history.jsonl").exists()
    recorder.begin({"ttl": 2.0})
    recorder.close()
    assert [line["type"] for line in lines(tmp_path)] == ["meta", "ok", "end"]


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
