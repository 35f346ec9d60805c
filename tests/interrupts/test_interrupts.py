"""A few rounds of what `rounds` does by the hundred, and a terminal that is closed."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.engine import Engine
from tests.interrupts.rounds import COMMANDS, SHORT, SIGNALS, hearing, interrupt, of_process
from tests.runtime.conftest import eventually

pytestmark = pytest.mark.docker

LIVES = {
    "run": 9.0,
    "matrix": 12.0,
    "doctor": 3.5,
    "images": 0.8,
    "build": 4.0,
    "trees": 1.5,
    "clean": 0.6,
    "list": 0.6,
}
"""About how long each lives when the machine is not busy, in seconds."""

LEADS = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)  # the first that a session's leader opens becomes its own
os.dup2(terminal, 1)
os.dup2(terminal, 2)
os.execv(sys.argv[2], sys.argv[2:])
"""


ONCE = {"matrix": signal.SIGHUP, "doctor": signal.SIGINT, "trees": signal.SIGTERM}
"""A matrix is many runs; how `doctor` ends while its node is there, tests/doctor asks for each signal."""
ROUNDS = [(name, number) for name in COMMANDS for number in SIGNALS if ONCE.get(name, number) is number]


@pytest.mark.parametrize(("name", "number"), ROUNDS)
def test_an_interrupt_leaves_nothing_and_says_130(name: str, number: signal.Signals) -> None:
    """At a moment of its life that is drawn, always the same one for a command and a signal."""
    chance = random.Random(f"{name}/{number.name}")
    done = interrupt(name, number, chance.uniform(0.0, LIVES[name]), Engine(), chance)
    assert not done.wrong, (done.at, done.wrong)


def test_a_closed_terminal_ends_a_trial_like_ctrl_c(tmp_path: Path) -> None:
    """The kernel says SIGHUP and takes the output away; faults are undone, nodes removed, the record is whole."""
    ours, theirs = pty.openpty()
    words = ["run", "redis", *SHORT, "--duration", "60", "--results", str(tmp_path), "--name", "t"]
    process = subprocess.Popen(
        [sys.executable, "-c", LEADS, os.ttyname(theirs), sys.executable, "-m", "harness", *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # whose terminal this becomes: its leader gets the signal
        preexec_fn=hearing,
    )
    os.close(theirs)
    engine = Engine()
    try:
        eventually("its first nodes", lambda: len(of_process(engine, process.pid)) > 3, 150)
        os.close(ours)
        assert process.wait(120) == 130
    finally:
        process.kill()
        process.wait()
    assert of_process(engine, process.pid) == []
    assert "interrupted" in (tmp_path / "t" / "trial.json").read_text()
    assert (tmp_path / "t" / "report.html").exists()
