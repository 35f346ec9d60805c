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
from functools import partial
from typing import TYPE_CHECKING, Any

import redis
from redis.connection import Connection
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from workloads.clients.base import Acquired, Answered, ClientConfig, Outcome, classify
from workloads.clients.http import Tls, resolve
from workloads.clocks import Flag, Stamp

if TYPE_CHECKING:
    import ssl

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

# redis-py cuts the code off the texts of the refusals that it has a class for.
CODES: Mapping[type[RedisError], str] = {
    AuthenticationError: "NOAUTH",
    BusyLoadingError: "LOADING",
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
    NoPermissionError: "NOPERM",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
}


class CallError(Exception):
    """A command without a usable answer; begins with a kind of the error table."""


class _TlsConnection(Connection):
    """A connection that speaks TLS, by a context of ours: redis-py's own takes files."""

    def __init__(self, context: ssl.SSLContext, server_name: str, **keys: Any) -> None:
        super().__init__(**keys)  # type: ignore[no-untyped-call]
        self._context, self._server_name = context, server_name

    def _connect(self) -> Any:
        sock: Any = super()._connect()  # type: ignore[no-untyped-call]
        try:
            return self._context.wrap_socket(sock, server_hostname=self._server_name)
        except OSError:
            sock.close()
            raise


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
        _, address = resolve(host, port)
        # The connection itself, below redis-py's client: that one retries, pools and health-checks behind one's back.
        connection: Any = Connection
        if self._tls is not None and self._context is not None:
            connection = partial(_TlsConnection, self._context, self._tls.names.get(host, host))
        self._connection = connection(
            host=address[0],
            port=port,
            socket_timeout=self._operation,
            socket_connect_timeout=self._operation,
            protocol=2,
            driver_info=None,
            redis_connect_func=self._greet,
        )
        self._endpoint = f"{host}:{port}"

    def _greet(self, connection: Any) -> None:
        """On a fresh connection: the password, and nothing else that redis-py would say. Raises RedisError."""
        connection._parser.on_connect(connection)
        if self._password:
            who = () if self._user is None else (self._user,)
            connection.send_command("AUTH", *who, self._password, check_health=False)
            connection.read_response()

    def connect(self, timeout_seconds: float) -> str | None:
        """Nothing to do before the first command."""
        return None

    def _script(self, script: str, keys: tuple[str, ...], *arguments: str | int) -> int:
        """Run one script on one connection, once. CallError without an answer or with a refusal."""
        if not self._connection.is_connected:
            try:
                self._connection.connect()
            except RedisError as error:
                raise CallError(f"connect: {error}") from error
            self.counters["reconnects"] += 1
        try:
            self._connection.send_command("EVAL", script, len(keys), *keys, *arguments, check_health=False)
        except RedisError as error:
            raise CallError(f"send: {error}") from error
        try:
            return int(self._connection.read_response())
        except RedisError as error:
            code = next((code for kind, code in CODES.items() if isinstance(error, kind)), None)
            if code is not None:
                raise CallError(f"{code} {error}") from error
            if isinstance(error, ResponseError):
                raise CallError(str(error)) from error
            self._connection.disconnect()
            kind = {RedisTimeoutError: "timeout", RedisConnectionError: "disconnect"}.get(type(error), "garbage")
            raise CallError(f"{kind}: {error}") from error

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
        self._connection.disconnect()
