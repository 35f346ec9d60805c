"""The contenders of a trial, seen from the harness: started on their nodes, listened to, stopped.

A contender is a program that may be frozen, cut off, killed, or not ours at all; everything it prints is checked
before it enters the history. What it prints on stderr, and every line that was refused, is kept in its log.

One that a fault has killed is started again under its number. Each run of its program is a *life* of its own: a hello,
a border at which nothing is open, a crash at its end in the history, and a seed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness import redaction
from harness.errors import HarnessError
from harness.runtime.base import Node, Process
from harness.trial.border import Border
from harness.trial.recorder import LogFile, Recorder

ARGV = ("python3", "-u", "-m", "workloads.contender")
BACK_SECONDS = 60.0
"""How long one that was started again may take to its hello: it waits for its service and its resource itself."""
KILLED = 137
"""128 + SIGKILL: the exit code of one that was killed."""
_CANT_START, _GAVE_UP = "can't start", "gave up"
"""What a `fatal` means before the hello, and after it."""
GONE_SECONDS = 10.0
"""How long the end of one that was killed may take to be heard."""


@dataclass(frozen=True)
class End:
    """How a contender's process ended: when (ns of the history), and with which exit code, None when nobody knows.

    `ours`: a fault of the trial had ordered it.
    """

    time: int
    exit_code: int | None
    ours: bool = False


@dataclass
class _Life:
    """One run of a contender's program, from its spawn to the end of its process."""

    border: Border
    number: int = 0
    spawned: Process | None = None
    watcher: threading.Thread | None = None
    hello: dict[str, Any] | None = None
    bye: dict[str, Any] | None = None
    ended: End | None = None
    gone: bool = False
    """Whether its process is known to have ended; `ended` is set too where nobody can follow it any more."""
    doomed: bool = False
    """A fault is about to kill it."""
    muted: bool = False
    last_time: int = 0
    crash_told: bool = False


