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
FOCUS = ("all", "writes", "renews", "ends", "faults", "strays")
REQUIRABLE = ("lease", "exclusion", "fencing", "fenced", "damage", "conduct", "linearizable", "progress", "faults")
REASONS = ("deadline", "expired", "disconnected", "renew-failed", None)
HIT = ("freeze", "pause", "clock", "kill", "partition", "clock", "outside", "outside", None)
WHAT = (None, "paused", "killed", "disconnected", "oom", "drained")


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
    with_id: str
    """none, integers, or strings."""
    unseen: int
    """Of a hundred grants, how many have renewals that nobody sees."""
    unproven: int
    """Of a hundred answers that are ok, how many prove nothing."""
    time: int = 0
    ids: dict[tuple[str, str], list[tuple[Any, str]]] = field(default_factory=dict)
    """The id of each write of a resource of a lock, and what became of it so far."""
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
    with_id = c.among(("none", "integers", "strings"))
    unseen, unproven = c.among((0, 0, 60)), c.among((0, 0, 30))
    world = _World(c, unit, sane, focus, tokens, c.chance(60), with_id, unseen, unproven)
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
        meta["require"] = [name for name in REQUIRABLE if c.chance(c.among((40, 0)))]
    if owners is False or (owners is None and c.chance(8)):
        meta["owners"] = False
    if c.chance(5):
        meta["system"] = "made up"
    if c.chance(10):
        meta["started"] = "2024-05-06T07:08:09.5+02:00"
    end = c.among(("none", "none", "none", "right", "right", "missing", "wrong"))
    if end != "none":
        meta["end"] = True
    elif c.chance(5):
        meta["end"] = False

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
    for place in sorted({*world.ids, *(((lock, "unfenced") for lock in locks[:1]) if c.chance(10) else ())}):
        if c.chance(75):
            _audit(world, *place)
    events = world.events
    if c.chance(15):
        events = _reorder(c, events)
    if end in ("right", "wrong"):
        events = [*events, {"type": "end", "events": len(events) + (0 if end == "right" else c.among((1, -1, 5)))}]
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
        bit = c.among((None, True, False, "immune"))
        kind = c.among((None, None, None, "outside", "freeze"))  # the start's counts
        world.add("nemesis", "info", "fault", phase="stop", id=name, receipt=receipt, bit=bit, kind=kind)
        return
    name = f"f{len(world.faults)}"
    world.faults[name] = True
    world.add(
        "nemesis",
        "info",
        "fault",
        phase="start",
        id=name,
        kind=c.among(HIT),
        what=c.among(WHAT),
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
    elif c.chance(20 if world.focus in ("ends", "strays") else 5):
        world.add(process, "info", "lost", lock=lock, reason=c.among(REASONS))
        world.believes[lock, process] = False
    else:
        _invoke(world, process, lock, ttls)


WHILE_HOLDING = {
    "all": ("release", "renew", "write", "write", "release", "renew", "acquire"),
    "writes": ("write", "write", "write", "write", "write", "release", "acquire"),
    "renews": ("renew", "renew", "renew", "renew", "release", "release", "acquire"),
    "ends": ("release", "release", "release", "renew", "renew", "acquire"),
    "faults": ("release", "renew", "write", "acquire"),
    "strays": ("release", "release", "write", "renew"),
}
WHILE_WAITING = {
    "all": ("acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "write", "renew", "release"),
    "writes": ("acquire", "write", "write", "write"),
    "renews": ("acquire", "acquire", "renew", "release"),
    "ends": ("acquire", "acquire", "release", "renew"),
    "faults": ("acquire", "acquire", "acquire", "write"),
    "strays": ("renew", "acquire", "write", "renew", "acquire", "release"),
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
        if c.chance(2):
            keys["seq"] = 1  # of the ok alone is it one
        keys["id"] = _id(world, place)
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
        if c.chance(world.unseen):
            keys["renewals"] = "unseen"
        if c.chance(12):
            keys["lease_from"] = world.time - c.between(0, 5) * world.unit
        world.believes[lock, process] = True
    if f == "renew" and c.chance(25 if type_ == "ok" else 20):  # of an ok alone is it one
        keys["ttl"] = c.among(ttls)
    if type_ == "fail" and f in ("renew", "release"):
        keys["held"] = c.among((False, None, True, False))
    if type_ == "ok" and f in ("renew", "release") and world.unproven:
        keys["proves"] = False if c.chance(world.unproven) else c.among((None, True))
    if f == "write":
        _became(world, (lock, resource), world.open[slot], keys, type_)
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


def _id(world: _World, place: tuple[str, str]) -> Any:
    """An attempt's own in its resource and lock: others may have the same elsewhere."""
    if world.with_id == "none" or not world.c.chance(90):
        return None
    earlier = world.ids.setdefault(place, [])
    own = len(earlier) + 1 if world.with_id == "integers" else f"w{len(earlier) + 1}"
    earlier.append((own, "info"))
    return own


def _became(world: _World, place: tuple[str, str], invoke: Event, keys: Event, type_: str) -> None:
    """Remember what became of a write; now and then its completion gives another id, or the first one: that counts."""
    if world.c.chance(4):
        keys["id"] = _id(world, place)
    own = keys.get("id") or invoke.get("id")
    world.ids[place] = [(each, type_ if each == own else was) for each, was in world.ids.get(place, [])]


#: Of a hundred writes with this outcome, how many the resource holds in the end.
_HELD = {"ok": 88, "info": 50, "fail": 12}


def _audit(world: _World, lock: str, resource: str) -> None:
    """What the resource holds; mostly what it should. It is asked at the end, or while others still write."""
    c = world.c
    ids = [own for own, was in world.ids.get((lock, resource), []) if c.chance(_HELD[was])]
    if c.chance(10):
        ids.append(99 if world.with_id == "integers" else "stranger")
    if ids and c.chance(10):
        ids.append(ids[0])
    now = world.time
    world.time = max(0, now + c.among((1, 0, 2, 0, -1, -3, -6)) * world.unit)
    world.add("harness", "info", "audit", lock=lock, resource=resource, ids=ids)
    world.time = now


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


def encode_doubled(c: Chooser, events: list[Event]) -> bytes:
    """The same history; some lines give a key twice, of which the last counts, whatever the first was."""
    lines = []
    for event in events:
        line = json.dumps(event).encode()
        if c.chance(10):
            key = c.among((*event, "token", "lock", "ids", "seq"))
            if key in event:
                first = c.among((1, None, 0, "x", True, 1.5, [], event[key]))
                line = b"{" + json.dumps(key).encode() + b": " + json.dumps(first).encode() + b", " + line[1:]
        lines.append(line + b"\n")
    return b"".join(lines)
