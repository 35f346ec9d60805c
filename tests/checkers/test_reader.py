"""Any bytes give a history, or an error that names the line; and the fast way reads as the exact one does."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import histories
from harness.errors import HistoryError
from harness.history import native, read
from harness.history.columns import Sparse
from harness.history.events import NONE, History
from harness.history.lines import Part
from tests.afresh import afresh

ACQUIRE = '{"time": 1, "process": 0, "type": "invoke", "f": "acquire"}'
OK = '{"time": 2, "process": 0, "type": "ok", "f": "acquire", "token": 7}'
META = '{"type": "meta", "format": 1, "ttl": 5}'


def written(tmp_path: Path, data: bytes | str) -> Path:
    return afresh(tmp_path / "history.jsonl", data.encode() if isinstance(data, str) else data)


def outcome(path: Path) -> dict[str, Any] | tuple[int, str]:
    """A history as comparable values, or the line and reason of its error."""
    try:
        history = read(path)
    except HistoryError as error:
        return error.line, error.reason
    assert isinstance(history, History)
    return {
        field.name: value.tolist() if isinstance(value := getattr(history, field.name), np.ndarray | Sparse) else value
        for field in fields(history)
    }


def same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)  # NaN equals itself


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs a function under each way of reading: all lines exactly, fast, in tiny chunks, by two processes."""

    def each(do: Any) -> list[Any]:
        results = []
        for way in ("exact", "fast", "chunks", "two"):
            with monkeypatch.context() as patch:
                if way == "exact":
                    patch.setattr(Part, "_columns", lambda self, *arguments: None)
                if way in ("chunks", "two"):
                    patch.setattr(native, "_CHUNK", 64)
                if way == "two":
                    patch.setattr(native, "_FORK_FROM", 0)
                    patch.setattr(native, "_may_fork", lambda: True)
                results.append(do())
        return results

    return each


def line(f: str = "acquire", type: str = "invoke", process: str = "0", time: str = "1", more: str = "") -> bytes:
    """One event as text, so that it can be odd."""
    return f'{{"time": {time}, "process": {process}, "type": "{type}", "f": "{f}"{more and ", " + more}}}\n'.encode()


def granted(more: str) -> bytes:
    """An acquire that returned ok, with some more on its second line."""
    return line() + line(type="ok", time="2", more=more)


def wrote(name: object, resource: str = "fenced", type: str = "ok", more: str = "") -> bytes:
    """A write with an id on its invoke."""
    keys = f'"resource": "{resource}"{more}'
    return line("write", more=f'"id": {name}, {keys}') + line("write", type, more=keys)


def audit(ids: str, more: str = "") -> bytes:
    return line("audit", "info", '"harness"', more=f'"resource": "fenced", "ids": {ids}{more}')


META_LINE = META.encode() + b"\n"
ENDING = b'{"type": "meta", "end": true}\n'
END = b'{"type": "end", "events": 1}\n'
BOM = b"\xef\xbb\xbf"
FAULT = line("fault", "info", '"nemesis"', more='"phase": "start", "id": "a"')
DEEP = '"x": ' + "[" * 9000 + "]" * 9000

