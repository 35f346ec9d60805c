"""The patch of one process: planned, applied, read, taken out again."""

from __future__ import annotations

import os
import struct
import time
import zlib
from typing import Any, Dict, List, Optional

from nemesis.agent.base import Refused
from nemesis.agent.clock.architecture import MAGIC
from nemesis.agent.clock.architectures import architecture_of
from nemesis.agent.clock.counter import Counter
from nemesis.agent.clock.image import Image
from nemesis.agent.clock.readings import agrees, moved_by, read_clocks
from nemesis.agent.clock.tracing import Stopped


class Patch(object):
    """The same few bytes for every process: all on one machine have the same vDSO. JSON in the journal.

    Addresses in it count from the start of the mapping, which lies elsewhere in each process.
    """

    def __init__(self, data: Dict[str, Any]) -> None:
        self.data = data
        self.architecture = architecture_of(Image(os.getpid()).machine)
        self.place = int(data["place"])
        self.routine = bytes.fromhex(data["routine"])
        self.entries = [(int(at), bytes.fromhex(old), bytes.fromhex(new)) for at, old, new in data["entries"]]
        seconds, fraction, _, self.mask = struct.unpack_from("<qqqQ", self.routine, self.architecture.VARIABLES)
        self.offset_ns = seconds * 10**9 + fraction

    @classmethod
    def plan(cls, name: str, offset_ns: int, mask: int) -> "Patch":
        """Decide what to write, by this agent's own vDSO. Refused when it doesn't fit, or on another architecture."""
        image = Image(os.getpid())
        architecture = architecture_of(image.machine)
        tag = struct.pack("<II", zlib.crc32(name.encode()), os.getpid() & 0xFFFFFFFF)
        routine, places = architecture.routine(tag, offset_ns, mask)
        place, room = image.free
        if room < len(routine):
            raise Refused("the vDSO has %d bytes to spare, not %d" % (room, len(routine)))
        entries = []
        for function in architecture.functions():
            if function not in image.functions:
                if function == architecture.CLOCK_GETTIME:
                    raise Refused("the vDSO has no %s" % function)
                continue
            address, size = image.functions[function]
            if size < architecture.JUMP:
                raise Refused("%s is only %d bytes long" % (function, size))
            at = address - image.base
            old = image.bytes[at : at + architecture.JUMP]
            jump = architecture.jump(address, place + places[function])
            entries.append([at, old.hex(), jump.hex()])
        return cls({"place": place - image.base, "routine": routine.hex(), "entries": entries})

    def is_in(self, image: Image) -> bool:
        """Whether this very patch, or a part of it, is in a process."""
        mark = self.routine[: self.architecture.VARIABLES]
        return image.bytes[self.place : self.place + len(mark)] == mark

    def _is_whole(self, image: Image) -> bool:
        """Whether the routine stands in a process as planned, but for the address of its counter."""
        found = image.bytes[self.place : self.place + len(self.routine)]
        low = self.architecture.COUNTER
        return found[:low] == self.routine[:low] and found[low + 8 :] == self.routine[low + 8 :]

    def _is_left(self, found: bytes) -> bool:
        """Whether this is the whole routine of an earlier patch: another mark and other variables, the same code."""
        low = self.architecture.LANDING
        return found.startswith(MAGIC) and found[low:] == self.routine[low:]

    def _entries_of(self, image: Image) -> List[bytes]:
        return [image.bytes[at : at + len(old)] for at, old, _ in self.entries]

    def _at_an_entry(self, stopped: Stopped, base: int) -> bool:
        """Whether a thread is amid the bytes that a jump takes the place of."""
        return any(stopped.uses(base + at + 1, base + at + len(old)) for at, old, _ in self.entries)

    def apply(self, pid: int, deadline: float) -> Dict[str, Any]:
        """Write it, with a reading of the clocks before and after; `wrong` lists what did not move as asked.

        `uncounted` says why the process' readings can't be counted, where they can't. What `undo` had to leave goes
        first.
        """
        while True:
            with Stopped(pid, deadline, self.architecture) as stopped:
                begin = time.monotonic()
                image = Image(pid)
                base, landing = image.base, image.base + self.place + self.architecture.LANDING
                counter = Counter(image, base + self.place)
                free, found = bytes(len(self.routine)), image.bytes[self.place : self.place + len(self.routine)]
                if self._entries_of(image) != [old for _, old, _ in self.entries] or not (
                    found == free or self._is_left(found)
                ):
                    raise Refused(
                        "the vDSO of process %d is not as the kernel made it: is its clock moved already?" % pid
                    )
                where = "at the entry of a clock function"
                if found != free:
                    # Out of reach since its fault was undone: no thread comes to it, and those that were there leave.
                    if stopped.uses(base + self.place, base + self.place + len(free)):
                        where = "in the routine of an earlier fault"
                    else:
                        counter.close(stopped)
                        stopped.write(base + self.place, free)
                        found = free
                if found == free and not self._at_an_entry(stopped, base):
                    uncounted: Optional[str] = None
                    try:
                        stopped.write(base + self.place, self.routine)
                        before = read_clocks(stopped, image, landing)
                        for at, _, new in self.entries:
                            stopped.write(base + at, new)
                        after = read_clocks(stopped, image, landing)
                        uncounted = counter.open(stopped)  # behind the proof, whose readings are none of the process'
                    except Refused:
                        # All threads still stand where they stood, so that it can be taken out as it was put in.
                        for at, old, _ in self.entries:
                            stopped.write(base + at, old)
                        stopped.write(base + self.place, free)
                        raise
                    result: Dict[str, Any] = {
                        "pid": pid,
                        "threads": len(stopped.threads),
                        "moved": moved_by(before, after),
                        "wrong": agrees(before, after, self.offset_ns, self.mask),
                        "stopped_seconds": round(time.monotonic() - begin, 6),
                    }
                    return result if uncounted is None else dict(result, uncounted=uncounted)
            if time.monotonic() > deadline:
                raise Refused("a thread of process %d stays %s" % (pid, where))
            time.sleep(0.001)

    def read(self, pid: int, deadline: float) -> Dict[str, Any]:
        """How far ahead of this agent's clock a process with this patch is, by source: `ahead`.

        `reads`: how often it has read a moved clock by itself since it was given the patch (a child that it forked has
        counted on from there); None when that isn't counted.
        """
        with Stopped(pid, deadline, self.architecture) as stopped:
            image = Image(pid)
            routine = image.base + self.place
            counter = Counter(image, routine)
            landing = routine + self.architecture.LANDING
            reads = counter.value(stopped)
            readings = counter.keeping(stopped, lambda: read_clocks(stopped, image, landing))
        level = {name: dict(r, value=(r["low"] + r["high"]) // 2) for name, r in readings.items()}
        return {"ahead": moved_by(level, readings), "reads": reads}

    def undo(self, pid: int, deadline: float) -> Dict[str, Any]:
        """Write back what was there, with a reading before and after, and `reads` as in `read`."""
        result: Dict[str, Any] = {"pid": pid, "routine_left": True}
        with Stopped(pid, deadline, self.architecture) as stopped:
            image = Image(pid)
            base, landing = image.base, image.base + self.place + self.architecture.LANDING
            now = self._entries_of(image)
            for (at, old, new), found in zip(self.entries, now):
                if found not in (old, new):
                    raise Refused("the vDSO of process %d was changed by somebody else at %#x" % (pid, base + at))
            # Not complete: an agent died while it was at it, and there is nothing that could be read back.
            whole = self._is_whole(image)
            complete = whole and now == [new for _, _, new in self.entries]
            unread = None if complete else "the patch was not complete"
            if whole:
                result["reads"] = Counter(image, base + self.place).value(stopped)
            try:
                before = read_clocks(stopped, image, landing) if complete else {}
            except Refused as error:
                unread = str(error)  # told, but no reason to leave the clock as it is
            for at, old, _ in self.entries:
                stopped.write(base + at, old)
            if unread is not None:
                result["unread"] = unread
            else:
                after = read_clocks(stopped, image, landing)
                result["moved"] = moved_by(before, after)
                result["wrong"] = agrees(before, after, -self.offset_ns, self.mask)
        # The routine goes once no thread is in it, or will return to it. Until then it is out of reach, and harmless.
        low, high = base + self.place, base + self.place + len(self.routine)
        patience = min(deadline, time.monotonic() + 0.5)
        while result["routine_left"] and time.monotonic() < patience:
            with Stopped(pid, deadline, self.architecture) as stopped:
                if not stopped.uses(low, high):
                    if whole:
                        Counter(image, base + self.place).close(stopped)
                    stopped.write(low, b"\0" * (high - low))
                    result["routine_left"] = False
            if result["routine_left"]:
                time.sleep(0.002)
        result["restored"] = self._entries_of(Image(pid)) == [old for _, old, _ in self.entries]
        return result
