"""A bad config line is told by its key, before anything is done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workloads.lock import PARAMETERS, LockWorkload
from workloads.validate import BadConfig, load, parse

GOOD: dict[str, Any] = {
    "process": 0,
    "epoch": 123,
    "seed": "7/0",
    "lock": "lock",
    "workload": "workloads.lock:LockWorkload",
    "client": "workloads.clients.base:NoLock",
    "client_config": {"endpoints": [["n1", 2379]]},
    "ttl": 2.0,
    "guarded": True,
    "resource": None,
    "parameters": {},
}
MISSING = object()


def test_a_good_config_is_taken_as_it_is() -> None:
    """And what may be left out has its default."""
    config = parse(json.dumps(GOOD))
    assert (config.process, config.epoch_ns, config.seed, config.ttl) == (0, 123, "7/0", 2.0)
    short = {key: GOOD[key] for key in ("process", "epoch", "seed", "workload", "client", "client_config", "ttl")}
    assert parse(json.dumps(short)) == config


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("process", MISSING, "process: is missing"),
        ("process", -1, "process: must not be negative"),
        ("process", True, "process: must be an integer"),
        ("epoch", "now", "epoch: must be an integer"),
        ("ttl", 0, "ttl: must lie between"),
        ("ttl", "2", "ttl: must be a number"),
        ("guarded", 1, "guarded: must be true or false"),
        ("lock", "", "lock: a name of letters"),
        ("lock", "a/b", "lock: a name of letters"),
        ("client_config", {}, "client_config.endpoints: must be a list"),
        ("client_config", {"endpoints": [["n1"]]}, r"client_config.endpoints\[0\]: must be \[host, port\]"),
        ("resource", {"host": "x"}, "resource.port: is missing"),
        ("colour", "red", "colour: unknown key"),
    ],
)
def test_a_bad_key_is_named(key: str, value: Any, words: str) -> None:
    """With what would be right."""
    given = {**GOOD, key: value}
    if value is MISSING:
        del given[key]
    with pytest.raises(BadConfig, match=words):
        parse(json.dumps(given))


@pytest.mark.parametrize("line", ["", "{", "[]", "7", "null"])
def test_what_is_no_config_at_all_is_told(line: str) -> None:
    """Not JSON, or not an object."""
    with pytest.raises(BadConfig, match=r"^config: "):
        parse(line)


@pytest.mark.parametrize("reference", ["", "workloads", "workloads:nothing", "no.such.module:X", ":X"])
def test_a_reference_to_nothing_is_told(reference: str) -> None:
    """With the key that holds it."""
    with pytest.raises(BadConfig, match=r"^client: "):
        load("client", reference)


def test_defaults_of_the_workload_are_within_their_own_ranges() -> None:
    """And everything is resolved."""
    resolved = LockWorkload.resolve({})
    assert set(resolved) == set(PARAMETERS)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"colour": 1}, "parameters.colour: unknown"),
        ({"long_share": 2}, "parameters.long_share: must lie between 0 and 1"),
        ({"long_share": "many"}, "parameters.long_share: must be a number"),
        ({"hold_min": True}, "parameters.hold_min: must be a number"),
        ({"hold_min": 3}, "parameters.hold_min: must not be above hold_max"),
        ({"think_min": 1}, "parameters.think_min: must not be above think_max"),
    ],
)
def test_a_bad_parameter_is_named(given: dict[str, Any], words: str) -> None:
    """With its range and unit."""
    with pytest.raises(BadConfig, match=words):
        LockWorkload.resolve(given)
