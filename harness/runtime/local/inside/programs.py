"""Starting programs: fork, make ready, and exec or go on; what fails on the way is told as an error of the start."""

from __future__ import annotations

import os
import signal
import traceback
import warnings  # noqa: F401 - os.execvpe does so, in a root where there may be none (Python 3.13 has it not loaded yet)
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from harness.runtime.local.inside import kernel


class NotStarted(Exception):
    """A program could not be started; the reason in words."""


def start(
    argv: Sequence[str],
    env: Mapping[str, str],
    stdio: Sequence[int],
    prepare: Callable[[], None],
) -> int:
    """Fork and execute a program in a session of its own, with these three descriptors; returns its process id.

    `prepare` is run in the child, with the descriptors of this process still open. Returns when the program is
    executed. Raises NotStarted with the reason when it can't be.
    """

    def become() -> None:
        try:
            os.execvpe(argv[0], list(argv), dict(env))
        except FileNotFoundError as error:
            where = f" (in {env.get('PATH', '')})" if "/" not in argv[0] and error.filename is None else ""
            raise NotStarted(f"{argv[0]}: {error.strerror or error}{where}") from error

    return _forked(stdio, prepare, become)


def fork(
    name: str,
    env: Mapping[str, str],
    stdio: Sequence[int],
    prepare: Callable[[], None],
    body: Callable[[], None],
) -> int:
    """The same with what is loaded here already: `body` is the program, in a fork of this process with this name.

    It has no descriptor but its three, and this environment. What ends `body` ends it, an error with its traceback.
    """

    def become() -> None:
        kernel.name(name)
        os.environ.clear()
        os.environ.update(env)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the pipe too over which NotStarted is told: it is started
        code: object = 1
        try:
            body()
        except SystemExit as end:
            code = end.code
        except BaseException:  # noqa: BLE001 - told where the harness hears it
            traceback.print_exc()
        finally:
            os._exit(code if isinstance(code, int) else 1)

    return _forked(stdio, prepare, become)


def _forked(stdio: Sequence[int], prepare: Callable[[], None], become: Callable[[], None]) -> int:
    status, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            ready_signals()
            prepare()
            place(stdio)
            become()
        except BaseException as error:  # noqa: BLE001 - told, and the child is gone
            os.write(report, kernel.said(error).encode()[:4000])
        finally:
            os._exit(127)
    os.close(report)
    with open(status, "rb") as file:
        reason = file.read()
    if reason:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        raise NotStarted(reason.decode(errors="replace"))
    return pid


def place(stdio: Sequence[int]) -> None:
    """Make the descriptors 0, 1 and 2 of what is executed next. All are above 2, or the same as their place."""
    for target, source in enumerate(stdio):
        if source != target:
            os.dup2(source, target)
        else:
            os.set_inheritable(target, True)


def ready_signals() -> None:
    """Let a program have the signals as it expects them, not as Python and a pid 1 keep them."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
