"""Programs that misbehave as contenders: each failure has its words, and the history keeps what was right.

The programs are real processes, spoken to over real pipes; only the container around them is missing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.runtime.base import LineHandler, Node, Process
from harness.trial import contenders
from harness.trial.contenders import Contender
from harness.trial.recorder import Recorder
from tests.nemesis.nodes import Spawned


class LocalProcess(Spawned):
    """A program on this machine; what is given up is killed, so that no test leaves one behind."""

    def wait(self, timeout_seconds: float) -> int | None:
        code = super().wait(timeout_seconds)
        return 128 - code if code is not None and code < 0 else code  # as an engine has it

    def abandon(self) -> None:
        super().abandon()
        self.popen.kill()


class LocalNode:
    """Just enough of a node to spawn one given Python program."""

    name = "c0"

    def __init__(self, program: str) -> None:
        self._program = program

    def spawn(
        self,
        argv: Sequence[str],
        *,
        on_line: LineHandler,
        on_error_line: LineHandler,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        assert tuple(argv) == contenders.ARGV
        return LocalProcess([sys.executable, "-u", "-c", self._program], on_line, on_error_line, env or {})


HELLO = "import sys,json,time,os\nconfig=sys.stdin.readline()\nprint(json.dumps({'hello':{'pid':os.getpid()}}))\n"
OBEDIENT = "for line in sys.stdin:\n    if 'stop' in line: break\nprint(json.dumps({'bye':{}}))\n"
EVENT = "print(json.dumps({'time':1,'process':0,'type':'invoke','f':'acquire'}))\n"


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], Contender]:
    recorder = Recorder(tmp_path, {})

    def start(program: str) -> Contender:
        node: Node = LocalNode(program)  # type: ignore[assignment]
        contender = Contender(node, 0, recorder, tmp_path / "contender.log", lambda: 99)
        contender.spawn({"lock": "lock"})
        return contender

    return start


def until(contender: Contender, condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 60
    with contender.changed:
        while not condition():
            assert time.monotonic() < end, f"{what} was awaited; failure: {contender.failure}"
            contender.changed.wait(0.2)


def end_line(contender: Contender, folder: Path) -> bool:
    """Whether the history is whole, once it is closed."""
    contender._recorder.close()
    return '"type": "end"' in (folder / "history.jsonl").read_text().splitlines()[-1]


def history(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()][1:]


def test_an_obedient_contender_has_no_failure(start: Callable[[str], Contender], tmp_path: Path) -> None:
    """Hello, events, bye, exit 0: nothing to complain of, and no crash in the history."""
    contender = start(HELLO + EVENT + OBEDIENT)
    until(contender, lambda: contender.hello, "hello")
    assert contender.pids() == [contender.hello["pid"]]  # type: ignore[index]
    contender.command("stop")
    contender.end(time.monotonic() + 20)
    assert contender.failure is None
    assert contender.bye == {}
    assert [event["f"] for event in history(tmp_path)] == ["acquire"]
    assert not contender.may_write
    assert end_line(contender, tmp_path)


def test_garbage_is_refused_and_kept_in_the_log(start: Callable[[str], Contender], tmp_path: Path) -> None:
    """A line that is no event ends the trial with its words and does not enter the history, which has a crash instead.

    Nothing that the program says later can make the file unreadable. But it may act on unheard, and a release that
    nobody heard of makes the next grant look too early: so this history has no end line, and nobody is judged by it.
    """
    contender = start(HELLO + EVENT + "print('Segmentation fault')\n" + EVENT + OBEDIENT)
    until(contender, lambda: contender.failure, "a failure")
    assert "contender 0 on c0 printed what is no event (not JSON" in str(contender.failure)
    assert "Segmentation fault" in str(contender.failure)
    contender.command("stop")
    contender.end(time.monotonic() + 20)
    assert b"refused: Segmentation fault" in (tmp_path / "contender.log").read_bytes()
    assert [event["f"] for event in history(tmp_path)] == ["acquire", "crash"]
    assert not end_line(contender, tmp_path)


@pytest.mark.parametrize(
    "line", [r'{"time":1,"process":0,"type":"info","f":"note","x":NaN}', r'{"x":"\ud800"}', "[" * 9999]
)
def test_what_json_does_not_know_is_garbage_too(start: Callable[[str], Contender], line: str) -> None:
    """NaN, lone surrogates, nesting without end: refused with a reason, and the reader goes on."""
    contender = start(HELLO + f"print({line!r})\n" + OBEDIENT)
    until(contender, lambda: contender.failure, "a failure")
    assert "printed what is no event" in str(contender.failure)
    contender.command("stop")
    contender.end(time.monotonic() + 20)


def test_a_second_hello_and_an_early_bye_are_refused(start: Callable[[str], Contender]) -> None:
    """A program can neither redirect a freeze to another process nor leave before it was told to."""
    contender = start(HELLO + "print(json.dumps({'hello':{'pid':1}}))\n" + OBEDIENT)
    until(contender, lambda: contender.failure, "a failure")
    assert contender.pids() != [1]
    contender = start(HELLO + "print(json.dumps({'bye':{}}))\n" + OBEDIENT)
    until(contender, lambda: contender.failure, "a failure")
    assert "nor a bye after stop" in str(contender.failure)


def test_a_forged_process_is_refused(start: Callable[[str], Contender]) -> None:
    """One contender can't speak for another, nor for the nemesis."""
    contender = start(HELLO + "print(json.dumps({'time':1,'process':1,'type':'ok','f':'acquire'}))\n" + OBEDIENT)
    until(contender, lambda: contender.failure, "a failure")
    assert "process must be 0, not 1" in str(contender.failure)


