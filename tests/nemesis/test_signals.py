"""When the agent may say that all is stopped: on processes that fork at the worst moment, which are only told of."""

from __future__ import annotations

import os
import time
from typing import Any, cast

import pytest

from nemesis.agent import processes, signals
from nemesis.agent.base import Refused
from nemesis.agent.processes import Stat, namespace
from nemesis.agent.roles import Selection

PARENT, CHILD = 10, 11


class Forking:
    """A process that is in the middle of a fork when the stop comes. It ends the fork, and then it stops.

    `looks_left`: how often the agent may look, at the tree or at the states of a process, before that. So late a child
    is real where a fork copies much: that of a process with 300 MB takes milliseconds.
    """

    def __init__(self, looks_left: int, thread: bool) -> None:
        self._looks_left, self._thread = looks_left, thread
        self._stopped: set[int] = set()
        self._asked: set[int] = set()
        self._made: set[int] = set()

    def _look(self) -> None:
        """Something is looked at; what the processes do between two looks comes before it."""
        if PARENT in self._asked and not self._made:
            if self._looks_left == 0:
                self._made = {CHILD}
                self._stopped |= {PARENT, CHILD} if self._thread else {PARENT}
            self._looks_left -= 1

    def now(self) -> dict[int, Stat]:
        """The processes of the selection."""
        self._look()
        made = set() if self._thread else self._made
        return {pid: Stat(b"%d (fork) R 1 %s" % (pid, b"0 " * 20)) for pid in {PARENT} | made}

    some = now

    def states(self, pid: int) -> dict[int, str]:
        """Thread -> state. A new thread of a process that is being stopped runs until it has stopped as well."""
        self._look()
        mine = {pid} | (self._made if self._thread else set())
        return {each: "T" if each in self._stopped else "R" for each in mine}

    def signal(self, pid: int, number: int) -> None:
        """SIGSTOP. One that is in a fork takes it later."""
        self._asked.add(pid)
        if pid == CHILD:
            self._stopped.add(CHILD)

    @property
    def running(self) -> set[int]:
        """Who runs though it was said that all are stopped."""
        return ({PARENT} | self._made) - self._stopped


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("looks_left", range(12))
def test_a_child_that_a_fork_makes_after_the_stop_was_sent_is_stopped_too(
    monkeypatch: pytest.MonkeyPatch, looks_left: int, thread: bool
) -> None:
    """Wherever among the agent's looks the fork ends: between the listing and the state of its parent, above all."""
    node = Forking(looks_left, thread)
    monkeypatch.setattr(signals, "signal_process", node.signal)
    monkeypatch.setattr(signals, "thread_states", node.states)
    monkeypatch.setattr(signals, "is_same", lambda pid, started: True)
    noted: dict[int, Any] = {}
    signals.freeze(cast(Selection, node), noted.update, time.monotonic() + 10)
    assert node.running == set()
    assert set(noted) == ({PARENT} if thread else {PARENT, CHILD})


def test_a_process_that_goes_while_it_is_asked_for_its_namespace_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says "permission denied" of it as it does of one that may not be looked at."""

    def denied(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(processes.os, "readlink", denied)
    assert namespace(2**30, "mnt") is None
    with pytest.raises(Refused, match="capability SYS_PTRACE"):
        namespace(os.getpid(), "mnt")
