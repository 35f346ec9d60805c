"""A program on a node, spoken to over pipes of its own.

The pid 1 of the node has started it, and tells of its end; what it reads and writes goes through nobody else. When the
harness is gone the pipes are, too, and the program reads the end of its input.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Mapping

from harness.runtime.lines import ChunkHandler, Lines
from harness.runtime.stdio import Stdio

log = logging.getLogger(__name__)

SETTLE_SECONDS = 2.0
"""How long after its exit the output of a program may take to end: a child of it may keep that open."""
KILLED_WITH_ITS_NODE = 137
"""128 + SIGKILL: the exit code of a program whose node is gone."""


class Pipes:
    """Three pipes: the ends of the harness, and those that a program gets (`theirs`: its stdin, stdout, stderr)."""

    def __init__(self) -> None:
        stdin, self.stdin = os.pipe()
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        self.theirs = (stdin, stdout, stderr)
        os.set_blocking(self.stdin, False)

    def close_theirs(self) -> None:
        """The program has its own, or there is no program."""
        for descriptor in self.theirs:
            os.close(descriptor)

    def close_ours(self) -> None:
        """There is no program."""
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


class LocalProcess(Stdio):
    """A program running on a node (`harness.runtime.base.Process`). `what` names it in errors: "python3 on n1"."""

    def __init__(self, pipes: Pipes, what: str, on_stdout: ChunkHandler, on_stderr: ChunkHandler) -> None:
        super().__init__(what)
        self._stdin = pipes.stdin
        self._outputs: Mapping[int, ChunkHandler] = {pipes.stdout: on_stdout, pipes.stderr: on_stderr}
        self._abandoned = False
        self._dropped, self._exited = os.eventfd(0), os.eventfd(0)  # readable for good, once that has happened
        self._freeing = threading.Lock()  # nobody signals on a descriptor that was freed
        self._exit_code: int | None = None
        self._reader = threading.Thread(target=self._read, name=f"reads {what}", daemon=True)
        self._reader.start()

    def _write(self, data: bytes, timeout_seconds: float) -> None:
        left = memoryview(data)
        poll = select.poll()
        poll.register(self._stdin, select.POLLOUT)
        poll.register(self._dropped, select.POLLIN)
        while left:
            ready = dict(poll.poll(timeout_seconds * 1000))
            if not ready:
                raise TimeoutError
            if self._dropped in ready:
                raise BrokenPipeError("the connection was abandoned")
            left = left[os.write(self._stdin, left[:65536]) :]

    def close_stdin(self) -> None:
        """End its stdin. What it still writes arrives. Idempotent."""
        with self._sending:
            self._give_up()

    def _give_up(self) -> None:
        if self._stdin_open:
            self._stdin_open = False
            os.close(self._stdin)

    def wait(self, timeout_seconds: float) -> int | None:
        """Its exit code once all its output was handled, or None when it still runs after the timeout.

        137 when the node was removed underneath it. Raises HarnessError when a handler of its output failed.
        """
        ended = self._ended.wait(max(0.0, timeout_seconds))
        self._raise_failure()
        return self._exit_code if ended else None

    def abandon(self) -> None:
        """Drop the connection without ceremony; wakes a `send` that waits. Idempotent."""
        self._abandoned = True
        self._signal(self._dropped)
        self.close_stdin()

    def exited(self, code: int) -> None:
        """The pid 1 of its node has told of its end, or is gone itself."""
        if self._exit_code is None:
            self._exit_code = code
            self._signal(self._exited)

    def _signal(self, descriptor: int) -> None:
        with self._freeing:
            if not self._ended.is_set():
                os.eventfd_write(descriptor, 1)

    def _state(self) -> str:
        if not self._ended.is_set():
            return "its stdin was closed"
        return f"it exited with code {self._exit_code}"

    def _read(self) -> None:
        """Hand on its output until it has ended, and exited."""
        poll = select.poll()
        open_ones = set(self._outputs)
        for descriptor in (*open_ones, self._exited):
            poll.register(descriptor, select.POLLIN)
        settled = None
        while open_ones:
            left = None if settled is None else settled - time.monotonic()
            if left is not None and left <= 0:
                log.debug("%s has exited, but its output has not ended", self._what)
                break
            for descriptor, _ in poll.poll(None if left is None else left * 1000):
                if descriptor == self._exited:
                    poll.unregister(descriptor)
                    settled = time.monotonic() + SETTLE_SECONDS
                    continue
                data = os.read(descriptor, 65536)
                if data:
                    self._handle(self._outputs[descriptor], data)
                else:
                    poll.unregister(descriptor)
                    open_ones.discard(descriptor)
        if settled is None:
            gone = select.poll()
            gone.register(self._exited, select.POLLIN)
            gone.poll()
        for handler in self._outputs.values():
            if isinstance(handler, Lines):
                self._handle(handler.finish)
        self._finish()

    def _handle(self, handler: Callable[..., None], *data: bytes) -> None:
        """Call a handler, unless an earlier call has failed: what comes then is read, and left."""
        if self._failure is not None or self._abandoned:
            return
        try:
            handler(*data)
        except Exception as error:
            log.exception("handling the output of %s failed; its connection is dropped", self._what)
            self._failure = error
            self._signal(self._dropped)
            self.close_stdin()

    def _finish(self) -> None:
        with self._sending, self._freeing:
            self._ended.set()
            self._give_up()
            for descriptor in (*self._outputs, self._dropped, self._exited):
                os.close(descriptor)
