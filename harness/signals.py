"""SIGINT, SIGTERM and SIGHUP, heard from the first statement on, in one place for all commands.

Imported before everything else and so imports next to nothing: loading a command takes tenths of a second, and a
signal in that time must not end in a traceback, or with -15 instead of 130.

Whoever owns nothing yet leaves at once: `leave`. A command that has something to undo takes the signals over with
`answering` (`harness/commands/interrupt.py`). A handler here does next to nothing, and never raises: an exception out
of nowhere is swallowed in a finalizer, and breaks what it hits in the middle of a lock.

A signal that was ignored when the process was born stays so: SIGHUP under `nohup`, SIGINT in a shell's background job.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import time

TYPE_CHECKING = False  # what typing's own is; importing that takes longer than all of the above
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_CODE = 130
"""Of whoever was interrupted, by whichever signal."""
SAME_SECONDS = 1.0
"""A signal that comes twice in so short a time is one: `timeout` sends it to the process, and to its group again."""


temporary: set[str] = set()
"""Paths of files that are removed when the process leaves; whoever makes one takes it out when it is gone."""


class _Hearing:
    """What this process does on a signal. There is one: signals are the process's."""

    pid = 0
    last = -SAME_SECONDS
    answer: Callable[[], None] | None = None


def listen() -> None:
    """Hear the signals from here on, in this process. For the main thread, as its first statement."""
    _Hearing.pid = os.getpid()
    for number in HEARD:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _hear)


def _hear(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _Hearing.pid:
        # A forked helper has nothing to say. It goes on where its parent does (Ctrl-C is sent to both), so that what
        # is being judged is judged to its end; it ends with its parent, which reads from it.
        if _Hearing.answer is None:
            os._exit(EXIT_CODE)
        return
    now = time.monotonic()
    if now - _Hearing.last < SAME_SECONDS:
        return
    _Hearing.last = now
    _mend_output()
    if _Hearing.answer is None:
        leave()
    else:
        _Hearing.answer()


class answering:
    """While inside, a signal calls `answer` instead of ending the process.

    It is called between two instructions of the main thread: it may note something down or write to a pipe, and must
    neither take a lock nor raise.
    """

    def __init__(self, answer: Callable[[], None]) -> None:
        self._answer = answer

    def __enter__(self) -> None:
        self._before, _Hearing.answer = _Hearing.answer, self._answer

    def __exit__(self, *_: object) -> None:
        _Hearing.answer = self._before


def leave(words: str = "interrupted") -> None:
    """End this process at once, with 130. Nothing is flushed and nothing is waited for."""
    for path in list(temporary):
        try:
            os.unlink(path)
        except OSError:
            continue  # it is gone, or its disk is
    say(words)
    os._exit(EXIT_CODE)


def say(words: str) -> None:
    """A line on stderr, whatever lock somebody holds on it; lost when nobody is there to read."""
    try:
        os.write(2, f"{words}\n".encode(errors="replace"))
    except OSError:
        return


def finish(code: int) -> None:
    """End this process with its own exit code: the work is done, and a signal is too late to change that.

    The interpreter's own end would put the signals' old meaning back first, and a SIGTERM in that time ends with -15.
    """
    for number in HEARD:
        signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except BrokenPipeError:
            code = code or 128 + signal.SIGPIPE  # the reader of our output has left: end as SIGPIPE ends a program
        except (OSError, ValueError):
            code = code or 4  # a full disk, say: what was to be said is lost, and that must not look like success
    os._exit(code)


def _mend_output() -> None:
    """A terminal that was closed fails whatever is written to it; from now on that goes nowhere instead."""
    for descriptor in (1, 2):
        try:
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
        except OSError:
            continue  # there is no such descriptor
