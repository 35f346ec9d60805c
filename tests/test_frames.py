"""The pandas frames say what the history says, and the examples in docs/notebook.md run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from harness import frames, history

ROOT = Path(__file__).parents[1]
PAUSE = ROOT / "cases" / "gc-pause-statement-job.jsonl"


def test_operations_join_both_ends() -> None:
    """An operation is one row, with the outcome of its completion; keys of either event are there."""
    frame = frames.operations(PAUSE)
    first = frame.iloc[0]
    assert (first.f, first.type, first.process, first.token) == ("acquire", "ok", 0, 33)
    assert (first.invoke_line, first.end_line) == (2, 3)
    refused = frame[(frame.f == "write") & (frame.type == "fail")]
    assert list(refused.resource) == ["fenced"]
    assert list(refused.read) == [1]
    assert list(frame[frame.f == "release"].held.fillna(True)) == [True, False]


def test_grants_have_the_intervals_of_the_verdicts() -> None:
    """Belief, promise and core are ns; the paused holder believes beyond its promise."""
    frame = frames.grants(PAUSE)
    paused = frame.iloc[0]
    assert paused.belief_ended_by == "release"
    assert paused.belief_end > paused.promise == paused.core_end
    assert bool(paused.solid)


def test_missing_is_missing() -> None:
    """What a history doesn't say is <NA>, and an endless promise is told from an unknown one."""
    events = [
        (1, {"time": 0, "process": 3, "type": "invoke", "f": "acquire"}),
        (2, {"time": 5, "process": 3, "type": "ok", "f": "acquire"}),
        (3, {"time": 6, "process": 3, "type": "invoke", "f": "renew"}),
    ]
    unknown = frames.grants(history.from_events({}, events, "x")).iloc[0]
    assert unknown.promise is pd.NA
    assert not unknown.endless
    assert pd.isna(unknown.belief_ended_by)
    endless = frames.grants(history.from_events({"expires": False}, events, "x")).iloc[0]
    assert endless.promise is pd.NA
    assert endless.endless
    operations = frames.operations(history.from_events({}, events, "x"))
    assert list(operations.type) == ["ok", "info"]
    assert operations.end.isna().tolist() == [False, True]


def test_an_empty_history_has_empty_frames() -> None:
    """No events, no rows, the same columns."""
    empty = history.from_events(None, [], "x")
    for make, column in ((frames.operations, "invoke"), (frames.grants, "promise"), (frames.faults, "start")):
        frame = make(empty)
        assert len(frame) == 0
        assert column in frame.columns


def test_the_notebook_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code of docs/notebook.md, block after block, on a history with hand-overs in and outside of a fault."""
    folder = tmp_path / "results" / "my-trial"
    folder.mkdir(parents=True)
    (folder / "history.jsonl").write_text(_with_a_fault())
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "notebook.md").read_text(), re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    handovers = names["handovers"]
    assert isinstance(handovers, pd.DataFrame)
    assert dict(handovers.groupby("fault").seconds.mean()) == {"freeze": 2.0, "none": 1.0}
    assert "freeze" in capsys.readouterr().out


def _with_a_fault() -> str:
    start = '{"type": "meta", "ttl": 100}\n'
    rows = []
    now = 0
    for process, fault in ((0, ""), (1, "freeze"), (0, ""), (1, "")):
        rows.append(f'{{"time": {now}, "process": {process}, "type": "invoke", "f": "acquire"}}')
        rows.append(f'{{"time": {now}, "process": {process}, "type": "ok", "f": "acquire"}}')
        if fault:
            nemesis = '"process": "nemesis", "type": "info", "f": "fault", "id": "f1"'
            rows.append(f'{{"time": {now}, {nemesis}, "phase": "start", "kind": "{fault}", "receipt": "landed"}}')
        now += 10**10
        rows.append(f'{{"time": {now}, "process": {process}, "type": "invoke", "f": "release"}}')
        rows.append(f'{{"time": {now}, "process": {process}, "type": "ok", "f": "release"}}')
        now += 2 * 10**9 if fault else 10**9
        if fault:
            rows.append(f'{{"time": {now}, {nemesis}, "phase": "stop", "receipt": "undone"}}')
    return start + "\n".join(rows) + "\n"


def test_check_does_not_import_what_it_does_not_need() -> None:
    """`fencepost check` starts fast: no pandas, docker, networkx, jinja2 or rich in its process."""
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from harness.cli import cli\n"
        f"result = CliRunner().invoke(cli, ['check', {str(PAUSE)!r}])\n"
        "assert result.exit_code == 0, result.output\n"
        "print(sorted({'pandas', 'docker', 'networkx', 'jinja2', 'rich', 'plotly'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
