"""The way from a site to one endpoint of a cluster that isn't ours: `python3 -m workloads.relay PORT`, run on a node.

A site has no way out. So this listens on its node as the endpoint would, and hands each connection on over its own
stdio, to the harness, which connects out from the host (harness/trial/relays.py). It looks at nothing that passes: TLS
runs from the contender to the endpoint.

One line a message, with a number for each connection; the same both ways but for `o`:

    listening       the first line out
    o 7             a contender has connected (out)
    d 7 aGVsbG8=    bytes, in base64
    c 7             closed
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import socket
import sys
import threading

CHUNK = 32768
"""Bytes of one message. A line of it is well below what a stream takes at once."""


def listener(port: int) -> socket.socket:
    """A socket that takes both families, or IPv4 alone where there is no other."""
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    except (OSError, ValueError):
        return socket.create_server(("", port), backlog=128)


class Relay:
    """All connections to one endpoint."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.StreamWriter] = {}

    async def serve(self, port: int) -> None:
        """Until stdin ends, which ends the process."""
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connected, sock=listener(port))
        threading.Thread(target=self._listen, args=(loop,), name="stdin", daemon=True).start()
        self._say("listening")
        await server.serve_forever()

    def _say(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(self._numbers)
        self._open[number] = writer
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._say(f"o {number}")
        try:
            while data := await reader.read(CHUNK):
                self._say(f"d {number} {base64.b64encode(data).decode()}")
        except OSError:  # reset: the end all the same
            pass
        if self._open.pop(number, None) is not None:
            self._say(f"c {number}")
        writer.close()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._told, line)
        os._exit(0)  # nobody is left who could hand anything on

    def _told(self, line: str) -> None:
        word, _, rest = line.rstrip("\n").partition(" ")
        number, _, data = rest.partition(" ")
        writer = self._open.get(int(number))
        if writer is None:
            return
        if word == "d":
            writer.write(base64.b64decode(data))
        elif word == "c":
            del self._open[int(number)]
            writer.close()


if __name__ == "__main__":
    asyncio.run(Relay().serve(int(sys.argv[1])))
