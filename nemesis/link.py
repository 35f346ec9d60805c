"""The open stream to the agent on one node: commands out, answers in, many in flight.

`open_agent(node)` sends the agent's code (`nemesis.parcel`) to a python3 on the node and waits for its hello; a node
that has that very code loaded starts it from there (`harness.runtime.base.AgentHost`). A link fails fast: when the
agent ends, whatever is in flight raises at once, with the node's name and the agent's last words. Closing a link (or
dying) ends the agent's stdin, on which it undoes everything that it holds.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from harness.errors import AgentError, HarnessError
from harness.runtime.base import AgentHost, Node, Process
from nemesis import parcel

# -I: nothing of the node's environment or working directory is imported; -S: no site-packages, which saves 10 ms.
ARGV = ("python3", "-I", "-S", "-u", "-c", parcel.BOOTSTRAP)
HELLO_SECONDS = 15.0
CLOSE_SECONDS = 10.0
LAST_WORDS = 5


class Pending:
    """One command in flight. `result` waits for its answer."""

    def __init__(self, link: Link, op: str, sent: float) -> None:
        self.link, self.op, self.sent = link, op, sent
        self._done = threading.Event()
        self._ok: dict[str, Any] | None = None
        self._error: str | None = None

    def resolve(self, *, ok: dict[str, Any] | None = None, error: str | None = None) -> None:
        """Called once, by the link."""
        self._ok, self._error = ok, error
        self._done.set()

    @property
    def done(self) -> bool:
        """Whether `result` would return, or raise the agent's error, at once."""
        return self._done.is_set()

    def result(self, timeout_seconds: float) -> dict[str, Any]:
        """The answer. Raises AgentError with the agent's words, or when there is none within the time."""
        if not self._done.wait(timeout_seconds):
            waited = time.monotonic() - self.sent
            raise AgentError(f"the agent on {self.link.node} did not answer {self.op!r} within {waited:.1f} s")
        if self._ok is None:
            raise AgentError(f"{self.op} on {self.link.node}: {self._error}")
        return self._ok


