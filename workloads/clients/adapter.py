"""The client `adapter`: a lock in any language, as a child process that speaks the adapter protocol (docs/adapters.md).

What the adapter says is what the history says, but for its stamps: an answer is stamped when it is *read*, which only
widens an interval. What speaks of the past carries a stamp of its own, for a freeze between the adapter's write and our
read would move a stamp that is counted back from the read, and accuse the service.

A breach of the protocol ends the contender: nothing that such an adapter says can be trusted.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import workloads
from workloads.adapters import inside, wire
from workloads.adapters.child import Child
from workloads.adapters.wire import Breach
from workloads.clients.base import Acquired, Answered, ClientConfig, ClientUnusable, Unasked
from workloads.clocks import Flag, Stamp

HELLO_SECONDS = 20.0
"""How long an adapter may take to its hello: a JVM on a busy machine takes a few."""
PATIENCE_SECONDS = 30.0
"""How much longer than it was asked a command may take before it counts as hanging. A library without time-outs hangs
as long as a fault lasts, and that is worth seeing; one that never comes back is not."""
LEAVE_SECONDS = 2.0
UNASKED_A_SECOND = 200
"""More than that is a flood."""
TICK_SECONDS = 0.1
"""Waits go in steps of so much, and each step counts once, however long it took."""
ROUNDED_NS = 20_000_000
"""/proc/uptime is rounded down to a hundredth of a second."""
PYTHON = Path(workloads.__file__).parent / "adapters" / "python"
"""What every adapter finds on its PYTHONPATH: the helper package for Python."""


class Adapter:
    """See the module. `settings`: those of the system, and `adapter`: {"command", "directory", "environment",
    "options", "system", "patience_seconds", "inside"}, of which only the command is needed.
    """

    name = "adapter"
    attaches = True
    sessions = True

    def __init__(self, config: ClientConfig) -> None:
        own = _own(config.settings)
        self._config, self._own = config, own
        self._patience = float(own.get("patience_seconds", PATIENCE_SECONDS))
        self.counters: Counter[str] = Counter()
        self._turn = threading.Lock()
        self._heard = Flag()
        """What is awaited is there: the hello, the answer to the open command; or a breach, for good."""
        self._hello: wire.Hello | None = None
        self.breach: Breach | None = None
        """The first rule that it broke."""
        self._reading = threading.Lock()
        self._came: list[Stamp] | None = None
        """When each line came that is left unread, while it is."""
        self._begun = False
        self._number = 0
        self._open: tuple[int, str] | None = None
        """The command that awaits its answer: its number, and its word."""
        self._answer: tuple[wire.Answer, Stamp] | None = None
        self._sent: dict[int, Stamp] = {}
        """When each acquire, and the last command of each other kind, was sent."""
        self._lately: list[int] = []
        """When it said something unasked, of the last second (ns of CLOCK_BOOTTIME)."""
        if config.unasked is None:
            raise ClientUnusable("the client adapter needs a contender that hears what it says unasked")
        self._unasked: Unasked = config.unasked
        self._started = Stamp.now()
        try:
            more, place = own.get("environment") or {}, inside.find() if own.get("inside") else None
            self._child = Child(
                own["command"],
                own.get("directory"),
                environment(more) if place is None else place.environment(more),
                on_line=self._line,
                on_breach=self._broken,
                inside=place,
            )
            self._child.send(self._config_line())
            hello = self._await_hello()
        except Breach as breach:
            unusable = ClientUnusable(f"the adapter broke the protocol: {breach}")
            unusable.breach = (breach.rule, breach.what)
            raise unusable from None
        self.library, self.errors = str(hello), hello.errors
        self.has_tokens, self.expires = hello.tokens, hello.expires
        self.renewals_seen = hello.renewals != "unseen"
        self.more = {
            "adapter": {
                "library": hello.library,
                "version": hello.version,
                "language": hello.language,
                "renewals": hello.renewals,
            }
        }
        self.renewals = hello.renewals
        self.renews_itself = hello.renewals != "asked"
        self.renew_every_seconds = hello.renew_every or config.ttl_seconds / 3

    def _config_line(self) -> bytes:
        settings = {key: value for key, value in self._config.settings.items() if key not in ("adapter", "endpoints")}
        return wire.config_line(
            lock=self._config.lock,
            ttl=self._config.ttl_seconds,
            process=self._config.process,
            system=self._own.get("system"),
            endpoints=[list(pair) for pair in self._config.endpoints()],
            settings=settings,
            options=self._own.get("options") or {},
            operation_seconds=self._config.operation_seconds,
        )

    def _await_hello(self) -> wire.Hello:
        try:
            if not self._await(self._heard, HELLO_SECONDS, None):
                self._child.breach(Breach("says-hello", f"it said no hello within {HELLO_SECONDS:g} s"))
            if self.breach is not None:
                raise self.breach
        except BaseException:
            self._child.kill()
            raise
        assert self._hello is not None
        self._begun = True
        return self._hello

    def _await(self, done: Flag, seconds: float, cancelled: Flag | None) -> bool:
        """Wait for the flag at most so long, of time in which we ran ourselves: in a freeze no time passes for an
        adapter that is frozen with us. Whether it was set.
        """
        left = seconds
        while not done.wait(min(TICK_SECONDS, left)):
            if left <= 0 or (cancelled is not None and cancelled.is_set()):
                return False
            left -= TICK_SECONDS
        return True

    # -- what it says; all of it on the one thread that reads it

    @contextmanager
    def unread(self, came: list[Stamp]) -> Iterator[None]:
        """Meanwhile nothing that it writes is read, as if we were frozen; `came` gets the stamp of the first line that
        waits.
        """
        with self._reading:
            self._came = came
            yield
            self._came = None

    def _line(self, text: bytes) -> None:
        if (came := self._came) is not None:
            came.append(Stamp.now())
        with self._reading:
            self._taken(text)

    def _taken(self, text: bytes) -> None:
        said = wire.read(text)
        if self._hello is None:
            self._hello = wire.hello(said)
            self._heard.set()
        elif "hello" in said:
            raise Breach("one-hello", "it said hello twice")
        elif "id" in said:
            self._answered(said)
        else:
            self._count()
            told = wire.unasked(said)
            if isinstance(told, wire.Renewed) and self._hello.renewals != "told":
                raise Breach("answers-in-form", f"it told of a renewal, and its hello says {self._hello.renewals}")
            if told.of not in self._sent:
                raise Breach("answers-in-form", f"it speaks of the acquire {told.of}, which nobody asked for")
            stamp = self._stamp(told.when, "what it said unasked")
            if isinstance(told, wire.Lost):
                self._unasked.grant_lost(told.of, told.reason)
            else:
                self._unasked.grant_renewed(told.of, stamp, told.proves)

    def _count(self) -> None:
        """Against a flood of lines that nobody asked for."""
        now = Stamp.now().boot_ns
        self._lately = [at for at in self._lately if now - at < 1_000_000_000]
        self._lately.append(now)
        if len(self._lately) > UNASKED_A_SECOND:
            raise Breach("no-flood", f"it said {len(self._lately)} things unasked within a second")

    def _answered(self, said: Mapping[str, Any]) -> None:
        with self._turn:
            open_ = self._open
            if open_ is None or said["id"] != open_[0] or isinstance(said["id"], bool):
                asked = f"the open command is {open_[0]}" if open_ is not None else "no command is open"
                raise Breach("answers-what-was-asked", f"it answered {said['id']!r}, but {asked}")
            assert self._hello is not None
            answer = wire.answer(said, open_[1], self._hello)
            since = self._sent[open_[0]]
            if answer.since is not None:
                since = self._stamp(answer.since, "since when its lease counts")
            self._open, self._answer = None, (answer, since)
            self._heard.set()

    def _stamp(self, when: wire.When, what: str) -> Stamp:
        """A stamp of the adapter's on both clocks. Breach where it can't be."""
        now = Stamp.now()
        if when.after is None:
            boot_ns = int(when.seconds * 1e9)
        elif when.after in self._sent:
            boot_ns = self._sent[when.after].boot_ns + int(when.seconds * 1e9)
        else:
            raise Breach(
                "stamps-are-possible", f"the stamp of {what} counts from command {when.after}, which it never had"
            )
        if not self._started.boot_ns - ROUNDED_NS <= boot_ns <= now.boot_ns:
            where = "before its start" if boot_ns < now.boot_ns else "ahead of the clock"
            seconds = abs(boot_ns - (self._started if boot_ns < now.boot_ns else now).boot_ns) / 1e9
            raise Breach(
                "stamps-are-possible",
                f"the stamp of {what} ({boot_ns / 1e9:.3f} s of CLOCK_BOOTTIME) lies {seconds:.3f} s {where}",
            )
        return Stamp(boot_ns, now.mono - (now.boot_ns - boot_ns) / 1e9)

    def _broken(self, breach: Breach) -> None:
        with self._turn:
            self.breach = breach
            self._heard.set()
        if self._begun:
            self._child.kill()
            self._unasked.client_broken(f"the adapter broke the protocol: {breach}")

    # -- what it is told

    def _command(
        self, word: str, seconds: float, cancelled: Flag | None = None, **keys: Any
    ) -> tuple[wire.Answer, Stamp] | None:
        """Send a command, and await its answer; with an acquire's, since when its lease counts. None when there won't
        be one, or it was cancelled.
        """
        heard = Flag()
        with self._turn:
            if self.breach is not None:
                heard.close()
                return None
            self._number += 1
            self._open, self._answer = (self._number, word), None
            self._heard.close()
            self._heard = heard
            self._sent[self._number] = Stamp.now()
        self._child.send(wire.line(id=self._number, do=word, **keys))
        limit = seconds + self._patience
        if not self._await(heard, limit, cancelled):
            if cancelled is None or not cancelled.is_set():
                breach = Breach("answers-in-time", f"it did not answer {word} {self._number} within {limit:.1f} s")
                self._child.breach(breach)
            else:
                self._await(heard, 2 * self._config.operation_seconds, None)
        return self._answer

    def connect(self, timeout_seconds: float) -> str | None:
        """See `LockClient.connect`. Whether it reaches its service shows at its first acquire."""
        return None if self.breach is None else f"the adapter broke the protocol: {self.breach}"

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """See `LockClient.acquire`."""
        told = self._command("acquire", wait_seconds, cancelled, wait=round(wait_seconds, 3))
        if told is None:
            if self.breach is None:
                self.counters["acquires_cut_off"] += 1
                self._child.end(0.0)  # what it would be granted from here on nobody would give back
            return Acquired("info", error="the adapter was ended while it waited")
        answer, since = told
        if answer.type != "ok":
            return Acquired(answer.type, error=answer.error, notes=answer.notes, grant=answer.id)
        ttl = answer.ttl or self._config.ttl_seconds
        return Acquired("ok", answer.token, ttl, since, notes=answer.notes, grant=answer.id)

    def renew(self) -> Answered:
        """See `LockClient.renew`."""
        return self._simple("renew")

    def release(self) -> Answered:
        """See `LockClient.release`."""
        return self._simple("release")

    def _simple(self, word: str) -> Answered:
        told = self._command(word, self._config.operation_seconds)
        if told is None:
            return Answered("info", error="the adapter has gone")
        answer, _ = told
        proves = answer.type != "ok" or answer.proves
        return Answered(answer.type, held=answer.held, error=answer.error, proves=proves)

    @property
    def doubtful(self) -> bool:
        """Never: an adapter has no word for it."""
        return False

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._child.pid

    @property
    def left_behind(self) -> list[int]:
        """What it had started and was still there after it had left by itself; it is gone by now."""
        return self._child.left_behind

    def end(self) -> None:
        """End it at once."""
        self._child.kill()

    def close(self) -> None:
        """See `LockClient.close`. One that doesn't leave when its stdin ends is killed, and counted."""
        if not self._child.end(LEAVE_SECONDS):
            self.counters["adapter_killed"] += 1


