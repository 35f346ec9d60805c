"""What a node lets the agent do, tried for real. Sent to `python3 -` on a throwaway node; prints one JSON object.

Standard library only. Arguments: the peer's addresses. The node must have a service joined to it, whose process runs as
another user; everything that is done to it is undone, and the node is removed afterwards anyway.

Each key of the answer is one capability: `{"ok": true, "detail": "…"}`, or false with what was seen instead.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time

SERVICE = "sleep"
CONNECT_SECONDS = 0.4
STATE_SECONDS = 2.0
CLOSED_PORT = 9


class Failed(Exception):
    """A capability is missing; the message says what was seen."""


def run(*argv: str) -> str:
    """Runs a program. Raises Failed with its own words."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        raise Failed(f"there is no program {argv[0]} in the node's image") from None
    if done.returncode != 0:
        raise Failed("`{}`: {}".format(" ".join(argv), (done.stderr or done.stdout).strip().replace("\n", "; ")))
    return done.stdout


def reach(address: str) -> str:
    """Whether a host answers: a closed port of a reachable one refuses at once, a cut one stays silent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(CONNECT_SECONDS)
        try:
            sock.connect((address, CLOSED_PORT))
        except TimeoutError:
            return "silent"
        except OSError as error:
            return "refused" if error.errno == errno.ECONNREFUSED else str(error)
    return "connected"


def reachable(family: str, addresses: list[str]) -> str:
    """The peer answers on this family."""
    address = of_family(family, addresses)
    if address is None:
        raise Failed(f"the network has no {family} addresses")
    seen = reach(address)
    if seen not in ("refused", "connected"):
        raise Failed(f"the peer at {address}: {seen}")
    return "nodes reach each other"


def of_family(family: str, addresses: list[str]) -> str | None:
    """The peer's address of a family, None when it has none."""
    return next((a for a in addresses if (":" in a) == (family == "IPv6")), None)


def cut(program: str, family: str, addresses: list[str]) -> str:
    """A rule of the node's own cuts the peer off, and removing it mends that."""
    version = run(program, "--version").strip()
    address = of_family(family, addresses)
    if address is None or reach(address) == "silent":
        # No peer to try it with: that the rule is accepted is all that can be said.
        rule = ["OUTPUT", "-d", "::1" if family == "IPv6" else "127.0.0.2", "-j", "DROP"]
        run(program, "-w", "-A", *rule)
        run(program, "-w", "-D", *rule)
        return f"{version} takes rules (untried: there is no {family} peer)"
    rule = ["OUTPUT", "-d", address, "-j", "DROP"]
    run(program, "-w", "-A", *rule)
    try:
        during = reach(address)
    finally:
        run(program, "-w", "-D", *rule)
    after = reach(address)
    if during != "silent":
        raise Failed(f"a DROP rule of {version} has no effect: the peer is {during}")
    if after == "silent":
        raise Failed(f"the peer stays cut off after the rule of {version} is gone")
    return f"{version} cuts and mends"


def service() -> int:
    """The pid of the joined service's process, as this namespace sees it: it has mounts of its own."""
    here = os.readlink("/proc/self/ns/mnt")
    end = time.monotonic() + STATE_SECONDS
    while True:
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                with open(f"/proc/{pid}/comm") as comm:
                    if comm.read().strip() == SERVICE and os.readlink(f"/proc/{pid}/ns/mnt") != here:
                        return pid
            except OSError:
                continue  # it ended while we looked, or isn't ours to look at
        if time.monotonic() > end:
            raise Failed("the processes of the joined container can't be seen from the node")
        time.sleep(0.01)


def state_of(pid: int) -> str:
    """One letter: S sleeping, R running, T stopped …"""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def freeze() -> str:
    """SIGSTOP and SIGCONT reach a process in another container, of another user."""
    pid = service()
    try:
        os.kill(pid, signal.SIGSTOP)
    except PermissionError:
        raise Failed("no permission to signal the process of another container") from None
    try:
        _await_state(pid, stopped=True)
    finally:
        os.kill(pid, signal.SIGCONT)
    _await_state(pid, stopped=False)
    return "SIGSTOP and SIGCONT reach the service's process"


def _await_state(pid: int, *, stopped: bool) -> None:
    deadline = time.monotonic() + STATE_SECONDS
    while (state_of(pid) == "T") != stopped:
        if time.monotonic() > deadline:
            raise Failed(
                "after {} the process is in state {}".format("SIGSTOP" if stopped else "SIGCONT", state_of(pid))
            )
        time.sleep(0.005)


def memory() -> str:
    """The vDSO code of the service's process can be rewritten: the same bytes are put back where they were."""
    machine = platform.machine()
    if machine != "x86_64":
        raise Failed(f"the clock fault has no code for {machine}")
    pid = service()
    try:
        with open(f"/proc/{pid}/maps") as maps:
            span = next((line.split()[0] for line in maps if line.rstrip().endswith("[vdso]")), None)
        if span is None:
            raise Failed("processes have no vDSO here: their clocks are system calls, which can't be patched")
        start = int(span.partition("-")[0], 16)
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
            mem.seek(start)
            head = mem.read(64)
            mem.seek(start)
            mem.write(head)
    except OSError as error:
        raise Failed(f"/proc/PID/mem of the service can't be written: {error}") from None
    if not head.startswith(b"\x7fELF"):
        raise Failed(f"the vDSO of the service does not look like one: {head[:4]!r}")
    return f"the vDSO of the service's process can be patched ({machine})"


def clocks() -> str:
    """CLOCK_BOOTTIME, which all event times are read from, and what the kernel counts with."""
    time.clock_gettime_ns(7)
    with open("/sys/devices/system/clocksource/clocksource0/current_clocksource") as file:
        return f"event times by CLOCK_BOOTTIME; clock source {file.read().strip()}"


def main(addresses: list[str]) -> None:
    """Tries everything and prints the answer."""
    probes = {
        "ipv4": lambda: reachable("IPv4", addresses),
        "ipv6": lambda: reachable("IPv6", addresses),
        "iptables": lambda: cut("iptables", "IPv4", addresses),
        "ip6tables": lambda: cut("ip6tables", "IPv6", addresses),
        "freeze": freeze,
        "memory": memory,
        "clocks": clocks,
    }
    answer = {}
    for name, probe in probes.items():
        try:
            answer[name] = {"ok": True, "detail": probe()}
        except (Failed, OSError, subprocess.TimeoutExpired) as failure:
            answer[name] = {"ok": False, "detail": str(failure)}
    disk = os.statvfs("/")
    print(
        json.dumps(
            {
                "probes": answer,
                "python": platform.python_version(),
                "disk_free_bytes": disk.f_bavail * disk.f_frsize,
                "boottime_ns": time.clock_gettime_ns(7),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
