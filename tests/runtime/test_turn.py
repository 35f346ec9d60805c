"""Turns between heavy start-ups: how many at once, in what order, over processes, and after a kill -9."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.runtime.turn import turn
from tests.runtime.conftest import eventually

HOLD = """
import sys
from pathlib import Path
from harness.runtime.turn import turn
with turn("a child's work", folder=Path(sys.argv[1]), slots=1):
    print("mine", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds the turn until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    return process


def tickets(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.isdigit())


@pytest.mark.parametrize("slots", [1, 3])
def test_no_more_than_the_slots_are_inside(tmp_path: Path, slots: int) -> None:
    """Of twelve threads so many are inside at once as there are slots: never more, and at some time all of them."""
    inside, most, lock = 0, 0, threading.Lock()
    full = threading.Event()

    def work() -> None:
        nonlocal inside, most
        with turn("work", folder=tmp_path, slots=slots, wait_seconds=30):
            with lock:
                inside += 1
                most = max(most, inside)
                if inside == slots:
                    full.set()
            full.wait(60)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == slots
    assert tickets(tmp_path) == []


def test_first_come_first_served(tmp_path: Path) -> None:
    """The order of turns is the order in which they were asked for."""
    order: list[int] = []

    def work(number: int) -> None:
        with turn(f"work {number}", folder=tmp_path, slots=1, wait_seconds=30):
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    with turn("the first", folder=tmp_path, slots=1):
        for number, thread in enumerate(threads):
            thread.start()
            wanted = number + 2
            eventually("its ticket", lambda: len(tickets(tmp_path)) == wanted)  # noqa: B023 - called right here
    for thread in threads:
        thread.join(60)
    assert order == list(range(8))


def test_another_process_is_waited_for_and_named(tmp_path: Path) -> None:
    """The queue is one for the machine; a wait that is too long tells who stood before."""
    child = holder(tmp_path)
    try:
        with (
            pytest.raises(HarnessError, match=rf"no turn for mine in 0\.2 s.*a child's work \(process {child.pid}\)"),
            turn("mine", folder=tmp_path, slots=1, wait_seconds=0.2),
        ):
            pytest.fail("two had the only turn")
        assert len(tickets(tmp_path)) == 1  # who gives up leaves no ticket
    finally:
        child.communicate("", timeout=60)
    with turn("mine", folder=tmp_path, slots=1, wait_seconds=5) as waited:
        assert waited.ahead == 0


def test_a_killed_process_frees_its_turn(tmp_path: Path) -> None:
    """After kill -9 of the holder its ticket is swept away and the next one goes on."""
    child = holder(tmp_path)
    child.kill()
    child.wait(60)
    assert len(tickets(tmp_path)) == 1
    with turn("mine", folder=tmp_path, slots=1, wait_seconds=30):
        assert len(tickets(tmp_path)) == 1  # ours alone
    assert tickets(tmp_path) == []


def test_an_error_inside_ends_the_turn(tmp_path: Path) -> None:
    """Whoever fails inside does not block the others."""
    with pytest.raises(RuntimeError), turn("failing", folder=tmp_path, slots=1):
        raise RuntimeError
    with turn("next", folder=tmp_path, slots=1, wait_seconds=1):
        pass


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    """No place for the queue is an error that names it; nobody starts without a turn."""
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(HarnessError, match=r"can't keep files in .*file"),
        turn("x", folder=tmp_path / "file" / "turns"),
    ):
        pytest.fail("a turn without a queue")
