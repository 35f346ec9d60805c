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

from redis.exceptions import RedisError

from workloads.clients.base import Acquired, ClientConfig, Outcome
from workloads.clients.redis import ERRORS as REDIS_ERRORS
from workloads.clients.redis import RELEASE, CallError, RedisLock
from workloads.clients.resp import refusal, words_of
from workloads.clocks import Stamp

ERRORS: Mapping[str, Outcome] = {
    **REDIS_ERRORS,
    # Nobody could say where the primary is, so nothing was sent.
    "sentinels": "fail",
    # It is where no way leads, so nothing was sent.
    "no way": "fail",
}

SENTINEL_SHARE = 1 / 4
"""The share of an operation's time that a Sentinel gets to answer before another one is asked."""


class RedisSentinelLock(RedisLock):
    """See the module. `settings`: endpoints (the Sentinels), group, wait, and those of `RedisLock`, which are for the
    Redis; `sentinel_user` and `sentinel_password` for the Sentinels. Where the Redis are reached in another place than
    the Sentinels say, `ways`: "address:port" as they say it -> (host, port).
    """

    name = "redis-sentinel"
    errors = ERRORS

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.counters.update(sentinel_switches=0, primary_changes=0, too_few_replicas=0)
        self._group = str(config.settings["group"])
        self._wait = int(config.settings.get("wait", 0))
        self._ways: Mapping[str, tuple[str, int]] | None = config.settings.get("ways")
        self._primary_is = ""
        user, password = config.settings.get("sentinel_user"), config.settings.get("sentinel_password")
        self._sentinels = [self._to(host, port, user, password) for host, port in config.endpoints()]

    def _begin(self, config: ClientConfig) -> None:
        """No Redis is known before a Sentinel was asked."""
        self._endpoint = ""

    def _primary(self) -> str:
        """Where the primary is, by the first Sentinel that says so; "address:port". CallError when none does.

        All of them together within an operation's time.
        """
        problems = []
        until = Stamp.now().mono + self._operation
        for _ in self._sentinels:
            sentinel = self._sentinels[0]
            left = until - Stamp.now().mono
            if left <= 0:
                break
            try:
                sentinel.begin(min(self._operation * SENTINEL_SHARE, left))
                told = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._group)
                if isinstance(told, list) and len(told) == 2:
                    return f"{told[0].decode()}:{int(told[1])}"
                problems.append(f"{sentinel.host}: {told!r}")
            except RedisError as error:
                problems.append(f"{sentinel.host}: {refusal(error) or words_of(error)}")
            except (ValueError, TypeError, AttributeError) as error:  # two of something else
                problems.append(f"{sentinel.host}: {error}")
            sentinel.drop()
            self._sentinels.append(self._sentinels.pop(0))
            self.counters["sentinel_switches"] += 1
        raise CallError(f"sentinels: {'; '.join(problems)}")

    def _script(self, script: str, keys: tuple[str, ...], *arguments: str | int) -> int:
        """See `RedisLock._script`; to find the primary takes of the same deadline."""
        began = Stamp.now().mono
        primary = self._primary()
        if primary != self._primary_is:
            if self._primary_is:
                self.counters["primary_changes"] += 1
                self._connection.drop()
            self._primary_is = ""
            self._connect_to(*self._way_to(primary))
            self._primary_is = self._endpoint = primary
        self._connection.begin(max(self._operation - (Stamp.now().mono - began), self._operation * SENTINEL_SHARE))
        return self._run(script, keys, *arguments)

    def _way_to(self, primary: str) -> tuple[str, int]:
        if self._ways is None:
            host, _, port = primary.rpartition(":")
            return host, int(port)
        if primary not in self._ways:
            raise CallError(f"no way to the primary {primary}, which was not there when the trial began")
        host, number = self._ways[primary]
        return str(host), int(number)

    def _granted(self, token: int, sent: Stamp) -> Acquired:
        """Believed once so many replicas have it, where that is asked for."""
        if self._wait:
            try:
                self._connection.begin(self._operation)
                have = int(self._connection.ask("WAIT", self._wait, max(1, round(self._operation * 500))))
            except (RedisError, ValueError, TypeError) as error:
                self._connection.drop()
                return Acquired("info", error=f"wait: {words_of(error)}")
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
        return not self._primary_is or super().doubtful

    def close(self) -> None:
        """See `LockClient.close`."""
        for sentinel in self._sentinels:
            sentinel.drop()
        if self._primary_is:
            super().close()
