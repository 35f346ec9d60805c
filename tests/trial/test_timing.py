"""The plan of a trial fits its system: for every system, fault and ttl, a fault can bite, and two of them fit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import registry
from harness.errors import ConfigError
from harness.images import versions
from harness.trial.config import TrialConfig, from_mapping, resolve
from nemesis import faults
from nemesis.schedule import APPLYING_SECONDS
from nemesis.targets import on_contender

SYSTEMS = ("consul", "etcd", "redis", "redis-sentinel", "zookeeper")
NAMES = [name for listed in faults.combinations() for name in listed.names if listed.kind != "none"]
TTLS = st.one_of(st.floats(0.5, 60), st.integers(1, 60).map(float), st.integers(5, 600).map(lambda tenths: tenths / 10))


def windows(config: TrialConfig) -> list[tuple[float, float]]:
    """When the faults of a trial begin and end, each applied and proven in the time that this takes."""
    cycle, found, ended = config.make_schedule().cycle(), [], 0.0
    while (window := cycle.next(ended)) is not None:
        ended = window.begin + window.on + APPLYING_SECONDS
        found.append((window.begin, ended))
    return found


@pytest.mark.parametrize("system", SYSTEMS)
@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from([*NAMES, "freeze-c0", "freeze-n1"]), ttl=TTLS)
def test_every_plan_fits_or_says_which_ttl_does(system: str, name: str, ttl: float) -> None:
    """A fault on a holder outlasts every lease of this system, and the time for another to take the lock. At least two
    come, apart from each other. Or the system doesn't grant such a ttl, and what it grants is told.
    """
    kind, target = faults.parse(name)
    servers = registry.load("systems", system).server_counts[0]
    if faults.why_not(kind, target, system=system, servers=servers) is not None:
        return
    step, least = (1.0, 1.0) if system == "etcd" else (0.001, 0.2)
    if ttl < least or abs(ttl / step - round(ttl / step)) > 1e-6:
        with pytest.raises(ConfigError, match=r"^ttl: [\w-]+ grants (no lease below|leases in steps of)"):
            resolve(TrialConfig(system=system, fault=name, ttl=ttl))
        return
    older = versions(system)[-1] if kind == "upgrade" else None
    config = resolve(TrialConfig(system=system, fault=name, ttl=ttl, version=older))
    assert config.fault_on is not None
    assert config.progress_bound is not None
    terms = config.terms()
    lock_can_be_taken_in = terms.given_away_most_seconds if on_contender(target) else terms.hand_over_seconds
    assert config.fault_on > lock_can_be_taken_in
    planned = windows(config)
    assert len(planned) >= 2
    assert all(later - earlier > 0.999 for (_, earlier), (later, _) in pairwise(planned))
    slowest = terms.given_away_most_seconds + terms.hand_over_seconds
    assert slowest + 1 < config.progress_bound < slowest + 3


@pytest.mark.parametrize("system", SYSTEMS)
def test_as_many_faults_come_as_before_at_the_usual_ttl(system: str) -> None:
    """Three in the default cells, on the holder too, and the longest takes little more than 20 s."""
    for name in ("freeze-holder", "freeze-leader", "clock-leader"):
        config = resolve(TrialConfig(system=system, fault=name))
        assert config.duration is not None
        assert len(windows(config)) == 3, name
        assert config.duration <= 23
    assert resolve(TrialConfig(system=system)).duration == 20.0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"system": "etcd", "ttl": 2.5}, "ttl: etcd grants leases in steps of 1 s, .*; give 2 or 3"),
        ({"system": "etcd", "ttl": 0.5}, "ttl: etcd grants no lease below 1 s, and the ttl is 0.5 s"),
        ({"system": "etcd", "system_options": {"election_ms": 3000}}, "grants no lease below 5 s with these system"),
        ({"system": "redis", "ttl": 0.5005}, "ttl: redis grants leases in steps of 0.001 s"),
        ({"system": "redis", "fault": "freeze-holder", "duration": 2},
         "duration: not one fault of 3.1 s fits into 2 s; set duration to 3.1 s at least, or a shorter fault_on"),
        ({"system": "redis", "fault": "freeze-leader", "schedule": {"warmup": 40}},
         "fault_on: not one fault of 4 s fits into 20 s after a warm-up of 40 s; set duration to 44 s at least"),
    ],
)  # fmt: skip
def test_what_can_not_fit_says_what_to_set(values: dict[str, Any], words: str) -> None:
    """Before anything is started."""
    with pytest.raises(ConfigError, match=words):
        resolve(from_mapping(values))


def test_given_times_are_kept_and_the_others_follow_from_them() -> None:
    """Who wants a fault of ten seconds has one, and enough time for two."""
    config = resolve(from_mapping({"system": "redis", "fault": "freeze-holder", "fault_on": 10.0}))
    assert config.fault_on == 10.0
    assert len(windows(config)) >= 2
    kept = resolve(from_mapping({"system": "redis", "fault": "freeze-holder", "fault_on": 0.4, "duration": 5.0}))
    assert (kept.fault_on, kept.duration) == (0.4, 5.0)
    assert "--fault-on 0.4" in kept.repeat_command()
    assert "--fault-on" not in resolve(TrialConfig(system="redis", fault="freeze-holder")).repeat_command()
