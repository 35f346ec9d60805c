"""The way from a site to one endpoint of a cluster that isn't ours: `python3 -m workloads.relay PORT`, run on a node.

A site has no way out. So this listens on its node as the endpoint would, and hands each connection on over its own
stdio, to the harness, which connects out from the host (harness/trial/relays.py). It looks at nothing that passes: TLS
runs from the contender to the endpoint.

One line a message, with a number for each connection; the same both ways but for `o`:

    listening       the first line out
    o 7             a contender has connected (out)
    d 7 aGVsbG8=    bytes, in base64
    a 7 5           so many bytes of those that came have gone on
    c 7             closed

Neither end reads faster than the other one gets rid of it: of a connection at most WINDOW bytes are under way in each
direction, and what isn't read stays in the sender's own kernel. A contender that floods, an endpoint that streams, and
one on either side that reads nothing fill nobody's memory, and hold up no other connection.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import socket
import sys
import threading
from collections.abc import Callable

CHUNK = 32768
"""Bytes of one message. A line of it is well below what a stream takes at once."""
WINDOW = 131072
"""Bytes of one connection and direction that were read here and have not gone on there."""
LINGER_SECONDS = 5.0
"""How long what came before the other end closed may take to be taken."""


def listener(port: int) -> socket.socket:
    """A socket that takes both families, or IPv4 alone where there is no other."""
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    except (OSError, ValueError):
        return socket.create_server(("", port), backlog=128)


class Way:
    """This end of one connection; the harness has the other one, made of the same. For one event loop."""

    def __init__(self, number: int, say: Callable[[str], None]) -> None:
        """`say` sends a line to the other end."""
        self.number, self._say = number, say
        self._room = WINDOW
        self._taken = asyncio.Event()
        self._came: asyncio.Queue[bytes] = asyncio.Queue()
        self._writing: asyncio.Task[None] | None = None
        self._over = False
        self.waiting = 0
        """Bytes that came and have not gone on yet."""
        self.error: str | None = None
        """What ended it, where that was no orderly end."""

    def heard(self, word: str, data: str) -> None:
        """A message of the other end about this connection."""
        if word == "d":
            content = base64.b64decode(data)
            self.waiting += len(content)
            self._came.put_nowait(content)
        elif word == "a":
            self._room += int(data)
            self._taken.set()
        elif word == "c" and not self._over:
            self._over = True
            self._came.put_nowait(b"")
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._give_up)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Between the socket and the other end, until either closes; the socket is closed then, and the other end told.

        What came before the other end closed is handed on first.
        """
        writer.transport.set_write_buffer_limits(high=0)  # what was written has gone on when `drain` returns
        self._writing = asyncio.create_task(self._into(writer))
        reading = asyncio.create_task(self._out_of(reader))
        try:
            await asyncio.wait((reading, self._writing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, self._writing):
                task.cancel()
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            writer.close()
            self.end()

    def end(self) -> None:
        """Tell the other end that it is over, unless it knows."""
        if not self._over:
            self._over = True
            self._say(f"c {self.number}")

    def _give_up(self) -> None:
        if self._writing is not None:
            self._writing.cancel()

    async def _out_of(self, reader: asyncio.StreamReader) -> None:
        while True:
            while self._room <= 0:
                self._taken.clear()
                await self._taken.wait()
            try:
                data = await reader.read(min(CHUNK, self._room))
            except OSError as error:  # reset: the end all the same
                self.error = str(error)
                return
            if not data:
                return
            self._room -= len(data)
            self._say(f"d {self.number} {base64.b64encode(data).decode()}")

    async def _into(self, writer: asyncio.StreamWriter) -> None:
        while data := await self._came.get():
            try:
                writer.write(data)
                await writer.drain()
            except OSError as error:
                self.error = str(error)
                return
            self.waiting -= len(data)
            if not self._over:
                self._say(f"a {self.number} {len(data)}")


class Relay:
    """All connections to one endpoint."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, Way] = {}

    async def serve(self, port: int) -> None:
        """Until stdin ends, which ends the process."""
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connected, sock=listener(port), limit=CHUNK)
        threading.Thread(target=self._listen, args=(loop,), name="stdin", daemon=True).start()
        self._say("listening")
        await server.serve_forever()

    def _say(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way = Way(next(self._numbers), self._say)
        self._open[way.number] = way
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._say(f"o {way.number}")
        try:
            await way.carry(reader, writer)
        finally:
            del self._open[way.number]

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._told, line)
        os._exit(0)  # nobody is left who could hand anything on

    def _told(self, line: str) -> None:
        word, _, rest = line.rstrip("\n").partition(" ")
        number, _, data = rest.partition(" ")
        if (way := self._open.get(int(number))) is not None:
            way.heard(word, data)


if __name__ == "__main__":
    asyncio.run(Relay().serve(int(sys.argv[1])))
