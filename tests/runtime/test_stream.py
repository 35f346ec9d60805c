"""The engine's frames and the lines in them, however the network cuts them."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.runtime import lines as line_splitting
from harness.runtime.lines import Lines
from harness.runtime.stream import STDERR, STDOUT, Frames

frames = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=40)), max_size=12)


def encode(parts: list[tuple[int, bytes]]) -> bytes:
    return b"".join(struct.pack(">BxxxL", stream, len(chunk)) + chunk for stream, chunk in parts)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(frames, st.lists(st.integers(0, 10_000), max_size=12))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    parts: list[tuple[int, bytes]], places: list[int]
) -> None:
    """Each stream's bytes arrive whole and in order, with any split of the connection's data."""
    splitter, out = Frames(), {STDOUT: b"", STDERR: b""}
    for piece in cut(encode(parts), places):
        for stream, chunk in splitter.feed(piece):
            assert chunk
            out[stream] += chunk
    for wanted in out:
        assert out[wanted] == b"".join(chunk for stream, chunk in parts if stream == wanted)


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=8))
def test_lines_are_those_of_the_whole_text(data: bytes, places: list[int]) -> None:
    """Lines don't depend on how the text was cut; a last line without a newline is one too, an empty rest is none."""
    lines: list[bytes] = []
    splitter = Lines(lines.append)
    for piece in cut(data, places):
        splitter(piece)
    splitter.finish()
    expected = data.split(b"\n")
    assert lines == (expected[:-1] if expected[-1] == b"" else expected)


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 500 no", b"\x01\x00\x01\x00\x00\x00\x00\x01a", b"\x07\x00\x00\x00\x00\x00\x00\x01a"]
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    """An answer that isn't the engine's stream is an error, not output of the program."""
    with pytest.raises(ValueError, match="not a frame header"):
        list(Frames().feed(data))


def test_a_line_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that never ends its line can't eat the memory; what comes after the line is whole again."""
    monkeypatch.setattr(line_splitting, "LONGEST_LINE", 10)
    lines: list[bytes] = []
    splitter = Lines(lines.append)
    for chunk in (b"12345", b"67890", b"dropped", b"end\nnext\n"):
        splitter(chunk)
    assert lines == [b"1234567890end", b"next"]