def test_a_contender_that_dies_leaves_a_crash_in_the_history(start: Callable[[str], Contender], tmp_path: Path) -> None:
    """Its belief ended with its process: the checkers must know, and the failure says the exit code."""
    contender = start(HELLO + EVENT + "sys.exit(7)")
    until(contender, lambda: contender.failure, "a failure")
    assert "ended with exit code 7" in str(contender.failure)
    assert history(tmp_path)[-1] == {"time": 99, "process": 0, "type": "info", "f": "crash", "exit_code": 7}
    assert end_line(contender, tmp_path)  # all that it said is there


def test_a_crash_comes_behind_what_its_process_said(start: Callable[[str], Contender], tmp_path: Path) -> None:
    """Where the harness reads another machine's clock it can be off; nobody acts after his own end."""
    contender = start(HELLO + EVENT.replace("'time':1", "'time':500") + "sys.exit(7)")
    until(contender, lambda: contender.failure, "a failure")
    assert [event["time"] for event in history(tmp_path)] == [500, 500]


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("7", "client in the hello must be an object"),
        ("{'tokens':'no'}", "client.tokens must be true or false, not 'no'"),
        ("{'renewals':['seen']}", "client.renewals must be seen or unseen, not ['seen']"),
    ],
)
def test_a_hello_that_can_t_be_taken_at_its_word_is_refused(
    start: Callable[[str], Contender], client: str, words: str
) -> None:
    """What a trial requires depends on it."""
    program = HELLO.replace("'pid':os.getpid()", f"'pid':os.getpid(),'client':{client}")
    contender = start(program + OBEDIENT)
    until(contender, lambda: contender.failure, "a failure")
    assert words in str(contender.failure)
    assert contender.hello is None


def test_fatal_is_told_in_its_own_words(start: Callable[[str], Contender]) -> None:
    """A contender that can't start says why."""
    contender = start("import sys,json\nprint(json.dumps({'fatal':'no route to the resource'}))\nsys.exit(1)")
    until(contender, lambda: contender.failure, "a failure")
    assert "can't start: no route to the resource" in str(contender.failure)


def test_a_contender_that_ignores_stop_is_left_behind_with_a_word(start: Callable[[str], Contender]) -> None:
    """It neither obeys stop nor the end of its stdin: the harness goes on, and says so."""
    contender = start(HELLO + "import threading; threading.Event().wait()")
    until(contender, lambda: contender.hello, "hello")
    contender.command("stop")
    contender.end(time.monotonic())
    assert "did not stop when told so" in str(contender.failure)
    assert contender.may_write


