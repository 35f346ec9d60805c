"""A process whose threads are all stopped by ptrace: its registers, its memory, and calls of its own functions."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import time
from typing import Any, Dict, Optional, Set, Type

from nemesis.agent.base import Refused, log
from nemesis.agent.clock.architecture import Architecture
from nemesis.agent.clock.ptrace import (
    NT_PRSTATUS,
    PTRACE_CONT,
    PTRACE_DETACH,
    PTRACE_EVENT_STOP,
    PTRACE_GETREGSET,
    PTRACE_GETSIGMASK,
    PTRACE_INTERRUPT,
    PTRACE_POKEDATA,
    PTRACE_SEIZE,
    PTRACE_SETREGSET,
    PTRACE_SETSIGMASK,
    WALL,
    IoVec,
    ptrace,
    read_memory,
)
from nemesis.agent.processes import thread_ids, thread_states

BACK_SECONDS = 10.0
"""How long a thread that was made to call something may take to be stopped again, whatever deadline has passed: let go
as it is, it would come to the landing, and its process would die of it."""


class Stopped(object):
    """All threads of a process, stopped by ptrace until `release`. Use in one thread, as a context manager."""

    def __init__(self, pid: int, deadline: float, architecture: Type[Architecture]) -> None:
        self.pid, self.architecture = pid, architecture
        self.threads: Dict[int, int] = {}
        self._deadline = deadline
        try:
            self._stop_all()
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> "Stopped":
        return self

    def __exit__(self, *error: Any) -> None:
        self.release()

    def _stop_all(self) -> None:
        gone: Set[int] = set()
        while True:
            fresh = [tid for tid in thread_ids(self.pid) if tid not in self.threads and tid not in gone]
            if not fresh:
                break
            for tid in fresh:
                try:
                    ptrace(PTRACE_SEIZE, tid)
                    self.threads[tid] = 0
                    ptrace(PTRACE_INTERRUPT, tid)
                except OSError as error:
                    stat = thread_states(self.pid).get(tid)
                    if error.errno == errno.ESRCH or stat is None:
                        gone.add(tid)
                        self.threads.pop(tid, None)
                        continue
                    raise Refused(
                        "thread %d of process %d can't be stopped: %s (is it being traced, or does the node lack the "
                        "capability SYS_PTRACE?)" % (tid, self.pid, error.strerror)
                    ) from error
            for tid in fresh:
                if tid in self.threads:
                    signal_number = self._wait(tid)
                    if signal_number is None:
                        gone.add(tid)
                        del self.threads[tid]
                    else:
                        self.threads[tid] = signal_number
        if not self.threads:
            raise Refused("process %d has ended" % self.pid)

    def _wait(self, tid: int, deadline: Optional[float] = None) -> Optional[int]:
        """Wait until a thread stops: 0, the signal that it was about to take, or None when it ended."""
        spins, deadline = 0, self._deadline if deadline is None else deadline
        while True:
            try:
                got, status = os.waitpid(tid, WALL | os.WNOHANG)
            except ChildProcessError:
                return None
            if got == tid:
                if not os.WIFSTOPPED(status):
                    return None
                return 0 if status >> 16 == PTRACE_EVENT_STOP else os.WSTOPSIG(status)
            spins += 1
            if time.monotonic() > deadline:
                raise Refused("thread %d of process %d did not stop in time" % (tid, self.pid))
            if spins > 20:
                time.sleep(0.0001)

    def release(self) -> None:
        """Let all threads go on, each with the signal that it was about to take."""
        for tid, signal_number in self.threads.items():
            try:
                ptrace(PTRACE_DETACH, tid, None, signal_number)
            except OSError as error:
                if error.errno != errno.ESRCH:
                    log("thread %d of process %d could not be let go: %s" % (tid, self.pid, error))
        self.threads.clear()

    def registers(self, tid: int) -> Dict[str, int]:
        """The registers of a thread, by name."""
        names = self.architecture.REGISTERS
        buffer = ctypes.create_string_buffer(8 * len(names))
        vector = IoVec(ctypes.cast(buffer, ctypes.c_void_p), len(buffer))
        ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, ctypes.byref(vector))
        return dict(zip(names, struct.unpack("<%dQ" % len(names), buffer.raw)))

    def set_registers(self, tid: int, values: Dict[str, int]) -> None:
        """Set all registers of a thread."""
        names = self.architecture.REGISTERS
        raw = struct.pack("<%dQ" % len(names), *(values[name] & (2**64 - 1) for name in names))
        buffer = ctypes.create_string_buffer(raw, len(raw))
        vector = IoVec(ctypes.cast(buffer, ctypes.c_void_p), len(raw))
        ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, ctypes.byref(vector))

    def write(self, address: int, data: bytes) -> None:
        """Write bytes, in aligned words of eight, so that no word is ever half written. Read-only pages too."""
        low, high = address // 8 * 8, (address + len(data) + 7) // 8 * 8
        words = bytearray(read_memory(self.pid, low, high - low))
        words[address - low : address - low + len(data)] = data
        tid = next(iter(self.threads))
        for offset in range(0, len(words), 8):
            ptrace(PTRACE_POKEDATA, tid, low + offset, struct.unpack_from("<Q", words, offset)[0])

    def uses(self, low: int, high: int) -> bool:
        """Whether a thread is in [low, high), or may return there: its program counter, or a word on its stack.

        The stack matters for a thread that is in a signal handler: where it was interrupted stands in its frame.
        """
        pattern = (low >> 16).to_bytes(6, "little")
        for tid in self.threads:
            values = self.registers(tid)
            if low <= self.architecture.program_counter(values) < high:
                return True
            stack = self._stack(self.architecture.stack_pointer(values))
            at = stack.find(pattern)
            while at >= 0:
                if at >= 2 and low <= int.from_bytes(stack[at - 2 : at + 6], "little") < high:
                    return True
                at = stack.find(pattern, at + 1)
        return False

    def _stack(self, top: int) -> bytes:
        for length in (16384, 4096, 4096 - top % 4096):
            try:
                return read_memory(self.pid, top, length)
            except OSError:
                continue
        return b""

    def call(self, function: int, first: int, second: int, landing: int, stack: int) -> int:
        """Let one thread call a function of the process and come back as if nothing had happened; its result.

        `landing` is the address of a breakpoint, `stack` that of some memory that the caller saves and restores.
        """
        # A thread inside a system call is preferred: it can't be in a restartable sequence, which would be cut short.
        free = [tid for tid, signal_number in self.threads.items() if signal_number == 0]
        if not free:
            raise Refused("every thread of process %d is about to take a signal; try again" % self.pid)
        saved = {tid: self.registers(tid) for tid in free[:64]}
        tid = next((t for t in saved if self.architecture.in_system_call(saved[t])), free[0])
        before = saved[tid]
        mask = ctypes.c_uint64()
        ptrace(PTRACE_GETSIGMASK, tid, 8, ctypes.byref(mask))
        # All signals wait until the thread is itself again, save that of the breakpoint.
        block = ctypes.c_uint64(~(1 << (signal.SIGTRAP - 1)) & (2**64 - 1))
        ptrace(PTRACE_SETSIGMASK, tid, 8, ctypes.byref(block))
        try:
            self.set_registers(tid, self.architecture.to_call(before, function, first, second, landing, stack))
            for _ in range(4):
                ptrace(PTRACE_CONT, tid, None, None)
                stopped_by = self._wait_in_call(tid)
                if stopped_by != 0:
                    break  # else only the stop of a frozen process, which a tracer is told once more
            if stopped_by is None:
                del self.threads[tid]
                raise Refused("process %d ended while its clock was read" % self.pid)
            after = self.registers(tid)
            if stopped_by != signal.SIGTRAP or not self.architecture.has_landed(after, landing):
                raise Refused(
                    "the call into process %d did not come back: signal %s at %#x"
                    % (self.pid, stopped_by, self.architecture.program_counter(after))
                )
            return self.architecture.result(after)
        finally:
            if tid in self.threads:
                self.set_registers(tid, before)
                ptrace(PTRACE_SETSIGMASK, tid, 8, ctypes.byref(mask))

    def _wait_in_call(self, tid: int) -> Optional[int]:
        """`_wait`, for a thread that isn't itself: it is stopped again where it is, before anything is refused."""
        try:
            return self._wait(tid)
        except Refused:
            ptrace(PTRACE_INTERRUPT, tid)
            try:
                if self._wait(tid, time.monotonic() + BACK_SECONDS) is None:
                    del self.threads[tid]
            except Refused:
                del self.threads[tid]  # it runs, so that neither its registers can be set nor can it be let go
                raise
            raise
