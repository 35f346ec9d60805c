"""Folders of results and the files in them: one process writes, evidence stays, and no reader meets half a file.

A folder is made by one process alone (`make`) and locked while it is written (`held`). The lock is one of the kernel's,
on the file `.lock` in the folder, so that it ends with its process however that ends; what stands in the file is for
people. Whoever only reads needs no lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from harness.errors import ConfigError, UsageError

LOCK = ".lock"
EVIDENCE = (
    "history.jsonl", "trial.json", "faults.jsonl", "ledger.jsonl", "verdict.json", "harness.log", "matrix.json",
    "plan.json", "runs.jsonl",
)  # fmt: skip
"""What a trial and a matrix leave behind. All else (pages) can be made again from these."""
_MARKS = ("history.jsonl", "trial.json", "matrix.json")
"""A folder with one of these holds evidence."""
_LOOK_SECONDS = 1.0
"""A process that only looks who has a folder holds its lock for an instant."""


# -- folders


def make(results: Path, name: str | None, usual: str) -> Path:
    """Makes a folder in the results that nobody had, and returns it.

    Under `name` where the user gave one, else under `usual`, or with a number behind it where that is taken: two runs
    that begin in one second are two. Raises UsageError when the name is taken, or the folder can't be made.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            folder = results / (name or (usual if number == 1 else f"{usual}-{number}"))
            try:
                folder.mkdir()
            except FileExistsError:
                if name is not None:
                    raise taken(folder) from None
                continue
            return folder
    except OSError as error:
        raise UsageError(f"{results / (name or usual)} can't be made: {error.strerror or error}") from error
    raise UsageError(f"{results / usual} exists already, a thousand times; give a --name")


def taken(folder: Path) -> UsageError:
    """The error for a name that is had by somebody else."""
    who = writer(folder)
    return UsageError(
        f"{folder} exists already; give another --name" + (f" (it is being written by {who})" if who else "")
    )


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """While inside, this thread alone writes into the folder. Raises UsageError that says who else does."""
    path = folder / LOCK
    lock = _lock(path, folder)
    try:
        told = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(told).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock ends: whoever waits for it sees that its file is gone
        os.close(lock)


def writer(folder: Path) -> str | None:
    """Who writes into a folder now, in words ("process 7 on host x since …"); None when nobody does."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if _took(lock, fcntl.LOCK_SH):
            return None
        try:
            told = json.loads(os.pread(lock, 4096, 0))
            return f"process {told['pid']} on {told['host']} since {told['since']}"
        except (ValueError, TypeError, KeyError):
            return "another process"  # which has only just begun
    finally:
        os.close(lock)


def _lock(path: Path, folder: Path) -> int:
    deadline = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError as error:
            raise UsageError(f"{path} can't be written: {error.strerror or error}") from error
        try:
            locked = _took(lock, fcntl.LOCK_EX)
        except OSError as error:
            os.close(lock)
            raise UsageError(f"{path} can't be locked: {error.strerror or error}") from error
        with suppress(FileNotFoundError):
            if locked and os.path.samestat(os.fstat(lock), path.lstat()):
                return lock
        os.close(lock)
        if not locked and time.monotonic() > deadline:
            raise UsageError(f"{folder} is being written by {writer(folder) or 'another process'}")
        time.sleep(0.02)


def _took(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -- files


def spare(target: Path, sources: Sequence[Path]) -> None:
    """Raises UsageError when writing `target` would destroy what it is made from, or the evidence of any trial.

    `sources` are the files and folders that are read. Links are followed, and files are told apart as the system does.
    """
    for source in sources:
        for path in [source] if not source.is_dir() else [source / name for name in EVIDENCE]:
            if _same(target, path):
                raise UsageError(f"{target} is {path}, which is read for it; name another file")
    real = target.resolve()
    if real.name in EVIDENCE and _has_evidence(real.parent):
        raise UsageError(f"{target} is a name for evidence in a folder of results; name another file")
    if any(folder.name == "logs" and _has_evidence(folder.parent) for folder in real.parents):
        raise UsageError(f"{target} lies among the logs of a trial, which are evidence; name another file")


def free(target: Path) -> None:
    """Raises UsageError when another process writes into the folder that `target` is in."""
    who = writer(target.parent)
    if who is not None:
        raise UsageError(f"{target.parent} is being written by {who}; wait for its end, or name a file elsewhere")


@contextmanager
def replaced(target: Path) -> Iterator[TextIO]:
    """A text file that takes its place as a whole when the block ends, and not at all when that raises.

    What isn't a regular file (a pipe, a terminal) is written as it is. Raises ConfigError when it can't be written.
    """
    try:
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8") as file:
                yield file
            return
        with whole(target) as file:
            yield file
    except OSError as error:
        raise ConfigError(target, None, f"can't be written: {error.strerror or error}") from error


@contextmanager
def whole(target: Path) -> Iterator[TextIO]:
    """`replaced` for a regular file, new or not, as the system takes it: raises OSError when it can't be written."""
    real = target.resolve()  # a link stays one
    fresh = real.with_name(f".fencepost-{secrets.token_hex(8)}")
    try:
        with fresh.open("x", encoding="utf-8") as file:
            yield file
        os.replace(fresh, real)
    finally:
        fresh.unlink(missing_ok=True)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError):  # one isn't there, or a link leads round in a circle
        return False


def _has_evidence(folder: Path) -> bool:
    return any((folder / name).exists() for name in _MARKS)
