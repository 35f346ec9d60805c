# /// script
# dependencies = ["tooz==9.1.0", "redis==8.1.0"]
# ///
"""The lock of tooz over Redis: redis-py's Lock, renewed by the heartbeat of a coordinator, which tells nobody.

Options: `driver`, further options of the Redis driver (`{"socket_timeout": 0.5}`).
"""

from importlib.metadata import version as version_of
from urllib.parse import quote

from fencepost_adapter import Adapter, Fail, ok, run
from tooz import ToozError, coordination


class ToozRedis(Adapter):
    library, version = "tooz", version_of("tooz")
    renewals = "unseen"  # coordination.py, Heart; drivers/redis.py, heartbeat: logs what it can't renew
    errors = {
        # drivers/redis.py, RedisDriver._start: its INFO or its first beat failed; nothing of a lock was sent.
        "not started": "fail",
        # drivers/redis.py, RedisLock.acquire: False, as redis-py says: SET NX was answered nil until the time was over.
        "busy": "fail",
        # drivers/redis.py, RedisLock.release: False for any LockError. Another's key is one; so is a second try after
        # a ConnectionError (_handle_failures), by when redis-py's Lock has forgotten its token: nobody knows.
        "gave False": "info",
        # drivers/redis.py, _handle_failures: ToozConnectionError and ToozError don't say what became of the request.
        "*": "info",
    }

    def open(self, config):
        (host, port), password = config.endpoints[0], config.settings.get("password")
        who = f":{quote(password, safe='')}@" if password else ""
        self.name, self.ttl, self.started = config.lock.encode(), int(config.ttl), False
        url, member = f"redis://{who}{host}:{port}", f"contender-{config.process}".encode()
        more = config.options.get("driver", {})
        self.coordinator = coordination.get_coordinator(url, member, lock_timeout=self.ttl, **more)

    def acquire(self, wait):
        if not self.started:
            try:
                self.coordinator.start(start_heart=True)
            except ToozError as error:
                raise Fail(f"not started: {error}") from error
            self.started = True
        self.lock = self.coordinator.get_lock(self.name)
        if not self.lock.acquire(blocking=wait):
            raise Fail("busy: the key is there")
        return ok(ttl=self.ttl)

    def release(self):
        if not self.lock.release():
            raise Fail("gave False: not released, and why is not said")
        return ok(proves=True)  # redis-py's script answers 1 only where the key has our token


run(ToozRedis)
