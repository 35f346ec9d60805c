"""The clock fault on processes of our own making: what they themselves print must have moved, and nothing else."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import AgentError
from nemesis.agent.base import Refused
from nemesis.agent.clock import architectures, ptrace
from nemesis.agent.clock.fault import MOVED
from nemesis.agent.clock.image import Image
from nemesis.agent.clock.patch import Patch
from nemesis.agent.clock.readings import CLOCKS
from nemesis.agent.clock.tracing import Stopped
from nemesis.agent.clock.x86_64 import X86
from nemesis.link import Link, open_agent
from tests.nemesis.nodes import NamespaceNode, Spawned, until

TELLER = """
import json, os, sys, threading, time
def tell(who):
    clocks = {name: time.clock_gettime(getattr(time, "CLOCK_" + name.upper()))
              for name in ("realtime", "monotonic", "monotonic_raw", "boottime", "tai", "process_cputime_id")}
    sys.stdout.write(json.dumps({"who": who, "time": time.time(), **clocks}) + "\\n")
    sys.stdout.flush()
for line in sys.stdin:
    if line == "fork\\n" and os.fork() == 0:
        tell("child")
        os._exit(0)
    elif line == "exec\\n":
        os.system(f"{sys.executable} -c 'import time; print(time.time(), flush=True)'")
    elif line == "thread\\n":
        thread = threading.Thread(target=tell, args=("thread",)); thread.start(); thread.join()
    elif line == "tell\\n":
        tell("main")
