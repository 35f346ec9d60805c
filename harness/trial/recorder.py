"""Writing what happens to disk, as it happens: `history.jsonl` and `faults.jsonl`.

Each line is one `write` on an unbuffered file, so that whatever kills the harness leaves all earlier lines on disk.
A disk that is full ends the trial with a HarnessError, and the history there: one with holes would be worse than none.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import redaction, results
from harness.errors import HarnessError
from harness.trial.border import Claims
from harness.trial.live import LiveState


def write_json(path: Path, data: object) -> None:
    """Write a JSON file so that a reader never meets half of it. Raises HarnessError when the disk doesn't take it."""
    text = json.dumps(redaction.data(data), indent=2, ensure_ascii=False) + "\n"
    try:
        with results.whole(path) as file:
            file.write(text)
    except OSError as error:
        raise HarnessError(f"{path} can't be written: {error.strerror or error}") from error


class LineFile:
    """A file of JSON lines that is only ever appended to, one unbuffered write a line. Safe from several threads.

    Nothing is written behind a failed write, whatever room there is by then: what is missing in the middle of a file
    can't be seen, and may be the one line that clears somebody.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        except OSError as error:
            raise HarnessError(f"{path} can't be made: {error.strerror or error}") from error
        self._failed: str | None = None

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record. Raises HarnessError when the disk doesn't take it whole, or did not take an earlier one."""
        data = json.dumps(redaction.data(record), separators=(", ", ": "), ensure_ascii=False).encode() + b"\n"
        with self._lock:
            self._usable()
            written = 0
            try:
                written = os.write(self._fd, data)
                if written != len(data):  # a disk that fills up takes a part first; the rest says why
                    written += os.write(self._fd, data[written:])
                if written != len(data):
                    raise OSError(f"it took {written} of {len(data)} bytes")
            except OSError as error:
                self._fail(error)
                if written:  # half a line would make the whole file unreadable
                    with contextlib.suppress(OSError):  # the write's error says it all
                        os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise HarnessError(self._failed or "") from error

    @property
    def open(self) -> bool:
        """Whether it was not closed yet."""
        return self._fd >= 0

    def _usable(self) -> None:
        if self._failed is not None:
            raise HarnessError(self._failed)
        if self._fd < 0:
            raise HarnessError(f"{self.path} is closed")

    def _fail(self, error: OSError) -> None:
        self._failed = f"{self.path} can't be written: {error.strerror or error}"

    def sync(self) -> None:
        """Push what was written to the disk. Raises HarnessError when the disk doesn't take it, or did not before."""
        with self._lock:
            self._usable()
            try:
                os.fsync(self._fd)
            except OSError as error:
                self._fail(error)
                raise HarnessError(self._failed or "") from error

    def close(self) -> None:
        """Take no more. Idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


class LogFile:
    """Free text of a node or a program, as it comes. Safe from several threads.

    A log that can't be written must not end what it tells of: the first such error goes to `failed`, once, and the rest
    of the text is dropped.
    """

    def __init__(self, path: Path, failed: Callable[[str], None]) -> None:
        self.path, self._failed = path, failed
        self._lock = threading.Lock()
        self._broken = False

    def line(self, text: bytes) -> None:
        """Append one line."""
        text = redaction.raw(text)
        with self._lock:
            if self._broken:
                return
            try:
                with self.path.open("ab", buffering=0) as file:
                    file.write(text + b"\n")
                return
            except OSError as error:
                self._broken = True
                reason = f"{self.path} can't be written: {error.strerror or error}"
        self._failed(reason)


class Recorder:
    """The one place through which events of a trial go: onto disk first, then into the live state.

    The history begins with its meta, at once when one is given. Else `begin` gives it, once it is known what the
    contenders' client is like; what is said until then waits in memory. It promises an end line, and has one only when
    nothing that was to stand in it is missing.
    """

    def __init__(self, folder: Path, meta: Mapping[str, Any] | None = None) -> None:
        self.live = LiveState()
        self.claims = Claims()
        """What may stand once in this history, for the borders of its contenders."""
        self._path = folder / "history.jsonl"
        self._history: LineFile | None = None
        self._journal = LineFile(folder / "faults.jsonl")
        self._order = threading.Lock()
        self._early: list[Mapping[str, Any]] = []
        self._events = 0
        self._missing: str | None = None
        if meta is not None:
            self.begin(meta)

    def begin(self, meta: Mapping[str, Any]) -> None:
        """Begin the history with this meta, and what was said before it."""
        with self._order:
            assert self._history is None, "it was begun already"
            self._history = LineFile(self._path)
            self._history.append({"type": "meta", "format": 1, **meta, "end": True})
            self.live.grants_seen.ttl = meta.get("ttl") if meta.get("expires", True) else None
            for event in self._early:
                self._write(event)

    def _write(self, event: Mapping[str, Any]) -> None:
        if self._history is None:
            self._early.append(event)
            return
        self._history.append(event)
        self._events += 1

    def event(self, event: Mapping[str, Any]) -> None:
        """Record one event of the history. Raises HarnessError when it, or one before it, could not be written."""
        with self._order:
            self._write(event)
        self.live.feed(event)

    def fault(self, event: Mapping[str, Any], evidence: Mapping[str, Any], target: str) -> None:
        """Record one phase of a fault: the event for the history, and the same with its evidence for the journal."""
        self.event({"process": "nemesis", "type": "info", "f": "fault", **event})
        self._journal.append({**event, "target": target, "evidence": evidence})

    def audit(self, time_ns: int, lock: str, resource: str, ids: Sequence[int]) -> None:
        """Record what a resource held (the ids of its writes) when it was read; `time_ns`: that read was sent."""
        told = {"time": time_ns, "process": "harness", "type": "info", "f": "audit", "lock": lock}
        self.event({**told, "resource": resource, "ids": list(ids)})

    def incomplete(self, why: str) -> None:
        """Something that happened does not stand in the history, so it gets no end line: nobody is judged by it."""
        with self._order:
            self._missing = self._missing or why

    def close(self) -> None:
        """End the history, if nothing is missing in it, and push both files to the disk. Idempotent.

        Raises HarnessError when they are not whole on it.
        """
        with self._order:
            try:
                if self._history is not None and self._history.open:
                    self._history.sync()
                    if self._missing is None:
                        self._history.append({"type": "end", "events": self._events})
                        self._history.sync()
                if self._journal.open:
                    self._journal.sync()
            finally:
                if self._history is not None:
                    self._history.close()
                self._journal.close()
