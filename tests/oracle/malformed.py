"""A random history with one thing wrong that the contract calls malformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.oracle.generate import Chooser, Event

Change = Callable[[Chooser, list[Event]], list[Event] | None]


def corrupt(c: Chooser, events: list[Event]) -> bytes:
    """The history with the one wrong thing that was drawn, where it has room for it; else as it was."""
    if c.chance(15):
        lines = [json.dumps(each).encode() for each in events]
        lines[c.pick(len(events))] = c.among(_WRONG_LINES)
    else:
        changed = c.among(_CHANGES)(c, events)
        lines = [json.dumps(each).encode() for each in (events if changed is None else changed)]
    return b"".join(line + b"\n" for line in lines)


def _of(events: list[Event], *fs: str) -> list[int]:
    return [at for at, event in enumerate(events) if event.get("f") in fs]


def _with(events: list[Event], at: int, **keys: Any) -> list[Event]:
    return [*events[:at], events[at] | keys, *events[at + 1 :]]


def _again(events: list[Event], at: int, **keys: Any) -> list[Event]:
    return [*events[: at + 1], events[at] | keys, *events[at + 1 :]]


def _ill_typed(c: Chooser, events: list[Event]) -> list[Event] | None:
    """One key of one line, and the rare ones as often as those that every line has."""
    name = c.among(tuple(_WRONG_VALUES))
    known = _of(events, "acquire", "renew", "release", "write", "lost", "crash", "fault", "audit")
    having = [at for at in known if name in events[at] and not (name == "id" and events[at]["f"] == "fault")]
    return _with(events, c.among(having), **{name: c.among(_WRONG_VALUES[name])}) if having else None


def _twice(c: Chooser, events: list[Event]) -> list[Event] | None:
    """An invoke while the same one is open, a completion without an invoke, or a second audit."""
    having = _of(events, "acquire", "renew", "release", "write", "audit")
    return _again(events, c.among(having)) if having else None


def _of_another(c: Chooser, events: list[Event]) -> list[Event] | None:
    """A single event that isn't `info`, or one of somebody who has no such events."""
    having = _of(events, "acquire", "renew", "release", "write", "lost", "crash", "fault", "audit")
    if not having:
        return None
    at = c.among(having)
    if events[at]["f"] in ("lost", "crash", "fault", "audit") and c.chance(50):
        return _with(events, at, type=c.among(("invoke", "ok", "fail")))
    others = {"fault": (0, "harness"), "audit": (0, "nemesis")}
    return _with(events, at, process=c.among(others.get(events[at]["f"], ("nemesis", "harness"))))


def _lease_from(c: Chooser, events: list[Event]) -> list[Event] | None:
    having = [at for at in _of(events, "acquire") if events[at]["type"] == "ok"]
    return _with(events, at := c.among(having), lease_from=events[at]["time"] + 1) if having else None


def _fault(c: Chooser, events: list[Event]) -> list[Event] | None:
    """Started or stopped twice, or stopped without a start."""
    having = _of(events, "fault")
    if not having:
        return None
    at = c.among(having)
    stranger: Event = {"id": "another"} if events[at]["phase"] == "stop" and c.chance(50) else {}
    return _again(events, at, **stranger)


def _meta(c: Chooser, events: list[Event]) -> list[Event]:
    wrong: Event | None = c.among(
        ({"format": 2}, {"format": 0}, {"format": "1"}, {"end": "yes"}, {"started": 5}, {"require": "lease"}, None)
    )
    if wrong is None:
        return [*events, {"type": "meta"}] if events[-1]["type"] != "end" else [*events[:-1], {"type": "meta"}]
    return [{"type": "meta"} | wrong, *(event for event in events if event["type"] not in ("meta", "end"))]


def _two_of_one_place(c: Chooser, events: list[Event], key: str, **only: str) -> list[Event] | None:
    """Gives a write the value that another one in its resource and lock has."""

    def place(event: Event) -> tuple[Any, Any]:
        return event.get("lock") or "lock", event.get("resource")

    having = [
        event for event in events if event.get("f") == "write" and event.get(key) and only.items() <= event.items()
    ]
    pairs = [(one, other) for one in having for other in having if one is not other and place(one) == place(other)]
    if not pairs:
        return None
    one, other = c.among(pairs)
    return [each | {key: one[key]} if each is other else each for each in events]


def _mixed(c: Chooser, events: list[Event]) -> list[Event] | None:
    """Integers and strings as ids: the id of one write, or one that an audit found, is of the other kind."""
    having = [
        event for event in events if event.get("f") in ("write", "audit") and (event.get("id") or event.get("ids"))
    ]
    if not having:
        return None
    chosen = c.among(having)
    if chosen["f"] == "audit":
        ids = chosen["ids"]
        odd: Event = {"ids": [*ids, "x" if isinstance(ids[0], int) else 7]}
    else:
        odd = {"id": "x" if isinstance(chosen["id"], int) else 7}
    return [each | odd if each is chosen else each for each in events]


def _audited_again(c: Chooser, events: list[Event]) -> list[Event] | None:
    audits = [event for event in events if event.get("f") == "audit"]
    if not audits:
        return None
    again = c.among(audits)
    at = c.pick(len(events)) + 1
    at = min(at, len(events) - 1) if events[-1]["type"] == "end" else at
    return [*events[:at], again | {"time": c.between(0, 30) * 10**9, "ids": []}, *events[at:]]


def _wrong_end(c: Chooser, events: list[Event]) -> list[Event]:
    """In the middle, twice, counting nothing, or where nobody promised it."""
    count = sum(event["type"] not in ("meta", "end") for event in events)
    end: Event = {"type": "end", "events": count}
    meta = events[0] if events[0]["type"] == "meta" else {"type": "meta"}
    promised = [meta | {"end": True}, *(event for event in events if event["type"] not in ("meta", "end"))]
    at = c.between(1, count)
    return c.among(
        (
            [*promised[:at], end, *promised[at:]],
            [*promised, end, end],
            [*promised, {"type": "end"}],
            [*promised, end | {"events": c.among(("3", True, 1.5, None))}],
            [{key: value for key, value in meta.items() if key != "end"}, *promised[1:], end],
            [meta | {"end": False}, *promised[1:], end],
        )
    )


_WRONG_LINES = (b"{", b"[]", b"7", b"null", b"{} {}", b"\xff", b'{"time": NaN}', b'{"time": 1', b"{'time': 1}")
_WRONG_VALUES: dict[str, tuple[Any, ...]] = {
    "time": (1.5, None, "1"),
    "process": (None, 1.5, []),
    "type": (None, 1, "invoked"),
    "f": (None, 1, []),
    "resource": (None, 1, "both"),
    "token": (1.5, "x", True),
    "ttl": (-1, "x", []),
    "id": (True, 1.5, [], {}),
    "ids": (None, 1, "w1", {"w1": 1}, [True], [None], [1.5], [["w1"]]),
    "seq": (1.5, "1", True),
    "proves": (0, "no"),
    "renewals": (7, False),
    "what": (7, []),
    "bit": (7, "maybe"),
    "held": (0, "no"),
    "lease_from": (1.5, "1"),
}
_CHANGES: tuple[Change, ...] = (
    _ill_typed,
    _ill_typed,
    _ill_typed,
    _twice,
    _of_another,
    _lease_from,
    _fault,
    _meta,
    lambda c, events: _two_of_one_place(c, events, "seq", type="ok"),
    lambda c, events: _two_of_one_place(c, events, "id"),
    _mixed,
    _audited_again,
    _wrong_end,
)
