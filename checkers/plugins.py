"""Asking checkers of others: in a process of their own, with a deadline, each for nothing but its own verdict.

A checker that hangs, dies, eats the memory, forks, prints, quits the interpreter, or writes to the model's arrays costs
its own answer: "unknown", with the reason in `note`. Its import runs there as well. `checkers.warden` is the other
half, and says how; here it is started, listened to, and ended.

The process is a fresh interpreter and not a fork of this one: a trial judges in a thread among many, and a fork would
copy whatever locks the others hold. The history is handed over pickled, in memory that both can see. That costs 0.3 s
for a small history, most of it the import of numpy.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from checkers import answers, warden
from checkers.findings import Verdict
from checkers.intervals import Model
from harness.errors import UsageError

SETTING = "FENCEPOST_PLUGIN_SECONDS"
SECONDS = 60.0
"""How long each checker may take for one history, where the setting doesn't say otherwise."""
INTERRUPTED_SECONDS = 3.0
"""How long one may go on once the user has asked to stop."""
_START_SECONDS = 120.0
"""For the interpreter to start and read the history, however busy the machine is."""
_LATE_SECONDS = 10.0
"""How much later than a deadline the warden's word of it may come."""
_TICK = 0.1
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from checkers import warden; warden.main(int(sys.argv[2]))"
)
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Threads of numpy's would not live through the warden's forks."""


def seconds() -> float:
    """The deadline of one checker, from the environment. Raises UsageError where that is no number of seconds."""
    text = os.environ.get(SETTING)
    if not text:
        return SECONDS
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise UsageError(f"{SETTING} must be a number of seconds above 0, not {text!r}")
    return value


def ask(checkers: Mapping[str, str], model: Model, cancel: threading.Event | None = None) -> dict[str, Verdict]:
    """The verdict of each checker (name -> import reference) on the history of a model.

    Never raises for what a checker does. `cancel` is the user's wish to stop: what hasn't answered soon after is ended.
    An exception in this thread (Ctrl-C) ends the checkers too. Raises UsageError for a deadline that is none.
    """
    if not checkers:
        return {}
    limit = seconds()
    with tempfile.TemporaryFile(prefix="fencepost-") as errors, _process(checkers, model, limit, errors) as process:
        found, reason = _listen(process, model, dict(checkers), limit, cancel)
        if len(found) < len(checkers):
            errors.seek(0)
            said = errors.read()[-2000:].decode(errors="replace").strip()
            reason += f"\n{said}" if said else ""
    return {name: found.get(name) or Verdict("unknown", note=f"the checker {reason}") for name in checkers}


@contextmanager
def _process(
    checkers: Mapping[str, str], model: Model, limit: float, errors: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """The warden, with its request; whatever happens inside, it and all that it runs are gone afterwards."""
    request = warden.Request(dict(checkers), model.history, model.owners, model.certificates, limit)
    with _memory() as file:
        pickle.dump(request, file, protocol=5)
        file.flush()
        file.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, json.dumps(sys.path), str(file.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=(file.fileno(),),
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,  # a Ctrl-C on the terminal is for us, and we pass it on
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.close()  # at which it ends whatever runs
        try:
            process.wait(_LATE_SECONDS)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            if process.poll() is None:
                process.kill()


def _memory() -> IO[bytes]:
    """A file without a name, in memory where the system has that."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("fencepost-judging"), "w+b")
    return tempfile.TemporaryFile(prefix="fencepost-")


def _listen(
    process: subprocess.Popen[bytes],
    model: Model,
    waiting: dict[str, str],
    limit: float,
    cancel: threading.Event | None,
) -> tuple[dict[str, Verdict], str]:
    """The answers that came, and why the others did not."""
    assert process.stdout is not None
    pipe, rest, found = process.stdout.fileno(), bytearray(), dict[str, Verdict]()
    deadline = time.monotonic() + _START_SECONDS + limit + _LATE_SECONDS
    interrupted = False
    poll = select.poll()  # select() takes no descriptor from 1024 on, and a matrix has many open
    poll.register(pipe, select.POLLIN)
    while waiting:
        if not interrupted and cancel is not None and cancel.is_set():
            interrupted, deadline = True, time.monotonic() + INTERRUPTED_SECONDS
        if not poll.poll(1000 * _TICK):
            if time.monotonic() > deadline:
                return found, "was ended with the run, which was interrupted" if interrupted else "was never heard of"
            continue
        piece = os.read(pipe, 1 << 20)
        if not piece:
            return found, f"was lost with the process that ran it (exit code {process.wait()})"
        rest += piece
        while (cut := rest.find(b"\n")) >= 0:
            name, verdict = _told(bytes(rest[:cut]), model)
            del rest[: cut + 1]
            waiting.pop(name, None)
            found[name] = verdict
            if not interrupted:
                deadline = time.monotonic() + limit + _LATE_SECONDS
    return found, ""


def _told(line: bytes, model: Model) -> tuple[str, Verdict]:
    told: dict[str, Any] = json.loads(line)
    if told["answer"] is None:
        return told["name"], Verdict("unknown", note=f"the checker {told['wrong']}")
    return told["name"], answers.decode(told["answer"].encode(), model)
