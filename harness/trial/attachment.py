"""A cluster that exists, examined for one trial: before anything starts, and again when the trial does."""

from __future__ import annotations

import secrets as random
from dataclasses import dataclass
from typing import Any

from harness import registry, secrets
from harness.systems import attached
from harness.systems.attached import Access, Attachable, Found
from harness.systems.base import Settings
from harness.trial.config import TrialConfig


@dataclass(frozen=True)
class Attachment:
    """A cluster that was examined, for one trial; all keys of the trial are below `prefix`."""

    system: Attachable
    access: Access
    settings: Settings
    found: Found
    prefix: str

    @property
    def nodes(self) -> list[str]:
        """The nodes of the site on which the ways to the endpoints begin, in their order."""
        return [f"e{number}" for number in range(1, len(self.access.ways) + 1)]

    def recorded(self) -> dict[str, Any]:
        """For trial.json, without secrets."""
        return {
            "at": dict(zip(self.nodes, map(str, self.access.ways), strict=True)),
            "tls": self.access.tls is not None,
            "user": self.access.user,
            "found": self.found.words,
            "prefix": self.prefix,
            "unseen": [*attached.UNSEEN, *self.found.unseen],
        }


def examine(config: TrialConfig, settings: Settings) -> Attachment:
    """Ask the cluster. Raises EndpointError that names the endpoint and what is the case instead."""
    system = registry.load("systems", config.system)()
    assert isinstance(system, Attachable), "a resolved config has endpoints of no other"
    options = secrets.reveal(config.endpoint_options)
    access = attached.access(config.endpoints, options, attached.own_options(system))
    prefix = f"fencepost/{random.token_hex(6)}"
    found = system.examine(access, settings, prefix)
    return Attachment(system, found.access or access, settings, found, prefix)


def examine_first(config: TrialConfig) -> Found | None:
    """The same before anything is written or started, for a resolved config; None where the servers are ours."""
    if not config.endpoints:
        return None
    image = registry.load("systems", config.system).image
    options = secrets.reveal(config.system_options)
    return examine(config, Settings(config.ttl, len(config.endpoints), image, options, attached=True)).found