WRITE = (
    "print(json.dumps({'time':%d,'process':0,'type':'invoke','f':'acquire'}))\n"
    "print(json.dumps({'time':%d,'process':0,'type':'invoke','f':'write','resource':'fenced','id':%r}))\n"
)
LIVES = HELLO + "life = config.count('/1')\n" + "first = %r\nsecond = %r\n" + "exec([first, second][life])\n" + OBEDIENT


def kill(contender: Contender) -> None:
    """As a fault does it: the order is noted first."""
    assert contender.hello is not None
    contender.doom()
    os.kill(contender.hello["pid"], signal.SIGKILL)


def test_one_that_a_fault_killed_lives_again_under_its_number(
    start: Callable[[str], Contender], tmp_path: Path
) -> None:
    """No failure and a crash between its lives. What its first left open is closed by that; an id stays taken."""
    contender = start(LIVES % (WRITE % (1, 2, 1), WRITE % (101, 102, 2)))
    until(contender, lambda: contender.hello and len(history(tmp_path)) == 2, "its first words")
    first = contender.pids()
    kill(contender)
    contender.restart(lambda: None)
    assert contender.pids() != first
    until(contender, lambda: len(history(tmp_path)) == 5, "its second life")
    assert [(e["f"], e["time"]) for e in history(tmp_path)[1:4]] == [("write", 2), ("crash", 99), ("acquire", 101)]
    assert history(tmp_path)[2]["exit_code"] == 137
    assert (contender.lives, contender.ended) == (2, None)
    contender.command("stop")
    contender.end(time.monotonic() + 20)
    assert contender.failure is None
    assert contender.ended is not None
    assert not contender.ended.ours, "it left by itself, the second time"
    assert end_line(contender, tmp_path)


def test_ids_of_an_earlier_life_are_taken(start: Callable[[str], Contender], tmp_path: Path) -> None:
    """A second life that counts from the start again is refused as anybody who takes another's id."""
    contender = start(LIVES % (WRITE % (1, 2, 1), WRITE % (101, 102, 1)))
    until(contender, lambda: contender.hello and len(history(tmp_path)) == 2, "its first words")
    kill(contender)
    contender.restart(lambda: None)
    until(contender, lambda: contender.failure, "a failure")
    assert "id 1 is that of another write" in str(contender.failure)


def test_one_that_does_not_come_back_has_failed(start: Callable[[str], Contender]) -> None:
    """A trial that goes on with a contender less would not be the one that was asked for."""
    contender = start(LIVES % ("", "sys.stdin.readline(); sys.exit(3)"))
    until(contender, lambda: contender.hello, "hello")
    kill(contender)
    contender.restart(lambda: None)  # it said hello, took the start, and fell
    until(contender, lambda: contender.failure, "a failure")
    assert contender.failure == "contender 0 on c0 ended with exit code 3"


def test_waiting_for_one_to_come_back_can_be_given_up(
    start: Callable[[str], Contender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an interrupt; and nobody waits for ever for one whose process didn't end, or that says nothing."""
    contender = start("import sys,json,time,os\nconfig=sys.stdin.readline()\n" + LIVES[len(HELLO) :] % ("", ""))
    monkeypatch.setattr(contenders, "GONE_SECONDS", 0.2)
    contender.doom()
    with pytest.raises(HarnessError, match=r"its process had not ended 0\.2 s later"):
        contender.restart(lambda: None)

    class GivenUp(Exception):
        pass

    def give_up() -> None:
        raise GivenUp

    with pytest.raises(GivenUp):
        contender.restart(give_up)
    contender.end(time.monotonic())


def test_an_end_that_nobody_ordered_is_no_life_of_ours(start: Callable[[str], Contender], tmp_path: Path) -> None:
    """A fault that is over has spared it: whoever kills it then is somebody else."""
    contender = start(HELLO + OBEDIENT)
    until(contender, lambda: contender.hello, "hello")
    contender.doom()
    contender.spare()
    os.kill(contender.pids()[0], signal.SIGKILL)
    until(contender, lambda: contender.ended, "its end")
    assert contender.failure == "contender 0 on c0 ended with exit code 137"
    assert contender.ended is not None
    assert not contender.ended.ours
