"""Files that nobody wrote with good intent: each is a sentence that names the place and exit code 2, no traceback."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness import cli, documents
from harness.errors import FencepostError, HistoryError
from harness.history import reader
from tests.report.scenes import Scene, write_trial_folder

CASE = Path(__file__).parents[2] / "cases" / "clean-handover.jsonl"
DEEP = "[" * 100_000
CELL = {"cell": {"system": "etcd"}, "outcome": {"word": "as-expected"}}


def fencepost(*arguments: object) -> tuple[int, str]:
    """The command in this process: its exit code and all that it said. What no user should meet is raised."""
    done = CliRunner().invoke(cli.cli, [str(argument) for argument in arguments])
    if isinstance(done.exception, FencepostError):
        return done.exception.exit_code, done.output + str(done.exception)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def a_trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trial_folder(tmp_path_factory.mktemp("made") / "trial", Scene(seconds=6).run())


@pytest.fixture
def trial(a_trial: Path, tmp_path: Path) -> Path:
    """A trial's folder to be spoilt."""
    return shutil.copytree(a_trial, tmp_path / "trial")


def refused(told: tuple[int, str], *places: str) -> None:
    """It was a sentence that names the place, and usage (2)."""
    code, said = told
    assert code == 2, said
    for place in places:
        assert place in said
    assert "Traceback" not in said
    assert "bug of Fencepost" not in said
    assert len(said) < 20_000


BAD_NAMES = [".", "", "..", "../trial", "a/../..", "/etc", "a\0b", "\ud800", "x" * 300, "/".join("a" * 40), "a/../b"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_matrix_names_folders_inside_it(tmp_path: Path, name: str) -> None:
    """`.` would be read for ever; others would lead out, or nowhere."""
    (tmp_path / "matrix.json").write_text(
        json.dumps({"format": 1, "cells": [{"trial": "ok", **CELL}, {"trial": name, **CELL}]})
    )
    for command in ("check", "report"):
        refused(fencepost(command, tmp_path), "matrix.json", "cells[2].trial" if name != "\ud800" else "")


def test_links_that_lead_back_are_told(tmp_path: Path) -> None:
    """A link to the folder itself, and two that lead to each other."""
    (tmp_path / "m" / "inner").mkdir(parents=True)
    (tmp_path / "m" / "matrix.json").write_text('{"cells": []}')
    (tmp_path / "m" / "inner" / "matrix.json").write_text('{"cells": []}')
    (tmp_path / "m" / "inner" / "back").symlink_to(tmp_path / "m")
    refused(fencepost("check", tmp_path / "m"), "inner/back", "leads back")
    (tmp_path / "loop").symlink_to("loop")
    refused(fencepost("check", tmp_path / "loop"), "loop")
    refused(fencepost("report", tmp_path / "loop"), "loop")


def test_folders_in_folders_end_somewhere(tmp_path: Path) -> None:
    """Sixty matrices, one in the other."""
    folder = tmp_path
    for _ in range(60):
        (folder / "matrix.json").write_text('{"cells": [{"trial": "m"}]}')
        folder = folder / "m"
        folder.mkdir()
    refused(fencepost("check", tmp_path), "folders of trials, one in the other")


CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "nul": b"\0" * 100,
    "not UTF-8": b'{"id": "\xff"}',
    "deep": DEEP.encode(),
    "deep inside": b'{"cells": ' + DEEP.encode() + b"}",
    "a list": b"[]",
    "a number": b"3",
    "huge number": b'{"format": ' + b"9" * 10_000 + b"}",
    "NaN": b'{"format": NaN}',
    "inf": b'{"format": 1e999}',
    "half": b'{"format": 1, "cells": [',
    "surrogate": b'{"format": 1, "id": "\\ud800", "cells": 3, "nodes": 3, "verdicts": 3}',
    "format 2": b'{"format": 2, "type": "meta"}',
    "format as text": b'{"format": "1", "type": "meta"}',
    "format true": b'{"format": true, "type": "meta"}',
}