# Bytes that go wrong, or nearly so, each with the line that must be named (None: it can be read).
ODD: dict[str, tuple[bytes, int | None]] = {
    "empty file": (b"", None),
    "only a newline": (b"\n", None),
    "only a BOM": (BOM, None),
    "BOM before the meta": (BOM + META_LINE + granted('"token": 7'), None),
    "BOM in the middle": (META_LINE + BOM + line(), 2),
    "CRLF": ((META_LINE + line() + b"\n" + line(type="ok")).replace(b"\n", b"\r\n"), None),
    "no final newline": (META_LINE + line().rstrip(), None),
    "blank lines around the meta": (b"\n \t\r\n" + META_LINE + b"\n" + line(), None),
    "meta after an event": (line() + META_LINE, 2),
    "two metas": (META_LINE + META_LINE, 2),
    "meta with an escape in its type": (b'{"type": "m\\u0065ta", "format": 2}\n', 1),
    "format 2": (b'{"type": "meta", "format": 2}\n', 1),
    "format true": (b'{"type": "meta", "format": true}\n', 1),
    "format null": (b'{"type": "meta", "format": null}\n', None),
    "negative meta ttl": (b'{"type": "meta", "ttl": -1}\n', 1),
    "unknown meta key": (b'{"type": "meta", "colour": "blue"}\n', None),
    "require isn't a list": (b'{"type": "meta", "require": "lease"}\n', 1),
    "not JSON": (META_LINE + line() + b"not json\n", 3),
    "half a line": (META_LINE + line()[:30], 2),
    "two objects on a line": (line().rstrip() + b" " + line(), 1),
    "an object over two lines": (META_LINE + line()[:20] + b"\n" + line()[20:], 2),
    "a list": (b"[1, 2]\n", 1),
    "a number": (b"7\n", 1),
    "null": (b"null\n", 1),
    "events in an array": (b"[" + line().rstrip() + b"]\n", 1),
    "NUL bytes": (META_LINE + b"\0\0\0\n", 2),
    "NUL in a string": (line(more='"lock": "a\0b"'), 1),
    "escaped NUL in a string": (line(more='"lock": "a\\u0000b"'), None),
    "invalid UTF-8": (line(more='"lock": "?"').replace(b"?", b"\xff"), 1),
    "invalid UTF-8 in an unknown key": (line(more='"x": "?"').replace(b"?", b"\xff"), 1),
    "a lone surrogate": (line(more='"lock": "\\ud800"'), 1),
    "UTF-16": (META.encode("utf-16"), 1),
    "deep nesting": (line(more=DEEP), 1),
    "deep nesting in an unknown f": (line(f="x", more=DEEP), 1),
    "time is a float": (line(time="1.0"), 1),
    "time with an exponent": (line(time="1e3"), 1),
    "time is true": (line(time="true"), 1),
    "time is a string": (line(time='"1"'), 1),
    "time is null": (line(time="null"), 1),
    "time is missing": (b'{"process": 0, "type": "invoke", "f": "acquire"}\n', 1),
    "time is NaN": (line(time="NaN"), 1),
    "time is negative": (line(time="-1"), None),
    "time is huge": (line(time="9" * 30), 1),
    "time is beyond its limit": (line(time=str(2**61 + 1)), 1),
    "time is at its limit": (line(time=str(2**61)), None),
    "token is a float": (granted('"token": 7.0'), 2),
    "token is true": (granted('"token": true'), 2),
    "token is null": (granted('"token": null'), None),
    "token is the least of all": (granted(f'"token": {-(2**63)}'), 2),
    "token is beyond all bounds": (granted('"token": ' + "1" * 5000), 2),
    "ttl is negative": (granted('"ttl": -0.5'), 2),
    "ttl is negative on an invoke": (line(more='"ttl": -1'), 1),
    "ttl is infinite": (granted('"ttl": 1e999'), 2),
    "ttl is huge": (granted('"ttl": 1e300'), None),
    "ttl is true": (granted('"ttl": true'), 2),
    "lease_from after its ok": (granted('"lease_from": 3'), 2),
    "lease_from at its ok": (granted('"lease_from": 2'), None),
    "held is a number": (line("release", more='"held": 0'), 1),
    "process is a float": (line(process="0.0"), 1),
    "process is another word": (line(process='"me"'), 1),
    "process is nemesis": (line(process='"nemesis"'), 1),
    "process is negative": (line(process="-5"), None),
    "type is unknown": (line(type="begin"), 1),
    "f is missing": (b'{"time": 1, "process": 0, "type": "invoke"}\n', 1),
    "f is a number": (b'{"time": 1, "process": 0, "type": "invoke", "f": 3}\n', 1),
    "lock is a number": (line(more='"lock": 3'), 1),
    "lock is null": (line(more='"lock": null'), None),
    "unknown f with keys of its own": (line("x", "ok", '"harness"', more='"token": "t", "ttl": -1'), None),
    "unknown f with a bad time": (line("x", "ok", '"harness"', time='"1"'), 1),
    "unknown key with a number beyond all bounds": (line(more='"x": 1e999'), None),
    "duplicated keys: the last one counts": (line(more='"time": "x", "time": 1'), None),
    "invoke while open": (META_LINE + line() + line(), 3),
    "completion without an invoke": (META_LINE + line(type="ok"), 2),
    "completion of another lock": (granted('"lock": "b"'), 2),
    "completion after a crash": (line() + line("crash", "info") + line(type="ok"), 3),
    "crash isn't info": (line("crash", "ok"), 1),
    "lost isn't info": (line("lost", "ok"), 1),
    "write without a resource": (line("write"), 1),
    "write to another resource": (line("write", more='"resource": "disk"'), 1),
    "a fault": (FAULT, None),
    "fault without an id": (FAULT.replace(b'"id": "a"', b'"id": null'), 1),
    "fault without a phase": (FAULT.replace(b'"start"', b"null"), 1),
    "fault of a contender": (FAULT.replace(b'"nemesis"', b"0"), 1),
    "fault of type ok": (FAULT.replace(b'"info"', b'"ok"'), 1),
    "fault that had the chance to matter": (FAULT.replace(b'"id"', b'"bit": true, "id"'), None),
    "fault that is immune": (FAULT.replace(b'"id"', b'"bit": "immune", "what": "killed", "id"'), None),
    "fault with another word for its bite": (FAULT.replace(b'"id"', b'"bit": "perhaps", "id"'), 1),
    "fault with a number as what": (FAULT.replace(b'"id"', b'"what": 3, "id"'), 1),
    "proves is a word": (line("release", more='"proves": "no"'), 1),
    "renewals is a truth value": (granted('"renewals": true'), 2),
    "renewals in another word": (granted('"renewals": "seen"'), None),
    "id is an integer": (wrote(1), None),
    "id is null": (wrote("null"), None),
    "id is true": (wrote("true"), 1),
    "id is a float": (wrote("1.0"), 1),
    "id is a list": (wrote("[1]"), 1),
    "id is beyond its limit": (wrote("1" * 30), 1),
    "one id twice": (wrote(1) + wrote(2) + wrote(1), 5),
    "one id in two resources": (wrote(1) + wrote(1, "unfenced"), None),
    "one id in two locks": (wrote(1) + wrote(1, more=', "lock": "b"'), None),
    "one id twice, of a write that failed": (wrote(1) + wrote(1, type="fail"), 3),
    "one id twice, by its completion": (wrote(1) + wrote(2).replace(b'"ok"', b'"ok", "id": 1'), 4),
    "an id that its completion takes back": (wrote(1) + wrote(1).replace(b'"ok"', b'"ok", "id": 2'), None),
    "integers and strings as ids": (wrote(1) + wrote('"1"'), 3),
    "integers and strings as ids, far apart": (wrote(1) + line("x") * 20 + audit('["1"]'), 23),
    "integers and strings in one audit": (audit('["a", 1]'), 1),
    "an audit": (wrote('"a"') + audit('["a", "b", "b"]'), None),
    "an audit of nothing": (audit("[]"), None),
    "an audit without ids": (audit("null"), 1),
    "an audit with a null in it": (audit("[null]"), 1),
    "an audit with a truth value in it": (audit("[1, true]"), 1),
    "an audit with a map as ids": (audit("{}"), 1),
    "an audit without a resource": (audit("[]").replace(b'"fenced"', b"null"), 1),
    "an audit of another resource": (audit("[]").replace(b'"fenced"', b'"disk"'), 1),
    "an audit of a contender": (audit("[]").replace(b'"harness"', b"0"), 1),
    "an audit of type ok": (audit("[]").replace(b'"info"', b'"ok"'), 1),
    "an audit with a number as lock": (audit("[]", ', "lock": 3'), 1),
    "an audit with what it does not use": (audit("[]", ', "token": "x", "held": 3'), None),
    "two audits": (audit("[]") + audit("[]", ', "lock": "b"') + audit("[]"), 3),
    "the end": (ENDING + line() + END, None),
    "the end with nothing before it": (ENDING + b'{"type": "end", "events": 0}\n', None),
    "the end counts another number": (ENDING + line() + line(type="ok") + END, None),
    "no end where one is promised": (ENDING + line(), None),
    "an end before white space": (ENDING + line() + END + b"\n \r\n", None),
    "an end that nobody promised": (META_LINE + line() + END, 3),
    "an end without a meta": (line() + END, 2),
    "an end before an event": (ENDING + END + line() + line(type="ok"), 2),
    "two ends": (ENDING + line() + END + END, 3),
    "an end before what can't be read": (ENDING + line() + END + b"x\n", 3),
    "an end without a number": (ENDING + line() + b'{"type": "end"}\n', 3),
    "an end with a float": (ENDING + line() + b'{"type": "end", "events": 1.0}\n', 3),
    "an end after what can't be read": (ENDING + b"x\n" + END, 2),
    "an end with an escape in its type": (ENDING + line() + b'{"type": "\\u0065nd", "events": 1}\n', None),
    "end in the meta is a word": (b'{"type": "meta", "end": "yes"}\n', 1),
    "started is a number": (b'{"type": "meta", "started": 3}\n', 1),
    "started as it should be": (b'{"type": "meta", "started": "2026-11-30T10:00:00+01:00"}\n', None),
    "require is an empty list": (b'{"type": "meta", "require": []}\n', None),
    "fault with an unknown receipt": (FAULT.replace(b'"id"', b'"receipt": "maybe", "id"'), 1),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_bytes(name: str, tmp_path: Path, ways: Any) -> None:
    """The right line is named, or the history is read; all ways of reading say the same."""
    data, wrong = ODD[name]
    path = written(tmp_path, data)
    results = ways(lambda: outcome(path))
    assert all(same(result, results[0]) for result in results), results
    if wrong is None:
        assert isinstance(results[0], dict), results[0]
    else:
        assert isinstance(results[0], tuple)
        assert results[0][0] == wrong
        assert results[0][1]


def test_a_fault_comes_once(tmp_path: Path) -> None:
    """A fault id is started once, stopped once, and not before it is started."""
    start = '{"time": 1, "process": "nemesis", "type": "info", "f": "fault", "phase": "start", "id": "a"}\n'
    stop = start.replace("start", "stop")
    for data, line, word in (
        (start + start, 2, "twice"),
        (start + stop + stop, 3, "twice"),
        (stop + start, 1, "without"),
    ):
        with pytest.raises(HistoryError, match=word) as caught:
            read(written(tmp_path, data))
        assert caught.value.line == line
    assert len(read(written(tmp_path, start + stop)).faults) == 1


@pytest.mark.parametrize("resource", ["fenced", "unfenced"])
def test_equal_seq_of_accepted_writes(resource: str, tmp_path: Path) -> None:
    """Two equal `seq` in one resource of one lock are an error; in two locks they never meet, and a refused one counts
    for nothing."""

    def write(process: int, lock: str, seq: int, became: str = "ok") -> str:
        keys = f'"process": {process}, "f": "write", "resource": "{resource}", "lock": "{lock}"'
        times = f'"time": {seq}'
        return f'{{{times}, "type": "invoke", {keys}}}\n{{{times}, "type": "{became}", "seq": {seq}, {keys}}}\n'

    with pytest.raises(HistoryError, match="seq 1") as caught:
        read(written(tmp_path, write(0, "a", 1) + write(1, "a", 1)))
    assert caught.value.line == 4
    assert len(read(written(tmp_path, write(0, "a", 1) + write(1, "b", 1) + write(1, "a", 2)))) == 6
    assert len(read(written(tmp_path, write(0, "a", 1) + write(1, "a", 1, "fail")))) == 4


def test_what_the_new_keys_come_to(tmp_path: Path, ways: Any) -> None:
    """Ids, what an answer proves, unseen renewals, audits and the number of events, whichever way they are read."""
    events = [
        line(), line(type="ok", more='"renewals": "unseen"'),
        line("renew"), line("renew", "ok", more='"proves": false'),
        line("release", more='"proves": false'), line("release", "fail", more='"proves": false'),
        wrote('"b"'), wrote('"a"', "unfenced"), wrote("null"), audit('["a", "zz", "a"]'),
    ]  # fmt: skip
    path = written(tmp_path, ENDING + b"".join(events) + b'{"type": "end", "events": 13}\n')
    for history in ways(lambda: read(path)):
        by_line = np.argsort(history.line)
        assert history.renewals[by_line].tolist() == [0, 1, *[0] * 11]
        assert history.proves[by_line].tolist() == [-1, -1, -1, 0, *[-1] * 9]
        names = [None if code == NONE else history.id_name(code) for code in history.id[by_line].tolist()]
        assert names == [*[None] * 6, "b", None, "a", None, None, None, None]
        (found,) = history.audits
        assert (history.line[found.row], found.resource, found.ids) == (14, 0, ("a", "zz", "a"))
        assert (history.counted, history.cut_off) == (13, False)


def test_the_earliest_wrong_event_is_named(tmp_path: Path) -> None:
    """Of several wrong lines the first is named; a line that can't be read outranks a wrong pairing."""
    bad = "x\n" * 3
    with pytest.raises(HistoryError) as caught:
        read(written(tmp_path, f"{OK}\n{bad}"))
    assert caught.value.line == 2


def test_the_error_in_the_second_half_has_its_line(tmp_path: Path, ways: Any) -> None:
    """Line numbers count from the beginning of the file, blank lines included, whichever process reads them."""
    lines = [META, *[f'{{"time": {i}, "process": 1, "type": "info", "f": "note"}}' for i in range(500)]]
    lines[100] = ""
    lines.append(ACQUIRE.replace("1", "null"))
    path = written(tmp_path, "\n".join(lines))
    assert {result[0] for result in ways(lambda: outcome(path))} == {len(lines)}


def test_white_space_behind_the_end_line(tmp_path: Path, ways: Any) -> None:
    """Blank lines behind the end take nothing from it, in however many pieces the file is read: it isn't cut off."""
    end = '{"type": "end", "events": 1}'
    path = written(tmp_path, f'{{"type": "meta", "end": true}}\n{ACQUIRE}\n{end}\n{" " * 70}\n\n{" " * 200}\n')
    assert [result["counted"] for result in ways(lambda: outcome(path))] == [1] * 4
    assert not read(path).cut_off


def test_ties_come_by_line_and_lines_need_no_order(tmp_path: Path) -> None:
    """Rows are sorted by time, ties by line."""
    rows = [3, 1, 2, 1]
    text = "".join(f'{{"time": {t}, "process": 1, "type": "info", "f": "note"}}\n' for t in rows)
    history = read(written(tmp_path, text))
    assert history.time.tolist() == [1, 1, 2, 3]
    assert history.line.tolist() == [2, 4, 3, 1]


def test_missing_files(tmp_path: Path) -> None:
    """What can't be opened is an error with its path and no line."""
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(HistoryError) as caught:
            read(path)
        assert caught.value.line == 0
        assert str(path) in str(caught.value)


def test_two_processes_read_what_one_reads(tmp_path: Path, ways: Any) -> None:
    """A long history is the same however it is read, faults, unknown f and locks that only the second half has too."""
    path = tmp_path / "history.jsonl"
    histories.write(path, 3000, seed=5)
    with path.open("a") as file:
        file.write('{"time": 1, "process": "nemesis", "type": "info", "f": "fault", "phase": "start", "id": "a"}\n')
        file.write('{"time": 1, "process": "harness", "type": "info", "f": "end"}\n')
        file.write('{"time": 2, "process": 77, "type": "invoke", "f": "renew", "lock": "other"}\n')
    results = ways(lambda: outcome(path))
    assert isinstance(results[0], dict)
    assert len(results[0]["time"]) == 3003
    assert all(same(result, results[0]) for result in results)


def test_no_fork_beside_other_threads() -> None:
    """A fork copies one thread alone, so with others running there is none."""
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        assert not native._may_fork()
    finally:
        done.set()
        other.join()


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 4), st.sampled_from([2**61, 2**62, 2**63, -(2**63), 10**30]),
    st.floats(), st.sampled_from(["", "a", "invoke", "ok", "meta", "expired", "fenced", "start", "landed", "nemesis"]),
    st.lists(st.integers(0, 2), max_size=2),
)  # fmt: skip
_KEYS = st.sampled_from(
    ["time", "process", "type", "f", "lock", "resource", "token", "ttl", "lease_from", "held", "reason", "read",
     "version", "seq", "phase", "id", "kind", "targets", "processes", "receipt", "x", "ids", "what", "bit", "proves",
     "renewals", "events"]
)  # fmt: skip


