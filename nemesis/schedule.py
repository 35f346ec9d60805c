"""When faults begin and end: a cycle of windows, timed, drawn from a seed, or triggered by an event.

A schedule says for each fault when it may begin and how long it lasts; the trial asks for the next window when the
last one is over, so that a slow undo shortens no pause:

    cycle = Schedule(on=5, off=3, duration=20).cycle()
    window = cycle.next(0.0)              # Window(begin=0.0, on=5.0, trigger=None)
    window = cycle.next(5.2)              # the last one ended at 5.2 -> Window(begin=8.2, …)
    ...                                   # None once no window fits any more

All times are seconds since the faults' phase began.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError
from nemesis.parameters import Parameters

KINDS = ("timed", "random", "triggered")
TRIGGERS = ("grant",)
SPREAD = (0.5, 1.5)
"""A random schedule draws each time on and off uniformly from this share to that of the usual one."""
APPLYING_SECONDS = 0.6
"""What aiming a fault and proving it takes beside its own time: two rounds of probes, for a partition."""
MANY = 3
"""As many faults as a trial should have where they are cheap."""
LATE = 0.25
"""By which share of the whole time the last fault that was planned may end late."""


def fitting(on: float, off: float, duration: float, *, applying: float = APPLYING_SECONDS) -> int:
    """How many faults of this length, so far apart, fit into the time that they are applied."""
    return max(0, math.floor((duration + off + 1e-9) / (on + applying + off)))


@dataclass(frozen=True)
class Window:
    """One fault: not before `begin`, for `on` seconds; with a trigger, at the first such event from then on."""

    begin: float
    on: float
    trigger: str | None = None


@dataclass(frozen=True)
class Schedule:
    """Faults that go on and off. Seconds.

    The first may begin after `warmup`, each lasts `on`, and the next may begin `off` after the last has ended, as long
    as it would begin, and end, by `duration` (with half a second of grace for the time that undoing took). `kind`:
    "timed"; "random", where every time on and off is drawn from `seed`; "triggered", where a window waits for `trigger`
    ("grant": just after the lock was granted, which is when a holder is most surely hit).
    """

    on: float
    off: float
    duration: float
    warmup: float = 0.0
    kind: str = "timed"
    seed: int | str = 0
    trigger: str = "grant"
    grace: float = field(default=0.5, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"schedule: kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.trigger not in TRIGGERS:
            raise UsageError(f"schedule: trigger must be one of {', '.join(TRIGGERS)}, not {self.trigger!r}")
        if not self.on > 0:
            raise UsageError(f"schedule: a fault must last some time, not {self.on!r} s")
        if self.off < 0 or self.duration < 0 or self.warmup < 0:
            raise UsageError("schedule: off, duration and warmup can't be negative")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, on: float, off: float, duration: float, seed: int) -> Schedule:
        """A schedule from a table of a configuration, over the defaults given. UsageError names a bad key."""
        taken = Parameters("schedule", values)
        schedule = cls(
            on=taken.number("on", on, 0.1, 3600),
            off=taken.number("off", off, 0, 3600),
            duration=taken.number("duration", duration, 0, 86400),
            warmup=taken.number("warmup", 0.0, 0, 3600),
            kind=taken.choice("kind", KINDS),
            seed=taken.whole("seed", seed, 0, 2**63 - 1),
            trigger=taken.choice("trigger", TRIGGERS),
        )
        taken.done()
        return schedule

    def fits(self, on: float, begin: float, before: int) -> bool:
        """Whether a fault of this length that begins then ends in time, when so many came before it.

        On a machine that is slow with applying and undoing them, the last one that was planned would be left out, and
        a trial with one fault says less than one with two. So as long as fewer came than fit on paper (three, at most),
        it may end late, by a quarter of the time.
        """
        late = self.duration * LATE if before < min(self.planned, MANY) else 0.0
        return begin + on <= self.duration + late + self.grace

    @property
    def planned(self) -> int:
        """How many faults fit, each applied in a usual time."""
        return fitting(self.on, self.off, self.duration - self.warmup)

    def cycle(self) -> Cycle:
        """Begin it. Each cycle of one schedule gives the same windows for the same endings."""
        return Cycle(self)


class Cycle:
    """A schedule under way."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._rng = random.Random(f"schedule/{schedule.seed}")
        self._before = 0

    def _length(self, usual: float) -> float:
        return usual * self._rng.uniform(*SPREAD) if self._schedule.kind == "random" else usual

    def next(self, ended: float) -> Window | None:
        """The next window, when the last one ended at `ended` (0.0 before the first); None when none fits any more."""
        plan = self._schedule
        begin = ended + self._length(plan.off) if self._before else plan.warmup
        begin = max(begin, ended)
        on = self._length(plan.on)
        if not plan.fits(on, begin, self._before):
            return None
        self._before += 1
        return Window(begin, on, plan.trigger if plan.kind == "triggered" else None)
