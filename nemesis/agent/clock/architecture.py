"""What the clock fault has to know of a processor: a routine in its code, and its registers.

Another one is a module beside `x86_64` with a class like `X86`, registered in `architectures`.
"""

from __future__ import annotations

import abc
import struct
from typing import Dict, Tuple

MAGIC = b"FENCEPST"
"""Marks a routine of ours; eight bytes that stand for the fault follow."""


class Architecture(abc.ABC):
    """One kind of processor. Never instantiated.

    A routine begins with the mark (`MAGIC` and the tag of the fault), five variables, a breakpoint, and two stubs that
    ask the kernel for a page and give it back: the same layout for all.
    """

    VARIABLES = 16
    """Offset of the first four variables: seconds, nanoseconds, microseconds, mask of the clocks that are moved."""
    COUNTER = 48
    """Offset of the fifth: the address of the process' counter of moved readings; 0, and nothing is counted."""
    LANDING = 56
    """Offset of the breakpoint that a call made by us returns to."""
    MAP = 64
    """Offset of a stub that maps fresh memory, to be called with (0, length): its address, or a negative error."""
    UNMAP = 96
    """Offset of a stub that unmaps memory, to be called with (address, length)."""
    CODE = 112
    """Offset of all else."""

    NAME = ""
    """As uname has it."""
    MACHINE = 0
    """As the header of an ELF image has it."""
    JUMP = 0
    """The length of a jump in bytes: what is replaced at the entry of a function."""
    CLOCK_GETTIME = GETTIMEOFDAY = TIME = ""
    """The functions of the vDSO, which must have the first, and may have the others. Empty when it never does."""
    REGISTERS: Tuple[str, ...] = ()
    """Their names in the order of NT_PRSTATUS, eight bytes each."""

    @classmethod
    def functions(cls) -> Tuple[str, ...]:
        """The functions that are replaced where the vDSO has them."""
        return tuple(name for name in (cls.CLOCK_GETTIME, cls.GETTIMEOFDAY, cls.TIME) if name)

    @staticmethod
    def variables(offset_ns: int, mask: int) -> bytes:
        """The four variables for an offset; the fraction is never negative."""
        seconds, fraction = divmod(offset_ns, 10**9)
        return struct.pack("<qqqQ", seconds, fraction, fraction // 1000, mask)

    @classmethod
    def head(cls, tag: bytes, offset_ns: int, mask: int) -> bytes:
        """What a routine begins with, up to the breakpoint. Without a counter, which each process has elsewhere."""
        return MAGIC + tag + cls.variables(offset_ns, mask) + bytes(8)

    @classmethod
    @abc.abstractmethod
    def routine(cls, tag: bytes, offset_ns: int, mask: int) -> Tuple[bytes, Dict[str, int]]:
        """The bytes to place (64-byte aligned), and the offset in them of the stand-in for each function."""

    @classmethod
    @abc.abstractmethod
    def jump(cls, source: int, target: int) -> bytes:
        """The bytes of a jump from one address to another."""

    @staticmethod
    @abc.abstractmethod
    def program_counter(registers: Dict[str, int]) -> int:
        """The address of the next instruction."""

    @staticmethod
    @abc.abstractmethod
    def stack_pointer(registers: Dict[str, int]) -> int:
        """The address of the top of the stack."""

    @staticmethod
    @abc.abstractmethod
    def in_system_call(registers: Dict[str, int]) -> bool:
        """Whether the thread was stopped inside a system call."""

    @staticmethod
    @abc.abstractmethod
    def to_call(
        before: Dict[str, int], function: int, first: int, second: int, landing: int, stack: int
    ) -> Dict[str, int]:
        """The registers with which a thread calls a function with two arguments, and then comes to the landing.

        The word at `stack` holds the address of the landing too, for a processor that returns by the stack.
        """

    @staticmethod
    @abc.abstractmethod
    def has_landed(after: Dict[str, int], landing: int) -> bool:
        """Whether a thread that met a breakpoint met that of the landing."""

    @staticmethod
    @abc.abstractmethod
    def result(after: Dict[str, int]) -> int:
        """What the function returned."""
