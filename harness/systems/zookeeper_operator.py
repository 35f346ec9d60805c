"""What an operator orders a ZooKeeper to do, in its own protocol: what zkCli.sh sends."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from harness.errors import AgentError
from harness.systems import jute
from harness.systems.base import Server
from harness.systems.operating import PREFIX, Held, first_of

CONFIG = "/zookeeper/config"
CHANGE_SECONDS = 5.0
"""What a change of the membership may take: who joins must have caught up, and a leader that goes is replaced first."""


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


def members(servers: Sequence[Server], port: int) -> list[int]:
    """The numbers of the servers with a vote, as the configuration that was committed last has them."""

    def listed(server: Server) -> list[int]:
        (synced, _), (error, body) = jute.ask(
            server, port, [(jute.SYNC, jute.text(CONFIG)), (jute.DATA, jute.text(CONFIG) + b"\0")]
        )
        _check("sync", synced)
        _check("config", error)
        (length,) = struct.unpack(">i", body[:4])
        return [int(each) for each in re.findall(r"^server\.(\d+)=.*:participant", body[4 : 4 + length].decode(), re.M)]

    return first_of(servers, listed)


def reconfigure(servers: Sequence[Server], port: int, *, joining: str | None = None, leaving: int | None = None) -> str:
    """`reconfig -add` or `-remove`, asked of these in turn."""
    gone = None if leaving is None else str(leaving)
    body = jute.text(joining) + jute.text(gone) + jute.text(None) + struct.pack(">q", -1)

    def order(server: Server) -> str:
        ((error, _),) = jute.ask(server, port, [(jute.RECONFIG, body)], timeout_seconds=CHANGE_SECONDS)
        _check("reconfig", error)
        return f"reconfig {'-remove ' + gone if gone is not None else f'-add {joining}'}"

    return first_of(servers, order)


def _check(what: str, error: int) -> None:
    if error != jute.OK:
        raise AgentError(f"{what} was answered with error {error}")
