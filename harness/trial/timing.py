"""How long faults last, how far they are apart, and how long a free lock may stay free: all from how leases end.

Numbers that fit one ttl and one system fit no other. A holder that is frozen for two leases outlives its lease on etcd,
and not on Consul, which gives a lock away after 2 ttl and the lock-delay. So everything here follows from the terms of
the system with its client (`harness.systems.base.LeaseTerms`) and from whom the fault is meant for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.systems.base import LeaseTerms
from nemesis.holding import lasting_seconds
from nemesis.schedule import APPLYING_SECONDS, MANY, fitting
from nemesis.targets import on_contender

DURATION_SECONDS = 20.0
"""How long faults are applied, unless too few fit."""
FEWEST = 2
"""So many faults shall fit into a trial at least, and MANY where a short ttl makes them cheap."""
SHORT_TTL_SECONDS = 3.0
CYCLE_TTLS, PAUSE_TTLS = 3.5, 1.5
"""A fault and its pause together take so many ttl where they can, and the pause alone no more than so many."""
PAUSE_SECONDS = (1.0, 5.0)
"""The shortest pause between two faults, and the longest that is planned. The next fault waits besides until somebody
holds the lock again."""
LEADING_SECONDS = 0.5
"""How much longer a fault on a server lasts than a hand-over takes, so that another leads under it."""
BUSY_SECONDS = 2.0
"""What a machine may be late with all of it. Four trials at once on two cores were late by half a second at most."""


@dataclass(frozen=True)
class Timing:
    """All in seconds, as in `TrialConfig`."""

    fault_on: float
    fault_off: float
    duration: float
    progress_bound: float


def timing(terms: LeaseTerms, target: str, *, fault_on: float | None = None, fault_off: float | None = None) -> Timing:
    """What follows from the terms, for a fault with this target; and for these times where the user gives them.

    - A fault on a contender lasts longer than a lease can, so that it runs out under the fault and another takes the
      lock (`nemesis.holding`). One on a server lasts two ttl, and longer than it takes another server to lead.
    - The pause fills a cycle of 3.5 ttl where there is room.
    - Faults come for 20 s, or for as long as two of them take (three at a ttl of 3 s or less, where as many fit into
      20 s when each lasts two ttl).
    - `progress_bound`: when a fault is undone the lock may have just been taken by somebody who will never be heard of
      again. It is given away when that lease is over (`given_away_most`), and the clock of the lease may have begun
      anew with an election that was under way, after which the waiters must find their servers (`hand_over`). More than
      that, and what a busy machine is late, no right lock is free for.
    """
    ttl = terms.ttl_seconds
    if fault_on is None:
        least = lasting_seconds(terms) if on_contender(target) else terms.hand_over_seconds + LEADING_SECONDS
        fault_on = least if on_contender(target) else max(2 * ttl, least)
        fault_on = _up(fault_on)
    if fault_off is None:
        shortest, longest = PAUSE_SECONDS
        fault_off = _up(max(shortest, min(PAUSE_TTLS * ttl, longest, CYCLE_TTLS * ttl - fault_on)))
    usual = fitting(2 * ttl, PAUSE_TTLS * ttl, DURATION_SECONDS, applying=0.0)
    wanted = min(max(usual, FEWEST), MANY) if ttl <= SHORT_TTL_SECONDS else FEWEST
    wanted = wanted if target else 0  # the cell in which nothing is broken
    needed = wanted * (fault_on + APPLYING_SECONDS) + max(0, wanted - 1) * fault_off
    bound = terms.given_away_most_seconds + terms.hand_over_seconds + BUSY_SECONDS
    return Timing(fault_on, fault_off, _up(max(DURATION_SECONDS, needed)), _up(bound))


def _up(seconds: float) -> float:
    """To the next tenth: nobody reads more."""
    return math.ceil(round(seconds * 10, 6)) / 10
