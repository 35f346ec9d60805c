"""The config line of a contender (PROTOCOL.md), checked at the border: every problem is named by its key."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads.holders import HOLDERS, Holder, holder_of


class BadConfig(ValueError):
    """A key of the config, or a parameter of the workload, is wrong. Says which and what would be right."""

    def __init__(self, key: str, reason: str) -> None:
        self.key, self.reason = key, reason
        super().__init__(f"{key}: {reason}")


@dataclass(frozen=True)
class ContenderConfig:
    """The config of one contender. Times: `epoch_ns` is the CLOCK_BOOTTIME that is 0 in the history, `ttl` in
    seconds.
    """

    process: int
    epoch_ns: int
    seed: int | str
    lock: str
    workload: str
    client: str
    client_config: Mapping[str, Any]
    ttl: float
    holder: str
    resource: Mapping[str, Any] | None
    parameters: Mapping[str, Any]

    @property
    def kind(self) -> Holder:
        """The kind of holder that it is."""
        return HOLDERS[self.holder]


KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "process": (int, "an integer"),
    "epoch": (int, "an integer (CLOCK_BOOTTIME in ns)"),
    "seed": ((int, str), "an integer or a string"),
    "lock": (str, "a string"),
    "workload": (str, "a string module:class"),
    "client": (str, "a string module:class"),
    "client_config": (dict, "an object"),
    "ttl": ((int, float), "a number (seconds)"),
    "holder": ((str, type(None)), f"one of {', '.join(HOLDERS)}"),
    "guarded": ((bool, type(None)), "true or false"),
    "resource": ((dict, type(None)), "an object or null"),
    "parameters": (dict, "an object"),
}
DEFAULTS: Mapping[str, Any] = {"lock": "lock", "holder": None, "guarded": None, "resource": None, "parameters": {}}
RESOURCE_KEYS = ("host", "port", "user", "password", "dbname", "run")


def parse(line: str | bytes) -> ContenderConfig:
    """The config from the first line of stdin. BadConfig names the first key that is missing or wrong."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise BadConfig("config", f"the first line of stdin is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadConfig("config", f"must be a JSON object, not {type(given).__name__}")
    for key in given:
        if key not in KINDS:
            raise BadConfig(key, f"unknown key (known: {', '.join(KINDS)})")
    values: dict[str, Any] = {}
    for key, (kind, words) in KINDS.items():
        if key not in given and key not in DEFAULTS:
            raise BadConfig(key, f"is missing; it must be {words}")
        value = given.get(key, DEFAULTS.get(key))
        if not isinstance(value, kind) or (isinstance(value, bool) and key != "guarded"):
            raise BadConfig(key, f"must be {words}, not {value!r}")
        values[key] = value
    if values["process"] < 0:
        raise BadConfig("process", f"must not be negative, but is {values['process']}")
    if not 0 < values["ttl"] < 86400:
        raise BadConfig("ttl", f"must lie between 0 and 86400 s, not {values['ttl']!r}")
    if not values["lock"] or not all(c.isalnum() or c in "-_." for c in values["lock"]):
        raise BadConfig("lock", f"a name of letters, digits, '-', '_' and '.', not {values['lock']!r}")
    _check_endpoints(values["client_config"])
    if values["resource"] is not None:
        for key in RESOURCE_KEYS:
            if key not in values["resource"]:
                raise BadConfig(f"resource.{key}", "is missing")
    try:
        values["holder"] = holder_of(values)
    except ValueError as error:
        raise BadConfig("holder", str(error)) from error
    del values["guarded"]
    values["epoch_ns"] = values.pop("epoch")
    return ContenderConfig(**values)


def _check_endpoints(settings: Mapping[str, Any]) -> None:
    endpoints = settings.get("endpoints")
    if not isinstance(endpoints, list) or not endpoints:
        raise BadConfig("client_config.endpoints", f"must be a list of [host, port], not {endpoints!r}")
    for number, pair in enumerate(endpoints):
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], int)):
            raise BadConfig(f"client_config.endpoints[{number}]", f"must be [host, port], not {pair!r}")


def load(key: str, reference: str) -> Any:
    """What `module:attribute` names. BadConfig with the key when there is no such thing."""
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadConfig(key, f"{reference!r} can't be loaded: {error}") from error
