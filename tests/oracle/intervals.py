"""The contract's chapter "Derived intervals": what a grant was believed, promised and proven to be.

Instants are nanoseconds (integers or fractions), `INFINITE` for never, `None` where the contract says none or unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.oracle.reading import Event, History, Op, nanoseconds

INFINITE = float("inf")
Instant = int | Fraction | float


@dataclass
class Own:
    """An own renew, release or lost of a grant. `outcome` may differ from what was recorded: see `own`."""

    f: str
    invoke: Event
    outcome: str
    completion: Event | None
    ttl: Any = None
    proves: bool = True
    """False where the service answers ok whether or not it was held."""
    answered: Event | None = None
    """Its completion, however late it came."""


@dataclass
class Grant:
    """An acquire that returned ok, with everything that the contract derives from it."""

    history: History
    op: Op
    own: list[Own] = field(default_factory=list)
    next_acquire: Event | None = None
    next_crash: Event | None = None
    promise: Instant | None = None
    belief_end: Instant = 0
    belief_ended_by: Event | None = None
    """None: it believed to the end of the history."""
    ended: Event | None = None
    proven: Event | None = None
    L: Instant | None = None
    E: Instant = 0
    latest: Instant | None = None

    # What was recorded.

    @property
    def process(self) -> Any:
        return self.op.process

    @property
    def lock(self) -> str:
        return self.op.lock

    @property
    def invoke(self) -> int:
        return self.op.invoke.time

    @property
    def ok_event(self) -> Event:
        assert self.op.completion is not None
        return self.op.completion

    @property
    def ok(self) -> int:
        return self.ok_event.time

    @property
    def token(self) -> int | None:
        token = self.ok_event.get("token")
        assert token is None or isinstance(token, int)
        return token

    @property
    def ttl(self) -> Any:
        """Of its acquire, in seconds: its ok's, else the meta's, else None."""
        ttl = self.ok_event.get("ttl")
        return self.history.meta.get("ttl") if ttl is None else ttl

    @property
    def unseen(self) -> bool:
        """Its client renews by itself and doesn't tell when."""
        return bool(self.ok_event.get("renewals") == "unseen")

    @property
    def solid(self) -> bool:
        return self.L is not None and self.ok + self.history.uncertainty <= self.L

    @property
    def late(self) -> bool:
        return self.L is not None and self.ok > self.L


def grants(history: History) -> list[Grant]:
    """Every grant of the history, in order of its ok (ties by line)."""
    found = []
    for op in history.ops:
        if op.f == "acquire" and op.outcome == "ok":
            grant = Grant(history, op)
            _own(grant)
            _derive(grant)
            found.append(grant)
    return sorted(found, key=lambda grant: grant.ok_event.position)


def _own(grant: Grant) -> None:
    """Its own renews, releases and lost: of the same process and lock, invoked from g.ok on, up to that process's next
    acquire invoke on that lock, its next crash, or the completion of the first own release that returned ok."""
    history, start = grant.history, grant.ok_event.position
    for event in history.events:
        if event.position <= start or event.process != grant.process:
            continue
        if event.f == "crash" and grant.next_crash is None:
            grant.next_crash = event
        if event.f == "acquire" and event.type == "invoke" and event.lock == grant.lock and grant.next_acquire is None:
            grant.next_acquire = event
    ends = [event.position for event in (grant.next_acquire, grant.next_crash) if event is not None]
    end = min(ends, default=len(history.events))

    candidates = []
    for op in history.ops:
        if op.process == grant.process and op.lock == grant.lock and op.f in ("renew", "release"):
            completion = op.completion
            if completion is not None and completion.position > end:
                completion = None  # completed only after that next acquire invoke or crash: counts as info
            outcome = "info" if completion is None else completion.type
            # An answer that came too late to count still says what was asked for.
            ttl = op.key("ttl") if op.outcome == "ok" else op.invoke.get("ttl")
            proves = completion is None or completion.get("proves") is not False
            if op.f == "renew" and outcome == "ok" and not proves:
                outcome = "info"  # an ok that proves nothing
            candidates.append(Own(op.f, op.invoke, outcome, completion, ttl, proves, op.completion))
    for event in history.events:
        if event.process == grant.process and event.lock == grant.lock and event.f == "lost":
            candidates.append(Own("lost", event, "info", event))
    candidates = [own for own in candidates if start < own.invoke.position < end]
    candidates.sort(key=lambda own: own.invoke.position)

    for own in candidates:
        if own.f == "release" and own.outcome == "ok":
            assert own.completion is not None
            end = own.completion.position
            break
    grant.own = [own for own in candidates if own.invoke.position < end]