class Contender:
    """One contender process. `failure` is set when it died, said fatal, or printed what no contender prints."""

    def __init__(self, node: Node, process: int, recorder: Recorder, log: Path, now: Callable[[], int]) -> None:
        self.node, self.process = node, process
        self.failure: str | None = None
        self.changed = threading.Condition()
        self._recorder, self._now = recorder, now
        self._log = LogFile(log, self._fail)
        self._config: Mapping[str, Any] = {}
        self._stopping = False
        self._life = _Life(Border(process, recorder.claims))

    @property
    def hello(self) -> dict[str, Any] | None:
        """What it said when it was ready to begin; of a contender that was started again, its last."""
        return self._life.hello

    @property
    def bye(self) -> dict[str, Any] | None:
        """What it said when it left."""
        return self._life.bye

    @property
    def ended(self) -> End | None:
        """Set once its process has ended, in whatever way, and until it is started again."""
        return self._life.ended

    @property
    def lives(self) -> int:
        """How often its program was started."""
        return self._life.number + (self._life.spawned is not None)

    @property
    def may_write(self) -> bool:
        """Whether it may write to the resource: it was ready to begin, and its process is not known to be gone."""
        return self._life.hello is not None and not self._life.gone

    def spawn(self, config: Mapping[str, Any]) -> None:
        """Start the program and hand it its config; `hello` is set when it is ready."""
        self._config = config
        self._begin(self._life, config)

    def _begin(self, life: _Life, config: Mapping[str, Any]) -> None:
        life.spawned = self.node.spawn(
            ARGV, on_line=lambda line: self._line(life, line), on_error_line=self._error_line
        )
        life.spawned.send(json.dumps({**config, "process": self.process}).encode() + b"\n")
        life.watcher = threading.Thread(target=self._watch, args=(life,), name=f"watch-{self.node.name}", daemon=True)
        life.watcher.start()

    def doom(self) -> None:
        """A fault is about to kill its process: the end that follows is ours, a crash in the history and no failure."""
        self._life.doomed = True

    def spare(self) -> None:
        """The fault is over: whoever ends its process from now on isn't us."""
        if not self._life.gone:
            self._life.doomed = False

    def restart(self, check: Callable[[], None]) -> None:
        """Start the program again after a fault has killed it, and set it to work; returns once it has said hello.

        Its jobs are drawn from another seed than before. `check` is called while waiting and may raise, to give up.
        Raises HarnessError when the old process hasn't ended, or the new one isn't ready in time; then the contender
        has failed, too.
        """
        old = self._life
        end = time.monotonic() + GONE_SECONDS
        with self.changed:
            while old.ended is None and time.monotonic() < end:
                check()
                self.changed.wait(0.1)
        if old.ended is None:
            raise self._failed(f"was killed, but its process had not ended {GONE_SECONDS:g} s later")
        check()
        life = self._life = _Life(Border(self.process, self._recorder.claims), number=old.number + 1)
        try:
            self._begin(life, {**self._config, "seed": f"{self._config.get('seed')}/{life.number}"})
        except HarnessError as error:
            raise self._failed(f"could not be started again: {error}") from error
        end = time.monotonic() + BACK_SECONDS
        with self.changed:
            while life.hello is None:
                check()  # which tells of one that has died
                if time.monotonic() > end:
                    raise self._failed(f"said no hello within {BACK_SECONDS:g} s after it was started again")
                self.changed.wait(0.1)
        self.command("start")

    def _failed(self, reason: str) -> HarnessError:
        self._fail(reason)
        return HarnessError(self.failure or reason)

    def command(self, word: str) -> None:
        """Send a command ("start", "stop"). A contender that is gone already has its failure noted elsewhere."""
        if word == "stop":
            self._stopping = True
        self._send({"cmd": word})

    @property
    def holds_until_told(self) -> bool:
        """Whether it understands the order to hold, by its hello; see workloads/PROTOCOL.md."""
        return self.hello is not None and self.hello.get("holds") is True

    def order(self, word: str, **keys: Any) -> None:
        """Send a command with more to it ("hold", "let_go"). Nothing happens to one that is gone."""
        self._send({"cmd": word, **keys})

    def _send(self, command: Mapping[str, Any]) -> None:
        life = self._life
        if life.spawned is not None and not life.gone:
            try:
                life.spawned.send(json.dumps(command).encode() + b"\n")
            except HarnessError as error:
                if not life.doomed:  # one that is killed hears nothing any more
                    self._fail(f"took no command: {error}")

    def end(self, deadline: float) -> None:
        """Wait for it to leave until the deadline (monotonic s); then end its stdin, which it must obey.

        One that has not said hello yet has nothing to give back, and is not waited for.
        """
        spawned, watcher = self._life.spawned, self._life.watcher
        if spawned is None or watcher is None:
            return
        self._stopping = True
        try:
            if self.hello is None:
                spawned.close_stdin()
                spawned.abandon()
                return
            if spawned.wait(max(0.0, deadline - time.monotonic())) is None:
                spawned.close_stdin()
                if spawned.wait(2.0) is None:
                    self._fail("did not stop when told so, nor when its stdin ended")
                    spawned.abandon()
                    return
            watcher.join(10.0)  # what there is to say of its end stands in the history when this returns
        except HarnessError as error:
            self._fail(f"can't be followed any more: {error}")

    def pids(self) -> list[int]:
        """Its process id on its node, as it told in its hello."""
        pid = (self.hello or {}).get("pid")
        return [pid] if isinstance(pid, int) else []

    def _line(self, life: _Life, line: bytes) -> None:
        if life.muted:
            return self._log.line(b"refused: " + redaction.raw(line)[:65536])
        try:
            said = msgspec.json.decode(line)  # strict: no NaN, no lone surrogates, nothing that isn't UTF-8
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._refuse(life, line, [f"not JSON: {error}"])
        if isinstance(said, dict) and "f" not in said:
            return self._speak(life, said, line)
        wrong = life.border.problems(said)
        if wrong:
            return self._refuse(life, line, wrong)
        life.last_time = max(life.last_time, said["time"])
        try:
            self._recorder.event(said)
        except HarnessError as error:
            self._fail(str(error))
        return None

    def _speak(self, life: _Life, said: dict[str, Any], line: bytes) -> None:
        with self.changed:
            if isinstance(said.get("hello"), dict) and life.hello is None:
                if wrong := _problems_of_hello(said["hello"]):
                    return self._refuse(life, line, wrong)
                life.hello = said["hello"]
            elif isinstance(said.get("bye"), dict) and self._stopping and life.bye is None:
                life.bye = said["bye"]
            elif "fatal" in said:
                self._fail(f"{_CANT_START if life.hello is None else _GAVE_UP}: {said['fatal']}")
            else:
                return self._refuse(
                    life, line, ["neither an event, nor a first hello, nor a bye after stop, nor fatal"]
                )
            self.changed.notify_all()
        return None

    def _refuse(self, life: _Life, line: bytes, wrong: list[str]) -> None:
        line = redaction.raw(line)  # before it is cut
        shown = line[:200].decode(errors="replace")
        self._log.line(b"refused: " + line[:65536])
        life.muted = True  # nothing that follows can be trusted, nor its pairing; for the history it has crashed
        # It may go on all the same, and what it does unheard (a release) would look like the service's doing.
        self._recorder.incomplete(f"contender {self.process} was not listened to any more")
        self._record_crash(life, {})
        self._fail(f"printed what is no event ({'; '.join(wrong)}): {shown!r}")

    def _error_line(self, line: bytes) -> None:
        self._log.line(line)

    def _watch(self, life: _Life) -> None:
        assert life.spawned is not None
        code: int | None = None
        try:
            while code is None:
                code = life.spawned.wait(60.0)
        except HarnessError as error:
            self._recorder.incomplete(f"contender {self.process} could not be heard any more")
            self._fail(f"can't be followed any more: {error}")
        ours = life.doomed and code == KILLED
        with self.changed:
            life.gone = code is not None
            ended = End(self._now(), code, ours)
            # One that was told to stop before it had said hello owes nothing, and its node may have gone meanwhile.
            expected = self._stopping and (life.hello is None or (code == 0 and life.bye is not None))
        if not expected:
            self._record_crash(life, {"exit_code": code})
        if not expected and not ours:
            self._fail(f"ended with exit code {code}" + ("" if life.bye is None else " after its bye"))
        with self.changed:
            life.ended = ended  # behind its crash: whoever waits for its end may begin the next life
            self.changed.notify_all()

    def _record_crash(self, life: _Life, more: Mapping[str, Any]) -> None:
        """Its belief ended with its process; the reader of the history must know. Told once."""
        with self.changed:
            told, life.crash_told = life.crash_told, True
        if told:
            return
        # Behind all that it said, also where the clock of another machine is only nearly ours: it did not act after it.
        time_ns = max(self._now(), life.last_time)
        try:
            self._recorder.event({"time": time_ns, "process": self.process, "type": "info", "f": "crash", **more})
        except HarnessError as error:
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        with self.changed:
            self.failure = self.failure or redaction.text(f"contender {self.process} on {self.node.name} {reason}")
            self.changed.notify_all()


def _problems_of_hello(hello: Mapping[str, Any]) -> list[str]:
    """What is wrong with what a hello says of its client, on which depends what the trial requires."""
    found = []
    if not isinstance(hello.get("holds", False), bool):
        found.append(f"holds must be true or false, not {hello['holds']!r}")
    client = hello.get("client")
    if client is None:
        return found
    if not isinstance(client, dict):
        return [*found, "client in the hello must be an object"]
    if not isinstance(client.get("tokens", True), bool):
        found.append(f"client.tokens must be true or false, not {client['tokens']!r}")
    if client.get("renewals", "seen") not in ("seen", "unseen"):
        found.append(f"client.renewals must be seen or unseen, not {client['renewals']!r}")
    return found
