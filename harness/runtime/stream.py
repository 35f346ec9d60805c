"""A program on a node, spoken to over the open stream of a `docker exec`.

The engine multiplexes stdout and stderr over one connection, in frames with a header of 8 bytes (stream number, three
zeros, length as a big-endian 32-bit number); stdin goes the other way raw. A line over this stream takes 0.13 to 0.3
ms, where a fresh exec takes 70 ms. When the connection ends, for whatever reason, the engine ends the program's stdin:
on that the agents' dead man's switch stands.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Iterator, Sequence

from docker.errors import APIError, NotFound

from harness.engine import Engine, Transport, telling
from harness.errors import HarnessError
from harness.runtime.lines import ChunkHandler, Lines
from harness.runtime.stdio import Stdio

log = logging.getLogger(__name__)

SETTLE_SECONDS = 2.0
"""How long after the end of its output a program may take to an exit code; and its output, to end after its exit."""
LOOK_SECONDS = 0.5
"""How often `wait` asks whether the program has ended, where the stream does not tell."""
KILLED_WITH_ITS_NODE = 137
"""128 + SIGKILL: the exit code of a program whose container was removed, which the engine then no longer knows."""

_HEADER = struct.Struct(">BxxxL")
STDOUT, STDERR = 1, 2


class Frames:
    """Splits the engine's stream into (stream number, chunk) pairs; chunks of one stream come in order."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._stream, self._left = 0, 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The chunks that these bytes complete or go on with. Raises ValueError when it is no such stream."""
        self._buffer += data
        position = 0
        buffer = self._buffer
        while True:
            if self._left == 0:
                if len(buffer) - position < _HEADER.size:
                    break
                self._stream, self._left = _HEADER.unpack_from(buffer, position)
                if self._stream > 3 or buffer[position + 1 : position + 4] != b"\0\0\0":
                    raise ValueError(f"not a frame header: {bytes(buffer[position : position + 8])!r}")
                position += _HEADER.size
                continue
            chunk = bytes(buffer[position : position + self._left])
            if not chunk:
                break
            position += len(chunk)
            self._left -= len(chunk)
            yield self._stream, chunk
        del buffer[:position]


class ExecProcess(Stdio):
    """A program running on a node (`harness.runtime.base.Process`). `what` names it in errors: "python3 on n1"."""

    def __init__(
        self,
        engine: Engine,
        exec_id: str,
        transport: Transport,
        what: str,
        on_stdout: ChunkHandler,
        on_stderr: ChunkHandler,
    ) -> None:
        super().__init__(what)
        self._engine, self._exec_id, self._transport = engine, exec_id, transport
        self._handlers = {STDOUT: on_stdout, STDERR: on_stderr}
        self._closing = threading.Lock()  # nobody shuts a descriptor that was freed; taken after _sending
        self._stuck_since: float | None = None
        self._exit_code: int | None = None
        self._reader = threading.Thread(target=self._read, name=f"reads {what}", daemon=True)
        self._reader.start()

    def _write(self, data: bytes, timeout_seconds: float) -> None:
        self._transport.send(data, timeout_seconds)

    def _give_up(self) -> None:
        self._stdin_open = False
        self._shut()

    def close_stdin(self) -> None:
        """End its stdin. What it still writes arrives. Idempotent."""
        with self._sending:
            if not self._stdin_open or self._ended.is_set():
                return
            self._stdin_open = False
            try:
                self._transport.end_sending()
            except OSError as error:
                log.debug("%s: its stdin had ended before: %s", self._what, error)

    def wait(self, timeout_seconds: float) -> int | None:
        """Its exit code once all its output was handled, or None when it still runs after the timeout.

        137 when the node was removed underneath it. Raises HarnessError when a handler of its output failed.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self._ended.wait(max(0.0, min(LOOK_SECONDS, deadline - time.monotonic()))):
            self._shut_when_stuck()
            if time.monotonic() >= deadline:
                return None
        self._raise_failure()
        if self._exit_code is None:  # the connection ended before the program (abandoned, or the engine restarted)
            self._exit_code = self._poll_exit_code(deadline)
        return self._exit_code

    def abandon(self) -> None:
        """Drop the connection without ceremony; wakes a `send` that waits. Idempotent."""
        self._give_up()

    def _shut_when_stuck(self) -> None:
        """End a stream that outlives its program.

        The engine keeps it open while input is left that the program did not read (seen: `true` with 1 MB of stdin, for
        ten seconds and more). What the program wrote has come by then.
        """
        if self._look() is None:
            return
        self._stuck_since = self._stuck_since or time.monotonic()
        if time.monotonic() - self._stuck_since > SETTLE_SECONDS:
            log.debug("%s has ended but its stream has not; shutting it", self._what)
            self._shut()

    def _shut(self) -> None:
        with self._closing:
            if self._ended.is_set():
                return
            try:
                self._transport.shut()
            except OSError as error:
                log.debug("%s: its connection had ended before: %s", self._what, error)

    def _state(self) -> str:
        if not self._ended.is_set():
            return "its stdin was closed"
        return "the connection ended" if self._exit_code is None else f"it exited with code {self._exit_code}"

    def _read(self) -> None:
        frames = Frames()
        try:
            while True:
                try:
                    data = self._transport.receive(65536)
                except OSError as error:
                    log.debug("%s: the connection broke: %s", self._what, error)
                    break
                if not data:
                    break
                for stream, chunk in frames.feed(data):
                    self._handlers[STDERR if stream == STDERR else STDOUT](chunk)
            for handler in self._handlers.values():
                if isinstance(handler, Lines):
                    handler.finish()
        except Exception as error:
            log.exception("handling the output of %s failed; its connection is dropped", self._what)
            self._failure = error
        finally:
            self._finish()

    def _finish(self) -> None:
        # The engine forgets an exec some minutes after its end, so the exit code is asked for now.
        try:
            if self._failure is None:
                self._exit_code = self._poll_exit_code(time.monotonic() + SETTLE_SECONDS)
        except HarnessError as error:
            log.warning("the exit code of %s isn't known: %s", self._what, error)
        finally:
            with self._sending, self._closing:
                self._ended.set()
                self._transport.close()

    def _poll_exit_code(self, deadline: float) -> int | None:
        pause = 0.002
        while True:
            code = self._look()
            if code is not None or time.monotonic() + pause > deadline:
                return code
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _look(self) -> int | None:
        with telling(f"asking whether {self._what} has ended"):
            try:
                state = self._engine.api.exec_inspect(self._exec_id)
            except NotFound:
                return KILLED_WITH_ITS_NODE
            except APIError as error:
                if error.status_code == 409:  # the container is stopped or paused: the exec can't be looked at
                    return None
                raise
        code = state.get("ExitCode")
        return None if state["Running"] or code is None else int(code)


def start_exec(
    engine: Engine,
    container: str,
    argv: Sequence[str],
    what: str,
    *,
    on_stdout: ChunkHandler,
    on_stderr: ChunkHandler,
    env: Sequence[str] = (),
) -> ExecProcess:
    """Start a program in a running container with open stdio. Errors: HarnessError, RuntimeUnavailable."""
    doing = f"starting {what}"
    with telling(doing):
        created = engine.api.exec_create(container, list(argv), stdin=True, environment=list(env) or None)
    exec_id = str(created["Id"])
    transport = engine.upgrade(f"/exec/{exec_id}/start", {"Detach": False, "Tty": False}, doing)
    return ExecProcess(engine, exec_id, transport, what, on_stdout, on_stderr)
