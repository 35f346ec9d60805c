"""A trial at a cluster that exists: what can be asked for there, and the examination before anything starts."""

from __future__ import annotations

import secrets as random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness import registry, secrets
from harness.errors import ConfigError, UsageError
from harness.systems import attached
from harness.systems.attached import Access, Attachable, Found
from harness.systems.base import Settings
from nemesis import faults
from nemesis.targets import on_contender

if TYPE_CHECKING:
    from harness.trial.config import TrialConfig

OURS_ALONE: Mapping[str, str] = {
    "servers": "says how many servers to start, and none is started at endpoints",
    "system_options": "are settings of servers of ours, and none is started at endpoints",
}
"""Keys of a trial that concern servers of ours, and why they can't be given."""


def check(config: TrialConfig, options: Mapping[str, Any], bad: Callable[[str, str], ConfigError]) -> None:
    """Raises `bad(key, reason)` for what makes no sense with endpoints. `options`: with their secrets."""
    if not config.endpoints:
        raise bad("endpoint_options", "are for a cluster that exists; give endpoints beside them")
    system = registry.load("systems", config.system)()
    if (reason := attached.why_not(system)) is not None:
        raise bad("endpoints", reason)
    for key, why in OURS_ALONE.items():
        if getattr(config, key):
            raise bad(key, why)
    if system.image in config.images:
        raise bad(f"images.{system.image}", "is the image of servers of ours, and none is started at endpoints")
    if config.client is not None and not getattr(registry.load("clients", config.client), "attaches", False):
        raise bad("client", f"{config.client} knows only clusters that the trial starts, no endpoints")
    for key, look in (
        ("endpoints", lambda: attached.parse(config.endpoints)),
        ("endpoint_options", lambda: attached.access(config.endpoints, options)),
    ):
        try:
            look()
        except UsageError as error:
            raise bad(key, str(error)) from error


def not_offered(kind: str, target: str, options: Mapping[str, Any]) -> str | None:
    """None for a fault that hits contenders alone, else which there are."""
    if kind == "none" or (on_contender(target) and options.get("away_from") != "leader"):
        return None
    what = "away_from=leader asks who leads" if on_contender(target) else "it hits servers"
    return f"{what}, and those at endpoints aren't ours; what is offered there: {', '.join(offered())}"


def offered() -> list[str]:
    """The names of all faults on contenders."""
    names = []
    for listed in faults.combinations():
        if listed.kind == "none":
            names.append("none")
        names += [faults.name_of(listed.kind, target) for target in listed.targets if on_contender(target)]
    return names


@dataclass(frozen=True)
class Attachment:
    """A cluster that was examined, for one trial; all keys of the trial are below `prefix`."""

    system: Attachable
    access: Access
    found: Found
    prefix: str

    @property
    def nodes(self) -> list[str]:
        """The nodes of the site on which the ways to the endpoints begin, in their order."""
        return [f"e{number}" for number in range(1, len(self.access.endpoints) + 1)]

    def recorded(self) -> dict[str, Any]:
        """For trial.json, without secrets."""
        return {
            "at": dict(zip(self.nodes, map(str, self.access.endpoints), strict=True)),
            "tls": self.access.tls is not None,
            "user": self.access.user,
            "found": self.found.words,
            "prefix": self.prefix,
            "unseen": list(attached.UNSEEN),
        }


def examine(config: TrialConfig, settings: Settings) -> Attachment:
    """Ask the cluster. Raises EndpointError that names the endpoint and what is the case instead."""
    system = registry.load("systems", config.system)()
    assert isinstance(system, Attachable), "a resolved config has endpoints of no other"
    access = attached.access(config.endpoints, secrets.reveal(config.endpoint_options))
    prefix = f"fencepost/{random.token_hex(6)}"
    return Attachment(system, access, system.examine(access, settings, prefix), prefix)


def examine_first(config: TrialConfig) -> Found | None:
    """The same before anything is written or started, for a resolved config; None where the servers are ours."""
    if not config.endpoints:
        return None
    image = registry.load("systems", config.system).image
    return examine(config, Settings(config.ttl, len(config.endpoints), image, attached=True)).found
