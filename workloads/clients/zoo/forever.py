"""A lock without expiry: SETNX, and no EXPIRE. Whoever has it and dies has it for ever.

As it is written by hand, in two commands of which the second is forgotten, or lost when the process dies between them.
It promises the ttl that it is asked for, as its authors meant it to; a renewal looks only whether the key is still its
own. Everything else is the right lock of `workloads/clients/redis.py`, token and all.
"""

from __future__ import annotations

from workloads.clients.redis import RedisLock

ACQUIRE = """
if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then
  return redis.call('incr', KEYS[2])
end
return 0"""
RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return 1 end return 0"


class ForeverLock(RedisLock):
    """See the module."""

    name = "zoo-forever"
    acquire_script, renew_script = ACQUIRE, RENEW