"""


ANSWER_SECONDS = 0.045
"""An answer that took longer could be rounded to another tenth."""


class Teller:
    """A service that says what time it takes it to be, when asked."""

    def __init__(self, node: NamespaceNode) -> None:
        self.lines: list[bytes] = []
        self.process = Spawned(
            node.enter(["unshare", "--mount", "--", sys.executable, "-u", "-c", TELLER]),
            self.lines.append,
            lambda line: print(line.decode()),
            {},
        )
        node._children.append(self.process.popen)

    def ask(self, what: str = "tell") -> Any:
        """Its clocks, less those of this machine at about the same time, to a tenth of a second.

        On a busy machine an answer can be late, and then says little: such a one is asked for again.
        """
        for _ in range(100):
            asked = time.monotonic()
            answer = self._ask(what)
            if isinstance(answer, float) or time.monotonic() - asked < ANSWER_SECONDS:
                return answer
        raise AssertionError(f"no answer to {what} within {ANSWER_SECONDS} s in a hundred tries")

    def _ask(self, what: str) -> Any:
        before = len(self.lines)
        self.process.send(what.encode() + b"\n")
        until(lambda: len(self.lines) > before, f"an answer to {what}")
        said = json.loads(self.lines[before])
        if isinstance(said, float):
            return said - time.time()
        here = {
            "time": time.time(),
            **{
                name: time.clock_gettime(getattr(time, "CLOCK_" + name.upper()))
                for name in ("realtime", "monotonic", "monotonic_raw", "boottime", "tai")
            },
        }
        return {name: round(said[name] - here[name], 1) + 0.0 for name in here}


WALL = ("time", "realtime", "tai")
MONOTONIC = ("monotonic", "monotonic_raw")


@pytest.mark.parametrize("offset", [30, -30, 0.75, -86400.25, 1e6])
@pytest.mark.parametrize(
    ("clocks", "moved"), [("realtime", WALL), ("monotonic", MONOTONIC), ("both", WALL + MONOTONIC)]
)
def test_just_the_chosen_clocks_move(
    node: NamespaceNode, agent: Link, offset: float, clocks: str, moved: tuple[str, ...]
) -> None:
    """A running program reads the chosen clocks moved and the others true, and all true again afterwards."""
    teller = Teller(node)
    assert set(teller.ask().values()) == {0.0}
    answer = agent.call("clock_set", fault="k", offset=offset, clocks=clocks)
    assert [process["wrong"] for process in answer["processes"]] == [[]]
    said = teller.ask()
    assert {name: value for name, value in said.items() if abs(value) > 0.5} == pytest.approx(
        dict.fromkeys(moved, offset), abs=0.5
    )
    ahead = agent.call("clock_read", fault="k")["processes"][0]["ahead"]
    assert ahead["gettimeofday"] == pytest.approx(offset if clocks != "monotonic" else 0, abs=0.1)
    answer = agent.call("clock_restore", fault="k")
    assert answer["processes"][0]["restored"] is True
    assert answer["processes"][0]["routine_left"] is False
    assert set(teller.ask().values()) == {0.0}
    assert agent.call("verify_clean") == {"clean": True, "left": []}


def test_threads_and_forks_go_along_new_programs_do_not(node: NamespaceNode, agent: Link) -> None:
    """Threads started later, and forks, live at the moved time; a program started anew at the true one."""
    teller = Teller(node)
    teller.ask()
    agent.call("clock_set", fault="k", offset=500)
    assert teller.ask("thread")["time"] == pytest.approx(500, abs=0.5)
    assert teller.ask("fork")["time"] == pytest.approx(500, abs=0.5)
    assert teller.ask("exec") == pytest.approx(0, abs=5)
    agent.call("clock_restore", fault="k")
    assert set(teller.ask("fork").values()) == {0.0}


def test_a_fork_that_lives_on_gets_its_time_back_too(node: NamespaceNode, agent: Link) -> None:
    """A child that was forked while the clock was moved is not forgotten when it is restored."""
    service = Spawned(
        node.enter(
            [
                *("unshare", "--mount", "--", sys.executable, "-u", "-c"),
                "import os, time, sys\nsys.stdin.readline()\nos.fork()\n"
                # One write a line: two processes share the pipe, and print() writes in pieces.
                "while True: os.write(1, b'%d %f\\n' % (os.getpid(), time.time())); time.sleep(0.01)",
            ]
        ),
        lambda line: said.append(line.decode().split()),
        lambda line: None,
        {},
    )
    node._children.append(service.popen)
    said: list[list[str]] = []
    until(lambda: [r for r in agent.call("processes")["processes"] if r["role"] == "service"], "the service")
    until(lambda: "python" in str(agent.call("processes")["processes"][-1]["comm"]), "python")
    agent.call("clock_set", fault="k", offset=500)
    service.send(b"go\n")
    until(lambda: len({pid for pid, _ in said}) == 2, "both to speak")
    assert len(agent.call("clock_read", fault="k")["processes"]) == 2
    assert len(agent.call("clock_restore", fault="k")["processes"]) == 2
    said.clear()
    until(lambda: len({pid for pid, _ in said}) == 2, "both to speak again")
    assert all(abs(float(at) - time.time()) < 100 for _, at in said[4:])


def test_other_processes_keep_the_true_time(node: NamespaceNode, agent: Link) -> None:
    """The machine, the node, and a process that is not meant are left alone."""
    teller, other = Teller(node), Teller(node)
    teller.ask(), other.ask()
    rows = [r for r in agent.call("processes")["processes"] if r["role"] == "service"]
    agent.call("clock_set", fault="k", offset=500, pids=[rows[0]["pid"]])
    answers = sorted(each.ask()["time"] for each in (teller, other))
    assert answers == pytest.approx([0, 500], abs=0.5)
    assert abs(float(node.shell("date +%s.%N")) - time.time()) < 5
    agent.call("clock_restore", fault="k")


def test_a_moved_clock_is_not_moved_twice(node: NamespaceNode, agent: Link) -> None:
    """A second clock fault on a process is refused, and leaves the first as it is."""
    teller = Teller(node)
    teller.ask()
    agent.call("clock_set", fault="k", offset=500)
    with pytest.raises(AgentError, match="is its clock moved already"):
        agent.call("clock_set", fault="l", offset=100)
    assert teller.ask()["time"] == pytest.approx(500, abs=0.5)
    agent.call("clock_restore", fault="k")
    assert teller.ask()["time"] == pytest.approx(0, abs=0.5)


def test_a_frozen_process_can_be_moved_and_stays_frozen(node: NamespaceNode, agent: Link) -> None:
    """Moving and restoring the clock of a frozen process does not let it go on."""
    teller = Teller(node)
    teller.ask()
    agent.call("freeze", fault="f")
    answer = agent.call("clock_set", fault="k", offset=500)
    assert answer["processes"][0]["wrong"] == []
    rows = [r for r in agent.call("processes")["processes"] if r["role"] == "service"]
    assert [row["threads"] for row in rows] == ["T"]
    agent.call("clock_restore", fault="k")
    assert agent.call("thaw", fault="f")["was_stopped_throughout"] is True
    assert teller.ask()["time"] == pytest.approx(0, abs=0.5)


SLEEP = 1.5


def test_sleep_and_waits_are_not_disturbed(node: NamespaceNode, agent: Link) -> None:
    """System calls that were interrupted while the clock was moved go on as if nothing had happened."""
    lines: list[bytes] = []
    sleeper = Spawned(
        node.enter(
            [
                *("unshare", "--mount", "--", sys.executable, "-u", "-c"),
                "import ctypes, os, socket, threading, time\n"
                "libc = ctypes.CDLL(None, use_errno=True)\n"
                "def say(*words): os.write(1, (' '.join(map(str, words)) + '\\n').encode())\n"
                "def nap():\n"
                "    left = (ctypes.c_long * 2)(0, 0)\n"
                "    status = libc.nanosleep((ctypes.c_long * 2)(1, 500000000), left)\n"
                "    say('nap', status, ctypes.get_errno())\n"
                "a, b = socket.socketpair()\n"
                "def take(): say('read', len(os.read(a.fileno(), 1)))\n"
                "threading.Thread(target=nap).start(); threading.Thread(target=take).start()\n"
                "def queued(): return int(open('/proc/thread-self/schedstat').read().split()[1]) / 1e9\n"
                "before, began = queued(), time.clock_gettime(time.CLOCK_BOOTTIME)\n"
                "say('ready', began)\n"
                f"time.sleep({SLEEP})\n"
                "say('slept', time.clock_gettime(time.CLOCK_BOOTTIME) - began, queued() - before)\n"
                "b.send(b'x')\n"
                "os.read(0, 1)\n",  # however late the agent is, there is a process
            ]
        ),
        lines.append,
        lambda line: None,
        {},
    )
    node._children.append(sleeper.popen)
    until(lambda: lines, "the sleeper")
    due = float(lines[0].split()[1]) + SLEEP
    last = 0.0
    while last < due - 0.3:  # a sleep that began anew would last for more than a second longer
        agent.call("clock_set", fault="k", offset=3600, clocks="realtime")
        agent.call("clock_restore", fault="k")
        last = time.clock_gettime(time.CLOCK_BOOTTIME)
    until(lambda: len(lines) == 4, "all to have ended")
    sleeper.close_stdin()
    said = dict(line.decode().split(" ", 1) for line in lines[1:])
    assert said["nap"] == "0 0"
    assert said["read"] == "1"
    slept, queued = map(float, said["slept"].split())
    # Nobody ends a sleep in time who waits for a processor then, or is held by the agent.
    assert slept + 0.001 >= SLEEP
    assert slept - queued - max(0.0, last - due) < SLEEP + 0.5


HAMMER = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
/* Threads that do nothing but read clocks, disturbed by signals whose handler reads them too. Any value but the true
   one, or one moved by an hour, is an error. */
static volatile long reads, wrong;
static long start;
static void check(long seconds) {
    long d = seconds - start;
    __sync_fetch_and_add(&reads, 1);
    if (!((d >= -2 && d < 600) || (d >= 3598 && d < 4200))) __sync_fetch_and_add(&wrong, 1);
}
static void look(void) {
    struct timespec ts; struct timeval tv;
    if (clock_gettime(CLOCK_REALTIME, &ts) || ts.tv_nsec < 0 || ts.tv_nsec > 999999999) wrong++;
    check(ts.tv_sec);
    if (gettimeofday(&tv, 0) || tv.tv_usec < 0 || tv.tv_usec > 999999) wrong++;
    check(tv.tv_sec);
    time_t t; if (time(&t) != t) wrong++;
    check(t);
    check(time(0));
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts) || ts.tv_sec > 600) wrong++;
    if (clock_gettime(999, &ts) != -1) wrong++;
}
static void handler(int n) { look(); }
static void *hammer(void *x) { for (;;) look(); }
int main(void) {
    start = time(0);
    struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, 0);
    struct itimerval every = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &every, 0);
    for (int i = 0; i < 6; i++) { pthread_t t; pthread_create(&t, 0, hammer, 0); }
    for (;;) { usleep(20000); printf("%ld %ld\n", reads, wrong); fflush(stdout); }
}
"""


