import redis
import redis.backoff
import redis.retry
from fencepost_adapter import Adapter, Fail, ok, run


class RedisPy(Adapter):
    library, version = "redis", redis.__version__
    errors = {"busy": "fail", "LockNotOwnedError": "fail", "*": "info"}

    def open(self, config):
        host, port = config.endpoints[0]
        once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)  # without it a time-out takes as long as ten
        password = config.settings.get("password")
        self.redis = redis.Redis(host, port, password=password, socket_timeout=config.operation_seconds, retry=once)
        self.name, self.ttl = config.lock, config.ttl

    def acquire(self, wait):
        self.lock = self.redis.lock(self.name, timeout=self.ttl, blocking_timeout=wait)
        if not self.lock.acquire():
            raise Fail("busy: held by another")
        return ok()

    def renew(self):
        return self.owned(lambda: self.lock.extend(self.ttl, replace_ttl=True))

    def release(self):
        return self.owned(self.lock.release)

    def owned(self, do):
        try:
            do()
        except redis.exceptions.LockNotOwnedError as error:
            raise Fail(f"LockNotOwnedError: {error}", held=False) from error  # its script compared the owner
        return ok(proves=True)  # which it answers only to who holds the lock


run(RedisPy)
