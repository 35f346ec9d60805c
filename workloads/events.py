"""What a contender says on its stdout: events as the contract has them (docs/contract.md), stamped and sent as they
happen.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

ERROR_LENGTH = 400
"""Longer error texts are cut, so that a line stays below PIPE_BUF; the log has them whole."""


class Events:
    """The one way out of the process. Lines leave in the order of their times, each in one write.

    A line is shorter than PIPE_BUF (4096 bytes), so a pipe takes it whole even when the process is killed meanwhile.
    Stamp and write happen under one lock: two threads (the job, and the keeper of its lease) never overtake each other.
    """

    def __init__(self, epoch_ns: int, process: int, lock: str, fd: int = 1) -> None:
        self._epoch, self._process, self._lock_name, self._fd = epoch_ns, process, lock, fd
        self._turn = threading.Lock()

    def relative(self, boot_ns: int) -> int:
        """A stamp of CLOCK_BOOTTIME as a time of the history."""
        return boot_ns - self._epoch

    def event(self, type_: str, f: str, *, at_ns: int | None = None, **keys: Any) -> int:
        """Stamp an event with this instant and send it; keys that are None are left out. Returns its time.

        `at_ns`: a time of the history, earlier than this instant, for what is told of the past.
        """
        with self._turn:
            now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - self._epoch if at_ns is None else at_ns
            record = {"time": now, "process": self._process, "type": type_, "f": f, "lock": self._lock_name}
            record.update((key, value) for key, value in keys.items() if value is not None)
            if "error" in record:
                record["error"] = str(record["error"])[:ERROR_LENGTH]
            self._write(record)
        return now

    def say(self, **keys: Any) -> None:
        """Send something that is no event: hello, bye, fatal."""
        with self._turn:
            self._write(keys)

    def _write(self, record: dict[str, Any]) -> None:
        data = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]