def test_patching_under_fire(node: NamespaceNode, agent: Link, tmp_path: Path) -> None:
    """Threads that read clocks all the time, in signal handlers too, survive a hundred jumps and see no wrong time."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, program = tmp_path / "hammer.c", tmp_path / "hammer"
    source.write_text(HAMMER)
    subprocess.run([compiler, "-O2", "-pthread", "-o", program, source], check=True)
    lines: list[bytes] = []
    running = Spawned(node.enter(["unshare", "--mount", "--", str(program)]), lines.append, print, {})
    node._children.append(running.popen)
    until(lambda: lines, "the hammer")
    (row,) = (r for r in agent.call("processes")["processes"] if r["role"] == "service")
    maps = Path(f"/proc/{node.outer(row['pid'])}/maps")
    before, rounds = len(maps.read_text().splitlines()), itertools.count()

    def there_and_back() -> bool:
        name = f"k{next(rounds)}"
        assert agent.call("clock_set", fault=name, offset=3600)["processes"][0]["wrong"] == []
        answer = restored(name)["processes"][0]
        assert answer["wrong"] == []
        return not answer["routine_left"]

    def restored(name: str) -> dict[str, Any]:
        try:
            return agent.call("clock_restore", fault=name)
        except AgentError as error:
            if "did not stop in time" not in str(error):
                raise
            return agent.call("clock_restore", fault=name)  # too busy a machine: nothing is spoilt

    for _ in range(99):
        there_and_back()
    until(there_and_back, "a time when no thread waits for a processor in the routine")
    seen = len(lines)
    until(lambda: len(lines) > seen + 3, "the hammer to live on")
    reads, wrong = map(int, lines[-1].split())
    assert wrong == 0
    assert reads > 1000
    assert len(maps.read_text().splitlines()) == before, "the pages that were counted on are given back"
    assert agent.call("verify_clean") == {"clean": True, "left": []}


def test_what_an_undo_had_to_leave_goes_with_the_next_fault(
    node: NamespaceNode, agent: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that gets no turn stays in the routine; the clock is right without it, and can be moved again."""
    teller = Teller(node)
    teller.ask()
    (row,) = (each for each in agent.call("processes")["processes"] if each["role"] == "service")
    pid = node.outer(row["pid"])
    maps = len(Path(f"/proc/{pid}/maps").read_text().splitlines())

    def patch(name: str, offset: int) -> Patch:
        return Patch.plan(name, offset * 10**9, sum(1 << CLOCKS[each] for each in MOVED["realtime"]))

    first, second = patch("first", 500), patch("second", 1000)
    first.apply(pid, time.monotonic() + 5)
    uses, turns = Stopped.uses, itertools.repeat(True)
    monkeypatch.setattr(Stopped, "uses", lambda self, low, high: next(turns, False) or uses(self, low, high))
    undone = first.undo(pid, time.monotonic() + 5)
    assert (undone["restored"], undone["routine_left"]) == (True, True)
    assert teller.ask()["realtime"] == 0.0
    turns = iter([True] * 3)
    assert second.apply(pid, time.monotonic() + 5)["wrong"] == []
    assert next(turns, None) is None, "as long as a thread is in it, it stays"
    assert teller.ask()["realtime"] == pytest.approx(1000, abs=0.5)
    undone = second.undo(pid, time.monotonic() + 5)
    assert (undone["restored"], undone["routine_left"]) == (True, False)
    assert teller.ask()["realtime"] == 0.0
    assert len(Path(f"/proc/{pid}/maps").read_text().splitlines()) == maps


