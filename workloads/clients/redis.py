"""The lock of a single Redis: SET NX PX and the INCR of a token, in one script; renew and release compare the owner.

The lease counts from the very SET that succeeded: a waiter holds nothing on the server, it polls. What decides expiry
is Redis's own wall clock, so a clock that jumps forward ends leases early; and what was granted can be forgotten by a
restart, as far as the persistence allows.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping

import redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from workloads.clients.base import Acquired, Answered, ClientConfig, Outcome, classify
from workloads.clients.http import Tls, resolve
from workloads.clients.resp import Resp, refusal, words_of
from workloads.clocks import Flag, Stamp

ACQUIRE = """
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('incr', KEYS[2])
end
return 0"""
RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

ERRORS: Mapping[str, Outcome] = {
    # No connection, so nothing was sent.
    "connect": "fail",
    "send": "info",
    "timeout": "info",
    "disconnect": "info",
    "garbage": "info",
    # Answers in Redis's words that mean that the script was not run, or changed nothing.
    "READONLY": "fail",
    "LOADING": "fail",
    "MASTERDOWN": "fail",
    "CLUSTERDOWN": "fail",
    "NOREPLICAS": "fail",
    "MISCONF": "fail",
    "OOM": "fail",
    "BUSY": "fail",
    "NOAUTH": "fail",
    "NOPERM": "fail",
    # "UNKILLABLE", errors inside the script, and whatever else: it may have run in part.
    "*": "info",
}


class CallError(Exception):
    """A command without a usable answer; begins with a kind of the error table."""


class RedisLock:
    """See the module. `settings`: endpoints, poll_seconds (the mean pause between two tries), password (of the default
    user, or of `user`); of a Redis that isn't the harness's own also `prefix` (with which its keys begin) and `tls`
    (`Tls.of`).
    """

    name = "redis"
    attaches = True
    library = f"redis {redis.__version__}"
    errors = ERRORS
    acquire_script, renew_script = ACQUIRE, RENEW

    def __init__(self, config: ClientConfig) -> None:
        self._ttl = config.ttl_seconds
        self._operation = config.operation_seconds
        self.renew_every_seconds = config.ttl_seconds / 3
        self._poll = float(config.settings.get("poll_seconds", 0.05))
        self.counters: Counter[str] = Counter(polls=0, reconnects=0)
        # The braces keep both keys in one slot, should this ever be a cluster.
        prefix = config.settings.get("prefix", "fencepost")
        self._keys = (f"{prefix}:{{{config.lock}}}", f"{prefix}:{{{config.lock}}}:token")
        self._user, self._password = config.settings.get("user"), config.settings.get("password")
        self._tls = Tls.of(config.settings.get("tls"))
        self._context = None if self._tls is None else self._tls.context()
        self._owner = ""
        self._random = random.Random(os.urandom(8))
        self._begin(config)

    def _begin(self, config: ClientConfig) -> None:
        self._connect_to(*config.endpoints()[0])

    def _connect_to(self, host: str, port: int) -> None:
        """From now on, to this Redis."""
        self._connection = self._to(host, port, self._user, self._password)
        self._endpoint = f"{host}:{port}"

    def _to(self, host: str, port: int, user: str | None, password: str | None) -> Resp:
        """A connection to there, in TLS where that is spoken; it is made when it is needed."""
        name = None if self._tls is None else self._tls.names.get(host, host)
        return Resp(resolve(host, port), user=user, password=password, context=self._context, server_name=name)

    def connect(self, timeout_seconds: float) -> str | None:
        """Nothing to do before the first command."""
        return None

    def _script(self, script: str, keys: tuple[str, ...], *arguments: str | int) -> int:
        """Run one script, once, within the deadline of an operation. CallError without an answer or with a refusal."""
        self._connection.begin(self._operation)
        return self._run(script, keys, *arguments)

    def _run(self, script: str, keys: tuple[str, ...], *arguments: str | int) -> int:
        """The same, within what that deadline has left."""
        if not self._connection.is_connected:
            try:
                self._connection.open()
            except RedisError as error:
                raise CallError(f"connect: {refusal(error) or words_of(error)}") from error
            self.counters["reconnects"] += 1
        try:
            self._connection.send("EVAL", script, len(keys), *keys, *arguments)
        except RedisError as error:
            raise CallError(f"send: {words_of(error)}") from error
        try:
            return int(self._connection.read())
        except RedisError as error:
            if (refused := refusal(error)) is not None:
                raise CallError(refused) from error
            self._connection.drop()
            kind = {RedisTimeoutError: "timeout", RedisConnectionError: "disconnect"}.get(type(error), "garbage")
            raise CallError(f"{kind}: {words_of(error)}") from error
        except (ValueError, TypeError) as error:
            self._connection.drop()
            raise CallError(f"garbage: {error}") from error

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """See `LockClient.acquire`."""
        until = Stamp.now().mono + wait_seconds
        self._owner = os.urandom(12).hex()
        why = "held by another"
        while True:
            sent = Stamp.now()
            try:
                token = self._script(self.acquire_script, self._keys, self._owner, round(self._ttl * 1000))
            except CallError as error:
                why = str(error)
                if classify(self.errors, why) != "fail":
                    # It may hold the lock now. Not asked again: what is in the server's queue can still come after
                    # that.
                    return Acquired("info", error=why)
                token = 0
            else:
                why = "wait limit: held by another"
            if token:
                return self._granted(token, sent)
            pause = self._poll * self._random.uniform(0.5, 1.5)
            if Stamp.now().mono + pause > until or cancelled.wait(pause):
                return Acquired("fail", error="cancelled" if cancelled.is_set() else why)
            self.counters["polls"] += 1

    def _granted(self, token: int, sent: Stamp) -> Acquired:
        return Acquired("ok", token, self._ttl, sent, notes={"endpoint": self._endpoint})

    def renew(self) -> Answered:
        """See `LockClient.renew`."""
        return self._compared(self.renew_script, round(self._ttl * 1000))

    def release(self) -> Answered:
        """See `LockClient.release`."""
        return self._compared(RELEASE)

    def _compared(self, script: str, *arguments: int) -> Answered:
        try:
            done = self._script(script, self._keys[:1], self._owner, *arguments)
        except CallError as error:
            return Answered(classify(self.errors, str(error)), error=str(error))
        return Answered("ok") if done else Answered("fail", held=False, error="the key is not this owner's")

    @property
    def doubtful(self) -> bool:
        """See `LockClient.doubtful`."""
        return not self._connection.is_connected

    def close(self) -> None:
        """See `LockClient.close`."""
        self._connection.drop()