class Link:
    """The link to one agent (nemesis.base.AgentLink). Safe to use from several threads."""

    def __init__(self, node: Node, *, on_log: Callable[[bytes], None] = lambda line: None) -> None:
        self._node, self._on_log = node, on_log
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._pending: dict[int, Pending] = {}
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self._gone: str | None = None
        self._closing = False
        self.hello: dict[str, Any] = {}
        """What the agent said first: code, pid, python, kernel, arch, boottime_ns, and what it undid at its start."""
        loaded = isinstance(node, AgentHost)
        self._process: Process = (
            node.spawn_agent(parcel.parcel(), on_line=self._line, on_error_line=self._error_line)
            if isinstance(node, AgentHost)
            else node.spawn(ARGV, on_line=self._line, on_error_line=self._error_line)
        )
        threading.Thread(target=self._watch, name=f"agent-{node.name}", daemon=True).start()
        if loaded:
            return
        try:
            self._send(parcel.sent())
        except HarnessError as error:
            self._process.wait(2.0)  # its last words say more than that its stdin is closed
            self._fail_all(f"it can't be spoken to: {error}")

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node.name

    @property
    def alive(self) -> bool:
        """Whether commands still reach the agent."""
        return self._gone is None

    def call(self, op: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> dict[str, Any]:
        """One command and its answer. Raises AgentError when it failed, timed out, or the agent is gone."""
        return self.start(op, **arguments).result(timeout_seconds)

    def start(self, op: str, **arguments: Any) -> Pending:
        """Send a command without waiting. A failure, also that of sending, is raised by the handle's `result`."""
        pending = Pending(self, op, time.monotonic())
        with self._lock:
            if self._gone is not None:
                pending.resolve(error=self._gone)
                return pending
            number = next(self._numbers)
            self._pending[number] = pending
        try:
            self._send(json.dumps({**arguments, "id": number, "op": op}).encode() + b"\n")
        except HarnessError as error:
            self._fail_all(f"the agent is gone: {error}")
        return pending

    def close(self) -> None:
        """End the agent: it undoes what it holds, then leaves. Waits for that. Idempotent; silent for a dead one."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._process.close_stdin()
        if self._process.wait(CLOSE_SECONDS) is None:
            self._on_log(b"(the agent did not leave within %d s after its stdin had ended)" % CLOSE_SECONDS)
            self._process.abandon()
        self._fail_all("the link was closed")

    def abandon(self) -> None:
        """Drop the stream without a word, as a crash of the harness does."""
        self._closing = True
        self._process.abandon()
        self._fail_all("the link was abandoned")

    def _send(self, data: bytes) -> None:
        with self._sending:  # a long line may take several writes, which must not mix with another's
            self._process.send(data)

    def _line(self, line: bytes) -> None:
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise ValueError("not an object")
        except ValueError as error:
            self._error_line(b"(not an answer: %s) %s" % (str(error).encode(), line[:200]))
            return
        if answer.get("fatal"):
            self._fail_all(f"the agent can't start: {answer['fatal']}")
            return
        with self._lock:
            pending = self._pending.pop(answer.get("id", 0), None)
        if pending is None:
            self._error_line(b"(an answer to nothing) " + line[:200])
        elif isinstance(answer.get("ok"), dict):
            pending.resolve(ok=answer["ok"])
        else:
            pending.resolve(error=str(answer.get("error", "an answer with neither ok nor error")))

    def _error_line(self, line: bytes) -> None:
        self._last_words.append(line.decode(errors="replace").strip())
        self._on_log(line)

    def _watch(self) -> None:
        """Fail what is in flight as soon as the agent ends."""
        while True:
            try:
                code = self._process.wait(3600.0)
            except HarnessError as error:
                self._fail_all(f"the agent is gone: {error}")
                return
            if code is not None:
                self._fail_all("the link was closed" if self._closing else f"the agent has ended with code {code}")
                return

    def _fail_all(self, reason: str) -> None:
        words = "; ".join(word for word in self._last_words if word)
        if words and not self._closing:
            reason += f"; its last words: {words}"
        with self._lock:
            if self._gone is None:
                self._gone = reason
            pending, self._pending = list(self._pending.values()), {}
        for each in pending:
            each.resolve(error=self._gone)


def open_agent(
    node: Node,
    *,
    on_log: Callable[[bytes], None] = lambda line: None,
    service: str | None = None,
) -> Link:
    """Start the agent on a node and wait until it answers.

    `on_log` gets each line of its stderr. `service` tells how the service's processes are known from the node's own:
    "mount" (the default: by their mount namespace, on pods), or "rest" (all that isn't ours, on a node that has a pid
    namespace but no containers). Raises AgentError naming the node and the reason: no python3, another agent, other
    code than was sent, …
    """
    try:
        link = Link(node, on_log=on_log)
    except HarnessError as error:
        raise AgentError(f"the agent could not be started on {node.name}: {error}") from error
    arguments = {} if service is None else {"service": service}
    try:
        link.hello = link.call("hello", timeout_seconds=HELLO_SECONDS, **arguments)
        if (runs := link.hello.get("code")) != parcel.code():
            raise AgentError(f"the agent on {node.name} runs other code ({runs}) than was sent to it ({parcel.code()})")
    except AgentError:
        link.close()
        raise
    for line in link.hello["recovered"]:
        on_log(f"left by an agent before this one: {line}".encode())
    return link


def gather(handles: Sequence[Any], timeout_seconds: float = 5.0) -> list[dict[str, Any]]:
    """The answers to commands that were started, in order. Waits for all of them, then raises the first error."""
    answers, errors = settle(handles, timeout_seconds)
    if errors:
        raise next(iter(errors.values()))
    return [answers[index] for index in range(len(handles))]


def settle(
    handles: Sequence[Any], timeout_seconds: float = 5.0
) -> tuple[dict[int, dict[str, Any]], dict[int, AgentError]]:
    """Like `gather` without raising: (index -> answer, index -> error), one deadline for all."""
    end = time.monotonic() + timeout_seconds
    answers: dict[int, dict[str, Any]] = {}
    errors: dict[int, AgentError] = {}
    for index, handle in enumerate(handles):
        try:
            answers[index] = handle.result(max(0.0, end - time.monotonic()))
        except AgentError as error:
            errors[index] = error
    return answers, errors
