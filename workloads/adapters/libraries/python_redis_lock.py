# /// script
# dependencies = ["python-redis-lock==4.0.1", "redis==8.1.0"]
# ///
"""The Lock of python-redis-lock, with auto_renewal: a thread of the library renews it, and tells nobody.

Options: `redis`, further arguments for the connection; `reuse` = true, one Lock object for all acquires.
"""

from importlib.metadata import version as version_of

import redis
import redis_lock
from fencepost_adapter import Adapter, Fail, ok, run


class PythonRedisLock(Adapter):
    library, version = "python-redis-lock", version_of("python-redis-lock")
    renewals = "unseen"  # Lock._lock_renewer extends it every 2/3 of its expiry, and says nothing
    errors = {
        # Lock.acquire: False when SET NX was answered nil, and BLPOP of the signal too, until the time was over.
        "busy": "fail",
        # Lock.acquire: raised where GET says, before any SET, that the key has this object's id.
        "AlreadyAcquired": "fail",
        # Lock.release: UNLOCK_SCRIPT answered 1, which it does where the key has not our id.
        "NotAcquired": "fail",
        # Lock._start_lock_renewer: raised *after* the SET that took the lock.
        "AlreadyStarted": "info",
        # Whatever redis-py raises: the request may have been sent.
        "*": "info",
    }

    def open(self, config):
        host, port = config.endpoints[0]
        more = {"password": config.settings.get("password"), **config.options.get("redis", {})}
        self.redis, self.config, self.lock = redis.StrictRedis(host=host, port=port, **more), config, None

    def acquire(self, wait):
        if self.lock is None or not self.config.options.get("reuse"):
            self.lock = redis_lock.Lock(self.redis, self.config.lock, expire=int(self.config.ttl), auto_renewal=True)
        # Whole seconds, at least one: Lock.acquire makes 0 of less, with which it waits for ever.
        if not self.lock.acquire(timeout=max(1, int(wait))):
            raise Fail("busy: the key is there")
        return ok(ttl=int(self.config.ttl))

    def release(self):
        try:
            self.lock.release()
        except redis_lock.NotAcquired as error:
            raise Fail(f"NotAcquired: {error}", held=False) from error  # the server compared, in UNLOCK_SCRIPT
        return ok(proves=True)  # UNLOCK_SCRIPT answers 0 only where the key has our id


run(PythonRedisLock)
