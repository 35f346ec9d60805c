"""An image of a user's own, in which his lock client lives: had as it is, never built upon."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import docker

from harness.engine import telling
from harness.errors import UsageError
from harness.images.build import inspect
from harness.images.halting import Halt
from harness.images.registry import Registries


@dataclass(frozen=True)
class Theirs:
    """One that is here. `id` is its content's digest; `digest` is what a registry has it under, where one does.

    `command` is what it starts when nothing else is said: its ENTRYPOINT, and its CMD behind it. `machine` is what its
    programs are for, `here` what the engine runs on, as images name that ("amd64").
    """

    reference: str
    id: str
    digest: str | None
    machine: str
    here: str
    command: tuple[str, ...]

    @property
    def foreign(self) -> bool:
        """Whether its programs are for another architecture than this engine's."""
        return bool(self.machine) and self.machine != self.here


def take(client: docker.DockerClient, reference: str, *, report: Callable[[str], None], halt: Halt) -> Theirs:
    """Have it, pulled where the engine hasn't got it. UsageError, with the engine's words, where it can't be had."""
    with telling(f"looking for {reference}"):
        found = inspect(client, reference)
        if found is None:
            report(f"client: pulling {reference}")
            began = time.monotonic()
            failure = Registries(client).pull(reference, halt)
            if failure is not None:
                raise UsageError(
                    f"client_image: {reference} isn't on this Docker engine and can't be pulled: {failure}"
                )
            report(f"client: pulled {reference} in {time.monotonic() - began:.1f} s")
            found = inspect(client, reference)
        if found is None:
            raise UsageError(f"client_image: {reference} was pulled, and isn't on this Docker engine all the same")
        here = str(client.api.version()["Arch"])
    config = found.get("Config") or {}
    words = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
    digests = found.get("RepoDigests") or []
    return Theirs(
        reference,
        str(found["Id"]),
        str(digests[0]) if digests else None,
        str(found.get("Architecture") or ""),
        here,
        tuple(map(str, words)),
    )
