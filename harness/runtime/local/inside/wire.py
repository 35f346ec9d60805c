"""Messages over SEQPACKET sockets between the harness and the pid 1s: one JSON object each, with file descriptors.

A request has an `id`, and is answered by one message that has the same, and `ok` (an object) or `error` (a sentence).
Everything else is an event. A message that doesn't fit into a packet goes as a file in memory, whose descriptor comes
first.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

PACKET = 32768
"""Bytes of JSON in one packet, at most; a socket's buffer holds several."""
MOST_DESCRIPTORS = 16
_CREDENTIALS = struct.Struct("3i")


def pair() -> tuple[socket.socket, socket.socket]:
    """A pair of sockets that a packet at a time goes between."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(
    sock: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = (), *, wait: bool = True
) -> None:
    """Send one message. Raises OSError: BrokenPipeError when the other end is gone.

    Waits while the other end takes nothing and the socket's buffer is full; without `wait` that is BlockingIOError.
    """
    flags = socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT)
    data = json.dumps(message).encode()
    if len(data) <= PACKET:
        _send(sock, b"J" + data, descriptors, flags)
        return
    memory = os.memfd_create("message", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(data)
        _send(sock, b"M", (memory, *descriptors), flags)
    finally:
        os.close(memory)


def _send(sock: socket.socket, data: bytes, descriptors: Sequence[int], flags: int) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sock.sendmsg([data], rights, flags)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int], int] | None:
    """One message, its descriptors (not inherited by programs), and its sender's process id; None at the end.

    The process id is as seen from here, and 0 unless SO_PASSCRED is set on the socket.
    """
    room = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
    try:
        data, ancillary, _, _ = sock.recvmsg(PACKET + 1, room, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    if not data:
        return None
    descriptors, sender = array.array("i"), 0
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(value[: len(value) - len(value) % 4])
        elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            sender = _CREDENTIALS.unpack(value[: _CREDENTIALS.size])[0]
    found = list(descriptors)
    text = data[1:]
    if data[:1] == b"M":
        with open(found.pop(0), "rb") as file:
            file.seek(0)
            text = file.read()
    return json.loads(text), found, sender
