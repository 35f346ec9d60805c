"""Random small histories, built from one stream of choices: from a seed (fast) or from Hypothesis (which can shrink).

Times lie on a coarse grid so that ties are frequent; half of the histories come from a service that mostly behaves,
the others from one that doesn't. Every option that comes first is the simplest: Hypothesis shrinks towards it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Event = dict[str, Any]
#: What a history is mostly made of.
FOCUS = ("all", "writes", "renews", "ends", "faults")
REQUIRABLE = ("lease", "exclusion", "fencing", "fenced", "damage", "linearizable", "progress", "faults")


class Chooser:
    """Choices made by `pick(n)`, which gives an integer from 0 to n - 1."""

    def __init__(self, pick: Callable[[int], int]) -> None:
        self.pick = pick

    @classmethod
    def seeded(cls, seed: int) -> Chooser:
        source = random.Random(seed)
        return cls(lambda n: int(source.random() * n))

    def among(self, options: Sequence[T]) -> T:
        return options[self.pick(len(options))]

    def chance(self, percent: int) -> bool:
        return self.pick(100) >= 100 - percent

    def between(self, low: int, high: int) -> int:
        return low + self.pick(high - low + 1)


@dataclass
class _World:
    """What the generator remembers while it writes."""

    c: Chooser
    unit: int
    sane: bool
    focus: str
    tokens: str
    with_seq: bool
    time: int = 0
    open: dict[tuple[Any, ...], Event] = field(default_factory=dict)
    believes: dict[tuple[str, int], bool] = field(default_factory=dict)
    token: dict[str, int] = field(default_factory=dict)
    version: dict[tuple[str, str], int] = field(default_factory=dict)
    seq: dict[tuple[str, str], int] = field(default_factory=dict)
    faults: dict[str, bool] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def add(self, process: Any, type_: str, f: str, **keys: Any) -> Event:
        event = {"time": self.time, "process": process, "type": type_, "f": f}
        event |= {name: value for name, value in keys.items() if value is not None or self.c.chance(3)}
        if event.get("lock") == "lock" and self.c.chance(50):
            del event["lock"]
        self.events.append(event)
        return event


def history(c: Chooser, *, owners: bool | None = None, tokens: str | None = None, most: int = 26) -> list[Event]:
    """The meta (if any) and the events, in the order in which they would be written."""
    unit = c.among((10**9, 5 * 10**8, 10**8))
    ttls = [ttl * unit / 10**9 for ttl in (2, 3, 5, 1, 4.5)]
    sane = c.chance(60)
    focus = c.among(FOCUS)
    tokens = tokens or c.among(("rising", "none", "some", "wild"))
    world = _World(c, unit, sane, focus, tokens, c.chance(60))
    meta: Event = {"type": "meta", "format": 1}
    if c.chance(70):
        meta["ttl"] = c.among(ttls)
    if c.chance(7):
        meta["expires"] = c.among((True, False, False))
    if c.chance(25):
        meta["uncertainty"] = c.among((1, 2, 0.5, 3)) * unit / 10**9
    if c.chance(15):
        meta["rate_tolerance"] = c.among((0.5, 0.1, 0.25))
    if c.chance(10):
        meta["min_grants"] = c.between(0, 4)
    if c.chance(40):
        meta["progress_bound"] = c.among((2, 4, 10, 1, 0)) * unit / 10**9
    if c.chance(10):
        meta["require"] = [name for name in REQUIRABLE if c.chance(40)]
    if owners is False or (owners is None and c.chance(8)):
        meta["owners"] = False
    if c.chance(5):
        meta["system"] = "made up"

    processes = list(range(c.between(2, 4)))
    locks = ["lock", "k1", "k2"][: c.among((1, 1, 1, 2, 3))]
    faulty = 30 if focus == "faults" else c.among((0, 15))
    for _ in range(c.between(2, most)):
        world.time += c.among((1, 0, 0, 1, 2, 3)) * unit
        if faulty and c.chance(faulty):
            _fault(world, processes)
        elif c.chance(2):
            world.add(c.among(("harness", "nemesis", 0)), c.among(("info", "invoke", "ok")), c.among(("end", "note")))
        else:
            _contend(world, c.among(processes), c.among(locks), ttls)
    if c.chance(25):
        world.time += c.between(0, 5) * unit
        world.add("harness", "info", "end")
    events = world.events
    if c.chance(15):
        events = _reorder(c, events)
    return [meta, *events] if len(meta) > 2 or c.chance(80) else events


def _reorder(c: Chooser, events: list[Event]) -> list[Event]:
    """Other line order, the same history: lines of one time keep their order."""
    keyed = [(c.pick(1000), event["time"]) for event in events]
    shuffled = [events[i] for i in sorted(range(len(events)), key=lambda i: keyed[i][0])]
    by_time: dict[int, list[Event]] = {}
    for event in events:
        by_time.setdefault(event["time"], []).append(event)
    return [by_time[event["time"]].pop(0) for event in shuffled]


def _fault(world: _World, processes: list[int]) -> None:
    c = world.c
    running = [name for name, runs in world.faults.items() if runs]
    if running and c.chance(60):
        name = c.among(running)
        world.faults[name] = False
        receipt = c.among(("undone", "undone", "unproven", None))
        world.add("nemesis", "info", "fault", phase="stop", id=name, receipt=receipt)
        return
    name = f"f{len(world.faults)}"
    world.faults[name] = True
    world.add(
        "nemesis",
        "info",
        "fault",
        phase="start",
        id=name,
        kind=c.among(("freeze", "pause", "clock", "kill", "partition", "clock", None)),
        targets=c.among(([], ["n1"], None)),
        processes=c.among((processes, processes[:1], processes[1:], [], None)),
        receipt=c.among(("landed", "landed", "landed", "unproven", "skipped", None)),
    )


def _contend(world: _World, process: int, lock: str, ttls: list[float]) -> None:
    c = world.c
    if c.chance(3):
        world.add(process, "info", "crash")
        for slot in [slot for slot in world.open if slot[0] == process]:
            del world.open[slot]
        for place in list(world.believes):
            if place[1] == process:
                world.believes[place] = False
        return
    pending = [slot for slot in world.open if slot[0] == process]
    if pending and c.chance(75):
        _complete(world, c.among(pending), ttls)
    elif c.chance(20 if world.focus == "ends" else 5):
        world.add(process, "info", "lost", lock=lock, reason=c.among(("deadline", "expired", "disconnected", None)))
        world.believes[lock, process] = False
    else:
        _invoke(world, process, lock, ttls)


WHILE_HOLDING = {
    "all": ("release", "renew", "write", "write", "release", "renew", "acquire"),
    "writes": ("write", "write", "write", "write", "write", "release", "acquire"),
    "renews": ("renew", "renew", "renew", "renew", "release", "release", "acquire"),
    "ends": ("release", "release", "release", "renew", "renew", "acquire"),
    "faults": ("release", "renew", "write", "acquire"),
}
WHILE_WAITING = {
    "all": ("acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "write", "renew", "release"),
    "writes": ("acquire", "write", "write", "write"),
    "renews": ("acquire", "acquire", "renew", "release"),
    "ends": ("acquire", "acquire", "release", "renew"),
    "faults": ("acquire", "acquire", "acquire", "write"),
}


def _invoke(world: _World, process: int, lock: str, ttls: list[float]) -> None:
    c = world.c
    holds = world.believes.get((lock, process), False)
    f = c.among(WHILE_HOLDING[world.focus] if holds else WHILE_WAITING[world.focus])
    resource = c.among(("fenced", "unfenced")) if f == "write" else None
    slot = (process, lock, f, resource)
    if slot in world.open:
        return
    keys: Event = {}
    if f == "renew" and c.chance(15):
        keys["ttl"] = c.among(ttls)
    if f == "write":
        keys["resource"] = resource
        place = (lock, str(resource))
        version = world.version.get(place, 0)
        if c.chance(90):
            keys["read"] = version if c.chance(75) else c.between(0, 4)
        if c.chance(90):
            keys["version"] = keys.get("read", version) + 1 if c.chance(85) else c.between(0, 4)
        if c.chance(75):
            keys["token"] = world.token.get(lock, 0) if c.chance(75) else c.between(0, 4)
    if f == "acquire" or (f == "release" and not c.chance(40 if world.focus == "ends" else 10)):
        world.believes[lock, process] = False
    world.open[slot] = world.add(process, "invoke", f, lock=lock, **keys)


def _complete(world: _World, slot: tuple[Any, ...], ttls: list[float]) -> None:
    c = world.c
    process, lock, f, resource = slot
    others = any(held for (place, who), held in world.believes.items() if place == lock and who != process)
    type_ = c.among(("ok", "ok", "ok", "ok", "ok", "ok", "fail", "info"))
    if world.focus == "ends" and f in ("renew", "release") and c.chance(30):
        type_ = "fail"
    if f == "acquire" and others and world.sane and not c.chance(6):
        return  # the service keeps it waiting
    keys: Event = {}
    if f == "acquire" and type_ == "ok":
        keys["token"] = _token(world, lock)
        if c.chance(12):
            keys["ttl"] = c.among(ttls)
        if c.chance(12):
            keys["lease_from"] = world.time - c.between(0, 5) * world.unit
        world.believes[lock, process] = True
    if f == "renew" and type_ == "ok" and c.chance(15):
        keys["ttl"] = c.among(ttls)
    if type_ == "fail" and f in ("renew", "release"):
        keys["held"] = c.among((False, None, True, False))
    if f == "write" and type_ == "ok":
        place = (lock, resource)
        world.seq[place] = world.seq.get(place, 0) + 1
        if world.with_seq and c.chance(95):
            # now and then the resource took them in another order than the answers came
            keys["seq"] = 2 * world.seq[place] - (3 if c.chance(10) else 0)
        made = world.open[slot].get("version")
        if c.chance(4):
            made = keys["version"] = c.between(0, 4)
        if made is not None:
            world.version[place] = made
    if f == "write" and type_ == "info" and c.chance(50) and world.open[slot].get("version") is not None:
        world.version[lock, resource] = world.open[slot]["version"]
    del world.open[slot]
    world.add(process, type_, f, lock=lock, resource=resource if f == "write" else None, **keys)


def _token(world: _World, lock: str) -> int | None:
    c = world.c
    if world.tokens == "none" or (world.tokens == "some" and c.chance(45)):
        return None
    if world.tokens == "wild" or c.chance(7):
        return c.between(1, 5)
    world.token[lock] = world.token.get(lock, 0) + c.among((1, 1, 1, 2, 3))
    return world.token[lock]


def encode(events: list[Event]) -> bytes:
    """As `history.jsonl`."""
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def corrupt(c: Chooser, events: list[Event]) -> bytes:
    """The history with one thing wrong that the contract calls malformed, where it has room for the one that was drawn;
    else as it was."""
    at = c.pick(len(events))
    event, f = events[at], str(events[at].get("f"))
    lines = [json.dumps(each).encode() for each in events]
    what = c.among((*_WRONG_LINES, "value", "twice", "lease_from", "fault", "meta", "format", "seq"))
    if isinstance(what, bytes):
        lines[at] = what
    elif what == "value" and f not in ("None", "end", "note"):
        name = c.among(tuple(_WRONG_VALUES))
        if name in event and (name != "ttl" or f in ("acquire", "renew")):
            lines[at] = json.dumps(event | {name: c.among(_WRONG_VALUES[name])}).encode()
    elif what == "twice" and f in ("acquire", "renew", "release", "write"):
        lines.insert(at + 1, lines[at])
    elif what == "lease_from" and f == "acquire" and event["type"] == "ok":
        lines[at] = json.dumps(event | {"lease_from": event["time"] + 1}).encode()
    elif what == "fault" and f == "fault":
        stranger = {"id": "another"} if event["phase"] == "stop" and c.chance(50) else {}
        lines.insert(at + 1, json.dumps(event | stranger).encode())
    elif what == "meta":
        lines.append(b'{"type": "meta"}')
    elif what == "format":
        lines[0] = json.dumps({"type": "meta", "format": c.among((2, 0, "1"))}).encode()
    elif what == "seq" and event.get("seq") is not None:
        for other in [other for other in events[at + 1 :] if other.get("seq") is not None][:1]:
            lines[events.index(other)] = json.dumps(other | {"seq": event["seq"]}).encode()
    return b"".join(line + b"\n" for line in lines)


_WRONG_LINES = (b"{", b"[]", b"7", b"null", b"{} {}", b"\xff", b'{"time": NaN}', b'{"time": 1', b"{'time': 1}")
_WRONG_VALUES: dict[str, tuple[Any, ...]] = {
    "time": (1.5, None, "1"),
    "process": (None, 1.5, []),
    "type": (None, 1, "invoked"),
    "f": (None, 1, []),
    "resource": (None, 1, "both"),
    "token": (1.5, "x", True),
    "ttl": (-1, "x", []),
}
