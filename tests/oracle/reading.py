"""The contract's chapter "History": bytes in, either a history or the line that can't be read and why.

Times stay integers; seconds become exact fractions of nanoseconds (`2.1` is twenty-one tenths, not a binary float),
so that ties are ties.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

TYPES = ("invoke", "ok", "fail", "info")
PAIRED = ("acquire", "renew", "release", "write")
SINGLE = ("lost", "crash", "fault")


class Malformed(Exception):
    """The history can't be read. `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        self.line, self.reason = line, reason
        super().__init__(f"{line}: {reason}")


@dataclass(eq=False)
class Event:
    """One line. `position` is its place in the order of time, ties by line."""

    line: int
    keys: dict[str, Any]
    position: int = -1

    def get(self, key: str) -> Any:
        return self.keys.get(key)

    @property
    def time(self) -> int:
        time = self.keys["time"]
        assert isinstance(time, int)
        return time

    @property
    def process(self) -> Any:
        return self.keys["process"]

    @property
    def f(self) -> str:
        return str(self.keys["f"])

    @property
    def type(self) -> str:
        return str(self.keys["type"])

    @property
    def lock(self) -> str:
        lock = self.keys.get("lock")
        return "lock" if lock is None else str(lock)


@dataclass(eq=False)
class Op:
    """An invoke with its completion, if it has one. `outcome` is ok, fail or info; `crash` closed it, if one did."""

    invoke: Event
    completion: Event | None = None
    crash: Event | None = None

    @property
    def outcome(self) -> str:
        return "info" if self.completion is None else self.completion.type

    @property
    def process(self) -> Any:
        return self.invoke.process

    @property
    def lock(self) -> str:
        return self.invoke.lock

    @property
    def f(self) -> str:
        return self.invoke.f

    def key(self, name: str) -> Any:
        """Keys of the completion win over those of the invoke; null counts as absent."""
        if self.completion is not None and self.completion.get(name) is not None:
            return self.completion.get(name)
        return self.invoke.get(name)


@dataclass
class Fault:
    start: Event
    stop: Event | None = None

    @property
    def receipt(self) -> Any:
        return self.start.get("receipt")

    @property
    def undone(self) -> bool:
        return self.stop is not None and self.stop.get("receipt") == "undone"

    def hits(self, process: Any) -> bool:
        return process in (self.start.get("processes") or [])


@dataclass
class History:
    meta: dict[str, Any]
    events: list[Event] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def setting(self, name: str, default: Any) -> Any:
        value = self.meta.get(name)
        return default if value is None else value

    @property
    def uncertainty(self) -> Fraction:
        return nanoseconds(self.setting("uncertainty", 0))

    @property
    def last(self) -> int:
        """The time of the last event, whatever event it is."""
        return max((event.time for event in self.events), default=0)

    @property
    def locks(self) -> list[str]:
        return sorted({event.lock for event in self.events if event.f != "fault"})


def nanoseconds(seconds: Any) -> Fraction:
    return Fraction(seconds) * 10**9


def read(data: bytes) -> History:
    """Read a history, or raise `Malformed`."""
    meta: dict[str, Any] = {}
    events: list[Event] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        keys = _object(number, line)
        if keys.get("type") == "meta":
            if number != 1:
                raise Malformed(number, "a meta that isn't the first line")
            _check_meta(keys)
            meta = keys
        else:
            _check_event(number, keys)
            events.append(Event(number, keys))
    events.sort(key=lambda event: (event.time, event.line))
    for position, event in enumerate(events):
        event.position = position
    history = History(meta, events)
    _pair(history)
    _check_seq(history)
    return history


def _object(number: int, line: bytes) -> dict[str, Any]:
    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(line.decode(), parse_float=Fraction, parse_constant=constant)
    except ValueError as error:
        raise Malformed(number, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed(number, "not a JSON object")
    return value


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _seconds(value: Any) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool) and value >= 0


def _check_meta(keys: dict[str, Any]) -> None:
    if keys.get("format") not in (None, 1):
        raise Malformed(1, "a format other than 1")
    for name in ("ttl", "uncertainty", "progress_bound", "rate_tolerance"):
        if keys.get(name) is not None and not _seconds(keys[name]):
            raise Malformed(1, f"{name} must be a number of at least 0")


def _check_event(number: int, keys: dict[str, Any]) -> None:
    def must(name: str, fits: Callable[[Any], bool]) -> None:
        if keys.get(name) is None:
            raise Malformed(number, f"{name} is missing")
        may(name, fits)

    def may(name: str, fits: Callable[[Any], bool]) -> None:
        if keys.get(name) is not None and not fits(keys[name]):
            raise Malformed(number, f"{name} is ill-typed")

    must("time", _integer)
    must("process", lambda value: _integer(value) or value in ("nemesis", "harness"))
    must("type", lambda value: value in TYPES)
    must("f", lambda value: isinstance(value, str))
    may("lock", lambda value: isinstance(value, str))
    if keys["f"] not in PAIRED + SINGLE:
        return
    may("token", _integer)
    may("lease_from", _integer)
    may("ttl", _seconds)
    may("held", lambda value: isinstance(value, bool))
    if keys["f"] == "write":
        must("resource", lambda value: value in ("fenced", "unfenced"))
        may("seq", _integer)
    if keys["f"] == "fault":
        must("phase", lambda value: value in ("start", "stop"))
        must("id", lambda value: isinstance(value, str | int))


def _pair(history: History) -> None:
    """A completion closes the open invoke with the same process, lock, f and resource; there is at most one."""
    open_ops: dict[tuple[Any, ...], Op] = {}
    faults: dict[Any, Fault] = {}
    for event in history.events:
        if event.f in PAIRED:
            resource = event.get("resource") if event.f == "write" else None
            slot = (event.process, event.lock, event.f, resource)
            if event.type == "invoke":
                if slot in open_ops:
                    raise Malformed(event.line, "an invoke while the same one is open")
                open_ops[slot] = Op(event)
                history.ops.append(open_ops[slot])
            else:
                if slot not in open_ops:
                    raise Malformed(event.line, "a completion without an invoke")
                open_ops.pop(slot).completion = event
                if event.f == "acquire" and event.type == "ok" and event.get("lease_from") is not None:  # noqa: SIM102
                    if event.get("lease_from") > event.time:
                        raise Malformed(event.line, "lease_from after its ok")
        elif event.f == "crash":
            for slot in [slot for slot in open_ops if slot[0] == event.process]:
                open_ops.pop(slot).crash = event
        elif event.f == "fault":
            name = event.get("id")
            if event.get("phase") == "start":
                if name in faults:
                    raise Malformed(event.line, "a fault started twice")
                faults[name] = Fault(event)
                history.faults.append(faults[name])
            elif name not in faults:
                raise Malformed(event.line, "a fault stopped without a start")
            elif faults[name].stop is not None:
                raise Malformed(event.line, "a fault stopped twice")
            else:
                faults[name].stop = event


def _check_seq(history: History) -> None:
    """Two equal seq in one resource of one lock.

    Of the fenced resource alone: the recorded case rule-w15 has one seq twice in the unfenced one, and its verdict.
    """
    seen = set()
    for op in sorted(history.ops, key=lambda op: (op.completion or op.invoke).position):
        if op.f != "write" or op.outcome != "ok" or op.completion is None or op.completion.get("seq") is None:
            continue
        place = (op.lock, op.completion.get("seq"))
        if op.invoke.get("resource") == "fenced":
            if place in seen:
                raise Malformed(op.completion.line, "two equal seq in one resource of one lock")
            seen.add(place)
