"""The contract's chapter "History": bytes in, either a history or the line that can't be read and why.

Times stay integers; seconds become exact fractions of nanoseconds (`2.1` is twenty-one tenths, not a binary float),
so that ties are ties.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any

TYPES = ("invoke", "ok", "fail", "info")
PAIRED = ("acquire", "renew", "release", "write")
SINGLE = ("lost", "crash", "fault", "audit")
RESOURCES = ("fenced", "unfenced")


class Malformed(Exception):
    """The history can't be read. `lines`, counted from 1, are those that may be named: where two lines contradict each
    other, either does."""

    def __init__(self, lines: Iterable[int], reason: str) -> None:
        self.lines, self.reason = sorted(set(lines)), reason
        super().__init__(f"{self.lines}: {reason}")


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

    @property
    def seq(self) -> Any:
        """The position in the resource's own order: it stands on the ok alone."""
        return None if self.completion is None else self.completion.get("seq")

    @property
    def last(self) -> Event:
        return self.invoke if self.completion is None else self.completion


@dataclass
class Fault:
    start: Event
    stop: Event | None = None

    @property
    def receipt(self) -> Any:
        return self.start.get("receipt")

    @property
    def landed(self) -> bool:
        """One from outside counts as landed unless skipped."""
        return self.receipt == "landed" or (self.outside and self.receipt != "skipped")

    @property
    def outside(self) -> bool:
        """What somebody other than the nemesis did: the start's kind counts."""
        return bool(self.start.get("kind") == "outside")

    @property
    def freezes(self) -> bool:
        """It stops the processes that it lists."""
        if self.outside:
            return self.start.get("what") in (None, "paused")
        return self.start.get("kind") in ("freeze", "pause")

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
    cut_off: bool = False
    """A promised `end` line is missing, or counts another number."""

    def setting(self, name: str, default: Any) -> Any:
        value = self.meta.get(name)
        return default if value is None else value

    @cached_property
    def uncertainty(self) -> Fraction:
        return nanoseconds(self.setting("uncertainty", 0))

    @cached_property
    def last(self) -> int:
        """The time of the last event, whatever event it is, save an audit."""
        return max((event.time for event in self.events if event.f != "audit"), default=0)

    @property
    def locks(self) -> list[str]:
        return sorted({event.lock for event in self.events if event.f not in ("fault", "audit")})

    @property
    def audits(self) -> list[Event]:
        return [event for event in self.events if event.f == "audit"]


def nanoseconds(seconds: Any) -> Fraction:
    return Fraction(seconds) * 10**9


def read(data: bytes) -> History:
    """Read a history, or raise `Malformed`."""
    history = History({})
    ends: list[tuple[int, dict[str, Any]]] = []
    last = 0
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        last = number
        keys = _object(number, line)
        if keys.get("type") == "meta":
            if number != 1:
                raise Malformed([number], "a meta that isn't the first line")
            _check_meta(keys)
            history.meta = keys
        elif keys.get("type") == "end":
            if not _integer(keys.get("events")):
                raise Malformed([number], "an end that counts no events")
            ends.append((number, keys))
        else:
            _check_event(number, keys)
            history.events.append(Event(number, keys))
    history.events.sort(key=lambda event: (event.time, event.line))
    for position, event in enumerate(history.events):
        event.position = position
    _check_end(history, ends, last)
    _pair(history)
    _check_seq(history)
    _check_ids(history)
    _check_audits(history)
    return history


def _check_end(history: History, ends: list[tuple[int, dict[str, Any]]], last: int) -> None:
    """An `end` line is the last one, and the meta has promised it; one that is missing is no error, but tells."""
    promised = history.setting("end", False)
    for number, _ in ends:
        if number != last or not promised:
            raise Malformed([number, last], "an end that isn't the last line, or that the meta doesn't promise")
    if promised:
        history.cut_off = [keys["events"] for _, keys in ends] != [len(history.events)]


def _object(number: int, line: bytes) -> dict[str, Any]:
    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(line.decode(), parse_float=Fraction, parse_constant=constant)
    except ValueError as error:
        raise Malformed([number], f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed([number], "not a JSON object")
    return value


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _id(value: Any) -> bool:
    return _integer(value) or isinstance(value, str)


def _seconds(value: Any) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool) and value >= 0


def _check_meta(keys: dict[str, Any]) -> None:
    if keys.get("format") not in (None, 1):
        raise Malformed([1], "a format other than 1")
    for name in ("ttl", "uncertainty", "progress_bound", "rate_tolerance"):
        if keys.get(name) is not None and not _seconds(keys[name]):
            raise Malformed([1], f"{name} must be a number of at least 0")
    for name, kind in (("started", str), ("end", bool), ("expires", bool), ("owners", bool), ("require", list)):
        if keys.get(name) is not None and not isinstance(keys[name], kind):
            raise Malformed([1], f"{name} is ill-typed")


