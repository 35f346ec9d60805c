"""A lease as long as its heartbeat: it is renewed when it ends.

"The lease is ten seconds, so we renew every ten seconds." Not even a packet has to be lost: the renewal is still on its
way when the lease runs out, and somebody else has the lock. Everything else is the right lock of
`workloads/clients/redis.py`, which renews three times in a lease so that one renewal may fail.
"""

from __future__ import annotations

from workloads.clients.base import ClientConfig
from workloads.clients.redis import RedisLock


class LateLock(RedisLock):
    """See the module."""

    name = "zoo-late"

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.renew_every_seconds = config.ttl_seconds