def test_a_call_that_does_not_end_in_time_leaves_the_thread_as_it_was(node: NamespaceNode, agent: Link) -> None:
    """A machine can be too busy for it. Let go in the middle, the thread would kill its process at the landing."""
    teller = Teller(node)
    teller.ask()
    (row,) = (each for each in agent.call("processes")["processes"] if each["role"] == "service")
    pid = node.outer(row["pid"])
    with Stopped(pid, time.monotonic() + 1, X86) as stopped:
        image = Image(pid)
        (place,) = [at for at in range(len(image.bytes) - 16, 0, -8) if not image.bytes[at : at + 16].strip(b"\0")][:1]
        endless = image.base + place
        stopped.write(endless, b"\xeb\xfe")  # jmp to itself
        before = {tid: stopped.registers(tid) for tid in stopped.threads}
        with pytest.raises(Refused, match="did not stop in time"):
            stopped.call(
                endless, 0, 0, endless + 8, stopped.architecture.stack_pointer(next(iter(before.values()))) - 512
            )
        assert {tid: stopped.registers(tid) for tid in stopped.threads} == before
        stopped.write(endless, b"\0\0")
    assert teller.ask()["realtime"] == 0.0


def disassemble(code: bytes, start: int) -> list[str]:
    """The instructions of a piece of x86-64 code, as objdump reads them."""
    tool = shutil.which("objdump")
    if tool is None:
        pytest.skip("needs objdump")
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"fencepost-code-{os.getpid()}"
    path.write_bytes(code)
    try:
        text = subprocess.run(
            [tool, "-D", "-b", "binary", "-mi386:x86-64", f"--start-address={start}", path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    finally:
        path.unlink()
    return [re.sub(r"\s+", " ", m[1]).strip() for m in re.finditer(r"^\s*[0-9a-f]+:\t[0-9a-f ]+\t(.*)$", text, re.M)]


def test_the_routine_is_what_its_comments_say() -> None:
    """Another program reads the same instructions out of the bytes, and no byte of them is bad."""
    code, places = X86.routine(b"\0" * 8, 1_500_000_000, 0b1)
    lines = disassemble(code, places["__vdso_clock_gettime"])
    assert lines[:4] == ["mov $0xe4,%eax", "syscall", "test %eax,%eax", lines[3]]
    assert not [line for line in lines if "bad" in line]
    assert sum(line == "ret" for line in lines) == 3
    assert any(line.startswith("call") and f"0x{places['__vdso_clock_gettime']:x}" in line for line in lines)
    assert len(code) < 448  # what the smallest vDSO seen has to spare


@pytest.mark.parametrize("seconds", [0.25, -0.25, -1.0, 1e6 + 0.5, -12345.000000001])
def test_an_offset_is_split_so_that_the_fraction_is_never_negative(seconds: float) -> None:
    """Seconds and nanoseconds of an offset add up to it, and the fraction is from 0 to one second."""
    import struct

    offset = round(seconds * 1e9)
    whole, fraction, micros, mask = struct.unpack("<qqqQ", X86.variables(offset, 5))
    assert whole * 10**9 + fraction == offset
    assert 0 <= fraction < 10**9
    assert micros == fraction // 1000
    assert mask == 5


def test_the_image_is_read_as_readelf_reads_it(tmp_path: Path) -> None:
    """Functions are found where the system's own tool finds them."""
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("needs readelf")
    image = Image(os.getpid())
    path = tmp_path / "vdso"
    path.write_bytes(image.bytes)
    text = subprocess.run([tool, "-Ws", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
    theirs = {
        m[3].split("@")[0]: (image.base + int(m[1], 16), int(m[2]))
        for m in re.finditer(r"^\s*\d+: ([0-9a-f]+)\s+(\d+) FUNC .* (\S+)$", text, re.M)
    }
    assert image.functions == theirs
    assert set(X86.functions()) <= set(theirs)
    low, length = image.free
    assert length > 256
    assert not image.bytes[low - image.base :].strip(b"\0")


def test_an_unknown_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than on x86-64 the fault says that it can't, and touches nothing."""
    monkeypatch.setattr(architectures, "ARCHITECTURES", {0: X86})
    with pytest.raises(Refused, match="only on x86_64"):
        Patch.plan("k", 1, 1)


def test_too_little_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vDSO without room for the routine is left alone."""
    monkeypatch.setattr(Image, "_free", lambda self: (self.base + 8128, 64))
    with pytest.raises(Refused, match="64 bytes to spare"):
        Patch.plan("k", 1, 1)


def test_a_traced_process_is_refused_with_the_reason(node: NamespaceNode, agent: Link) -> None:
    """A process that a debugger holds can't be moved, and the error says what may be the reason."""
    teller = Teller(node)
    teller.ask()
    row = next(r for r in agent.call("processes")["processes"] if r["role"] == "service")
    outer = node.outer(row["pid"])
    traced, done = threading.Event(), threading.Event()

    def trace() -> None:  # a tracer is a thread, and lets go when that ends
        ptrace.ptrace(ptrace.PTRACE_SEIZE, outer)
        traced.set()
        done.wait(60)
        ptrace.ptrace(ptrace.PTRACE_INTERRUPT, outer)
        os.waitpid(outer, ptrace.WALL)
        ptrace.ptrace(ptrace.PTRACE_DETACH, outer)

    tracer = threading.Thread(target=trace)
    tracer.start()
    assert traced.wait(60)
    try:
        with pytest.raises(AgentError, match="is it being traced"):
            agent.call("clock_set", fault="k", offset=30)
    finally:
        done.set()
        tracer.join()
    assert set(teller.ask().values()) == {0.0}
    assert agent.call("stats")["held"] == []


def kill_both(node: NamespaceNode, link: Link) -> None:
    """Kill the agent and its guardian, so that nobody undoes anything."""
    for pid in (node.outer(link.hello["guardian"]), node.outer(link.hello["pid"])):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not link.alive, "the link to notice")
    link.close()


def check_recovery(node: NamespaceNode, break_it: Callable[[], None]) -> None:
    """Move a clock, lose the agent, do something to the journal's patch, and see the next agent put it right."""
    teller = Teller(node)
    teller.ask()
    first = open_agent(node)
    first.call("clock_set", fault="k", offset=500)
    kill_both(node, first)
    break_it()
    second = open_agent(node)
    assert second.hello["recovered"] == ["clock:k undone"]
    assert set(teller.ask().values()) == {0.0}
    assert second.call("verify_clean") == {"clean": True, "left": []}
    second.close()


def test_the_next_agent_restores_the_clock(node: NamespaceNode) -> None:
    """A skew whose agent and guardian are dead is undone by the next agent, from the journal."""
    check_recovery(node, lambda: None)


def test_what_a_process_reads_of_the_moved_clock_is_counted(node: NamespaceNode, agent: Link) -> None:
    """Its own readings, by all of its threads, of the clocks that were moved: not ours, and not of other clocks."""
    lines: list[bytes] = []
    reader = Spawned(
        node.enter(
            [
                *("unshare", "--mount", "--", sys.executable, "-u", "-c"),
                "import sys, threading, time\n"
                "print('ready', flush=True)\n"
                "def read(clock, times):\n"
                "    for _ in range(times): time.clock_gettime(clock)\n"
                "for line in sys.stdin:\n"
                "    clock, times, threads = map(int, line.split())\n"
                "    many = [threading.Thread(target=read, args=(clock, times)) for _ in range(threads)]\n"
                "    [each.start() for each in many]; [each.join() for each in many]\n"
                "    print('done', flush=True)\n",
            ]
        ),
        lines.append,
        lambda line: print(line.decode()),
        {},
    )
    node._children.append(reader.popen)
    until(lambda: lines, "the reader")

    def ask(clock: int, times: int, threads: int = 1) -> int:
        seen = len(lines)
        reader.send(b"%d %d %d\n" % (clock, times, threads))
        until(lambda: len(lines) > seen, "an answer")
        return int(agent.call("clock_read", fault="k")["processes"][0]["reads"])

    agent.call("clock_set", fault="k", offset=30, clocks="realtime")
    assert agent.call("clock_read", fault="k")["processes"][0]["reads"] == 0, "the proof's own readings don't count"
    assert ask(time.CLOCK_MONOTONIC, 1000) == 0, "a clock that wasn't moved"
    assert ask(time.CLOCK_REALTIME, 1000) == 1000
    assert ask(time.CLOCK_REALTIME, 5000, threads=8) == 41000, "not one is lost where threads count side by side"
    (restored,) = agent.call("clock_restore", fault="k")["processes"]
    assert (restored["reads"], restored["routine_left"]) == (41000, False)
    assert agent.call("verify_clean") == {"clean": True, "left": []}


def test_a_counter_that_can_not_be_had_is_told(node: NamespaceNode, agent: Link) -> None:
    """A process that may map nothing more is moved all the same, and it is said that its readings go uncounted."""
    teller = Teller(node)
    teller.ask()
    row = next(r for r in agent.call("processes")["processes"] if r["role"] == "service")
    outer = node.outer(row["pid"])
    size = next(s for s in Path(f"/proc/{outer}/status").read_text().splitlines() if s.startswith("VmSize"))
    limit = int(size.split()[1]) * 1024
    resource.prlimit(outer, resource.RLIMIT_AS, (limit, limit))
    (moved,) = agent.call("clock_set", fault="k", offset=500)["processes"]
    assert "it could map no page to count on: Cannot allocate memory" in moved["uncounted"]
    assert moved["wrong"] == []
    assert teller.ask()["time"] == pytest.approx(500, abs=0.5)
    (restored,) = agent.call("clock_restore", fault="k")["processes"]
    assert (restored["reads"], restored["routine_left"]) == (None, False)
    assert set(teller.ask().values()) == {0.0}
