"""Whether a fault on a contender bit: its lease ran out under it, or its turn came while it could not take it.

*A holder.* It believed that it held the lock, inside what it was promised, when the fault began; and the fault was
still on, and nothing had been released, when a right service might have given the lock away. From then on another may
hold it, and what the first one does when it comes back is what the test is about. Whether another did take it, or
whether anything was damaged, doesn't count: that is the outcome. Nor does it count that a guarded contender stopped
believing in time: that is the protection that was tried.

*A waiter.* It waited for the lock when the fault began and didn't get out of that before the fault was over, or it was
given the lock meanwhile; and the lock changed hands under it. Then its turn could have come: a place in a queue that
nobody stands in keeps all behind it out for a lease, a poll that is under way can be granted to one who can't hear it,
and one that comes back after its session has ended must not take what it waited for. Without a hand-over it just went
on waiting, which it would have done anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.systems.base import LeaseTerms
from nemesis.base import Environment
from nemesis.bite import Bite, SeenHold, SeenWait

MARGIN_SECONDS = 1.0
"""How much longer than the lock takes to be given away a fault on its holder should last: for another to take it, and
to begin on the resource."""

HOLD_ON = "a workload that holds until it is told (workloads/PROTOCOL.md), or longer jobs"


def went_on(env: Environment, node: str, since_ns: int) -> bool:
    """Whether a contender that was hit has shown what it does when it comes back: it wrote, or it believes no more.

    One that is let go at once may give the lock up instead, and what it would have done to the resource isn't seen.
    """
    hold = env.hold_of(node)
    return hold is None or not hold.believed(env.now()) or env.wrote(node, since_ns)


def lasting_seconds(terms: LeaseTerms) -> float:
    """How long a fault on a holder must last, so that its lease surely runs out under it and another takes the lock."""
    return terms.given_away_most_seconds + MARGIN_SECONDS


def bite(
    env: Environment, target: str, node: str, began_ns: int, ended_ns: int, *, interrupted: str | None = None
) -> Bite:
    """Measured for the contender on this node, which was hit as what `target` says: as the holder, as a waiter, or by
    its name, as whichever it was. `interrupted` says how the fault was not in force throughout.
    """
    terms, hold, last = env.terms(), env.hold_of(node, began_ns), env.hold_of(node, ended_ns)
    if hold is not None and not hold.believed(began_ns):
        hold = None
    if hold is not None and last is not None and last.since_ns == hold.since_ns:
        hold = last  # the same, with what was promised to it meanwhile: a cut may let requests through
    wait = env.wait_of(node, began_ns)
    if interrupted is not None:
        return Bite(False, f"it did not last until its end: {interrupted}", _evidence(hold, wait, began_ns, ended_ns))
    if target != "holder" and (hold is None or target == "waiter") and wait is not None:
        others = [grant for grant in env.granted(began_ns, ended_ns) if grant.node != node]
        return of_waiter(node, wait, others, terms, began_ns, ended_ns)
    if target == "waiter":
        return Bite(
            False, f"{node} did not wait for the lock when the fault began", _evidence(hold, wait, began_ns, ended_ns)
        )
    return of_holder(node, hold, terms, began_ns, ended_ns)


def of_holder(node: str, hold: SeenHold | None, terms: LeaseTerms, began_ns: int, ended_ns: int) -> Bite:
    """`hold`: what it believed in when the fault began, promised by the requests that were sent until it ended."""
    evidence = _evidence(hold, None, began_ns, ended_ns)
    lasted = (ended_ns - began_ns) / 1e9
    longer = f"fault_on of at least {lasting_seconds(terms):.1f} s"
    if hold is None:
        return Bite(False, f"{node} did not hold the lock when the fault began", evidence, HOLD_ON)
    if not terms.expires:
        return _for_ever(node, hold, terms, began_ns, ended_ns, evidence)
    if hold.promise_end_ns is None:
        return _unseen(node, hold, terms, began_ns, ended_ns, evidence)
    # The promise counts from the sending of a request, as do the terms.
    free_ns = hold.promise_end_ns + round((terms.given_away_least_seconds - terms.ttl_seconds) * 1e9)
    evidence["may_be_given_away_ns"] = free_ns
    if hold.promise_end_ns <= began_ns:
        over = (began_ns - hold.promise_end_ns) / 1e9
        return Bite(False, f"the lease of {node} had run out {over:.1f} s before the fault began", evidence)
    if (gone := _given_up(hold)) is not None and gone[0] < free_ns:
        at, how = gone
        early = (free_ns - at) / 1e9
        return Bite(False, f"{node} {how} {early:.1f} s before its lease could have run out", evidence, HOLD_ON)
    if free_ns > ended_ns:
        short = (free_ns - ended_ns) / 1e9
        reason = f"it ended after {lasted:.1f} s, {short:.1f} s before the lease of {node} could have run out"
        return Bite(False, reason, evidence, longer)
    before = (ended_ns - free_ns) / 1e9
    return Bite(True, f"the lease of {node} ran out {before:.1f} s before the fault ended", evidence)


def _for_ever(
    node: str, hold: SeenHold, terms: LeaseTerms, began_ns: int, ended_ns: int, evidence: dict[str, Any]
) -> Bite:
    """No lease runs out: it keeps everybody out for as long as nobody takes it from it, and may lose it with its
    connection.
    """
    lasted, most = (ended_ns - began_ns) / 1e9, terms.given_away_most_seconds
    if (gone := _given_up(hold)) is not None and gone[0] < ended_ns:
        early = (ended_ns - gone[0]) / 1e9
        return Bite(False, f"{node} {gone[1]} {early:.1f} s before the fault ended", evidence, HOLD_ON)
    if lasted < most:
        reason = (
            f"it ended after {lasted:.1f} s, and the lock of a holder that is gone may be given away {most:.1f} s later"
        )
        return Bite(False, reason, evidence, f"fault_on of at least {lasting_seconds(terms):.1f} s")
    return Bite(True, f"{node} held a lock that doesn't expire, for the {lasted:.1f} s that the fault lasted", evidence)


def _unseen(
    node: str, hold: SeenHold, terms: LeaseTerms, began_ns: int, ended_ns: int, evidence: dict[str, Any]
) -> Bite:
    """Its lease may have been renewed until the very moment when the fault began: the fault alone must outlast it."""
    lasted, most = (ended_ns - began_ns) / 1e9, terms.given_away_most_seconds
    over_ns = began_ns + round(most * 1e9)
    if (gone := _given_up(hold)) is not None and gone[0] < over_ns:
        early = (over_ns - gone[0]) / 1e9
        return Bite(False, f"{node} {gone[1]} {early:.1f} s before its lease was over for certain", evidence, HOLD_ON)
    if lasted < most:
        return Bite(
            False,
            f"it lasted {lasted:.1f} s, and a lease whose renewals nobody sees may go on for {most:.1f} s",
            evidence,
            f"fault_on of at least {lasting_seconds(terms):.1f} s",
        )
    return Bite(True, f"it lasted {lasted:.1f} s, longer than any lease of {node} ({most:.1f} s)", evidence)


def _given_up(hold: SeenHold) -> tuple[int, str] | None:
    """When it gave the lock up of its own will, and how; None while it did not. To lose it is no such thing."""
    if hold.released_ns is not None:
        return hold.released_ns, "released"
    if hold.ended_by == "acquire" and hold.ended_ns is not None:
        return hold.ended_ns, "asked for the lock again"
    return None


def of_waiter(
    node: str, wait: SeenWait, others: Sequence[SeenHold], terms: LeaseTerms, began_ns: int, ended_ns: int
) -> Bite:
    """`wait`: its acquire that was under way when the fault began; `others`: what was granted to others meanwhile."""
    evidence = _evidence(None, wait, began_ns, ended_ns)
    until = ended_ns if wait.until_ns is None else min(wait.until_ns, ended_ns)
    hands = [grant.since_ns for grant in others if grant.since_ns <= until]
    evidence["changed_hands_ns"] = hands
    longer = f"fault_on of at least {lasting_seconds(terms):.1f} s, or shorter jobs, so that the lock changes hands"
    if wait.came_to == "ok" and wait.until_ns is not None and wait.until_ns <= ended_ns:
        return Bite(True, f"{node} was given the lock while the fault was on", evidence)
    if hands:
        times = "once" if len(hands) == 1 else f"{len(hands)} times"
        return Bite(True, f"the lock changed hands {times} while {node} waited for it and could not take it", evidence)
    if until < ended_ns:
        waited = (until - began_ns) / 1e9
        reason = f"{node} stopped waiting {waited:.1f} s after the fault began, and the lock had not changed hands"
        return Bite(False, reason, evidence, "a longer wait_ttls of the workload")
    return Bite(False, f"the lock did not change hands in the {(ended_ns - began_ns) / 1e9:.1f} s", evidence, longer)


def _evidence(hold: SeenHold | None, wait: SeenWait | None, began_ns: int, ended_ns: int) -> dict[str, Any]:
    evidence: dict[str, Any] = {"began_ns": began_ns, "ended_ns": ended_ns}
    if hold is not None:
        evidence |= {
            "process": hold.process,
            "token": hold.token,
            "held_since_ns": hold.since_ns,
            "promise_end_ns": hold.promise_end_ns,
            "stopped_believing_ns": hold.ended_ns,
            "stopped_believing_by": hold.ended_by,
            "released_ns": hold.released_ns,
        }
    if wait is not None:
        evidence |= {"process": wait.process, "waiting_since_ns": wait.since_ns, "waited_until_ns": wait.until_ns}
    return evidence
