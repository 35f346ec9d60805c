"""The program that keeps the file system of an image at hand: it sleeps, and needs nothing of what is in there.

An image may hold one static binary and nothing else, no shell and no C library, and a container lasts as long as its
program. So this one is a few machine instructions in an ELF file that is made here:

    x86_64      again: mov eax, 34 (pause) · syscall · jmp again
    aarch64     again: mov x8, 73 (ppoll) · x0 … x4 = 0 · svc 0 · b again
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from harness.errors import RuntimeUnavailable
from nemesis.agent.roles import IDLE

PATH = f"/{IDLE}"
"""Where it is put in there. By the name of its process the agent and the contender know it."""

_BASE, _HEADER, _SEGMENT = 0x400000, 64, 56
_EXECUTABLE, _LOADED, _READ_AND_RUN, _PAGE = 2, 1, 5, 0x10000

_MACHINES: Mapping[str, tuple[int, bytes]] = {
    "x86_64": (62, bytes.fromhex("b822000000 0f05 ebf7")),
    "aarch64": (
        183,
        struct.pack("<8I", 0xD2800928, *(0xD2800000 | register for register in range(5)), 0xD4000001, 0x17FFFFF9),
    ),
}
"""As an engine names the machine -> its number in ELF, and the instructions."""


def program(machine: str) -> bytes:
    """The file, for a machine as the engine names it. RuntimeUnavailable for one that isn't known here."""
    if machine not in _MACHINES:
        raise RuntimeUnavailable(
            f"an image of a client's own can't be held on this architecture ({machine}), only on "
            f"{', '.join(_MACHINES)}; send its program with --client-dir"
        )
    number, code = _MACHINES[machine]
    entry = _BASE + _HEADER + _SEGMENT
    size = _HEADER + _SEGMENT + len(code)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, the low byte first, version 1
    header = struct.pack("<HHIQQQIHHHHHH", _EXECUTABLE, number, 1, entry, _HEADER, 0, 0, _HEADER, _SEGMENT, 1, 64, 0, 0)
    segment = struct.pack("<IIQQQQQQ", _LOADED, _READ_AND_RUN, 0, _BASE, _BASE, size, size, _PAGE)
    return ident + header + segment + code
