"""Taking turns with the heavy part of a start-up, over all trials on this machine.

Twelve containers are up in three seconds when they have the machine to themselves; four such start-ups at once take
fourteen seconds, each of them. In turns the first trial runs after three. So creating and starting containers happens
under `turn`, which lets so many through at once as the cores can carry, first come first served.

A waiter is a *ticket*: a file in one directory, named by a rising number, under an flock that is held from the moment
it can be seen to the end of the turn. Whoever has fewer than `slots` live tickets before it has the turn. An flock goes
with its process, however that ends, so a ticket without one is nobody's and is taken away by the next that looks.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.private import keep_private, private_folder

log = logging.getLogger(__name__)

WAIT_SECONDS = 600.0
"""The longest wait for a turn. A whole start-up takes seconds, so this long a queue means that something hangs."""
POLL_SECONDS = 0.01


def default_slots() -> int:
    """How many start-ups may run at once here: a start-up keeps two cores busy (the engine and its shims)."""
    return max(1, (os.cpu_count() or 1) // 2)


def default_folder() -> Path:
    """Where the tickets of this user lie: one folder for the whole machine, whatever the working directory."""
    return private_folder("turns")


@dataclass(frozen=True)
class Waited:
    """How long a turn was waited for, and how many had one or stood before us when we came."""

    seconds: float
    ahead: int


@contextmanager
def turn(
    what: str,
    *,
    folder: Path | None = None,
    slots: int | None = None,
    wait_seconds: float = WAIT_SECONDS,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Waited]:
    """Hold a turn; `what` tells others what it is for: "starting n1, n2, n3 of site t1".

    Not re-entrant: whoever holds a turn and asks for a second one may wait for himself. Raises HarnessError when no
    turn came in `wait_seconds`, naming those before us. `check` is called while waiting and may raise to give up.
    """
    folder = folder or default_folder()
    slots = slots or default_slots()
    keep_private(folder)
    began = time.monotonic()
    ticket = _draw(folder, what)
    try:
        ahead = before = _alive_before(folder, ticket)
        first = len(before)
        while len(ahead) >= slots:
            if time.monotonic() - began > wait_seconds:
                raise HarnessError(
                    f"no turn for {what} in {wait_seconds:g} s; before it, in order: {'; '.join(_words(ahead))}. "
                    f"(Tickets lie in {folder}; the first {slots} have the turn.)"
                )
            check()
            time.sleep(POLL_SECONDS)
            ahead = _alive_before(folder, ticket)
        yield Waited(time.monotonic() - began, first)
    finally:
        ticket.give_up()


class SharedTurn:
    """One turn of the machine, held by a site for as long as any of its threads is inside. Re-entrant so.

    `folder` and `slots` as in `turn`.
    """

    def __init__(self, what: str, *, folder: Path | None = None, slots: int | None = None) -> None:
        self._what, self._folder, self._slots = what, folder, slots
        self._lock = threading.Lock()
        self._inside = 0
        self._held: AbstractContextManager[Waited] | None = None

    @contextmanager
    def held(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold it; `check` may raise while it is waited for."""
        self._enter(check)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, check: Callable[[], None]) -> None:
        with self._lock:  # the threads that come while one waits wait here, and then share what it got
            if self._inside == 0:
                held = turn(f"starting {self._what}", folder=self._folder, slots=self._slots, check=check)
                waited = held.__enter__()
                if waited.seconds > 0.5:
                    log.info("%s waited %.1f s for its turn, behind %d", self._what, waited.seconds, waited.ahead)
                self._held = held
            self._inside += 1

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                held, self._held = self._held, None
                assert held is not None, "whoever leaves has entered"
                held.__exit__(None, None, None)


@dataclass(frozen=True)
class _Ticket:
    number: int
    path: Path
    descriptor: int

    def give_up(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


def _draw(folder: Path, what: str) -> _Ticket:
    """A ticket behind all others. The door makes drawing one step: a number is never seen before its lock is held."""
    door = os.open(folder / "door", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(door, fcntl.LOCK_EX)
        number = int(os.pread(door, 32, 0) or b"0") + 1
        os.pwrite(door, b"%d" % number, 0)  # first, so that a number is never given twice, whenever we are killed
        path = folder / f"{number:012d}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, f"{what} (process {os.getpid()})".encode())
        return _Ticket(number, path, descriptor)
    except OSError as error:
        raise HarnessError(f"can't queue for a start-up in {folder}: {error}") from error
    finally:
        os.close(door)


def _alive_before(folder: Path, ticket: _Ticket) -> list[Path]:
    """The tickets before ours that somebody holds, in order; the others are swept away."""
    alive = []
    for path in sorted(folder.iterdir()):
        if not path.name.isdigit() or int(path.name) >= ticket.number:
            continue
        if _held(path):
            alive.append(path)
        else:
            path.unlink(missing_ok=True)
    return alive


def _held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _words(paths: list[Path]) -> list[str]:
    words = []
    for path in paths:
        try:
            words.append(path.read_text())
        except FileNotFoundError:
            continue  # its turn ended this moment
    return words
