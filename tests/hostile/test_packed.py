"""Compressed histories are read as they are; spoilt ones, and those made to burst, are told with their place."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import histories
from harness import cli
from harness.errors import HistoryError
from harness.history import native, packed, read, reader
from tests.checkers.test_reader import outcome, same
from tests.hostile.test_files import fencepost, refused
from tests.report.scenes import Scene, write_trial_folder

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CASE = Path(__file__).parents[2] / "cases" / "clean-handover.jsonl"
PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
ENDS = {"gzip": ".gz", "zstd": ".zst"}
SKIPPABLE = b"\x5a\x2a\x4d\x18\x04\x00\x00\x00skip"


@pytest.fixture(params=PACKERS)
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A history of 4001 lines."""
    path = tmp_path_factory.mktemp("made") / "history.jsonl"
    histories.write(path, 4000, seed=3)
    return path.read_bytes()


def packed_as(kind: str, text: bytes) -> bytes:
    return PACKERS[kind](text)


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_it_is_the_history_that_was_compressed(
    tmp_path: Path, kind: str, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the file is called, in one stream or several, by one process or two."""
    plain = outcome(written(tmp_path, "plain.jsonl", text))
    assert isinstance(plain, dict)
    half = text.index(b"\n", len(text) // 2) - 20  # inside of a line
    several = packed_as(kind, text[:half]) + packed_as(kind, b"") + packed_as(kind, text[half:])
    ways = {f"history.jsonl{ENDS[kind]}": packed_as(kind, text), "several.jsonl": several, "no-name": several}
    ways["filled-up"] = several + (b"\0" * 70_000 if kind == "gzip" else SKIPPABLE)
    if kind == "zstd":
        ways["skipped"] = SKIPPABLE + several
    for processes in (1, 2):
        with monkeypatch.context() as patch:
            if processes == 2:
                patch.setattr(native, "_CHUNK", 5000)
                patch.setattr(native, "_FORK_FROM", 0)
                patch.setattr(native, "_may_fork", lambda: True)
            for name, data in ways.items():
                found = outcome(written(tmp_path, name, data))
                assert isinstance(found, dict), (name, found)
                assert same({**found, "path": ""}, {**plain, "path": ""}), name


def test_folders_and_standard_input(tmp_path: Path, kind: str) -> None:
    """A trial's folder, a folder of trials, `-`, and every command that takes a history."""
    text, events = CASE.read_bytes(), f"{len(read(CASE))} events"
    folder = tmp_path / "soak" / "trial"
    folder.mkdir(parents=True)
    path = written(folder, f"history.jsonl{ENDS[kind]}", packed_as(kind, text))
    for given in (path, folder, folder.parent):
        code, said = fencepost("check", given)
        assert (code, events in said) == (0, True), said
    done = CliRunner().invoke(cli.cli, ["check", "-"], input=packed_as(kind, text))
    assert events in done.output
    assert fencepost("export", "edn", path, tmp_path / "history.edn")[0] == 0
    edn = (tmp_path / "history.edn").read_bytes()
    for name in (f"history.edn{ENDS[kind]}", "without-a-name"):
        assert events in fencepost("check", written(tmp_path, name, packed_as(kind, edn)))[1]
    assert fencepost("report", path, "--out", tmp_path / "story.html")[0] == 0


def test_two_histories_in_a_folder(tmp_path: Path, text: bytes) -> None:
    """Which of them is meant only the user knows; both are named."""
    written(tmp_path, "history.jsonl", text)
    written(tmp_path, "history.jsonl.zst", zstd.compress(text))
    refused(fencepost("check", tmp_path), "history.jsonl and a history.jsonl.zst")
    with pytest.raises(HistoryError, match=r"history\.jsonl and a history\.jsonl\.zst"):
        read(tmp_path)
    assert len(read(tmp_path / "history.jsonl.zst")) == 4000


def test_the_name_alone_packs_nothing(tmp_path: Path, text: bytes) -> None:
    """A plain history that is called as if it were compressed, and one whose name hides that it is."""
    assert len(read(written(tmp_path, "history.jsonl.zst", text))) == 4000
    assert len(read(written(tmp_path, "history.gz", zstd.compress(text)))) == 4000
    assert reader.detect(written(tmp_path, "a.json.gz", gzip.compress(b" [1]"))) == "jepsen-json"


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def cut_at_the_end(data: bytes) -> bytes:
    return data[:-1]


def spoilt(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes(byte ^ 0x55 for byte in data[at : at + 50]) + data[at + 50 :]


def followed(data: bytes) -> bytes:
    return data + b"\nsome more"


SPOILT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (cut, "the file is cut off: it ends inside its"),
    "cut at the end": (cut_at_the_end, "the file is cut off: it ends inside its"),
    "spoilt": (spoilt, ""),
    "followed": (followed, "stands behind the end of it"),
}


@pytest.mark.parametrize("what", SPOILT)
@pytest.mark.parametrize("processes", [1, 2])
def test_spoilt_files(
    tmp_path: Path, kind: str, text: bytes, what: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told in the line where it breaks off, after all that could be read before."""
    if processes == 2:
        monkeypatch.setattr(native, "_CHUNK", 5000)
        monkeypatch.setattr(native, "_FORK_FROM", 0)
        monkeypatch.setattr(native, "_may_fork", lambda: True)
    spoil, reason = SPOILT[what]
    path = written(tmp_path, "history.jsonl.packed", spoil(packed_as(kind, text)))
    with pytest.raises(HistoryError) as caught:
        read(path, format="fencepost")
    assert reason in caught.value.reason
    # A block of zstd's is 128 KiB of text, and is there as a whole or not at all.
    block = 1300 if kind == "zstd" else 0
    low, high = {"cut": (1000, 3000), "spoilt": (1000 - block, 4001), "cut at the end": (4002 - block, 4002)}.get(
        what, (4002, 4002)
    )
    assert low <= caught.value.line <= high
    refused(fencepost("check", path, "--format", "fencepost"), f"line {caught.value.line}: ")
    if what != "spoilt":
        foreign = written(tmp_path, "ops.json", spoil(packed_as(kind, b",\n".join(b"%d" % i**3 for i in range(500)))))
        refused(fencepost("check", foreign), "line ", reason)


def test_a_file_of_which_nothing_is_left(tmp_path: Path, kind: str, text: bytes) -> None:
    """One that is cut off before the first byte of text comes out isn't an empty history, however it is read."""
    data = packed_as(kind, text[:3000])
    for length in (4, 10, 15):
        for name in ("history.jsonl", "history.edn"):
            path = written(tmp_path, name, data[:length])
            refused(fencepost("check", path), "line 1: the file is cut off")


def test_a_wrong_line_before_the_break_comes_first(tmp_path: Path, kind: str, text: bytes) -> None:
    """The place of an error is that in the text, and the first one counts."""
    lines = text.split(b"\n")
    lines[100] = b"not JSON"
    path = written(tmp_path, "history.jsonl.gz", packed_as(kind, b"\n".join(lines)) + b"more")
    assert outcome(path) == (101, outcome(written(tmp_path, "plain.jsonl", b"\n".join(lines)))[1])  # type: ignore[index]


def test_edn_where_a_native_history_is_due(tmp_path: Path, kind: str) -> None:
    """What is inside is told as of any file: by its name, else by its first bytes, else by who reads it."""
    edn = b"\n\n{:type :invoke, :f :acquire, :process 0, :time 1}\n"
    refused(fencepost("check", written(tmp_path, "history.jsonl.gz", packed_as(kind, edn))), "line 3: not JSON")
    assert "1 events" in fencepost("check", written(tmp_path, "ops.gz", packed_as(kind, edn)))[1]


def test_a_bomb_is_refused(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that grows without end: of blank lines, of one line, of events."""
    event = b'{"time": 1, "process": 1, "type": "info", "f": "note"}\n'
    monkeypatch.setattr(packed, "FREE", 1 << 20)
    monkeypatch.setattr(packed, "MOST_TIMES", 50)
    monkeypatch.setattr(native, "_LONGEST", 1 << 19)
    told = {
        "lines": (b"\n" * (4 << 20), "50 times its size"),
        "a line": (b" " * (4 << 20), "a line of more than 0 MiB"),
        "events": (event * 80_000, "50 times its size"),
    }
    for name, (data, reason) in told.items():
        path = written(tmp_path, name.replace(" ", "-"), packed_as(kind, data))
        refused(fencepost("check", path, "--format", "fencepost"), "line ", reason)


def test_reading_takes_constant_memory(tmp_path: Path, kind: str) -> None:
    """However much a piece of what is compressed becomes, no more is unpacked than was asked for."""
    path = written(tmp_path, "zeros", packed_as(kind, bytes(20 << 20)))
    with packed.opened(path) as source:
        pieces = [source.read(1000) for _ in range(50)]
        assert {len(piece) for piece in pieces} == {1000}
        stream = source._stream  # type: ignore[attr-defined]
        assert len(source._rest) <= packed._PIECE  # type: ignore[attr-defined]
        assert stream is not None


def test_a_window_beyond_all_bounds(tmp_path: Path) -> None:
    """A frame that wants two gigabytes to be unpacked is refused, with the place."""
    options = {zstd.CompressionParameter.window_log: 31, zstd.CompressionParameter.enable_long_distance_matching: 1}
    made = zstd.ZstdCompressor(options=options)
    path = written(tmp_path, "history.jsonl.zst", made.compress(b"{}\n" * 100) + made.flush())
    refused(fencepost("check", path), "line 1: spoilt zstd data", "too much memory")


def test_a_file_that_grows_while_it_is_read(tmp_path: Path, text: bytes) -> None:
    """What is written to it later is left out; both processes see the same."""
    path = written(tmp_path, "history.jsonl", text)
    with packed.opened(path) as source:
        with path.open("ab") as more:
            more.write(b"more\n")
        assert source.read(len(text) + 100) == text


def test_what_is_compressed_with_something_else(tmp_path: Path) -> None:
    """xz isn't read; it is no text, and told as such."""
    refused(fencepost("check", written(tmp_path, "history.jsonl.xz", b"\xfd7zXZ\x00" + os.urandom(50))), "line 1: ")


def test_a_trial_whose_history_was_compressed_since(tmp_path: Path, kind: str) -> None:
    """Its folder is judged and shown as before; with both in it, both are named."""
    trial = write_trial_folder(tmp_path / "trial", Scene(seconds=3).run())
    text = (trial / "history.jsonl").read_bytes()
    before = fencepost("check", trial, "--json")
    written(trial, f"history.jsonl{ENDS[kind]}", packed_as(kind, text))
    refused(fencepost("report", trial), f"history.jsonl and a history.jsonl{ENDS[kind]}")
    (trial / "history.jsonl").unlink()
    assert fencepost("check", trial, "--json") == before
    code, said = fencepost("report", trial)
    assert code == 0, said
