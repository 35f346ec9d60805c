"""The ELF image of a vDSO."""

from __future__ import annotations

import struct
from typing import Dict, Optional, Tuple

from nemesis.agent.base import Refused, read_all
from nemesis.agent.clock.ptrace import read_memory


class Image(object):
    """The vDSO of one process: where it lies, where its functions are, and how much room there is after its code."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.stack: Optional[int] = None
        span = None
        for line in read_all("/proc/%d/maps" % pid).decode("utf-8", "replace").splitlines():
            words = line.split()
            if words[-1] in ("[vdso]", "[stack]"):
                low, high = (int(word, 16) for word in words[0].split("-"))
                if words[-1] == "[vdso]":
                    span = (low, high)
                else:
                    self.stack = low
        if span is None:
            raise Refused("process %d has no vDSO: its clock can't be moved" % pid)
        self.base = span[0]
        self.bytes = read_memory(pid, span[0], span[1] - span[0])
        if len(self.bytes) != span[1] - span[0] or self.bytes[:5] != b"\x7fELF\x02":
            raise Refused("process %d has no 64-bit vDSO: its clock can't be moved" % pid)
        self.machine = struct.unpack_from("<H", self.bytes, 18)[0]
        self.functions = self._functions()
        self.free = self._free()

    def _functions(self) -> Dict[str, Tuple[int, int]]:
        """Name -> (address, size), from the dynamic symbol table."""
        header_offset = struct.unpack_from("<Q", self.bytes, 32)[0]
        size, count = struct.unpack_from("<HH", self.bytes, 54)
        load, dynamic = None, None
        for index in range(count):
            kind, _, offset, address = struct.unpack_from("<IIQQ", self.bytes, header_offset + index * size)
            if kind == 1 and load is None:
                load = address - offset
            elif kind == 2:
                dynamic = offset
        if load is None or dynamic is None:
            raise Refused("the vDSO of process %d has no dynamic section" % self.pid)
        tags: Dict[int, int] = {}
        while True:
            tag, value = struct.unpack_from("<QQ", self.bytes, dynamic)
            if tag == 0:
                break
            tags[tag] = value
            dynamic += 16
        symbols, strings = tags[6] - load, tags[5] - load
        if 4 in tags:  # DT_HASH tells how many symbols there are
            total = struct.unpack_from("<I", self.bytes, tags[4] - load + 4)[0]
        else:  # every linker puts the strings right after the symbols
            total = (strings - symbols) // 24
        found = {}
        for index in range(total):
            name, info, _, section, value, length = struct.unpack_from("<IBBHQQ", self.bytes, symbols + 24 * index)
            if section and info & 15 == 2:
                end = self.bytes.index(b"\0", strings + name)
                found[self.bytes[strings + name : end].decode()] = (self.base + value - load, length)
        return found

    def _free(self) -> Tuple[int, int]:
        """(address, length) of the zero bytes after the end of everything that the image consists of."""
        used = len(self.bytes.rstrip(b"\0"))
        offset, size, count = struct.unpack_from("<Q", self.bytes, 32)[0], *struct.unpack_from("<HH", self.bytes, 54)
        for index in range(count):
            kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", self.bytes, offset + index * size)
            if kind == 1:
                used = max(used, start + length)
        sections, (each, many) = struct.unpack_from("<Q", self.bytes, 40)[0], struct.unpack_from("<HH", self.bytes, 58)
        if sections:
            used = max(used, sections + each * many)
        start = (used + 63) // 64 * 64
        return self.base + start, max(0, len(self.bytes) - start)

    @property
    def code(self) -> bytes:
        """The image without the zeros at its end."""
        return self.bytes.rstrip(b"\0")
