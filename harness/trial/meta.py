"""The first line of a trial's history: what was promised to its contenders, and which verdicts it requires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.trial.clock import HistoryClock
from harness.trial.config import TrialConfig

ALWAYS = ("conduct", "progress", "faults")
WITH_RENEWALS_SEEN = ("lease", "linearizable")
WITH_TOKENS = ("fencing", "fenced")


def meta(config: TrialConfig, trial: str, clock: HistoryClock, hellos: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The meta of a trial of this name, from what it asks for and what its contenders said of their clients."""
    hellos = list(hellos)
    expires = all((hello.get("client") or {}).get("expires", True) for hello in hellos)
    return {
        "system": config.system,
        "ttl": config.ttl,
        **({} if expires else {"expires": False}),
        "uncertainty": config.uncertainty,
        "rate_tolerance": config.rate_tolerance,
        "min_grants": config.min_grants,
        "progress_bound": config.progress_bound,
        "require": required(hellos),
        "started": clock.started,
        "fault": config.fault,
        "holder": config.kind,
        "seed": config.seed,
        "trial": trial,
    }


def required(hellos: Iterable[Mapping[str, Any]]) -> list[str]:
    """Which verdicts a trial requires: those that one with these clients can come to when nothing is wrong.

    A lock without tokens can't be fenced, and where a library renews a lease untold, nobody can say from outside how
    long it ran: asking for those verdicts would leave every clean trial unknown. Of a client that says nothing the
    usual is taken (workloads/PROTOCOL.md), so also of contenders that never said hello.
    """
    clients = [hello.get("client") or {} for hello in hellos]
    names = list(ALWAYS)
    if all(client.get("renewals", "seen") == "seen" for client in clients):
        names += WITH_RENEWALS_SEEN
    if all(client.get("tokens", True) for client in clients):
        names += WITH_TOKENS
    return names
