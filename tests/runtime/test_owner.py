"""Judging from a label whether a site's process still runs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from harness.runtime.owner import Owner

TELL = "from harness.runtime.owner import Owner; print(Owner.current().label(), flush=True); input()"


def test_a_process_runs_until_it_is_gone() -> None:
    """Seen from another process: running while it lives, gone once it was killed, and gone while a zombie."""
    child = subprocess.Popen([sys.executable, "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    owner = Owner.parse(child.stdout.readline().strip())
    assert owner is not None
    assert owner.pid == child.pid
    assert owner.state() == "running"
    child.kill()
    # Not reaped yet: a zombie holds its id, but it does nothing any more.
    while owner.state() == "running":
        assert child.returncode is None
    assert owner.state() == "gone"
    child.communicate()
    assert owner.state() == "gone"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "running"),
        ({"started": "1"}, "gone"),  # the id was given to another process
        ({"boot": "another"}, "gone"),  # this machine was restarted
        ({"boot": "another", "host": "elsewhere"}, "unknown"),
        ({"namespace": "pid:[1]"}, "unknown"),  # it ran in a container, or this does
    ],
)
def test_what_cannot_be_compared_is_unknown(changes: dict[str, str], state: str) -> None:
    """Only the same boot and pid namespace say something about a process id."""
    assert dataclasses.replace(Owner.current(), **changes).state() == state  # type: ignore[arg-type]


@pytest.mark.parametrize("label", ["", "a|b|c", "host|boot|ns|notanumber|5", "a|b|c|1|2|3"])
def test_other_labels_are_no_owner(label: str) -> None:
    """A label of somebody else's making names nobody."""
    assert Owner.parse(label) is None


def test_a_label_reads_back() -> None:
    """What is written is what is read."""
    owner = Owner.current()
    assert Owner.parse(owner.label()) == owner
