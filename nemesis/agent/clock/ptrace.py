"""The two system calls that reach into another process: ptrace and process_vm_readv, by way of libc."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional

PTRACE_POKEDATA, PTRACE_CONT, PTRACE_DETACH = 5, 7, 17
PTRACE_GETREGSET, PTRACE_SETREGSET, PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207
PTRACE_GETSIGMASK, PTRACE_SETSIGMASK = 0x420A, 0x420B
NT_PRSTATUS = 1
PTRACE_EVENT_STOP = 128
WALL = 0x40000000
"""__WALL of wait(2): threads too, whichever way they were made."""


class IoVec(ctypes.Structure):
    """A piece of memory, as the kernel takes it."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.process_vm_readv.argtypes = [
    ctypes.c_long,
    ctypes.POINTER(IoVec),
    ctypes.c_ulong,
    ctypes.POINTER(IoVec),
    ctypes.c_ulong,
    ctypes.c_ulong,
]


def ptrace(request: int, tid: int, address: Optional[int] = None, data: Any = None) -> None:
    """One ptrace request. Raises OSError."""
    ctypes.set_errno(0)
    if _libc.ptrace(request, tid, address, data) == -1 and ctypes.get_errno():
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def read_memory(pid: int, address: int, length: int) -> bytes:
    """Bytes of another process. Raises OSError. Needs no permission on /proc/PID/mem, which belongs to its user."""
    buffer = ctypes.create_string_buffer(length)
    local = IoVec(ctypes.cast(buffer, ctypes.c_void_p), length)
    remote = IoVec(address, length)
    got = _libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    if got < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return buffer.raw[:got]
