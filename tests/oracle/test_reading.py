"""The ways to read a native history never disagree: line by line, in chunks, and by two processes."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from harness.errors import HistoryError
from harness.history import native
from harness.history.building import Builder, finish
from harness.history.columns import Sparse
from harness.history.events import CRASH, FAULT, History, Meta
from harness.history.lines import decode_line
from harness.history.parsing import parse_meta
from tests.afresh import afresh
from tests.oracle.generate import Chooser, encode, encode_doubled, history
from tests.oracle.malformed import corrupt


def read_exactly(data: bytes, path: Path) -> History:
    """Each line as an object, each object checked by itself."""
    meta, builder = Meta(), Builder(path)
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip(b" \t\r"):
            continue
        builder.expect_more()
        event = decode_line(line, number, path)
        if number == 1 and isinstance(event, dict) and event.get("type") == "meta":
            meta = parse_meta(event, 1, path)
        else:
            builder.add(number, event)
    return finish(meta, builder.columns(), path)


def outcome(data: bytes, path: Path, exactly: bool) -> History | tuple[int, str]:
    try:
        if exactly:
            return read_exactly(data, path)
        afresh(path, data)
        return native.read(path)
    except HistoryError as error:
        return error.line, error.reason


def same(one: History | tuple[int, str], other: History | tuple[int, str]) -> None:
    if not isinstance(one, History) or not isinstance(other, History):
        assert one == other
        return
    # Names are numbered in the order in which they were met, and the two may meet them differently.
    assert [one.fs[code] for code in one.f] == [other.fs[code] for code in other.f]
    about_a_lock = (one.f < FAULT) & (one.f != CRASH)
    locks = [[each.locks[code] for code in each.lock[about_a_lock]] for each in (one, other)]
    assert locks[0] == locks[1]
    assert sorted(one.locks) == sorted(other.locks)
    for field in dataclasses.fields(History):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("f", "fs", "lock", "locks"):
            continue
        if isinstance(left, np.ndarray | Sparse):
            np.testing.assert_array_equal(left, right, err_msg=field.name)
        else:
            assert left == right, field.name


def varied(seed: int) -> bytes:
    """A history with odd bytes in it: blank lines, spaces, carriage returns, escapes, other alphabets, or a fault."""
    choices = Chooser.seeded(seed)
    events = history(choices, most=40)
    if choices.chance(30):
        return corrupt(choices, events)
    if choices.chance(10):
        return encode_doubled(choices, events)
    lines = encode(events).splitlines()
    for at in range(len(lines)):
        odd = choices.pick(12)
        if odd == 1:
            lines[at] += b"\r"
        elif odd == 2:
            lines[at] = b" \t" + lines[at] + b"  \n  "
        elif odd == 3 and b'"type": "meta"' not in lines[at]:
            lock = choices.among(("b\u00fcro", "\u9396", '"\\', "\U0001f512", "l"))
            lines[at] = json.dumps(json.loads(lines[at]) | {"note": lock}, ensure_ascii=choices.chance(50)).encode()
        elif odd == 4:
            lines[at] = lines[at].replace(b"acquire", b"\\u0061cquire")
    return b"\n".join(lines) + choices.among((b"\n", b"", b"\n\n"))


@pytest.mark.parametrize("chunk", [1, 100, 700])
def test_chunks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Every column and every error, wherever a chunk ends."""
    monkeypatch.setattr(native, "_CHUNK", chunk)
    for seed in range(400):
        data = varied(seed)
        path = tmp_path / "history.jsonl"
        same(outcome(data, path, exactly=False), outcome(data, path, exactly=True))


@pytest.mark.parametrize("processes", [b"[0, 21e308]", b"[" * 2000 + b"]" * 2000])
def test_a_fault_that_only_a_full_decode_refuses(tmp_path: Path, processes: bytes) -> None:
    """Found by fuzzing: the typed decode skips the list, a number beyond all bounds in it broke the second look."""
    data = b'{"time": 0, "process": "nemesis", "type": "info", "f": "fault", "phase": "start", "id": "a", "processes": '
    line, reason = outcome(b"\n" + data + processes + b"}\n", tmp_path / "history.jsonl", exactly=False)  # type: ignore[misc]
    assert line == 2
    assert "not JSON" in reason


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where a second process takes every other chunk")
def test_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where two processes take the chunks in turn, with names, faults and errors in either's."""
    monkeypatch.setattr(native, "_FORK_FROM", 0)
    monkeypatch.setattr(native, "_CHUNK", 300)
    monkeypatch.setattr(native, "_may_fork", lambda: True)
    for seed in range(1000, 1150):
        data = varied(seed)
        path = tmp_path / "history.jsonl"
        same(outcome(data, path, exactly=False), outcome(data, path, exactly=True))
