"""The process of an adapter: started, listened to within bounds, and ended with all that it started.

It is a child of the contender, so whatever finds the contender's processes (a freeze, a kill, a skewed clock) finds it,
and in the contender's namespaces, so that a partition cuts both off. It leads a process group of its own, and what it
starts stays a descendant of ours also when its parent ends: a program that forks and exits doesn't get away.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from workloads.adapters.inside import Inside
from workloads.adapters.wire import LINE_BYTES, Breach, shown
from workloads.clocks import Flag

MARK = "FENCEPOST_ADAPTER"
"""The variable by which a process is known to come of an adapter, wherever it has put itself."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TAIL_BYTES = 600
"""How much of the end of its stderr is put into a message."""
LOGGED_BYTES = 1 << 20
"""How much of its stderr goes on to ours, for the log. What comes after is read, counted and dropped."""
LAST_SECONDS = 1.0
"""How long the rest of its stderr is waited for after its end, and how long a kill that was meant for both may take."""


class Tail:
    """The stderr of an adapter: passed on up to a bound, its end remembered."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._end = b""
        self._seen = 0

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        room = LOGGED_BYTES - self._seen
        if room > 0:
            self._sink(data[:room])
            if len(data) >= room:
                self._sink(b"\n(from here on the adapter's stderr is not kept)\n")
        self._seen += len(data)
        self._end = (self._end + data)[-TAIL_BYTES:]

    def words(self) -> str:
        """Its last words, for a message; "" when it has said nothing."""
        text = self._end.decode(errors="replace").strip()
        if not text:
            return ""
        more = f" (the end of {self._seen} bytes)" if self._seen > TAIL_BYTES else ""
        return f"; its last words on stderr{more}: {text}"


def to_stderr(data: bytes) -> None:
    """Onto the contender's own stderr, which is kept in its log."""
    with contextlib.suppress(OSError):
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


class Child:
    """An adapter's process. `on_line` gets each whole line of its stdout and may raise Breach; `on_breach` gets the
    first one, whoever raised it, once, from a thread of ours. Neither is called after `end`.

    With `inside` its files are those of another image; command and directory are so, too. Make it on the main thread:
    the kernel ends the child with the *thread* that made it.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: str | None,
        environment: Mapping[str, str],
        *,
        on_line: Callable[[bytes], None],
        on_breach: Callable[[Breach], None],
        sink: Callable[[bytes], None] = to_stderr,
        inside: Inside | None = None,
    ) -> None:
        self._on_line, self._on_breach = on_line, on_breach
        self.tail = Tail(sink)
        self._ending = False
        self._told = threading.Lock()
        self._breach: Breach | None = None
        self._mark = secrets.token_hex(8)
        self.left_behind: list[int] = []
        """What it had started and was still there when it had left by itself."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

        def begin() -> None:
            if inside is not None:
                inside.enter(directory)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # last: a change of the user takes it back

        try:
            self._process = subprocess.Popen(
                list(command),
                cwd=directory if inside is None else None,
                env={**environment, MARK: self._mark},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=begin,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = _why(error, command, directory) if inside is None else inside.why(error, command[0], directory)
            raise Breach("starts", f"{' '.join(command)!r} can't be started: {why}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin: IO[bytes] = self._process.stdin
        self._said = threading.Thread(target=self._listen, args=(self._process.stdout,), name="adapter", daemon=True)
        self._errors = threading.Thread(target=self._drain, args=(self._process.stderr,), name="errors", daemon=True)
        self._said.start()
        self._errors.start()
        threading.Thread(target=self._wait, name="adapter-end", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id, which is that of its process group too."""
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Write one line to its stdin. One that has gone is told of elsewhere."""
        with contextlib.suppress(OSError, ValueError):
            self._stdin.write(line)
            self._stdin.flush()

    def breach(self, breach: Breach) -> None:
        """Tell of the first breach, with the adapter's last words; the others only follow from it."""
        with self._told:
            if self._breach is not None or self._ending:
                return
            self._breach = Breach(breach.rule, breach.what + self.tail.words())
        self._on_breach(self._breach)

    def _listen(self, stdout: IO[bytes]) -> None:
        try:
            while line := stdout.readline(LINE_BYTES + 1):
                if self._ending:
                    continue
                if not line.endswith(b"\n"):
                    if len(line) > LINE_BYTES:
                        raise Breach("ends-its-lines", f"it printed a line without an end: {shown(line)}")
                    raise Breach("ends-its-lines", f"it ended in the middle of a line: {shown(line)}")
                self._on_line(line)
        except Breach as breach:
            self.breach(breach)
            while os.read(stdout.fileno(), 1 << 16):  # one that can't get rid of what it prints would hang
                pass
        except (OSError, ValueError):
            pass  # it was ended, and its pipe closed

    def _drain(self, stderr: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(stderr.fileno(), 1 << 16):
                self.tail.feed(data)

    def _wait(self) -> None:
        code = self._process.wait()
        self._said.join(LAST_SECONDS)  # what it said before it went comes first
        self._errors.join(LAST_SECONDS)
        if code == -signal.SIGKILL:
            never = Flag()  # a fault that kills us both is about to reach us, and is no doing of the adapter
            never.wait(LAST_SECONDS)
            never.close()
        by = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self.breach(Breach("stays", f"it {by}"))

    def end(self, seconds: float) -> bool:
        """End its stdin, which it must obey within this time; then kill what is left of it. Whether it left by itself.

        Nothing that it started is there any more when this returns.
        """
        with self._told:
            self._ending = True
        with contextlib.suppress(OSError, ValueError):
            self._stdin.close()
        left = True
        try:
            self._process.wait(seconds)
            self.left_behind = marked(self._mark)
        except subprocess.TimeoutExpired:
            left = False
        self.kill()
        return left

    def kill(self) -> None:
        """SIGKILL to its process group, and to whatever it started outside of that, until nothing is there."""
        with self._told:
            self._ending = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()  # of SIGKILL nobody thinks better
        while left := marked(self._mark):
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                with contextlib.suppress(ChildProcessError):  # not ours to bury: its parent lives
                    os.waitpid(pid, 0)


def children_of(root: int) -> list[int]:
    """A process and all that came of it, parents first."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # gone meanwhile
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:  # it grows meanwhile
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def marked(mark: str) -> list[int]:
    """The processes that run with this mark in their environment, whoever their parent is."""
    entry, found = f"{MARK}={mark}".encode(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # gone meanwhile, or not ours
                if entry in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found


def _why(error: Exception, command: Sequence[str], directory: str | None) -> str:
    """The error of a start in words: the kernel's are the same for a missing program, interpreter and directory."""
    if isinstance(error, FileNotFoundError):
        if directory is not None and not Path(directory).is_dir():
            return f"the directory {directory!r} does not exist"
        program = Path(directory or ".", command[0]) if "/" in command[0] else None
        if program is not None and program.exists():
            first = program.open("rb").readline(200).decode(errors="replace").strip()
            return f"its interpreter is not there (its first line is {first!r})"
        return f"there is no program {command[0]!r} on this node"
    if isinstance(error, PermissionError):
        return f"{command[0]!r} is not executable"
    return str(error)
