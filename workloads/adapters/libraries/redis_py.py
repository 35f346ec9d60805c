# /// script
# dependencies = ["redis==8.1.0"]
# ///
"""The Lock of redis-py: SET NX PX with an owner's token; extend and release compare it. Renewed when it is told to.

Options: `redis`, further arguments for the connection, which has the library's defaults otherwise.
"""

import redis
from fencepost_adapter import Adapter, Fail, ok, run


class RedisPy(Adapter):
    library, version = "redis-py", redis.__version__
    errors = {
        # lock.py, Lock.acquire: False when SET NX was answered nil until the time was over: the key is there.
        "busy": "fail",
        # lock.py, do_release and do_extend: the script answered 0, which it does where the key has not our token.
        "LockNotOwnedError": "fail",
        # lock.py, release and extend: raised before anything is sent, where this object has no token (any more).
        "LockError": "fail",
        # exceptions.py: ConnectionError, TimeoutError and the rest don't say whether the request was sent.
        "*": "info",
    }

    def open(self, config):
        host, port = config.endpoints[0]
        more = {"password": config.settings.get("password"), **config.options.get("redis", {})}
        self.redis = redis.Redis(host=host, port=port, **more)
        self.name, self.ttl = config.lock, config.ttl

    def acquire(self, wait):
        self.lock = self.redis.lock(self.name, timeout=self.ttl, blocking_timeout=wait)
        if not self.lock.acquire():
            raise Fail("busy: the key is there")
        return ok()

    def renew(self):
        return self.owned(lambda: self.lock.extend(self.ttl, replace_ttl=True))

    def release(self):
        return self.owned(self.lock.release)

    def owned(self, do):
        try:
            do()
        except redis.exceptions.LockNotOwnedError as error:
            raise Fail(f"LockNotOwnedError: {error}", held=False) from error  # the server compared, in its script
        return ok(proves=True)  # lock.py: the scripts answer 1 only where the key has our token


run(RedisPy)
