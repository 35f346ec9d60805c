"""The contenders of a trial, seen from the harness: started on their nodes, listened to, stopped.

A contender is a program that may be frozen, cut off, killed, or not ours at all; everything it prints is checked
before it enters the history. What it prints on stderr, and every line that was refused, is kept in its log.
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


@dataclass(frozen=True)
class End:
    """How a contender's process ended: when (ns of the history), and with which exit code, None when nobody knows."""

    time: int
    exit_code: int | None


class Contender:
    """One contender process. `failure` is set when it died, said fatal, or printed what no contender prints."""

    def __init__(self, node: Node, process: int, recorder: Recorder, log: Path, now: Callable[[], int]) -> None:
        self.node, self.process = node, process
        self.hello: dict[str, Any] | None = None
        self.bye: dict[str, Any] | None = None
        self.failure: str | None = None
        self.ended: End | None = None
        """Set once its process has ended, in whatever way."""
        self.changed = threading.Condition()
        self._recorder, self._now = recorder, now
        self._log = LogFile(log, self._fail)
        self._spawned: Process | None = None
        self._stopping = False
        self._muted = False
        self._crash_told = False
        self._border = Border(process, recorder.claims)
        self._last_time = 0
        self._ended = False

    @property
    def may_write(self) -> bool:
        """Whether it may write to the resource: it was ready to begin, and its process is not known to be gone."""
        return self.hello is not None and not self._ended

    def spawn(self, config: Mapping[str, Any]) -> None:
        """Start the program and hand it its config; `hello` is set when it is ready."""
        self._spawned = self.node.spawn(ARGV, on_line=self._line, on_error_line=self._error_line)
        self._spawned.send(json.dumps({**config, "process": self.process}).encode() + b"\n")
        self._watcher = threading.Thread(target=self._watch, name=f"watch-{self.node.name}", daemon=True)
        self._watcher.start()

    def command(self, word: str) -> None:
        """Send a command ("start", "stop"). A contender that is gone already has its failure noted elsewhere."""
        if word == "stop":
            self._stopping = True
        if self._spawned is not None and not self._ended:
            try:
                self._spawned.send(json.dumps({"cmd": word}).encode() + b"\n")
            except HarnessError as error:
                self._fail(f"took no command: {error}")

    def end(self, deadline: float) -> None:
        """Wait for it to leave until the deadline (monotonic s); then end its stdin, which it must obey.

        One that has not said hello yet has nothing to give back, and is not waited for.
        """
        if self._spawned is None:
            return
        self._stopping = True
        try:
            if self.hello is None:
                self._spawned.close_stdin()
                self._spawned.abandon()
                return
            if self._spawned.wait(max(0.0, deadline - time.monotonic())) is None:
                self._spawned.close_stdin()
                if self._spawned.wait(2.0) is None:
                    self._fail("did not stop when told so, nor when its stdin ended")
                    self._spawned.abandon()
                    return
            self._watcher.join(10.0)  # what there is to say of its end stands in the history when this returns
        except HarnessError as error:
            self._fail(f"can't be followed any more: {error}")

    def pids(self) -> list[int]:
        """Its process id on its node, as it told in its hello."""
        pid = (self.hello or {}).get("pid")
        return [pid] if isinstance(pid, int) else []

    def _line(self, line: bytes) -> None:
        if self._muted:
            return self._log.line(b"refused: " + redaction.raw(line)[:65536])
        try:
            said = msgspec.json.decode(line)  # strict: no NaN, no lone surrogates, nothing that isn't UTF-8
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._refuse(line, [f"not JSON: {error}"])
        if isinstance(said, dict) and "f" not in said:
            return self._speak(said, line)
        wrong = self._border.problems(said)
        if wrong:
            return self._refuse(line, wrong)
        self._last_time = max(self._last_time, said["time"])
        try:
            self._recorder.event(said)
        except HarnessError as error:
            self._fail(str(error))
        return None

    def _speak(self, said: dict[str, Any], line: bytes) -> None:
        with self.changed:
            if isinstance(said.get("hello"), dict) and self.hello is None:
                if wrong := _problems_of_hello(said["hello"]):
                    return self._refuse(line, wrong)
                self.hello = said["hello"]
            elif isinstance(said.get("bye"), dict) and self._stopping and self.bye is None:
                self.bye = said["bye"]
            elif "fatal" in said:
                self._fail(f"can't start: {said['fatal']}")
            else:
                return self._refuse(line, ["neither an event, nor a first hello, nor a bye after stop, nor fatal"])
            self.changed.notify_all()
        return None

    def _refuse(self, line: bytes, wrong: list[str]) -> None:
        line = redaction.raw(line)  # before it is cut
        shown = line[:200].decode(errors="replace")
        self._log.line(b"refused: " + line[:65536])
        self._muted = True  # nothing that follows can be trusted, nor its pairing; for the history it has crashed
        # It may go on all the same, and what it does unheard (a release) would look like the service's doing.
        self._recorder.incomplete(f"contender {self.process} was not listened to any more")
        self._record_crash({})
        self._fail(f"printed what is no event ({'; '.join(wrong)}): {shown!r}")

    def _error_line(self, line: bytes) -> None:
        self._log.line(line)

    def _watch(self) -> None:
        assert self._spawned is not None
        code: int | None = None
        try:
            while code is None:
                code = self._spawned.wait(60.0)
        except HarnessError as error:
            self._recorder.incomplete(f"contender {self.process} could not be heard any more")
            self._fail(f"can't be followed any more: {error}")
        with self.changed:
            self._ended = code is not None
            self.ended = End(self._now(), code)
            # One that was told to stop before it had said hello owes nothing, and its node may have gone meanwhile.
            expected = self._stopping and (self.hello is None or (code == 0 and self.bye is not None))
        if not expected:
            self._record_crash({"exit_code": code})
            self._fail(f"ended with exit code {code}" + ("" if self.bye is None else " after its bye"))
        with self.changed:
            self.changed.notify_all()

    def _record_crash(self, more: Mapping[str, Any]) -> None:
        """Its belief ended with its process; the reader of the history must know. Told once."""
        with self.changed:
            told, self._crash_told = self._crash_told, True
        if told:
            return
        # Behind all that it said, also where the clock of another machine is only nearly ours: it did not act after it.
        time_ns = max(self._now(), self._last_time)
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
    client = hello.get("client")
    if client is None:
        return []
    if not isinstance(client, dict):
        return ["client in the hello must be an object"]
    found = []
    if not isinstance(client.get("tokens", True), bool):
        found.append(f"client.tokens must be true or false, not {client['tokens']!r}")
    if client.get("renewals", "seen") not in ("seen", "unseen"):
        found.append(f"client.renewals must be seen or unseen, not {client['renewals']!r}")
    return found
