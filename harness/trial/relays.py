"""The harness's end of the relays: what contenders say to endpoints goes out from the host, and the answers go in.

A site has no way out, and gets none. Each endpoint has a node of its own in the site, where `workloads.relay` listens;
its connections come here over that program's stdio, and each becomes a connection of this process to the endpoint. So
nothing of the host is changed (no route, no rule, no port), a contender reaches these endpoints and nothing else, and
whoever is cut off from the node is cut off from the endpoint.

The contender is connected to the relay before the endpoint is: of an endpoint that refuses, it sees a connection that
closes without an answer.

What is held here of all that passes is bounded (`Way`, and MOST_WAYS and MOST_LINES of each relay), whatever contenders
and endpoints do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from harness.errors import HarnessError
from harness.runtime.base import Node, Process
from harness.systems.attached import Endpoint
from workloads.relay import CHUNK, Way

CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 5.0
TURN_SECONDS = 0.5
LISTEN_SECONDS = 20.0
MOST_WAYS = 256
"""Connections through one relay at once; a contender needs one or two."""
MOST_LINES = 256
"""Messages of one relay that wait for their turn. Then nothing more is read of it, so that it waits, too."""


class Relay:
    """The way to one endpoint, through one node."""

    def __init__(self, node: Node, endpoint: Endpoint, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.node, self.endpoint = node, endpoint
        self.connections = self.refused = 0
        self.last_error: str | None = None
        self.listening = threading.Event()
        self.failure: str | None = None
        self._port, self._loop = port, loop
        self._ways: dict[int, Way] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = threading.Semaphore(MOST_LINES)
        self.most_held = 0
        self._process: Process | None = None
        self._closing = False
        self._words = b""

    def start(self) -> None:
        """Start the program on the node. It listens when `listening` is set."""
        self._process = self.node.spawn(
            ("python3", "-u", "-m", "workloads.relay", str(self._port)),
            on_line=self._heard,
            on_error_line=self._complained,
        )

    def _heard(self, line: bytes) -> None:
        while not self._closing:
            if self._turns.acquire(timeout=TURN_SECONDS):
                self._loop.call_soon_threadsafe(self._line, line)
                return

    def check(self) -> None:
        """Raises HarnessError when its program has ended."""
        if self.failure is None and self._process is not None and self._process.wait(0.0) is not None:
            words = self._words.decode(errors="replace").strip()
            self.failure = f"the relay to {self.endpoint} on {self.node.name} has ended: {words or 'without a word'}"
        if self.failure is not None:
            raise HarnessError(self.failure)

    def _complained(self, line: bytes) -> None:
        self._words = line[-400:]

    def close(self) -> None:
        """End the program, and with it all connections. Idempotent."""
        self._closing = True
        if self._process is not None:
            self._process.close_stdin()
            if self._process.wait(CLOSE_SECONDS) is None:
                self._process.abandon()  # nothing is handed on any more; its node is removed with it

    def told(self) -> dict[str, Any]:
        """What passed, for trial.json."""
        return {
            "endpoint": str(self.endpoint),
            "connections": self.connections,
            "refused": self.refused,
            "last_error": self.last_error,
            "most_held_bytes": self.most_held,
        }

    # -- in the loop --------------------------------------------------------------------------------------------------

    def _line(self, line: bytes) -> None:
        self._turns.release()
        word, _, rest = line.decode().partition(" ")
        if word == "listening":
            self.listening.set()
            return
        text, _, data = rest.partition(" ")
        number = int(text)
        if word == "o":
            self._open(Way(number, self._send))
        elif (found := self._ways.get(number)) is not None:
            found.heard(word, data)
            if word == "d":
                self.most_held = max(self.most_held, sum(way.waiting for way in self._ways.values()))

    def _open(self, way: Way) -> None:
        self.connections += 1
        if len(self._ways) >= MOST_WAYS:
            self.refused += 1
            self.last_error = f"more than {MOST_WAYS} connections at once"
            way.end()
            return
        self._ways[way.number] = way
        task = self._loop.create_task(self._carry(way))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, way: Way) -> None:
        try:
            opening = asyncio.open_connection(self.endpoint.host, self.endpoint.port, limit=CHUNK)
            reader, writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
        except (OSError, TimeoutError) as error:
            self.refused += 1
            self.last_error = str(error) or f"no connection within {CONNECT_SECONDS:g} s"
            way.end()
        else:
            await way.carry(reader, writer)
            self.last_error = way.error or self.last_error
        finally:
            del self._ways[way.number]

    def _send(self, line: str) -> None:
        if self._process is None or self._closing:
            return
        try:
            self._process.send(line.encode() + b"\n")
        except HarnessError as error:
            self.failure = self.failure or f"the relay to {self.endpoint} on {self.node.name}: {error}"


class Relays:
    """The ways to all endpoints of a trial, and the thread that carries them."""

    def __init__(self, nodes: Sequence[Node], endpoints: Sequence[Endpoint], port: int) -> None:
        """`port` is where each listens on its node."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self.all = [Relay(node, endpoint, port, self._loop) for node, endpoint in zip(nodes, endpoints, strict=True)]

    def start(self) -> None:
        """Start all; returns when each listens. Raises HarnessError naming one that doesn't."""
        self._thread.start()
        for relay in self.all:
            relay.start()
        for relay in self.all:
            if not relay.listening.wait(LISTEN_SECONDS):
                relay.check()
                raise HarnessError(
                    f"the relay to {relay.endpoint} on {relay.node.name} did not listen within {LISTEN_SECONDS:g} s"
                )

    def check(self) -> None:
        """Raises HarnessError when one has ended: nobody reaches its endpoint any more, and no fault did that."""
        for relay in self.all:
            relay.check()

    def close(self) -> None:
        """End all. Nothing reaches the endpoints from the site any more when this returns. Idempotent."""
        for relay in self.all:
            relay.close()
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result(5.0)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5.0)
        if not self._loop.is_running():
            self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks(self._loop) if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
