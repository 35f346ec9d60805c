"""Whom a fault hits. A target is a question, answered at the moment of injection.

"leader" is whoever leads when the fault is applied, not when the trial was configured; "holder" is the contender that
holds the lock right now. Where the words leave a choice (`one`, `minority`, …) it is drawn from the fault's own seeded
generator, so that a trial can be repeated.
"""

from __future__ import annotations

import difflib
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import HarnessError, UsageError
from nemesis.base import Environment

WORDS = {
    "leader": "the server that leads now",
    "follower": "a server that doesn't lead now",
    "one": "any one server",
    "minority": "as many servers as the rest can do without, drawn by lot",
    "majority": "as many servers as make a quorum, drawn by lot",
    "all": "every server",
    "holder": "the contender that holds the lock now",
    "waiter": "a contender that doesn't hold the lock now",
}
SERVERS = ("leader", "follower", "one", "minority", "majority", "all")
CONTENDERS = ("holder", "waiter")
NAME = re.compile(r"[a-z]+\d+")
PATIENCE_SECONDS = 10.0
"""How long a fault waits for somebody to lead or to hold, at least. On a busy machine, elections take their time."""
POLL_SECONDS = 0.02


class NoTarget(HarnessError):
    """Nobody answered to the target's description in time."""


@dataclass(frozen=True)
class Resolved:
    """Whom the target meant: nodes, and the process numbers of those that are contenders."""

    nodes: tuple[str, ...]
    processes: tuple[int, ...]


def check(kind: str, target: str, allowed: Sequence[str]) -> str:
    """The target, after it was found among the words allowed, or is the name of a node ("n1", "c0").

    An empty target means the first word allowed. Raises UsageError with the near ones.
    """
    if not target:
        return allowed[0]
    if target in allowed or NAME.fullmatch(target):
        return target
    if target in WORDS:
        raise UsageError(f"{kind} takes no target {target!r} (it takes {', '.join(allowed)}, or a node's name)")
    near = difflib.get_close_matches(target, allowed, n=1)
    hint = f"did you mean {kind}-{near[0]}?" if near else f"known: {', '.join(allowed)}, or a node's name such as n1"
    raise UsageError(f"unknown target {target!r} of {kind}; {hint}")


def sensible(target: str, servers: int) -> str | None:
    """None when a cluster of so many servers has such a target, else the rule that leaves the cell out."""
    if servers == 1 and target in ("follower", "minority"):
        return f"a single server has no {target}"
    if servers == 1 and target in ("majority", "one", "all"):
        return f"with a single server, {target!r} is the same as 'leader'"
    if servers == quorum(servers) and target == "minority":
        return f"of {servers} servers none can be done without, so that there is no minority"
    return None


def quorum(servers: int) -> int:
    """How many servers make a majority."""
    return servers // 2 + 1


def resolve(env: Environment, target: str, rng: random.Random, *, patience: float = PATIENCE_SECONDS) -> Resolved:
    """Answer the question now. Waits up to `patience` seconds for somebody to lead, or to hold the lock.

    Raises NoTarget when nobody does, UsageError for a node that doesn't exist.
    """
    servers = list(env.servers)
    if target == "leader":
        return Resolved((_leader(env, patience),), ())
    if target == "follower":
        leader = _leader(env, patience)
        followers = [server for server in servers if server != leader]
        if not followers:
            raise NoTarget(f"{leader} is the only server: there is no follower")
        return Resolved((rng.choice(followers),), ())
    if target == "one":
        return Resolved((rng.choice(servers),), ())
    if target in ("minority", "majority"):
        need = quorum(len(servers))
        size = need if target == "majority" else len(servers) - need
        if size == 0:
            raise NoTarget(f"{len(servers)} server(s) have no {target}")
        return Resolved(tuple(sorted(rng.sample(servers, size))), ())
    if target == "all":
        return Resolved(tuple(servers), ())
    if target == "holder":
        holder = _holder(env, patience)
        return Resolved((holder,), (env.contenders[holder],))
    if target == "waiter":
        waiter = _waiter(env, rng, patience)
        return Resolved((waiter,), (env.contenders[waiter],))
    if target in servers:
        return Resolved((target,), ())
    if target in env.contenders:
        return Resolved((target,), (env.contenders[target],))
    raise UsageError(f"no node {target!r} in this trial (nodes: {', '.join([*servers, *env.contenders])})")


def on_contender(target: str) -> bool:
    """Whether a target is a contender: by a word, or by its name ("c0")."""
    return target in CONTENDERS or (bool(NAME.fullmatch(target)) and target.startswith("c"))


def patience_of(env: Environment) -> float:
    """How long to wait for somebody to lead or to hold, where nobody says: the lock may be on its way to another."""
    terms = env.terms()
    return max(PATIENCE_SECONDS, 2 * (terms.given_away_most_seconds + terms.hand_over_seconds))


def await_hold(env: Environment, patience: float) -> str | None:
    """Wait for somebody to hold the lock, for a ttl at most: for faults on servers that matter to who holds.

    Where contenders can be told, until one has said that it goes on holding. Its node; nobody need be found.
    """
    seconds = min(patience, env.terms().ttl_seconds)
    return env.wait_until_told(seconds) if env.holds_until_told else env.wait_for_holder(seconds)


def _holder(env: Environment, patience: float) -> str:
    """Who holds the lock, and has said that it goes on holding until it is told, where the contenders understand that.

    A hold that may end at any moment would mostly be over when the fault has come. So where they can be told, nobody is
    hit who has not said it.
    """
    if not env.holds_until_told:
        holder = env.wait_for_holder(patience)
        if holder is None:
            raise NoTarget(f"nobody held the lock within {patience:g} s")
        return holder
    holder = env.wait_until_told(patience)
    if holder is None:
        raise NoTarget(f"nobody held the lock and said within {patience:g} s that it would go on holding until told")
    return holder


def _waiter(env: Environment, rng: random.Random, patience: float) -> str:
    """One of those that wait for the lock while somebody else holds it."""
    end = time.monotonic() + patience
    while True:
        holder, now = env.holder(), env.now()
        waiters = [node for node in env.contenders if node != holder and env.wait_of(node, now) is not None]
        if holder is not None and waiters:
            return rng.choice(waiters)
        if time.monotonic() > end:
            held = "nobody held the lock" if holder is None else f"{holder} held the lock and nobody waited for it"
            raise NoTarget(f"{held} within {patience:g} s")
        time.sleep(POLL_SECONDS)


def _leader(env: Environment, patience: float) -> str:
    end = time.monotonic() + patience
    while (leader := env.leader()) is None:
        if time.monotonic() > end:
            raise NoTarget(f"no server was known to lead within {patience:g} s")
        time.sleep(POLL_SECONDS)
    return leader
