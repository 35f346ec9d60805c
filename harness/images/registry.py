"""Pulling published images, where a registry answers."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import quote_plus

import docker
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from harness.images.halting import Halt

PATIENCE = 3.0
"""Seconds that a registry has to answer before it counts as out of reach."""


class Registries:
    """Which registries answer. Each is asked once and its answer kept, so that no run waits for a dead one twice."""

    def __init__(self, client: docker.DockerClient) -> None:
        self._client = client
        self._answers: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def refusal(self, reference: str) -> str | None:
        """Why the registry of a reference can't be used, None when it can. The engine asks, not this process:
        its proxies, mirrors and credentials are what counts."""
        host = registry_of(reference)
        with self._lock:
            if host not in self._answers:
                self._answers[host] = self._ask(reference)
            return self._answers[host]

    def _ask(self, reference: str) -> str | None:
        outcome: list[str | None] = []

        def ask() -> None:
            try:
                cast(Any, self._client.api).inspect_distribution(reference)
                outcome.append(None)
            except APIError as error:
                outcome.append(str(error.explanation or error))
            except (DockerException, RequestException) as error:
                outcome.append(str(error))

        thread = threading.Thread(target=ask, name=f"registry-{reference}", daemon=True)
        thread.start()
        thread.join(PATIENCE)
        return outcome[0] if outcome else f"no answer within {PATIENCE:g} s"

    def pull(self, reference: str, halt: Halt) -> str | None:
        """Pulls an image. Returns why it failed, None when it is there now. Raises Halted when it was broken off."""
        refusal = self.refusal(reference)
        if refusal is not None:
            return refusal
        repository, tag = split_reference(reference)
        try:
            with halt.streams(self._client, f"/images/create?tag={quote_plus(tag)}&fromImage={quote_plus(repository)}"):
                events = self._client.api.pull(repository, tag=tag, stream=True, decode=True)
                for event in cast(Iterable[dict[str, Any]], events):
                    if "error" in event:
                        halt.check()
                        return str(event["error"])
        except APIError as error:
            return str(error.explanation or error)
        return None


def registry_of(reference: str) -> str:
    """The registry host of an image reference, empty for the engine's default one."""
    head, slash, _ = reference.partition("/")
    return head if slash and ("." in head or ":" in head or head == "localhost") else ""


def split_reference(reference: str) -> tuple[str, str]:
    """Repository and tag (or digest) of a reference; the tag is `latest` when none is given."""
    repository, at, digest = reference.partition("@")
    if at:
        return repository.rpartition(":")[0] if ":" in repository.rpartition("/")[2] else repository, digest
    head, colon, tag = reference.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (reference, "latest")