def _check_event(number: int, keys: dict[str, Any]) -> None:
    def must(name: str, fits: Callable[[Any], bool]) -> None:
        if keys.get(name) is None:
            raise Malformed([number], f"{name} is missing")
        if not fits(keys[name]):
            raise Malformed([number], f"{name} is ill-typed")

    def may(name: str, fits: Callable[[Any], bool]) -> None:
        if keys.get(name) is not None and not fits(keys[name]):
            raise Malformed([number], f"{name} is ill-typed")

    must("time", _integer)
    must("process", lambda value: _integer(value) or value in ("nemesis", "harness"))
    must("type", lambda value: value in TYPES)
    must("f", lambda value: isinstance(value, str))
    may("lock", lambda value: isinstance(value, str))
    if keys["f"] not in PAIRED + SINGLE:
        return
    who = {"fault": "nemesis", "audit": "harness"}.get(keys["f"])
    must("process", lambda value: _integer(value) if who is None else value == who)
    if keys["f"] in SINGLE:
        must("type", lambda value: value == "info")
    may("token", _integer)
    may("lease_from", _integer)
    may("ttl", _seconds)
    may("held", lambda value: isinstance(value, bool))
    may("proves", lambda value: isinstance(value, bool))
    may("renewals", lambda value: isinstance(value, str))
    if keys["f"] == "write":
        must("resource", lambda value: value in RESOURCES)
        may("seq", _integer)
        may("id", _id)
    if keys["f"] == "audit":
        must("resource", lambda value: value in RESOURCES)
        must("ids", lambda value: isinstance(value, list) and all(_id(each) for each in value))
    if keys["f"] == "fault":
        must("phase", lambda value: value in ("start", "stop"))
        must("id", _id)
        may("what", lambda value: isinstance(value, str))
        may("bit", lambda value: isinstance(value, bool) or value == "immune")


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
                    raise Malformed([event.line], "an invoke while the same one is open")
                open_ops[slot] = Op(event)
                history.ops.append(open_ops[slot])
            else:
                if slot not in open_ops:
                    raise Malformed([event.line], "a completion without an invoke")
                open_ops.pop(slot).completion = event
                if event.f == "acquire" and event.type == "ok" and event.get("lease_from") is not None:  # noqa: SIM102
                    if event.get("lease_from") > event.time:
                        raise Malformed([event.line], "lease_from after its ok")
        elif event.f == "crash":
            for slot in [slot for slot in open_ops if slot[0] == event.process]:
                open_ops.pop(slot).crash = event
        elif event.f == "fault":
            name = event.get("id")
            if event.get("phase") == "start":
                if name in faults:
                    raise Malformed([event.line], "a fault started twice")
                faults[name] = Fault(event)
                history.faults.append(faults[name])
            elif name not in faults:
                raise Malformed([event.line], "a fault stopped without a start")
            elif faults[name].stop is not None:
                raise Malformed([event.line], "a fault stopped twice")
            else:
                faults[name].stop = event


def _check_seq(history: History) -> None:
    """Two equal seq of accepted writes in one resource of one lock."""
    for one, other in _writes_of_one_place(history):
        if one.outcome == other.outcome == "ok" and one.seq is not None and one.seq == other.seq:
            raise Malformed(_lines(one, other), "two equal seq in one resource of one lock")


def _check_ids(history: History) -> None:
    """Two writes, of any outcome, with one id in one resource of one lock; integers and strings in one history."""
    kinds: dict[type, set[int]] = {}
    for event in history.events:
        ids = [event.get("id")] if event.f == "write" else event.get("ids") if event.f == "audit" else []
        for each in ids:
            if each is not None:
                kinds.setdefault(type(each), set()).add(event.line)
    if len(kinds) > 1:
        raise Malformed(set().union(*kinds.values()), "integers and strings as ids in one history")
    for one, other in _writes_of_one_place(history):
        if one.key("id") is not None and one.key("id") == other.key("id"):
            raise Malformed(_lines(one, other), "two writes with one id in one resource of one lock")


def _check_audits(history: History) -> None:
    """At most one for each resource of each lock."""
    for one, other in combinations(history.audits, 2):
        if (one.lock, one.get("resource")) == (other.lock, other.get("resource")):
            raise Malformed([one.line, other.line], "two audits of one resource of one lock")


def _writes_of_one_place(history: History) -> Iterable[tuple[Op, Op]]:
    for one, other in combinations([op for op in history.ops if op.f == "write"], 2):
        if (one.lock, one.invoke.get("resource")) == (other.lock, other.invoke.get("resource")):
            yield one, other


def _lines(*ops: Op) -> list[int]:
    return [event.line for op in ops for event in (op.invoke, op.completion) if event is not None]
