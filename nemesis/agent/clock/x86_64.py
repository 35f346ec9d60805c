"""The code and the registers of x86-64."""

from __future__ import annotations

import struct
from typing import Dict, Tuple

from nemesis.agent.clock.architecture import Architecture


class X86(Architecture):
    """x86-64."""

    NAME = "x86_64"
    MACHINE = 62
    JUMP = 5
    CLOCK_GETTIME, GETTIMEOFDAY, TIME = "__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time"
    REGISTERS = tuple(
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax "
        "rip cs eflags rsp ss fs_base gs_base ds es fs gs".split()
    )

    @classmethod
    def routine(cls, tag: bytes, offset_ns: int, mask: int) -> Tuple[bytes, Dict[str, int]]:
        """Uses what a system call clobbers anyway (rax, rcx, r11), and at most 40 bytes of stack."""
        out = bytearray(cls.head(tag, offset_ns, mask) + b"\xcc")
        for at, stub in (
            # mov eax, 9 (mmap); mov edx, 3 (read, write); mov r10d, 0x22 (private, anonymous); or r8, -1; xor r9d, r9d;
            # syscall; ret
            (cls.MAP, b"\xb8\x09\0\0\0\xba\x03\0\0\0\x41\xba\x22\0\0\0\x49\x83\xc8\xff\x45\x31\xc9\x0f\x05\xc3"),
            (cls.UNMAP, b"\xb8\x0b\0\0\0\x0f\x05\xc3"),  # mov eax, 11 (munmap); syscall; ret
            (cls.CODE, b""),
        ):
            out.extend(b"\x90" * (at - len(out)) + stub)
        seconds, fraction, micros, masks = (cls.VARIABLES + 8 * index for index in range(4))

        def near(opcode: bytes, target: int, after: bytes = b"") -> None:
            """An instruction with an address relative to its own end."""
            end = len(out) + len(opcode) + 4 + len(after)
            out.extend(opcode + struct.pack("<i", target - end) + after)

        def add_offset(pointer: bytes, low: int, per_second: int) -> bytes:
            """Add seconds to [pointer], the fraction to [pointer + 8], carry, and count the reading."""
            add, load_low, inc, store = pointer[0:1], pointer[1:2], pointer[2:3], pointer[3:4]
            near(b"\x48\x8b\x0d", seconds)  # mov rcx, [seconds]
            out.extend(b"\x48\x01" + add)  # add [pointer], rcx
            near(b"\x48\x8b\x0d", low)  # mov rcx, [fraction]
            out.extend(b"\x48\x03" + load_low + b"\x08")  # add rcx, [pointer + 8]
            out.extend(b"\x48\x81\xf9" + struct.pack("<i", per_second))  # cmp rcx, one second
            out.extend(b"\x7c\x0a")  # jl over the carry
            out.extend(b"\x48\x81\xe9" + struct.pack("<i", per_second))  # sub rcx, one second
            out.extend(b"\x48\xff" + inc)  # inc qword [pointer]
            out.extend(b"\x48\x89" + store + b"\x08")  # mov [pointer + 8], rcx
            near(b"\x48\x8b\x0d", cls.COUNTER)  # mov rcx, [counter]
            out.extend(b"\xe3\x04\xf0\x48\xff\x01")  # jrcxz over it; lock inc qword [rcx]
            return b""

        def short(opcode: bytes) -> int:
            """A short jump forward, whose distance `here` fills in."""
            out.extend(opcode + b"\0")
            return len(out)

        def here(*jumps: int) -> None:
            for jump in jumps:
                out[jump - 1] = len(out) - jump

        places = {}
        places[cls.CLOCK_GETTIME] = get = len(out)
        out.extend(b"\xb8\xe4\0\0\0\x0f\x05\x85\xc0")  # mov eax, 228; syscall; test eax, eax
        failed = short(b"\x75")
        out.extend(b"\x83\xff\x3f")  # cmp edi, 63: also the negative ids of processes' cpu clocks
        other = short(b"\x77")
        near(b"\x48\x8b\x0d", masks)  # mov rcx, [mask]
        out.extend(b"\x48\x0f\xa3\xf9")  # bt rcx, rdi
        unmoved = short(b"\x73")
        add_offset(b"\x0e\x4e\x06\x4e", fraction, 10**9)
        here(failed, other, unmoved)
        out.extend(b"\xc3")

        places[cls.GETTIMEOFDAY] = len(out)
        out.extend(b"\xb8\x60\0\0\0\x0f\x05\x85\xc0")  # mov eax, 96; syscall; test eax, eax
        failed = short(b"\x75")
        out.extend(b"\x48\x85\xff")  # test rdi, rdi
        other = short(b"\x74")
        near(b"\xf6\x05", masks, b"\x01")  # test byte [mask], 1
        unmoved = short(b"\x74")
        add_offset(b"\x0f\x4f\x07\x4f", micros, 10**6)
        here(failed, other, unmoved)
        out.extend(b"\xc3")

        places[cls.TIME] = len(out)
        # push rdi; sub rsp, 16; mov edi, CLOCK_REALTIME_COARSE (what time() reads); mov rsi, rsp
        out.extend(b"\x57\x48\x83\xec\x10\xbf\x05\0\0\0\x48\x89\xe6")
        near(b"\xe8", get)
        # mov rax, [rsp]; add rsp, 16; pop rdi; test rdi, rdi
        out.extend(b"\x48\x8b\x04\x24\x48\x83\xc4\x10\x5f\x48\x85\xff")
        nowhere = short(b"\x74")
        out.extend(b"\x48\x89\x07")  # mov [rdi], rax
        here(nowhere)
        out.extend(b"\xc3")
        return bytes(out), places

    @classmethod
    def jump(cls, source: int, target: int) -> bytes:
        """The bytes of a jump from one address to another."""
        return b"\xe9" + struct.pack("<i", target - source - cls.JUMP)

    @staticmethod
    def program_counter(registers: Dict[str, int]) -> int:
        return registers["rip"]

    @staticmethod
    def stack_pointer(registers: Dict[str, int]) -> int:
        return registers["rsp"]

    @staticmethod
    def in_system_call(registers: Dict[str, int]) -> bool:
        return registers["orig_rax"] < 2**63

    @staticmethod
    def to_call(
        before: Dict[str, int], function: int, first: int, second: int, landing: int, stack: int
    ) -> Dict[str, int]:
        # orig_rax -1: the kernel must not take this for a system call to be restarted
        return dict(
            before,
            rip=function,
            rdi=first,
            rsi=second,
            rsp=stack,
            rax=0,
            orig_rax=-1,
            eflags=before["eflags"] & ~0x500,
        )

    @staticmethod
    def has_landed(after: Dict[str, int], landing: int) -> bool:
        return after["rip"] == landing + 1  # past the breakpoint

    @staticmethod
    def result(after: Dict[str, int]) -> int:
        return after["rax"]
