"""The harness's side of a program with open stdio, as far as it is the same wherever the program runs."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from harness.errors import HarnessError
from harness.runtime.base import Process

log = logging.getLogger(__name__)

SEND_TIMEOUT_SECONDS = 10.0
"""How long `send` waits for a program that doesn't read; what lies in between holds 64 to 200 KB."""

PIECE_BYTES = 1 << 20
"""How much input is given at once where there is much: each piece has its own time."""


class Stdio(ABC):
    """Sending, and what became of a handler. `what` names the program in errors: "python3 on n1"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._sending = threading.Lock()  # one writer at a time, and none while the descriptor is freed
        self._stdin_open = True
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        """What a handler of its output raised."""

    def send(self, data: bytes) -> None:
        """Write to its stdin; in order when several threads do. HarnessError when it is gone or doesn't read."""
        with self._sending:
            self._raise_failure()
            if not self._stdin_open or self._ended.is_set():
                raise HarnessError(f"{self._what} can't be sent anything: {self._state()}")
            try:
                self._write(data, SEND_TIMEOUT_SECONDS)
            except TimeoutError as error:
                # Part of it may have gone: what follows would be read as garbage, so this stream is over.
                self._give_up()
                raise HarnessError(
                    f"{self._what} took no input for {SEND_TIMEOUT_SECONDS:g} s (frozen, or not reading its stdin?); "
                    "the connection was given up"
                ) from error
            except OSError as error:
                raise HarnessError(f"{self._what} is gone: {error}") from error

    @abstractmethod
    def _write(self, data: bytes, timeout_seconds: float) -> None:
        """All of it; TimeoutError when nothing of it is taken for so long, OSError when the program is gone."""

    @abstractmethod
    def _give_up(self) -> None:
        """Nothing can be sent any more; `_sending` is held."""

    @abstractmethod
    def _state(self) -> str:
        """Why nothing can be sent to it."""

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise HarnessError(f"handling the output of {self._what} failed: {self._failure!r}") from self._failure


def give_input(process: Process, data: bytes, what: str) -> None:
    """All that a program gets on its stdin, and the end of it; returns at once."""
    if data:
        # In a thread of its own: a program that doesn't read must not keep us past the timeout.
        threading.Thread(target=_feed, args=(process, data), name=f"feeds {what}", daemon=True).start()
    else:
        process.close_stdin()


def _feed(process: Process, data: bytes) -> None:
    try:
        for start in range(0, len(data), PIECE_BYTES):
            process.send(data[start : start + PIECE_BYTES])
    except HarnessError as error:
        log.debug("not all of its input was taken: %s", error)  # `head -1` is right to end early
    process.close_stdin()


def tail(stdout: bytearray, stderr: bytearray) -> str:
    """The end of what a program has written, quoted; or "nothing"."""
    said = bytes(stdout + stderr)[-400:].decode(errors="replace").strip()
    return repr(said) if said else "nothing"
