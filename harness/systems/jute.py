"""ZooKeeper's own protocol, as far as it takes to ask a server something in a session that lasts for these requests.

Jute is what ZooKeeper calls its encoding: big-endian numbers, and everything of variable length behind its length.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from harness.errors import AgentError
from harness.systems.asking import LOOK_SECONDS
from harness.systems.base import Server

CREATE, DELETE, EXISTS, DATA, CHILDREN, SYNC, RECONFIG, CLOSE = 1, 2, 3, 4, 8, 9, 16, -11
"""Codes of requests (zookeeper's ZooDefs.OpCode)."""
OK, NO_NODE, NODE_EXISTS = 0, -101, -110
"""Errors (KeeperException.Code)."""
SESSION_MS = 10_000
WORLD = struct.pack(">ii", 1, 31)
"""One entry of an ACL, all rights; for whom follows."""


def text(value: str | None) -> bytes:
    """A string; None is the null string."""
    return struct.pack(">i", -1) if value is None else buffer(value.encode())


def buffer(data: bytes) -> bytes:
    """Bytes with their length before them, as buffers, strings and whole messages have it."""
    return struct.pack(">i", len(data)) + data


def frames(data: bytes) -> list[bytes]:
    """The whole messages in a stream; a last one that is cut off is left out."""
    found = []
    while len(data) >= 4:
        (length,) = struct.unpack(">i", data[:4])
        if length < 0 or len(data) < 4 + length:
            break
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


def strings(data: bytes) -> list[str]:
    """A vector of strings."""
    (count,), rest, found = struct.unpack(">i", data[:4]), data[4:], []
    for _ in range(count):
        (length,) = struct.unpack(">i", rest[:4])
        found.append(rest[4 : 4 + length].decode())
        rest = rest[4 + length :]
    return found


def ask(
    server: Server, port: int, requests: Sequence[tuple[int, bytes]], *, timeout_seconds: float = LOOK_SECONDS
) -> list[tuple[int, bytes]]:
    """The answers to some requests (code, body) in a session of their own: (error, body) of each.

    AgentError when there was no session, or fewer answers came.
    """
    connect = struct.pack(">iqiq", 0, 0, SESSION_MS, 0) + buffer(bytes(16)) + b"\0"
    numbered = [
        struct.pack(">ii", number, code) + body for number, (code, body) in enumerate((*requests, (CLOSE, b"")), 1)
    ]
    payload = b"".join(buffer(part) for part in (connect, *numbered))
    answers = frames(server.tcp(payload, port=port, timeout_seconds=timeout_seconds))
    if not answers or len(answers[0]) < 16:
        raise AgentError(f"{len(answers)} of {len(requests) + 2} answers")
    _, timeout, session = struct.unpack(">iiq", answers[0][:16])
    if timeout <= 0 or session == 0:
        raise AgentError("no session")
    replies = [each for each in answers[1:] if len(each) >= 16][: len(requests)]
    if len(replies) < len(requests):
        raise AgentError(f"{len(answers)} of {len(requests) + 2} answers")
    return [(struct.unpack(">iqi", each[:16])[2], each[16:]) for each in replies]