def promise_over(grant: Grant, renews: list[Own]) -> Instant | None:
    """T + ttl * (1 - rate_tolerance), over the acquire and these of its own renews."""
    history = grant.history
    if history.setting("expires", True) is False:
        return INFINITE
    lease_from = grant.ok_event.get("lease_from")
    sent: Instant = grant.invoke if lease_from is None else lease_from
    ttl = grant.ttl
    for renew in renews:  # in order of time: the last that returned ok stays
        if renew.outcome == "ok":
            sent = renew.invoke.time
            ttl = grant.ttl if renew.ttl is None else renew.ttl
    ttls = [ttl]
    for renew in renews:
        if renew.outcome == "info":
            ttls.append(grant.ttl if renew.ttl is None else renew.ttl)
    if any(each is None for each in ttls):
        return None
    return sent + nanoseconds(min(ttls)) * (1 - Fraction(history.setting("rate_tolerance", 0)))


def _derive(grant: Grant) -> None:
    history, own = grant.history, grant.own
    renews = [each for each in own if each.f == "renew"]
    releases = [each for each in own if each.f == "release"]

    # belief: to the first own release invoke, own lost, next crash or next acquire; else the last event's time.
    stops = [each.invoke for each in own if each.f in ("release", "lost")]
    stops += [event for event in (grant.next_crash, grant.next_acquire) if event is not None]
    grant.belief_ended_by = min(stops, key=lambda event: event.position, default=None)
    grant.belief_end = history.last if grant.belief_ended_by is None else grant.belief_ended_by.time

    grant.promise = promise_over(grant, renews)

    # ended: own lost with reason expired, or the completion of an own renew or release that failed with held false.
    ends = [each.invoke for each in own if each.f == "lost" and each.invoke.get("reason") == "expired"]
    for each in renews + releases:
        if each.outcome == "fail" and each.completion is not None and each.completion.get("held") is False:
            ends.append(each.completion)
    grant.ended = min(ends, key=lambda event: event.position, default=None)

    # proven: the latest invoke of an own renew or release that returned ok, of those invoked before ended(g).
    proofs = [each.invoke for each in renews + releases if each.outcome == "ok" and each.proves]
    if grant.ended is not None:
        proofs = [event for event in proofs if event.position < grant.ended.position]
    grant.proven = max(proofs, key=lambda event: event.position, default=None)

    proven = None if grant.proven is None else grant.proven.time
    if grant.promise is None:
        grant.L = proven
    else:
        ways: list[Instant] = [grant.promise]
        ways += [each.invoke.time for each in releases if each.outcome != "fail"][:1]
        ways += [event.time for event in (grant.ended, grant.next_acquire) if event is not None]
        earliest = min(ways)
        grant.L = earliest if proven is None else max(proven, earliest)
    grant.E = grant.invoke if grant.L is None else max(grant.invoke, grant.L)
    grant.latest = _latest(grant, [each for each in renews if each.outcome != "fail"])


def _latest(grant: Grant, renews: list[Own]) -> Instant | None:
    """When its lease can have run out by itself at the latest: the last completion of the acquire and of the own renews
    that did not fail, and the greatest ttl among these, stretched by what its clock may run slow."""
    history = grant.history
    if history.setting("expires", True) is False:
        return INFINITE
    instants: list[Instant] = [grant.ok]
    ttls = [grant.ttl]
    for renew in renews:
        instants.append(renew.invoke.time if renew.answered is None else renew.answered.time)
        ttls.append(grant.ttl if renew.ttl is None else renew.ttl)
    if grant.unseen:
        instants.append(grant.belief_end)
    if any(ttl is None for ttl in ttls):
        return INFINITE if grant.unseen else None
    return max(instants) + nanoseconds(max(ttls)) * (1 + Fraction(history.setting("rate_tolerance", 0)))


def precedes(a: Grant, b: Grant) -> bool:
    """b ended after a had begun: E(b) is after a.ok."""
    if a.process == b.process:
        return a.ok_event.position < b.ok_event.position
    return a.ok + a.history.uncertainty < b.E


def precedes_without_promises(a: Grant, b: Grant) -> bool:
    """The same with L = proven."""
    end = b.invoke if b.proven is None else max(b.invoke, b.proven.time)
    return a.ok + a.history.uncertainty < end


def frozen(history: History, process: Any) -> list[tuple[int, int]]:
    """The landed faults of kind freeze or pause, or outside that paused, that list the process: start to stop."""
    return [
        (fault.start.time, history.last if fault.stop is None else fault.stop.time)
        for fault in history.faults
        if fault.landed and fault.freezes and fault.hits(process)
    ]
