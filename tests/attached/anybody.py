"""An endpoint that may be anybody, and says whatever a test wants."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def answering(answer: Callable[[bytes], Iterable[bytes]]) -> Iterator[str]:
    """An endpoint that answers each request with these pieces, one after the other, and closes after the last."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                if request := connection.recv(4096):
                    for piece in answer(request):
                        connection.sendall(piece)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.close()
