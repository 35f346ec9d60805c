"""A single Redis: what most locks in the wild run on. Its own leader; what it promises ends with its clock or its
memory.

Keys expire by the wall clock of the server (gettimeofday), so a clock that jumps forward ends leases early. A kill
loses what the persistence had not written yet; with `everysec` that is up to a second of locks and tokens, with
`none` all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import AgentError, UsageError
from harness.runtime.base import ServiceSpec
from harness.systems.asking import LOOK_SECONDS, ask_all, options, says
from harness.systems.base import Leadership, Server, Settings

PORT = 6379

OPTIONS: Mapping[str, tuple[type, Any]] = {"persistence": (str, "everysec")}
PERSISTENCE = ("none", "everysec", "always")


class Redis:
    """See the module. Options: persistence (none, everysec, always)."""

    name = "redis"
    summary = "One Redis: SET NX PX with a counter as token."
    image = "redis"
    server_counts: tuple[int, ...] = (1,)
    client = "redis"
    port = PORT
    healthy_within_seconds = 20.0

    def _values(self, settings: Settings) -> dict[str, Any]:
        values = options(settings, OPTIONS)
        if values["persistence"] not in PERSISTENCE:
            known = ", ".join(PERSISTENCE)
            raise UsageError(f"system option 'persistence' must be one of {known}, not {values['persistence']!r}")
        return values

    def plan(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, ServiceSpec]:
        """See `System.plan`."""
        persistence = self._values(settings)["persistence"]
        log = ("--appendonly", "no") if persistence == "none" else ("--appendonly", "yes", "--appendfsync", persistence)
        command = ("redis-server", "--port", str(PORT), "--protected-mode", "no", "--save", "", *log)
        return {name: ServiceSpec(image=settings.image, command=command) for name in nodes}

    def recorded(self, settings: Settings) -> dict[str, Any]:
        """See `System.recorded`."""
        return {**self._values(settings), "lease_clock": "the server's wall clock (gettimeofday)"}

    def healthy(self, servers: Sequence[Server]) -> tuple[bool, str]:
        """It answers, has loaded its data, and takes a write."""
        answers = ask_all(servers, lambda server: self._command(server, "SET fencepost:healthy 1"))
        return all(answer == "+OK" for answer in answers.values()), says(answers)

    def _command(self, server: Server, line: str) -> str:
        """One inline command; the first line of the answer. QUIT behind it makes the server close, which ends the
        read.
        """
        data = server.tcp(f"{line}\r\nQUIT\r\n".encode(), port=PORT, timeout_seconds=LOOK_SECONDS)
        return data.decode(errors="replace").partition("\r\n")[0]

    def leadership(self, servers: Sequence[Server]) -> Leadership:
        """See `System.leadership`. A single server leads whether it answers or not."""
        seen = ask_all(servers, lambda server: self._command(server, "PING"))
        return Leadership(
            servers[0].name if len(servers) == 1 else None, {name: str(said) for name, said in seen.items()}
        )

    def version(self, server: Server) -> str:
        """See `System.version`."""
        data = server.tcp(b"INFO server\r\nQUIT\r\n", port=PORT, timeout_seconds=LOOK_SECONDS).decode(errors="replace")
        for line in data.splitlines():
            if line.startswith("redis_version:"):
                return line.partition(":")[2].strip()
        raise AgentError(f"INFO without redis_version: {data[:120]!r}")

    def client_config(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """See `System.client_config`."""
        return {"endpoints": [[name, PORT] for name in nodes]}
