"""Whether a fault on servers bit: leadership moved under it, or contenders were not served.

Shared by the faults that hit servers. Measured are who led before the fault, while it is on (asked of the servers that
can still answer) and after it, and what became of the requests that contenders had under way meanwhile:

    leadership moved      another leader, a higher term, or nobody leads: a new leader has to know of every lease that
                          the old one granted, and the old one that it leads no more
    service stood still   nobody was answered for longer than one request may take, though somebody asked
    requests suffered     some failed without the service's word, or took longer than that, while others were answered

None of them, and the fault was borne without anybody noticing: it *missed*. That holds for a follower's loss too, which
a quorum is meant to bear: were it called immune, a cell that never touches a contender would be green.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.systems.base import Leadership
from harness.systems.roles import Role
from nemesis.base import Environment
from nemesis.bite import Bite, SeenRequest

OPERATION_TTLS = 1 / 3
"""The longest that a contender lets one request take (workloads/contender.py, `operation_seconds`), in ttls."""


@dataclass(frozen=True)
class Aim:
    """What a fault on this target of servers is to bring about, and what to set where it didn't."""

    means: str
    remedy: str


LONGER = "let it last longer than the servers take to elect another leader (schedule.on)"
CONNECTED = "contenders notice only what their own server does: take more of them, or hit the leader or a majority"
AIMS: Mapping[str, Aim] = {
    "leader": Aim("an election, or nobody served until it is back", LONGER),
    "follower": Aim("contenders that are connected to it lose their requests", CONNECTED),
    "one": Aim("an election when it led, lost requests when contenders were connected to it", CONNECTED),
    "minority": Aim("an election when one of them led, lost requests of those connected to them", CONNECTED),
    "majority": Aim("nobody is served: the rest is no quorum", LONGER),
    "all": Aim("nobody is served", LONGER),
}
NAMED = Aim("an election when it led, lost requests when contenders were connected to it", CONNECTED)
"""For a server by its name."""


def aim(target: str, roles: Sequence[Role] = ()) -> Aim:
    """What a fault on this target, which may be one of these roles, is to bring about."""
    role = next((role for role in roles if role.name == target), None)
    if role is not None and role.means:
        return Aim(role.means, CONNECTED)
    return AIMS.get("leader" if role is not None and role.leads else target, NAMED)


class Leading:
    """The measurement for one fault. `before`, `look` and `bite` are called once each, in this order.

    `silent`: the servers that can't be asked while it is on, because it has frozen or killed them. Waiting for their
    answers would make the fault longer.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._silent: Collection[str] = ()
        self.beside: Collection[str] = ()
        """The contenders beside which something of the system's was hit: what one of them is refused counts, too."""
        self.led: Leadership | None = None
        """Who led before."""
        self._during: Leadership | None = None

    def before(self, env: Environment, silent: Collection[str] = ()) -> None:
        """Ask who leads, right before anything is changed."""
        self._silent = silent
        self.led = env.leadership()

    def look(self, env: Environment) -> None:
        """Ask who leads by now, while it is on."""
        if set(env.servers) - set(self._silent):
            self._during = env.leadership(self._silent)

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """What was measured, in the words of this module."""
        assert self.led is not None, "before() comes first"
        moved, evidence = self.moved(env)
        requests = env.requests(began_ns, ended_ns)
        operation_ns = int(OPERATION_TTLS * env.terms().ttl_seconds * 1e9)
        suffered = [
            each
            for each in requests
            if _suffered(each, operation_ns, began_ns, ended_ns) or (each.node in self.beside and _refused(each))
        ]
        silence = _silence(requests, suffered, began_ns, ended_ns)
        most_ns = int(env.terms().given_away_most_seconds * 1e9) + operation_ns
        evidence |= {
            "silent_seconds": silence.seconds,
            "suffered": len(suffered),
            "suffered_of": sorted({each.node for each in suffered}),
            "requests": len(requests),
        }
        found = [moved] if moved is not None else []
        asked = silence.suffered and silence.seconds * 1e9 > operation_ns
        if asked or (requests and silence.seconds * 1e9 > most_ns):
            found.append(f"the service stood still for {silence.seconds:.2f} s")
        elif suffered:
            who = ", ".join(evidence["suffered_of"])
            found.append(f"{len(suffered)} of {len(requests)} requests suffered (of {who})")
        if found:
            return Bite(True, "; ".join(found), evidence)
        reason = f"no leadership moved, and all {len(requests)} requests that were under way came to their end in time"
        meant = aim(self._target, env.roles)
        return Bite(False, f"{reason} (meant was: {meant.means})", evidence, meant.remedy)

    def moved(self, env: Environment) -> tuple[str | None, dict[str, Any]]:
        """How leadership moved, as a sentence, or None; and the evidence. Asks all servers once more."""
        after = env.leadership()
        before = self.led
        assert before is not None, "before() comes first"
        evidence = {
            word: {"leader": each.leader, "term": each.term, "seen": dict(each.seen)}
            for word, each in (("before", before), ("during", self._during), ("after", after))
            if each is not None
        }
        # While it can't be asked, a leader that the others still follow may be known to none of them by name.
        known = before.leader not in self._silent
        for word, now, whole in (("while it was on", self._during, known), ("right after it", after, True)):
            if now is not None and (how := _changed(before, now, whole)) is not None:
                return f"{how} {word}", evidence
        return None, evidence


