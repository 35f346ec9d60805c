"""What an operator orders a ZooKeeper to do, in its own protocol: what zkCli.sh sends."""

from __future__ import annotations

import struct

from harness.errors import AgentError
from harness.systems import jute
from harness.systems.base import Server
from harness.systems.operating import PREFIX, Held


def held(server: Server, port: int, lock: str) -> Held | None:
    """The lowest of the lock's sequential nodes: its token is its czxid, its owner a session. What was read is as new
    as the `sync` before it.
    """
    folder = f"/{PREFIX}/{lock}"
    (synced, _), (error, body) = jute.ask(
        server, port, [(jute.SYNC, jute.text(folder)), (jute.CHILDREN, jute.text(folder) + b"\0")]
    )
    if error == jute.NO_NODE:
        return None
    _check("sync", synced)
    _check(f"ls {folder}", error)
    names = jute.strings(body)
    if not names:
        return None
    path = f"{folder}/{min(names, key=lambda name: name.rpartition('-')[2])}"
    ((error, stat),) = jute.ask(server, port, [(jute.EXISTS, jute.text(path) + b"\0")])
    if error == jute.NO_NODE:
        raise AgentError(f"{path} went while it was looked at")
    _check(f"stat {path}", error)
    # czxid mzxid ctime mtime version cversion aversion ephemeralOwner …
    czxid, _, _, _, _, _, _, session = struct.unpack(">qqqqiiiq", stat[:52])
    return Held(path, f"{session & (2**64 - 1):#x}", czxid)


def unlock(server: Server, port: int, held: Held, way: str) -> str:
    """Delete the owner's node. Its session lives on."""
    ((error, _),) = jute.ask(server, port, [(jute.DELETE, jute.text(held.key) + struct.pack(">i", -1))])
    if error == jute.NO_NODE:
        raise AgentError(f"{held.key} was gone already")
    _check(f"delete {held.key}", error)
    return f"delete {held.key}"


def _check(what: str, error: int) -> None:
    if error != jute.OK:
        raise AgentError(f"{what} was answered with error {error}")
