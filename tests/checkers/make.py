"""Histories by hand, in few words, and random ones for the tests here."""

from __future__ import annotations

import random
from typing import Any

from harness.history import from_events
from harness.history.events import History

S = 1_000_000_000


def make(*events: tuple[Any, ...], **meta: Any) -> History:
    """A history from `(second, process, "type f", {keys})`; lines are numbered from 2, the meta being line 1."""
    rows = []
    for line, (second, process, what, *more) in enumerate(events, 2):
        kind, f = what.split()
        keys = more[0] if more else {}
        rows.append((line, {"time": round(second * S), "process": process, "type": kind, "f": f, **keys}))
    return from_events(meta, rows, "made by hand")


def grant(start: float, ok: float, process: int, token: int | None = None, **keys: Any) -> list[tuple[Any, ...]]:
    """An acquire that returned ok."""
    lock = {"lock": keys["lock"]} if "lock" in keys else {}
    return [(start, process, "invoke acquire", lock), (ok, process, "ok acquire", {"token": token, **keys})]


def random_grants(seed: int, *, tokens: str, most: int = 6) -> History:
    """Grants of one lock with everything that matters to an order: windows that overlap, promises that end early and
    late, proofs, tokens (`all`, `none` or `some`), a process with several grants, an uncertainty."""
    rng = random.Random(seed)
    meta: dict[str, Any] = {"uncertainty": rng.choice([0, 0, 0.5, 1])}
    events: list[tuple[Any, ...]] = []
    count = rng.randint(2, most)
    for process in range(rng.randint(2, 4)):
        now = rng.randint(0, 4)
        for _ in range(rng.randint(1, 3)):
            if count == 0:
                break
            count -= 1
            invoke = now
            now += rng.randint(0, 4)
            token = rng.randint(1, 5) if tokens == "all" or (tokens == "some" and rng.random() < 0.6) else None
            ttl = rng.choice([None, 1, 2, 3, 8])
            events += grant(invoke, now, process, token, ttl=ttl)
            if rng.random() < 0.4:
                now += rng.randint(0, 2)
                events += [(now, process, "invoke release"), (now, process, rng.choice(["ok release", "info release"]))]
            now += rng.randint(0, 3)
    events.sort(key=lambda event: event[0])
    return make(*events, **meta)


def random_triples(seed: int) -> History:
    """Three grants that may each have to come before the next, and up to two more.

    Such cycles are so rare among random histories (one in some thousands) that they have to be aimed at: the first
    has a wide window and the greater token, the second is held long, the third has the lower token.
    """
    rng = random.Random(seed)
    events: list[tuple[Any, ...]] = []
    y = rng.randint(1, 5)
    events += grant(rng.randint(0, 6), rng.randint(6, 12), 0, 2)
    events += [*grant(0, y, 1, None), (until := y + rng.randint(1, 9), 1, "invoke release"), (until, 1, "ok release")]
    events += grant(z := rng.randint(2, 10), z + rng.randint(0, 8), 2, 1)
    for process in range(3, rng.randint(3, 5)):
        invoke = rng.randint(0, 9)
        events += grant(invoke, invoke + rng.randint(0, 9), process, rng.choice([None, 0, 3 * process]))
    events.sort(key=lambda event: event[0])
    return make(*events)