def _own(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the adapter itself. ClientUnusable names a key that is missing or wrong."""
    own = settings.get("adapter")
    if not isinstance(own, Mapping):
        raise ClientUnusable("client_config.adapter is missing: the client adapter must be told which command to run")
    command = own.get("command")
    if not isinstance(command, list) or not command or not all(isinstance(word, str) and word for word in command):
        raise ClientUnusable(f"client_config.adapter.command must be a list of words, not {command!r}")
    kinds = {
        "directory": str,
        "environment": Mapping,
        "options": Mapping,
        "system": str,
        "patience_seconds": int | float,
        "inside": bool,
    }
    for key, value in own.items():
        if key != "command" and key not in kinds:
            raise ClientUnusable(f"client_config.adapter.{key} is no setting (known: command, {', '.join(kinds)})")
        if key != "command" and value is not None and not isinstance(value, kinds[key]):
            raise ClientUnusable(f"client_config.adapter.{key} can't be {value!r}")
    return own


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """What an adapter finds in its environment: the contender's own and the given; the helper package on its
    PYTHONPATH, before the given one, or the contender's where none was given.
    """
    merged = {**os.environ, **more}
    path = merged.get("PYTHONPATH")
    merged["PYTHONPATH"] = f"{PYTHON}{os.pathsep}{path}" if path else str(PYTHON)
    return merged
