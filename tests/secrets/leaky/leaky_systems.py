"""Redis, by programmers who show passwords in errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.runtime.base import ServiceSpec
from harness.systems.base import Server, Settings
from harness.systems.redis import Redis


class Shows(Redis):
    """Fails where an error is written down with its traceback."""

    name = "shows"

    def version(self, server: Server) -> str:
        """Never."""
        raise RuntimeError(f"no version with {server.settings.options}")


class Breaks(Redis):
    """Fails before anything has begun."""

    name = "breaks"

    def plan(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, ServiceSpec]:
        """Never."""
        raise RuntimeError(f"no plan with {list(settings.options.values())}")
