"""A lock client that does as the test says, and a contender around it, in this process."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from workloads.clients.base import Acquired, Answered, ClientConfig, Outcome
from workloads.clocks import Flag, Stamp
from workloads.contender import Contender
from workloads.events import Events
from workloads.validate import ContenderConfig

TTL = 0.5


class Scripted:
    """Grants at once; renews and releases are answered by the functions in `script`."""

    name = "scripted"
    library = "none"
    errors: Mapping[str, Outcome] = {"*": "info"}
    script: Mapping[str, Callable[[], Any]] = {}

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.renew_every_seconds = config.ttl_seconds / 3
        self.counters: Counter[str] = Counter()
        self.doubt = False
        self._token = 0

    def _do(self, operation: str, otherwise: Any) -> Any:
        return self.script[operation]() if operation in self.script else otherwise

    def connect(self, timeout_seconds: float) -> str | None:
        """Ready, unless the script says otherwise."""
        return self._do("connect", None)

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """Granted, with the next token."""
        self._token += 1
        return self._do("acquire", Acquired("ok", self._token, self.config.ttl_seconds, Stamp.now()))

    def renew(self) -> Answered:
        """Renewed."""
        return self._do("renew", Answered("ok"))

    def release(self) -> Answered:
        """Released."""
        return self._do("release", Answered("ok"))

    @property
    def doubtful(self) -> bool:
        """As the test sets it."""
        return self.doubt

    def close(self) -> None:
        """Nothing to give back."""


class Heard:
    """A contender in this process, with this client (`module:class`) and these settings; its events can be read."""

    def __init__(self, client: str, settings: Mapping[str, Any], *, ttl: float, holder: str) -> None:
        reader, self._writer = os.pipe()
        self._lines = os.fdopen(reader, "rb")
        config = ContenderConfig(
            process=3,
            epoch_ns=Stamp.now().boot_ns,
            seed=1,
            lock="lock",
            workload="",
            client=client,
            client_config={"endpoints": [["nowhere", 1]], **settings},
            ttl=ttl,
            holder=holder,
            resource=None,
            parameters={},
        )
        self.contender = Contender(config, Events(config.epoch_ns, 3, "lock", self._writer))

    def events(self) -> list[dict[str, Any]]:
        """All events; ends the contender's voice."""
        os.close(self._writer)
        with self._lines:
            return [json.loads(line) for line in self._lines]


class Stage(Heard):
    """One whose client does as it is told."""

    def __init__(
        self,
        *,
        guarded: bool = True,
        holder: str | None = None,
        ttl: float = TTL,
        expires: bool = True,
        **script: Callable[[], Any],
    ) -> None:
        holder = holder or ("guarded" if guarded else "naive")
        super().__init__("tests.workloads.scripted:Scripted", {}, ttl=ttl, holder=holder)
        self.contender.client.expires = expires
        client: Any = self.contender.client.client
        client.script = script
        self.client: Scripted = client

    def events(self) -> list[dict[str, Any]]:
        """As of any; and nobody waits for the contender any more."""
        self.contender.stopping.close()
        self.contender.started.close()
        return super().events()


def words(events: list[dict[str, Any]]) -> Iterator[str]:
    """The events as "f.type", in order."""
    return (f"{event['f']}.{event['type']}" for event in events)


def pause(seconds: float) -> None:
    """Wait as a contender does."""
    never = Flag()
    never.wait(seconds)
    never.close()
