"""What is written for others is read back as it was."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from checkers import judge
from harness.commands.export import command
from harness.errors import HistoryError, UsageError
from harness.history import imports
from harness.history.building import from_events
from harness.history.events import History
from harness.history.exports import to_edn, to_porcupine
from harness.history.reader import read
from tests.oracle.generate import Chooser, history

CASES = sorted(Path(__file__).parents[2].glob("cases/*.jsonl"))


def random_history(seed: int) -> History:
    events = history(Chooser.seeded(seed))
    meta = events.pop(0) if events[0].get("type") == "meta" else {}
    end = [event for event in events if event.get("type") == "end"]
    events = sorted((event for event in events if event.get("type") != "end"), key=lambda event: event["time"])
    return from_events(meta, list(enumerate([*events, *end], 2)), "random")


@pytest.mark.parametrize("seed", range(150))
def test_edn_gives_the_same_history_back(seed: int, tmp_path: Path) -> None:
    """Every column, the faults and the meta; and a failed release keeps the meaning that it was recorded with."""
    before = random_history(seed)
    with (tmp_path / "history.edn").open("w") as file:
        to_edn(before, file)
    after = imports.read(tmp_path / "history.edn")
    assert dataclasses.replace(after.meta, extra={}, line=0) == dataclasses.replace(before.meta, extra={}, line=0)
    assert after.meta.extra["import"]["release_fail"] == "as recorded"
    for name in ("time", "line", "type", "f", "token", "ttl", "lease_from", "held", "read", "version", "seq", "mate"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name), err_msg=name)
    for name in ("resource", "reason", "process", "proves", "renewals", "id"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name), err_msg=name)
    assert [after.locks[code] for code in after.lock] == [before.locks[code] for code in before.lock]
    assert [after.fs[code] for code in after.f] == [before.fs[code] for code in before.f]
    assert after.faults == before.faults
    assert (after.ids, after.counted) == (before.ids, before.counted)
    named = [[dataclasses.replace(audit, lock=0) for audit in each.audits] for each in (after, before)]
    assert named[0] == named[1]


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_recorded_history_is_judged_as_before(case: Path, tmp_path: Path) -> None:
    """Whatever it is about, ids and audits, answers that prove nothing, and the end that is missing among it."""
    try:
        before = read(case)
    except HistoryError:
        return
    with (tmp_path / "history.edn").open("w") as file:
        to_edn(before, file)
    judged = [judge(history) for history in (before, imports.read(tmp_path / "history.edn"))]
    assert judged[1].cut_off == judged[0].cut_off
    for name, verdict in judged[0].verdicts.items():
        other = judged[1].verdicts[name]
        assert (other.valid, other.stats, len(other.findings)) == (verdict.valid, verdict.stats, len(verdict.findings))


LINE = re.compile(r"INFO  jepsen\.util - (\d+)\t:(invoke|ok|fail|info)\t:(acquire|release)\t(nil|-?\d+)")


@pytest.mark.parametrize("seed", range(150))
def test_the_line_form_keeps_operations_and_their_order(seed: int) -> None:
    """Paired by client number, as Porcupine's examples pair: every operation with its outcome and token; one that was
    over before another began (on the clock that the history has) is over before it there too."""
    before = random_history(seed)
    for lock in sorted({before.locks[before.lock[row]] for row in np.flatnonzero(before.f == 0)}):
        file = io.StringIO()
        count = to_porcupine(before, file, lock)
        open_ops: dict[str, int] = {}
        found: list[list[Any]] = []  # (invoked at, returned at, f, outcome, value), places in the order of the lines
        for place, line in enumerate(file.getvalue().splitlines()):
            match = LINE.fullmatch(line)
            assert match, line
            client, kind, f, value = match.groups()
            if kind == "invoke":
                assert client not in open_ops, "a client number stands for one operation at a time"
                open_ops[client] = len(found)
                found.append([place, None, f, "info", value])
            else:
                at = open_ops[client] if kind == "info" else open_ops.pop(client)
                found[at][1:] = [place if kind != "info" else None, f, kind, value]
        expected = []
        for row in np.flatnonzero((before.lock == before.locks.index(lock)) & (before.type == 0)):
            if before.fs[before.f[row]] not in ("acquire", "release"):
                continue
            mate = int(before.mate[row])
            kind = "info" if mate < 0 else ("invoke", "ok", "fail", "info")[before.type[mate]]
            expected.append((before.fs[before.f[row]], kind))
        assert count == len(found) == len(expected)
        assert sorted((f, kind) for _, _, f, kind, _ in found) == sorted(expected)


def test_at_one_time_invokes_come_first_and_own_returns_before_them() -> None:
    """Closed intervals that touch overlap, except those of one process."""
    events = [
        {"time": 0, "process": 0, "type": "invoke", "f": "acquire"},
        {"time": 5, "process": 0, "type": "ok", "f": "acquire", "token": 3},
        {"time": 5, "process": 0, "type": "invoke", "f": "release"},
        {"time": 5, "process": 1, "type": "invoke", "f": "acquire"},
        {"time": 9, "process": 0, "type": "info", "f": "release"},
        {"time": 9, "process": 0, "type": "invoke", "f": "acquire"},
    ]
    file = io.StringIO()
    to_porcupine(from_events(None, list(enumerate(events, 1)), "x"), file)
    assert [line.split(" - ")[1].replace("\t", " ") for line in file.getvalue().splitlines()] == [
        "0 :invoke :acquire nil",
        "1 :invoke :acquire nil",
        "0 :ok :acquire 3",
        "0 :invoke :release 3",
        "0 :info :release 3",
        "2 :invoke :acquire nil",
    ]


def test_one_lock_must_be_chosen() -> None:
    """The line form has no place for the name of a lock."""
    two = read(next(path for path in CASES if path.stem == "two-locks"))
    with pytest.raises(UsageError, match="name one"):
        to_porcupine(two, io.StringIO())
    with pytest.raises(UsageError, match="nobody acquires a lock 'nil'"):
        to_porcupine(two, io.StringIO(), "nil")


def test_the_command_writes_both(tmp_path: Path) -> None:
    """From a file, by the name of the notation."""
    source = str(next(path for path in CASES if path.stem == "clean-handover"))
    run = CliRunner().invoke
    assert run(command, ["edn", source, str(tmp_path / "a.edn")]).exit_code == 0
    assert len(imports.read(tmp_path / "a.edn")) == len(read(source))
    result = run(command, ["porcupine", source, str(tmp_path / "a.log")])
    assert (result.exit_code, result.output.strip()) == (0, f"{tmp_path / 'a.log'}: 6 operations")
    assert run(command, ["edn", source, str(tmp_path / "b"), "--lock", "x"]).exit_code == 2


def test_the_command_writes_to_standard_output(tmp_path: Path) -> None:
    """`-` is standard input and output: only the history goes there, what was written is told on stderr."""
    source = next(path for path in CASES if path.stem == "clean-handover")
    run = CliRunner().invoke
    for notation in ("edn", "porcupine"):
        assert run(command, [notation, str(source), str(tmp_path / notation)]).exit_code == 0
        result = run(command, [notation, "-", "-"], input=source.read_bytes())
        assert result.exit_code == 0
        assert result.stdout == (tmp_path / notation).read_text()
        assert re.fullmatch(r"-: \d+ (events|operations)\n", result.stderr)