@st.composite
def _lines(draw: st.DrawFn) -> bytes:
    event = {
        "time": draw(st.integers(0, 5)),
        "process": draw(st.sampled_from([0, 1, "nemesis", "harness"])),
        "type": draw(st.sampled_from(["invoke", "ok", "fail", "info", "info", "end"])),
        "f": draw(st.sampled_from(["acquire", "renew", "release", "write", "lost", "crash", "fault", "audit", "x"])),
        "resource": draw(st.sampled_from(["fenced", "unfenced"])),
        "phase": "start",
        "id": draw(st.sampled_from(["a", "b", 1])),
        "ids": draw(st.sampled_from([[], ["a"], [1, 2]])),
        "events": draw(st.integers(0, 3)),
    }
    for _ in range(draw(st.integers(0, 2))):
        key = draw(_KEYS)
        if draw(st.booleans()):
            event[key] = draw(_VALUES)
        else:
            event.pop(key, None)
    text = bytearray(json.dumps(event, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass"))
    if draw(st.integers(0, 9)) == 0 and text:
        text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    return bytes(text)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(_lines(), max_size=5), end=st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]))
def test_all_ways_of_reading_agree(lines: list[bytes], end: bytes, tmp_path: Path, ways: Any) -> None:
    """Whatever the bytes: the fast way and the exact one give the same history, or the same error of the same line."""
    path = written(tmp_path, (end or b"\n").join(lines) + end)
    results = ways(lambda: outcome(path))
    assert all(same(result, results[0]) for result in results), results


def test_no_process_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the reading of the first half, the second process is gone after it; and its own death is told."""
    path = written(tmp_path, META_LINE + b"".join(line("x", "info", time=str(i)) for i in range(1000)))
    monkeypatch.setattr(native, "_FORK_FROM", 0)
    monkeypatch.setattr(native, "_may_fork", lambda: True)
    children: list[int] = []
    fork = os.fork

    def noted() -> int:
        children.append(fork())
        return children[-1]

    monkeypatch.setattr(native.os, "fork", noted)
    with monkeypatch.context() as patch:
        patch.setattr(native, "send", lambda *arguments: os._exit(7))  # only the second process sends
        with pytest.raises(HistoryError, match="every other chunk failed"):
            read(path)
    take = Part.take

    def interrupted(self: Any, chunk: bytes, number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt
        take(self, chunk, number)

    monkeypatch.setattr(Part, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read(path)
    assert len(children) == 2
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
