"""What SIGINT, SIGTERM and SIGHUP do to a command that has something to undo: run, demo, matrix, doctor, images.

The work is done in a thread of its own, and the main thread does nothing but hear signals. So it hears them at every
moment, in the middle of a slow call to the engine or of a plug-in that hangs, and no exception is thrown into anybody's
work. What a signal means goes by its number:

- `run`, `demo` and `matrix`: the first asks the trials to undo everything, to keep history and logs, and to leave. The
  second no longer waits for them: it removes by their labels what their sites still have, within `SWEEP_SECONDS`, and
  leaves.
- `doctor`: the first does that already; there is nothing to keep.
- `images`: the first breaks off builds and pulls, and waits until what they had half made is removed; the second no
  longer waits.
- One more leaves at once; `fencepost clean` removes what stays.

Even then no fault stays: the agents see their stdin end and undo what they hold. The exit code is 130 each time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from harness import signals

SWEEP_SECONDS = 30.0
"""For the last removal by labels; a site of twelve containers takes two to six seconds, more on a busy machine."""

Result = TypeVar("Result")
_SIGNAL, _DONE = b"s", b"d"
_SHOW_CURSOR = b"\x1b[?25h"


def attended(
    work: Callable[[], Result],
    *,
    sweep: Callable[[float], list[str]],
    stop: Callable[[], None] | None = None,
    stopping: str = "stopping: undoing faults, keeping history and logs",
) -> Result:
    """What `work` returns or raises; it runs in another thread, while this one, the main thread, hears signals.

    Args:
        stop: asks the work to undo everything and to return soon; for the first signal. Without it that sweeps.
        stopping: what the user is told then.
        sweep: removes all that the work has, whatever it is at, within so many seconds; returns what may stay, in
            sentences. After it the process leaves with 130.
    """
    hears, tells = os.pipe()
    ended: list[tuple[Result | None, BaseException | None]] = []
    patience = [2 if stop is not None else 1]

    def answer() -> None:
        if patience[0] == 0:
            _leave("leaving at once; `fencepost clean` removes what stays")
        patience[0] -= 1
        os.write(tells, _SIGNAL)

    def do() -> None:
        try:
            ended.append((work(), None))
        except BaseException as error:  # noqa: BLE001 (raised again in the thread that waits)
            ended.append((None, error))
        os.write(tells, _DONE)

    thread = threading.Thread(target=do, name="work", daemon=True)
    with signals.answering(answer):
        thread.start()
        try:
            while os.read(hears, 1) == _SIGNAL:
                if stop is not None and patience[0] == 1:
                    signals.say(f"\n{stopping} (again to wait no longer)")
                    stop()
                else:
                    signals.say("\nremoving what is left (again to leave at once)")
                    _leave("\n".join([*sweep(SWEEP_SECONDS), "interrupted"]))
        except BaseException:
            # Only where nobody listens for signals, as in a test: Ctrl-C is an exception then.
            sweep(SWEEP_SECONDS)
            raise
    thread.join()
    os.close(hears)
    os.close(tells)
    result, error = ended[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _leave(words: str) -> None:
    if os.isatty(1):
        os.write(1, _SHOW_CURSOR)  # the live view has hidden it
    signals.leave(words)
