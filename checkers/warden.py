"""The process in which checkers of others run: one fork for each, watched, ended at its deadline with all it started.

`checkers.plugins` starts it with a fresh interpreter (`python -I -c …`), which has one thread and can therefore fork,
whatever the process that judges is doing. It reads the history, builds the model once, and then for each checker:

- forks a *runner*, which shares the model copy-on-write: what a checker does to it reaches nobody else;
- gives it a session, an address space and an output of its own, imports the checker there, and calls it;
- waits for the answer, its end or the deadline, whichever comes first, and kills whatever is left of it. Descendants
  that left the session are found too, since this process adopts the orphans below it.

What a runner prints is kept for the note of one that fails, and goes nowhere else. When stdin ends (the judging process
was interrupted, or is gone) everything is ended at once. Answers go out on stdout, one JSON line each.

This guards against mistakes, not against malice: a checker runs with the rights of whoever installed it.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

from checkers import answers
from checkers.intervals import Model, build
from harness.history.events import History

MOST_BYTES = 32 << 20
"""Of one answer."""
_PRINTED = 2000
"""Bytes of what a checker printed that are kept, the last ones."""
_TICK = 0.02
"""Seconds between two looks at whether a runner has ended."""
_SWEEP_SECONDS = 5.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass(frozen=True)
class Request:
    """What is to be judged, and by whom: name -> import reference (`module:attribute`)."""

    checkers: dict[str, str]
    history: History
    owners: bool
    certificates: bool
    seconds: float
    """The deadline of each checker, its import included."""


class _Interrupted(Exception):
    """Nobody waits for the answers any more."""


def main(fd: int) -> None:
    """Serves the one request in the file `fd`; returns when all is answered, or nobody listens any more."""
    with os.fdopen(fd, "rb") as file:
        request: Request = pickle.load(file)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    model = build(request.history, owners=request.owners, certificates=request.certificates)
    try:
        for name, reference in request.checkers.items():
            answer, wrong = _run(name, reference, model, request.seconds)
            told = {"name": name, "answer": None if answer is None else answer.decode(), "wrong": wrong}
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()
    except (_Interrupted, BrokenPipeError):
        os._exit(1)


def _run(name: str, reference: str, model: Model, seconds: float) -> tuple[bytes | None, str | None]:
    """A checker's answer, or why there is none."""
    answer_end, answer_in = os.pipe()
    output_end, output_in = os.pipe()
    warden = os.getpid()
    runner = os.fork()
    if runner == 0:
        try:
            os.close(answer_end)
            os.close(output_end)
            _become_runner(warden, output_in, answer_in)
            _answer(name, reference, model, answer_in)
        finally:
            os._exit(70)  # not reached, unless the runner itself is broken
    os.close(answer_in)
    os.close(output_in)
    try:
        return _watch(runner, answer_end, output_end, seconds)
    finally:
        _end(runner)
        os.close(answer_end)
        os.close(output_end)


def _watch(runner: int, answer_end: int, output_end: int, seconds: float) -> tuple[bytes | None, str | None]:
    """Collects what a runner says until it has ended, or must be."""
    said = {answer_end: bytearray(), output_end: bytearray()}
    open_ends = set(said)
    deadline = time.monotonic() + seconds
    status: int | None = None
    while True:
        # Once it has ended what it wrote is in the pipes: one look without waiting, until there is nothing left. Who it
        # left behind may hold the other ends for ever, so their being closed is not waited for.
        ready, _, _ = select.select([0, *open_ends], [], [], 0 if status is not None else _TICK)
        if 0 in ready and not os.read(0, 4096):
            raise _Interrupted
        for end in open_ends.intersection(ready):
            piece = os.read(end, 1 << 20)
            if not piece:
                open_ends.discard(end)
            said[end] += piece
        del said[output_end][:-_PRINTED]
        if len(said[answer_end]) > MOST_BYTES:
            return None, f"answered with more than {MOST_BYTES >> 20} MiB, and was ended"
        if status is not None and not open_ends.intersection(ready):
            break
        if status is None:
            ended, code = os.waitpid(runner, os.WNOHANG)
            if ended:
                status = os.waitstatus_to_exitcode(code)
            elif time.monotonic() > deadline:
                return None, _with_output(f"gave no answer within {seconds:g} s, and was ended", said[output_end])
    if status == 0 and said[answer_end]:
        return bytes(said[answer_end]), None
    how = f"was killed by {_signal(-status)}" if status < 0 else f"ended with exit code {status}"
    return None, _with_output(f"{how} before it had answered", said[output_end])


def _with_output(sentence: str, printed: bytearray) -> str:
    text = bytes(printed).decode(errors="replace").strip()
    return f"{sentence}\nIt printed last:\n{text}" if text else sentence


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _end(runner: int) -> None:
    """Kills a runner and all that it started, whatever session that is in by now."""
    deadline = time.monotonic() + _SWEEP_SECONDS
    while True:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(runner, signal.SIGKILL)
        for child in _children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)


def _children() -> list[int]:
    """Processes below this one: the runner, and the orphans that it left. None where the kernel doesn't tell."""
    try:
        return [int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


# -- in the runner ----------------------------------------------------------------------------------------------------


def _become_runner(warden: int, output: int, answer: int) -> None:
    """A session, an output, no input, a bound on its memory, and an end with the warden's."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != warden:
        os._exit(71)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, answer)
    os.closerange(answer + 1, 1024)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _bound_memory()


def _bound_memory() -> None:
    """Half of the machine's memory on top of what is mapped already, so that a checker that eats it dies alone.

    The soft limit only: whoever reports that memory was short needs some himself.
    """
    try:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = mapped + half
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _answer(name: str, reference: str, model: Model, pipe: int) -> None:
    """Imports the checker, asks it, and says what it answered. Does not return."""
    try:
        check = EntryPoint(name, reference, "fencepost.verdicts").load()
        verdict = answers.foreign(check(model), model)
    except BaseException as error:  # noqa: BLE001  whatever it is: it is theirs, and ends here
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        verdict = answers.crashed(error)
    data = answers.encode(verdict)
    while data:
        data = data[os.write(pipe, data) :]
    os._exit(0)


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere a runner that outlives its session is not found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
