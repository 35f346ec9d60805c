"""The zoo's lock server: `python3 -m workloads.zoo.server --port N --data FILE [--bug NAME]`. Standard library only.

It speaks JSON lines over TCP, one request at a time on a connection, each with one answer (`rules.py` says which):

    {"do": "acquire", "lock": "lock", "owner": "c0-1", "ttl": 2.0, "wait": 0.5}
        {"granted": 33, "ttl": 2.0}   {"turn": true}   {"queued": true}   {"gone": true}
    {"do": "renew", "lock": …, "owner": …, "ttl": …}    {"renewed": true}    {"held": false}
    {"do": "release", "lock": …, "owner": …}            {"released": true}   {"left": true}   {"held": false}
    {"do": "hello"}                                     {"version": "1", "bug": null, "checked": true}

What it must still know when it was killed is appended to a file before it is answered. One thread does all, so nothing
happens between two looks at the lock but what a bug lets happen.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads.zoo.rules import BUGS, Answer, Known, Lock, Now

VERSION = "1"
LOOK_SECONDS = 0.01
"""How often it looks what time has brought. A relative time, whatever a fault does to its clocks."""
MOST_BYTES = 4096
"""Of a request; whoever says more is cut off."""


class Journal:
    """A file of JSON lines, each on its way to the disk before anything is answered on its account."""

    def __init__(self, path: Path) -> None:
        """A last line without an end is of a server that was killed as it wrote: nobody was answered on its account."""
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]
        self.records: list[Mapping[str, Any]] = [json.loads(line) for line in whole.splitlines()]
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.ftruncate(self._file, len(whole))
        os.lseek(self._file, 0, os.SEEK_END)

    def known(self) -> dict[str, Known]:
        """What it says of each lock."""
        found: dict[str, Known] = {}
        for record in self.records:
            if "lock" in record:
                found[record["lock"]] = found.get(record["lock"], Known()).after(record)
        return found

    def keep(self, record: Mapping[str, Any]) -> None:
        """Append a record. What a write has taken outlives the process, if not the machine."""
        data = json.dumps(record).encode() + b"\n"
        while data:
            data = data[os.write(self._file, data) :]
        os.fdatasync(self._file)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)


class Server:
    """See the module."""

    def __init__(self, port: int, journal: Journal, bug: str | None) -> None:
        self._journal, self._bug = journal, bug
        self._known = journal.known()
        self._locks: dict[str, Lock] = {name: self._lock(name) for name in self._known}
        self._selector = selectors.DefaultSelector()
        self._open: dict[tuple[str, str], socket.socket] = {}
        """Whom an acquire is to be answered that waits, by lock and owner."""
        self._listeners = [self._listen(port)]
        self.port = int(self._listeners[0].getsockname()[1])

    def _listen(self, port: int) -> socket.socket:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual, backlog=128)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, None)
        return listener

    def _lock(self, name: str) -> Lock:
        def journal(record: Mapping[str, Any]) -> None:
            self._journal.keep({"lock": name, **record})

        return Lock(journal, self._bug, self._known.get(name, Known()), now())

    def serve(self) -> None:
        """Until the process ends."""
        while True:
            self.step(LOOK_SECONDS)

    def step(self, seconds: float) -> None:
        """Wait so long for a request at most, and do all that is to be done now."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept(key.fileobj)  # type: ignore[arg-type]
            else:
                self._hear(key.fileobj, key.data)  # type: ignore[arg-type]
            self._tell_due()
        self._tell_due()

    def _tell_due(self) -> None:
        for name, lock in self._locks.items():
            for owner, answer in lock.due(now()):
                connection = self._open.pop((name, owner), None)
                if connection is not None:
                    self._tell(connection, answer)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # it has gone again
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ, bytearray())

    def _hear(self, connection: socket.socket, heard: bytearray) -> None:
        try:
            data = connection.recv(MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        heard += data
        while (end := heard.find(b"\n")) >= 0:
            line = bytes(heard[:end])
            del heard[: end + 1]
            try:
                answer = self._answer(json.loads(line), connection)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                answer = {"error": f"not understood: {type(error).__name__}: {error}"}
            if answer is not None:
                self._tell(connection, answer)
        if not data or len(heard) > MOST_BYTES:
            self._drop(connection)

    def _answer(self, asked: Mapping[str, Any], connection: socket.socket) -> Answer | None:
        do = asked["do"]
        if do == "hello":
            self._journal.keep({"checked": True})
            return {"version": VERSION, "bug": self._bug, "checked": True}
        name, owner = str(asked["lock"]), str(asked["owner"])
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = self._lock(name)
        if do == "acquire":
            answer = lock.acquire(owner, float(asked["ttl"]), float(asked["wait"]), now())
            if answer is None:
                self._open[name, owner] = connection
            return answer
        if do == "renew":
            return lock.renew(owner, float(asked["ttl"]), now())
        if do == "release":
            return lock.release(owner, now())
        raise ValueError(f"nothing is called {do!r}")

    def _tell(self, connection: socket.socket, answer: Answer) -> None:
        """Whoever doesn't take it is cut off: answers are small, and one asks nothing before one was answered."""
        try:
            connection.send(json.dumps(answer).encode() + b"\n")
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        """Its owner's place stays, for as long as it lasts: he may come back on another connection."""
        if connection.fileno() < 0:
            return
        self._selector.unregister(connection)
        connection.close()
        for key in [key for key, waiting in self._open.items() if waiting is connection]:
            del self._open[key]

    def close(self) -> None:
        """End all connections, as a server does that is killed."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._journal.close()


def now() -> Now:
    """Both clocks."""
    return Now(time.monotonic(), time.time())


def main(arguments: list[str] | None = None) -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser(description="the zoo's lock server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the journal")
    parser.add_argument("--bug", choices=sorted(BUGS))
    given = parser.parse_args(arguments)
    server = Server(given.port, Journal(given.data), given.bug)
    print(f"zoo {VERSION} on port {server.port}, {given.bug or 'without a bug'}", file=sys.stderr, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