@pytest.mark.parametrize("what", CONTENTS)
@pytest.mark.parametrize("name", ["trial.json", "faults.jsonl", "verdict.json", "matrix.json", "history.jsonl"])
def test_stored_files_that_are_none(trial: Path, name: str, what: str) -> None:
    """Each document of a trial and a matrix, spoilt in each way: refused by whoever reads it, with its name."""
    (trial / name).write_bytes(CONTENTS[what])
    if name == "matrix.json":
        (trial / "history.jsonl").unlink()
        refused(fencepost("check", trial), name)
    told = fencepost("report", trial)
    if (name, what) in {("faults.jsonl", "empty"), ("history.jsonl", "empty")}:
        assert told[0] == 0, told  # no fault, no event: that may be
    else:
        refused(told, name)
    if name == "history.jsonl" and what != "empty":
        refused(fencepost("check", trial), "line 1" if what != "deep inside" else "line")


@pytest.mark.parametrize("name", ["trial.json", "faults.jsonl", "verdict.json", "matrix.json", "history.jsonl"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_what_is_no_file_is_not_read(trial: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, a pipe that nobody writes to, a device without end, where a file belongs."""
    monkeypatch.setattr(documents, "PIPE_SECONDS", 0.2)
    path = trial / name
    path.unlink(missing_ok=True)
    if name == "matrix.json":
        (trial / "history.jsonl").unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    refused(fencepost("report", trial), name)
    if name in ("matrix.json", "history.jsonl"):
        refused(fencepost("check", trial), name if name == "matrix.json" else "not a file")


def test_devices_are_no_histories(tmp_path: Path) -> None:
    """/dev/zero has no end, and would fill the disk."""
    refused(fencepost("check", "/dev/zero"), "a device, not a file")
    refused(fencepost("report", "/dev/zero", "--out", tmp_path / "x.html"), "/dev/zero: neither a file nor a folder")
    refused(fencepost("export", "edn", "/dev/zero", tmp_path / "x.edn"), "a device, not a file")


@pytest.mark.parametrize("path", ["x" * 300, "/".join(["y" * 200] * 40)])
@pytest.mark.parametrize("command", ["check", "report"])
def test_paths_that_no_system_takes(command: str, path: str) -> None:
    """Too long, in a part or as a whole."""
    refused(fencepost(command, path), "ile name too long")


def test_a_stored_name_with_a_nul_is_told() -> None:
    """It can't come from a command line, and can from a file."""
    with pytest.raises(HistoryError, match="null byte"):
        reader.read("a\0b")


Spoil = Callable[[dict[str, Any]], Any]
ODD: dict[str, tuple[str, Spoil]] = {
    "a contender of 5000 digits": ("trial.json", lambda data: data["contenders"].update({"9" * 5000: {}})),
    "a contender in other digits": ("trial.json", lambda data: data["contenders"].update({"²": {}, "٣": {}})),
    "times beyond all bounds": ("trial.json", lambda data: data.update(phases=[{"name": "x", "start": 10**30}])),
    "an offset of ages": ("trial.json", lambda data: data.update(epoch={"utc": "9999-12-31T23:59:59-23:00"})),
    "figures beyond all bounds": (
        "verdict.json",
        lambda data: data["verdicts"]["progress"].update(stats={"handover_seconds": {"max": 1e308}, "gap": 10**40}),
    ),
    "figures of other types": (
        "verdict.json",
        lambda data: data["verdicts"]["progress"].update(stats={"handover_seconds": [{}], "availability": "x"}),
    ),
    "a verdict that is no word": ("verdict.json", lambda data: data["verdicts"]["lease"].update(valid="perhaps")),
    "an exit code of ages": ("trial.json", lambda data: data["outcome"].update(exit_code=10**25, grants=-(10**25))),
    "a finding of no line": (
        "verdict.json",
        lambda data: data["verdicts"]["lease"].update(findings=[{"kind": "x", "events": [10**25]}]),
    ),
    "names that are numbers": ("trial.json", lambda data: data["cell"].update(system=3)),
    "counts of other types": (
        "trial.json",
        lambda data: data["contenders"]["0"].update(bye={"polls": 1e300, "x": [[]]}),
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_odd_values_give_a_page_or_a_sentence(trial: Path, what: str) -> None:
    """Whatever JSON can hold: nothing that is read breaks what reads it."""
    name, spoil = ODD[what]
    data = json.loads((trial / name).read_text())
    spoil(data)
    (trial / name).write_text(json.dumps(data))
    code, said = fencepost("report", trial)
    assert (code == 0 and said.endswith("report.html\n")) or (code == 2 and "trial/" in said), said


MATRICES: dict[str, tuple[str | bytes, str]] = {
    "too many cells": (
        "[axes]\n"
        + "\n".join(
            f"{key} = {list(range(60))}" for key in ("seed", "ttl", "warmup", "duration", "recovery", "servers")
        ),
        "axes: make 46,656,000,000 cells, and a matrix has at most 10,000",
    ),
    "too many by hand": ('[[cells]]\nsystem = "etcd"\n' * 10_001, "make 10,001 cells"),
    "huge number": ("[defaults]\nseed = " + "9" * 5000, "not TOML"),
    "not UTF-8": (b'[axes]\nsystem = ["\xff"]', "can't be read"),
    "deep": ("x = " + "[" * 100_000, "nested too deeply"),
    "nul": ("\0", "not TOML"),
    "not a number": ("[defaults]\nttl = nan\n[axes]\nsystem = ['etcd']", "ttl: must lie between"),
    "without end": ("[defaults]\nduration = inf\n[axes]\nsystem = ['etcd']", "duration: must lie between"),
    "a date": ("[defaults]\nsystem_options = { x = 2020-01-01 }\n[axes]\nsystem = ['etcd']", "system_options"),
    "a list in a list": ("[axes]\nsystem = [['etcd']]", "axes.system"),
    "a table as value": ("[axes]\nsystem = ['etcd']\nttl = [{a=1}]", "axes.ttl"),
    "escapes": ("[axes]\nsystem = ['\\u001b[2J']", "unknown system"),
    "escapes in a key": ('[axes]\n"\\u001b[2J" = [1]', "unknown key"),
    "long": ("#" * (5 << 20), "is longer than 4,194,304 bytes"),
}


@pytest.mark.parametrize("what", MATRICES)
def test_matrix_files_that_are_none(tmp_path: Path, what: str) -> None:
    """Refused with the file's name, and before anything is unfolded."""
    text, reason = MATRICES[what]
    path = tmp_path / "m.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(fencepost("matrix", path, "--list"), "m.toml", reason)


def test_a_matrix_file_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device, a pipe that nobody writes to; one that somebody writes to is read."""
    monkeypatch.setattr(documents, "PIPE_SECONDS", 0.5)
    refused(fencepost("matrix", "/dev/zero", "--list"), "/dev/zero", "a device")
    refused(fencepost("matrix", tmp_path, "--list"), str(tmp_path), "s a directory")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(fencepost("matrix", pipe, "--list"), "nothing came out of it")
    monkeypatch.setattr(documents, "PIPE_SECONDS", 30.0)
    writer = threading.Thread(target=lambda: pipe.write_text('[axes]\nsystem = ["etcd"]'))
    writer.start()
    code, said = fencepost("matrix", pipe, "--list")
    writer.join()
    assert code == 0
    assert "fencepost run etcd" in said


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "meta", "format": 2}',
        b'{"type": "meta", "require": ["\\u001b[31m"]}',
        b'{"type": "meta", "ttl": 1e999}',
        b'{"time": ' + b"9" * 5000 + b', "process": 0, "type": "invoke", "f": "acquire"}',
        b'{"time": 0, "process": 0, "type": "invoke", "f": "acquire", "x": ' + DEEP.encode() + b"}",
        b'{"time": 0, "process": 0, "type": "invoke", "f": "\\ud800"}',
        b"\xef\xbb\xbf\xff",
        b"x" * (3 << 20),
        b"\r\r\r{",
    ],
)
def test_histories_that_are_none(tmp_path: Path, line: bytes) -> None:
    """One bad line: its number, by every command that reads histories."""
    path = tmp_path / "history.jsonl"
    path.write_bytes(line + b"\n")
    for command in (("check",), ("report",)):
        refused(fencepost(*command, path), "1")
    refused(fencepost("export", "edn", path, tmp_path / "x.edn"), "1") if b"require" not in line else None
    assert not (tmp_path / "x.edn").exists() or b"require" in line
