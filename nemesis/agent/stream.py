"""The stream: commands in, answers out, and the end."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from typing import Any, Callable, Dict, Optional

from nemesis.agent.base import Refused, log
from nemesis.agent.commands import Agent

MAX_LINE = 16 * 1024 * 1024
MAX_WORKERS = 32


class Stream(object):
    """Reads commands, has them done, and answers; undoes everything on every way out."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._write_lock = threading.Lock()
        self._changes: queue.Queue[Optional[Dict[str, Any]]] = queue.Queue()
        self._waiting: queue.Queue[Dict[str, Any]] = queue.Queue()
        self._idle = self._workers = 0
        self._ending = threading.Lock()
        self._ended = False
        self._reader_gone = False

    def answer(self, identity: Any, body: Dict[str, Any]) -> None:
        """Write one answer. When the reader is gone the agent ends, which undoes everything."""
        line = json.dumps(dict({"id": identity}, **body)).encode() + b"\n"
        with self._write_lock:
            if self._reader_gone:
                return
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
                return
            except (OSError, ValueError):
                self._reader_gone = True
        threading.Thread(target=self.end, args=("stdout is gone",), daemon=True).start()

    def perform(self, command: Dict[str, Any], operation: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Dict[str, Any]:
        """Do one command; returns the body of its answer, whatever it does."""
        self._agent.counts["commands"] += 1
        try:
            body: Dict[str, Any] = {"ok": operation(command)}
        except Refused as error:
            body = {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - answered, logged with its traceback, and nothing is left undone
            log(traceback.format_exc())
            body = {"error": "%s failed: %s: %s" % (command.get("op"), type(error).__name__, error)}
        self._agent.counts["errors"] += "error" in body
        return body

    def look(self) -> None:
        """Do and answer commands that change nothing, side by side with others. Runs in several threads.

        Their number is bounded, but stdin is read on whatever they do: its end must be seen even when all of them wait
        for a reader of stdout that has stopped reading.
        """
        while True:
            self._idle += 1
            command = self._waiting.get()
            self._idle -= 1
            self.answer(command.get("id"), self.perform(command, self._agent.looks[str(command["op"])]))

    def dispatch(self, line: bytes) -> None:
        """Take one line from stdin. A line that is no command is answered with an error."""
        try:
            command = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            return self.answer(None, {"error": "not a command in JSON: %s" % error})
        if not isinstance(command, dict):
            return self.answer(None, {"error": "a command must be an object"})
        identity, op = command.get("id"), command.get("op")
        if not isinstance(identity, (int, str)):
            return self.answer(None, {"error": "a command needs an id"})
        if isinstance(op, str) and op in self._agent.changes:
            self._changes.put(command)
        elif isinstance(op, str) and op in self._agent.looks:
            self._waiting.put(command)
            if self._waiting.qsize() > self._idle and self._workers < MAX_WORKERS:
                self._workers += 1
                threading.Thread(target=self.look, daemon=True).start()
        else:
            known = ", ".join(sorted(list(self._agent.looks) + list(self._agent.changes)))
            self.answer(identity, {"error": "unknown op %r (known: %s)" % (op, known)})
        return None

    def serve(self) -> None:
        """Change things, one command after the other, until told to end. Runs in a thread of its own."""
        while True:
            command = self._changes.get()
            if command is None:
                return
            with self._ending:
                body = self.perform(command, self._agent.changes[str(command["op"])])
            # Not while the lock is held: a reader that has stopped reading must not keep the agent from undoing.
            self.answer(command.get("id"), body)

    def end(self, why: str) -> None:
        """Undo everything and leave. Waits for the change that is under way; the first call wins."""
        with self._ending:
            if self._ended:
                return
            self._ended = True
            held = sorted(self._agent.journal.held)
            problems = self._agent.undo_everything()
            if held:
                log("%s: undid %s" % (why, ", ".join(held)))
            for problem in problems:
                log("could not undo " + problem)
            os._exit(1 if problems else 0)  # the guardian tries again what failed

    def read_commands(self, stream: Any) -> None:
        """Read stdin to its end. A line that is too long is refused, not kept."""
        while True:
            line = stream.readline(MAX_LINE)
            if not line:
                return
            if not line.endswith(b"\n") and len(line) >= MAX_LINE:
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_LINE)
                self.answer(None, {"error": "a line of more than %d bytes" % MAX_LINE})
            elif line.strip():
                self.dispatch(line)
