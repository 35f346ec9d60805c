"""A socket whose other end may be anybody: what comes from it comes until a deadline, and so many bytes, or not at all.

The time-out of a socket, and of every library on top of one, begins anew with each read: somebody who sends a byte a
second keeps an operation going for ever, and somebody who sends without end fills the memory. Here both hold for a
whole exchange, whatever it takes to send and to read; libraries get this in the place of the socket.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MOST_BYTES = 16 << 20
"""Of all that is read in one exchange, where nothing else is said; what a lock is told is a thousandth of it."""


class TooLong(OSError):
    """More came than anybody would say in answer."""


class Bounded:
    """A connected socket with a deadline and a limit for the exchange that `begin` began.

    TimeoutError past the deadline, TooLong past the limit, from whatever reads or writes then.
    """

    def __init__(
        self, sock: socket.socket, seconds: float, most_bytes: int = MOST_BYTES, end: float | None = None
    ) -> None:
        self._sock, self._most = sock, most_bytes
        self.begin(seconds, end)

    def begin(self, seconds: float, end: float | None = None) -> None:
        """What is sent and read from now on is one exchange, with so much time; until `end` (monotonic s) where part of
        that was spent already.
        """
        self._seconds, self._left = seconds, self._most
        self._end = time.monotonic() + seconds if end is None else end

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        left = self._end - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(left)
            yield
        except TimeoutError:
            raise TimeoutError(f"no whole answer within {self._seconds:.3g} s") from None

    def _count(self, came: int) -> None:
        self._left -= came
        if self._left < 0:
            raise TooLong(f"its answer is too long: more than {self._most} bytes")

    def sendall(self, data: Any) -> None:
        """All of it; the socket's time-out is one for the whole of this already."""
        with self._in_time():
            self._sock.sendall(data)

    def send(self, data: Any) -> int:
        """Some of it."""
        with self._in_time():
            return self._sock.send(data)

    def recv(self, size: int) -> bytes:
        """What is there, `size` bytes at most."""
        with self._in_time():
            data = self._sock.recv(size)
        self._count(len(data))
        return data

    def recv_into(self, buffer: Any, size: int = 0) -> int:
        """The same, into a buffer."""
        with self._in_time():
            came = self._sock.recv_into(buffer, size)
        self._count(came)
        return came

    def makefile(self, mode: str = "rb") -> io.BufferedReader:
        """A stream to read bytes from. The socket stays open until this is closed too, as with a real one."""
        return io.BufferedReader(_Stream(self, self._sock.makefile("rb", buffering=0)))

    def settimeout(self, seconds: float | None) -> None:
        """Nothing: the deadline is the exchange's, whatever a library thinks of a single read."""

    def gettimeout(self) -> float | None:
        """See `socket.gettimeout`."""
        return self._sock.gettimeout()

    def pending(self) -> int:
        """Bytes that TLS has read and nobody has had yet; `select` doesn't know of them."""
        return int(getattr(self._sock, "pending", int)())

    def fileno(self) -> int:
        """See `socket.fileno`."""
        return self._sock.fileno()

    def getpeername(self) -> Any:
        """See `socket.getpeername`."""
        return self._sock.getpeername()

    def getsockname(self) -> Any:
        """See `socket.getsockname`."""
        return self._sock.getsockname()

    def shutdown(self, how: int) -> None:
        """See `socket.shutdown`."""
        self._sock.shutdown(how)

    def close(self) -> None:
        """See `socket.close`."""
        self._sock.close()


class _Stream(io.RawIOBase):
    """The socket's own stream, which keeps it open; what is read goes through the bounds."""

    def __init__(self, bounded: Bounded, raw: Any) -> None:
        self._bounded, self._raw = bounded, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._bounded.recv_into(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
