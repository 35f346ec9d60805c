# /// script
# dependencies = ["sherlock==0.4.1", "redis==4.6.0"]
# ///
"""The RedisLock of sherlock: SETNX and EXPIRE with an owner's id; it polls, and is renewed when it is told to.

Options: `redis`, further arguments for the connection; `expire` = "never", no expiry, as its README begins;
`expire` = "float", seconds as a float, as its docstrings say.
"""

from importlib.metadata import version as version_of

import redis
import sherlock
from fencepost_adapter import Adapter, Fail, ok, run


class SherlockRedis(Adapter):
    library, version = "sherlock", version_of("sherlock")
    errors = {
        # lock.py, BaseLock.acquire: SETNX was answered 0 until the pauses between tries came to the timeout.
        "LockTimeoutException": "fail",
        # lock.py, RedisLock._renew: False where its script answered 0, which it does where the key has not our id.
        "not renewed": "fail",
        # lock.py, RedisLock._release: its script answered 0, or this object has no id and nothing was sent.
        "LockException": "fail",
        # Whatever redis-py raises: nobody knows; a script that failed may have done its first half.
        "*": "info",
    }

    def open(self, config):
        host, port = config.endpoints[0]
        more = {"password": config.settings.get("password"), **config.options.get("redis", {})}
        self.redis, self.name = redis.StrictRedis(host=host, port=port, **more), config.lock
        self.expire = {"never": None, "float": float(config.ttl)}.get(config.options.get("expire"), int(config.ttl))
        if self.expire is None:
            self.expires, self.renewals = False, "none"

    def acquire(self, wait):
        self.lock = sherlock.RedisLock(self.name, client=self.redis, expire=self.expire, timeout=wait)
        self.lock.acquire()
        return ok(ttl=self.expire)

    def renew(self):
        if not self.lock.renew():
            raise Fail("not renewed: the key is another's, or gone", held=False)
        return ok(proves=True)  # its script answers 1 only where the key has our id

    def release(self):
        try:
            self.lock.release()
        except sherlock.LockException as error:
            asked = "could not be released" in str(error)  # the script was asked, once: this redis-py doesn't retry
            raise Fail(f"LockException: {error}", held=False if asked else None) from error
        return ok(proves=True)


run(SherlockRedis)