def _changed(before: Leadership, now: Leadership, whole: bool) -> str | None:
    """How leadership differs, or None. A term that grew tells of an election, also where the same server won it.

    `whole`: that nobody is known to lead now means that nobody does.
    """
    if whole and before.leader is not None and now.leader is None:
        return f"leadership moved: {before.leader} had led, and nobody led"
    terms = "" if before.term is None or now.term is None else f" (term {before.term}, then {now.term})"
    if now.leader is not None and now.leader != before.leader:
        return f"leadership moved from {before.leader or 'nobody'} to {now.leader}{terms}"
    if before.term is not None and now.term is not None and now.term > before.term:
        return f"there was an election, won by {now.leader} again{terms},"
    return None


def _suffered(request: SeenRequest, operation_ns: int, began_ns: int, ended_ns: int) -> bool:
    """Whether the service kept it waiting while the fault was on, or it failed without the service's word.

    An acquire may wait for its turn, and fail when that didn't come; that is no sign of anything.
    """
    if request.came_to == "crash":
        return False
    if request.came_to == "info" or (
        request.came_to == "fail" and request.f != "acquire" and request.held is not False
    ):
        return request.done_ns is not None and request.done_ns <= ended_ns + operation_ns
    end_ns = ended_ns if request.done_ns is None else min(request.done_ns, ended_ns)
    return request.f != "acquire" and end_ns - max(request.sent_ns, began_ns) > operation_ns


def _refused(request: SeenRequest) -> bool:
    """Whether the service's word was that it doesn't hold what it wanted to keep, or to give back."""
    return request.f != "acquire" and request.came_to == "fail" and request.held is False


@dataclass(frozen=True)
class _Silence:
    seconds: float
    suffered: bool
    """Whether a request that suffered was under way in it."""


def _silence(
    requests: Sequence[SeenRequest], suffered: Sequence[SeenRequest], began_ns: int, ended_ns: int
) -> _Silence:
    """The longest stretch in which no request was answered ok; of those with a sufferer, if there is one."""
    answered = sorted(
        each.done_ns
        for each in requests
        if each.came_to == "ok" and each.done_ns is not None and began_ns < each.done_ns < ended_ns
    )
    edges = [began_ns, *answered, ended_ns]
    stretches = [
        _Silence(
            (high - low) / 1e9,
            any(each.sent_ns < high and (each.done_ns is None or each.done_ns > low) for each in suffered),
        )
        for low, high in itertools.pairwise(edges)
    ]
    return max(stretches, key=lambda each: (each.suffered, each.seconds))
