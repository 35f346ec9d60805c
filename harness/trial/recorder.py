"""Writing what happens to disk, as it happens: `history.jsonl` and `faults.jsonl`.

Each line is one `write` on an unbuffered file, so that whatever kills the harness leaves all earlier lines on disk.
A disk that is full ends the trial with a HarnessError: a history with holes would be worse than none.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.history.parsing import Malformed, parse_event
from harness.trial.live import LiveState


def write_json(path: Path, data: object) -> None:
    """Write a JSON file so that a reader never meets half of it. Raises HarnessError when the disk doesn't take it."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        fresh.replace(path)
    except OSError as error:
        raise HarnessError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


OPERATIONS = frozenset({"acquire", "renew", "release", "write"})
"""What has an invoke and a completion; `lost` is one event."""


class LineFile:
    """A file of JSON lines that is only ever appended to, one unbuffered write a line. Safe from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record. Raises HarnessError when the disk doesn't take it whole."""
        data = json.dumps(record, separators=(", ", ": "), ensure_ascii=False).encode() + b"\n"
        with self._lock:
            written = 0
            try:
                written = os.write(self._fd, data)
                if written != len(data):  # a disk that fills up takes a part first; the rest says why
                    os.write(self._fd, data[written:])
            except OSError as error:
                if written:  # half a line would make the whole file unreadable
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise HarnessError(f"{self.path} can't be written: {error.strerror or error}") from error

    def close(self) -> None:
        """Push it to the disk and close. Idempotent."""
        with self._lock:
            if self._fd >= 0:
                try:
                    os.fsync(self._fd)
                finally:
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
    """The one place through which events of a trial go: onto disk first, then into the live state."""

    def __init__(self, folder: Path, meta: Mapping[str, Any]) -> None:
        self.live = LiveState()
        self._history = LineFile(folder / "history.jsonl")
        self._journal = LineFile(folder / "faults.jsonl")
        self._order = threading.Lock()
        self._history.append({"type": "meta", "format": 1, **meta})

    def event(self, event: Mapping[str, Any]) -> None:
        """Record one event of the history."""
        with self._order:
            self._history.append(event)
        self.live.feed(event)

    def fault(self, event: Mapping[str, Any], evidence: Mapping[str, Any], target: str) -> None:
        """Record one phase of a fault: the event for the history, and the same with its evidence for the journal."""
        self.event({"process": "nemesis", "type": "info", "f": "fault", **event})
        self._journal.append({**event, "target": target, "evidence": evidence})

    def close(self) -> None:
        """Flush both files to the disk."""
        self._history.close()
        self._journal.close()


class Border:
    """What stands between a program that is not ours and the history: one for each contender.

    A lock of the user's own can print anything. An event enters only when the reader of histories will take it, alone
    and in its place: a line that makes the file unreadable would lose everybody's.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self._open: set[tuple[str, str, str | None]] = set()

    def problems(self, event: object) -> list[str]:
        """What is wrong with a line that was printed as an event; empty when it may enter, which it then has."""
        if not isinstance(event, dict):
            return [f"not a JSON object but {type(event).__name__}"]
        found = []
        if type(event.get("process")) is not int or event["process"] != self._process:
            found.append(f"process must be {self._process}, not {event.get('process')!r}")
        if event.get("f") in ("fault", "crash"):
            found.append(f"f must be an operation's name, not {event['f']!r}")
        try:
            parse_event(event)
        except Malformed as error:
            found.append(str(error))
        if not found and event["f"] in OPERATIONS:
            place = (event["f"], event.get("lock") or "lock", event.get("resource"))
            if event["type"] == "invoke" and place in self._open:
                found.append(f"an invoke of {event['f']} while the same one is open")
            elif event["type"] == "invoke":
                self._open.add(place)
            elif place not in self._open:
                found.append(f"a completion of {event['f']} without an invoke")
            elif (event.get("lease_from") or event["time"]) > event["time"]:
                found.append("lease_from lies after its ok")
            else:
                self._open.discard(place)
        return found
