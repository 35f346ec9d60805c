"""Signals are heard from the first statement to the last, by every command; and nothing is thrown into its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.signals import SAME_SECONDS
from tests.interrupts.rounds import SIGNALS, hearing
from tests.runtime.conftest import eventually

SLOW_IMPORT = """
import time
print("importing", flush=True)
for _ in range(6000):  # one long sleep would not be cut short by a signal that comes just before it begins
    time.sleep(0.01)
"""


def program(code: str, *words: str, before: Callable[[], None] = hearing) -> subprocess.Popen[str]:
    """A Python program that can be interrupted."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=before,
    )


def says(process: subprocess.Popen[str], line: str) -> None:
    """Wait for a line of its output."""
    assert process.stdout is not None
    seen = []
    while (got := process.stdout.readline()) != f"{line}\n":
        seen.append(got)
        assert got, f"it ended without saying {line!r}: {''.join(seen)}"


def ended(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str]:
    """Its exit code (-9 when it did not end in time), and the rest of what it said."""
    assert process.stdout is not None
    patience = threading.Timer(seconds, process.kill)
    patience.start()
    try:
        if process.stdin is not None:
            process.stdin.close()
        output = process.stdout.read()  # not communicate(): it leaves out what a readline has read ahead
        return process.wait(), output
    finally:
        patience.cancel()
        process.kill()
        process.wait()


@pytest.mark.parametrize("entry", ["module", "script"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_libraries_are_imported_says_130(tmp_path: Path, number: signal.Signals, entry: str) -> None:
    """Loading click takes as long as it takes; here a minute. No traceback, and not -15."""
    (tmp_path / "click.py").write_text(SLOW_IMPORT)
    script = Path(sys.executable).with_name("fencepost")
    command = [sys.executable, "-m", "harness"] if entry == "module" else [sys.executable, str(script)]
    process = subprocess.Popen(
        [*command, "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=hearing,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    says(process, "importing")
    process.send_signal(number)
    assert ended(process) == (130, "interrupted\n")


def test_what_was_ignored_at_birth_stays_ignored() -> None:
    """`nohup`, and a shell's background job, which Ctrl-C is not meant for."""

    def deaf() -> None:
        hearing()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = program("from harness import signals; signals.listen(); print('ready', flush=True); input()", before=deaf)
    says(process, "ready")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    assert process.stdin is not None
    process.stdin.write("\n")
    assert ended(process) == (0, "")


FINISHING = """
import sys
from harness import signals
class Slow:
    def flush(self):
        print("ending", file=sys.stderr, flush=True)
        sys.stdin.readline()
signals.listen()
sys.stdout = Slow()
signals.finish(3)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_the_very_end_changes_nothing(number: signal.Signals) -> None:
    """The work is done and its code is said, whatever comes while the last output is written."""
    process = program(FINISHING)
    says(process, "ending")
    process.send_signal(number)
    assert process.stdin is not None
    process.stdin.write("\n")
    assert ended(process)[0] == 3


def test_output_that_cannot_be_written_is_no_success() -> None:
    """A full disk under the last buffer; and whoever reads no further is told as SIGPIPE tells it."""
    code = "import sys; from harness import signals; sys.stdout.write('x'); signals.finish(0)"
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([sys.executable, "-c", code], stdout=full, env=buffered, check=False).returncode == 4
    reads, writes = os.pipe()
    os.close(reads)
    assert subprocess.run([sys.executable, "-c", code], stdout=writes, env=buffered, check=False).returncode == 141
    os.close(writes)


ATTENDED = """
import sys, threading, time
from harness import signals
signals.listen()
from harness.commands.interrupt import attended
def say(word):
    print(word, flush=True)
    return []
def work():
    say("working")
    while True:  # a plug-in that hangs
        pass
def sweep(seconds):
    say("sweeping")
    if sys.argv[1] == "hangs":
        threading.Event().wait()
    return ["container x stays"]
attended(work, stop=lambda: say("stopping"), sweep=sweep)
"""


FORKED = """
import os, signal, sys
from harness import signals
signals.listen()
def do():
    child = os.fork()
    if child == 0:
        print("forked", flush=True)
        sys.stdin.readline()
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if sys.argv[1] == "answered":
    with signals.answering(lambda: None):
        sys.exit(do())
do()
"""


def test_a_forked_helper_goes_on_where_its_parent_does() -> None:
    """Ctrl-C is sent to the whole group: what reads a long history for a trial that winds up must not be lost."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED, "answered"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hearing,
    )
    says(process, "forked")
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdin is not None
    process.stdin.write("\n")
    assert ended(process) == (7, "")


def test_a_forked_helper_ends_with_its_parent() -> None:
    """Where the parent leaves at once, so does it, and says nothing a second time."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED, "alone"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=hearing,
    )
    says(process, "forked")
    os.killpg(process.pid, signal.SIGTERM)
    assert ended(process) == (130, "interrupted\n")


def once_it_counts_as_another() -> None:
    """Signals within so short a time are one, by the clock: there is nothing else to wait for."""
    time.sleep(SAME_SECONDS + 0.1)


def test_the_second_signal_sweeps_what_hangs() -> None:
    """Work that takes no notice of the first costs no more than one more; what stays is named."""
    process = program(ATTENDED, "well")
    says(process, "working")
    process.send_signal(signal.SIGINT)
    says(process, "stopping")
    process.send_signal(signal.SIGTERM)  # as one with the first
    once_it_counts_as_another()
    process.send_signal(signal.SIGTERM)
    says(process, "sweeping")
    code, output = ended(process)
    assert code == 130
    assert output.splitlines()[-2:] == ["container x stays", "interrupted"]


def test_the_third_signal_leaves_at_once() -> None:
    """Nothing can hold the user: not even a sweep that hangs."""
    process = program(ATTENDED, "hangs")
    says(process, "working")
    process.send_signal(signal.SIGINT)
    says(process, "stopping")
    once_it_counts_as_another()
    process.send_signal(signal.SIGINT)
    says(process, "sweeping")
    once_it_counts_as_another()
    process.send_signal(signal.SIGHUP)
    code, output = ended(process)
    assert code == 130
    assert "leaving at once; `fencepost clean` removes what stays" in output


def test_an_error_of_the_work_comes_out_as_it_is() -> None:
    """The thread in between is not to be noticed."""
    from harness.commands.interrupt import attended
    from harness.errors import UsageError

    def work() -> None:
        raise UsageError("no such thing")

    with pytest.raises(UsageError, match="no such thing"):
        attended(work, sweep=lambda seconds: [])
    assert attended(lambda: 7, sweep=lambda seconds: []) == 7


@pytest.mark.parametrize("number", SIGNALS)
def test_a_check_of_standard_input_leaves_no_copy(tmp_path: Path, number: signal.Signals) -> None:
    """What is read from a pipe is copied first, since it is read more than once."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "check", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=hearing,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        # Not just any file: Python tries out the folder with one of its own first.
        eventually("the copy", lambda: list(tmp_path.glob("fencepost-*")))
        process.send_signal(number)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.communicate()
    assert list(tmp_path.iterdir()) == []
