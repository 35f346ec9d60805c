"""The lock of a Redis with Sentinels: that of a single Redis, on the primary that a Sentinel names.

Before each request a Sentinel is asked who the primary is, over a connection that stays open; each contender asks
another one first. So a contender that is cut off with an old primary and its Sentinel goes on with that one, as one in
the field does. A lock that was granted by a primary that was replaced since is looked for on the new one, and may not
be there: then the service says that it isn't held.

With `wait` a lock counts only when so many replicas say that they have it (WAIT), within what an operation may take;
else it is given back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.connection import Connection
from redis.exceptions import RedisError

from workloads.clients.base import Acquired, ClientConfig, Outcome
from workloads.clients.http import resolve
from workloads.clients.redis import ERRORS as REDIS_ERRORS
from workloads.clients.redis import RELEASE, CallError, RedisLock
from workloads.clocks import Stamp

ERRORS: Mapping[str, Outcome] = {
    **REDIS_ERRORS,
    # Nobody could say where the primary is, so nothing was sent.
    "sentinels": "fail",
}

SENTINEL_SHARE = 1 / 4
"""The share of an operation's time that a Sentinel gets to answer before another one is asked."""


class RedisSentinelLock(RedisLock):
    """See the module. `settings`: endpoints (the Sentinels), group, wait, and those of `RedisLock`."""

    name = "redis-sentinel"
    errors = ERRORS

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.counters.update(sentinel_switches=0, primary_changes=0, too_few_replicas=0)
        self._group = str(config.settings["group"])
        self._wait = int(config.settings.get("wait", 0))
        self._sentinels = [
            self._open(host, port, self._operation * SENTINEL_SHARE) for host, port in config.endpoints()
        ]

    def _begin(self, config: ClientConfig) -> None:
        """No Redis is known before a Sentinel was asked."""
        self._endpoint = ""

    def _open(self, host: str, port: int, seconds: float) -> Any:
        connection: Any = Connection
        return connection(
            host=resolve(host, port)[1][0],
            port=port,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            protocol=2,
            driver_info=None,
            redis_connect_func=lambda made: made._parser.on_connect(made),
        )

    def _primary(self) -> str:
        """Where the primary is, by the first Sentinel that says so; "address:port". CallError when none does."""
        problems = []
        for _ in self._sentinels:
            sentinel = self._sentinels[0]
            try:
                if not sentinel.is_connected:
                    sentinel.connect()
                sentinel.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._group, check_health=False)
                told = sentinel.read_response()
                if isinstance(told, list) and len(told) == 2:
                    return f"{told[0].decode()}:{int(told[1])}"
                problems.append(f"{sentinel.host}: {told!r}")
            except (RedisError, OSError, ValueError) as error:
                problems.append(f"{sentinel.host}: {error}")
            sentinel.disconnect()
            self._sentinels.append(self._sentinels.pop(0))
            self.counters["sentinel_switches"] += 1
        raise CallError(f"sentinels: {'; '.join(problems)}")

    def _script(self, script: str, keys: tuple[str, ...], *arguments: str | int) -> int:
        primary = self._primary()
        if primary != self._endpoint:
            if self._endpoint:
                self.counters["primary_changes"] += 1
                self._connection.disconnect()
            host, _, port = primary.rpartition(":")
            self._connect_to(host, int(port))
        return super()._script(script, keys, *arguments)

    def _granted(self, token: int, sent: Stamp) -> Acquired:
        """Believed once so many replicas have it, where that is asked for."""
        if self._wait:
            try:
                self._connection.send_command(
                    "WAIT", self._wait, max(1, round(self._operation * 500)), check_health=False
                )
                have = int(self._connection.read_response())
            except (OSError, RedisError, ValueError) as error:
                self._connection.disconnect()
                return Acquired("info", error=f"wait: {error}")
            if have < self._wait:
                self.counters["too_few_replicas"] += 1
                return self._give_back(f"wait: {have} of {self._wait} replicas have it")
        return super()._granted(token, sent)

    def _give_back(self, why: str) -> Acquired:
        """A lock that isn't believed in: certainly not held once it was deleted where it was set."""
        try:
            gone = RedisLock._script(self, RELEASE, self._keys[:1], self._owner)
        except CallError as error:
            return Acquired("info", error=f"{why}; {error}")
        return Acquired("fail" if gone else "info", error=why)

    @property
    def doubtful(self) -> bool:
        """See `LockClient.doubtful`."""
        return not self._endpoint or super().doubtful

    def close(self) -> None:
        """See `LockClient.close`."""
        for sentinel in self._sentinels:
            sentinel.disconnect()
        if self._endpoint:
            super().close()
