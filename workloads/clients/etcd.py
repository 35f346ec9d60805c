"""The lock of etcd, by the recipe of its own `concurrency` package, over the JSON gateway.

A lease; a key of one's own under the lock's prefix, bound to the lease; the lowest create_revision holds; each waiter
watches the next lower key only. The token is the create_revision of the own key. After waiting the own key is *read
again*: a waiter whose lease ran out while it waited would otherwise take a lock that it has no key for (etcd 11456).

Every acquire uses a fresh lease, so a late release can only end the hold that it was sent for. The lease is kept
alive every ttl/3, while waiting too; `since` is the send time of the last keep-alive, or grant, that succeeded.
Release revokes the lease, which takes the key with it: one command that says at once whether the lock was still held.
"""

from __future__ import annotations

import base64
import json
import os
import random
import select
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from workloads.clients.base import Acquired, Answered, ClientConfig, Outcome, classify
from workloads.clients.http import HttpClient, Tls, TransportError, wants_more
from workloads.clocks import Flag, Stamp

LEASE_GONE = "etcdserver: requested lease not found"
LOGIN_OVER = (
    "etcdserver: invalid auth token",
    "etcdserver: revision of auth store is old",
    "etcdserver: user name is empty",
)
"""How etcd refuses a token that it doesn't know any more (unused for five minutes, or given out before a restart), and
requests without one: those that follow a login that had no answer."""

ERRORS: Mapping[str, Outcome] = {
    # No connection, so nothing was sent.
    "connect": "fail",
    # Sent, or perhaps sent, without an answer.
    "send": "info",
    "timeout": "info",
    "disconnect": "info",
    "garbage": "info",
    # Refused before it was proposed, or answered by the state machine.
    LEASE_GONE: "fail",
    "etcdserver: lease already exists": "fail",
    "etcdserver: too many requests": "fail",
    "etcdserver: mvcc: database space exceeded": "fail",
    "etcdserver: not capable": "fail",
    "etcdserver: permission denied": "fail",
    **dict.fromkeys(LOGIN_OVER, "fail"),
    # Proposed, and then unknown: "etcdserver: request timed out", "… possibly due to previous leader failure",
    # "etcdserver: leader changed", "etcdserver: no leader" (also said by a follower that could not forward in time),
    # "etcdserver: server stopped", "context deadline exceeded".
    "*": "info",
}

MIN_ATTEMPT_SECONDS = 0.05
LOGIN_SECONDS = 5.0
"""The deadline of a first login. A password costs a server a tenth of a second of a processor, and all contenders come
at once: one operation's deadline would have all of them give up, and begin anew, for ever."""
LOGIN_PAUSE_SECONDS = 0.2
CERTAIN = ("etcdserver: auth", "CERTIFICATE_VERIFY_FAILED")
"""In what keeps a login from succeeding: it won't succeed the next time either."""


def _b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _end(prefix: bytes) -> str:
    """The range end of all keys that begin with the prefix."""
    return _b64(prefix[:-1] + bytes([prefix[-1] + 1]))


class EtcdError(Exception):
    """etcd's own refusal, in its words."""


class _Watch:
    """A watch on one key's deletion: a hint when to look again, never the proof of anything.

    A connection of its own, because the stream never ends. Anything that arrives after the confirmation counts as news:
    the event, an error, the end of the stream.
    """

    def __init__(self, http: HttpClient, key: str, revision: int, timeout_seconds: float) -> None:
        request = {"create_request": {"key": key, "start_revision": str(revision), "filters": ["NOPUT"]}}
        body = json.dumps(request).encode()
        self._sock = http.open(timeout_seconds)
        own = "".join(f"{name}: {value}\r\n" for name, value in http.headers.items())
        head = f"POST /v3/watch HTTP/1.1\r\nHost: {http.endpoint}\r\n{own}Content-Length: {len(body)}\r\n\r\n"
        try:
            self._sock.sendall(head.encode() + body)
        except OSError as error:
            self._sock.close()
            raise TransportError("send", f"watch: {error}") from error
        self._sock.setblocking(False)
        self._heard = b""

    def wait(self, seconds: float, cancelled: Flag) -> bool:
        """Wait at most so long. Whether it is time to look again."""
        readable, _, _ = select.select([self._sock.fileno(), cancelled.fileno()], [], [], max(seconds, 0))
        if self._sock.fileno() not in readable:
            return False
        try:
            heard = self._sock.recv(65536)
        except BlockingIOError:
            return False
        except OSError as error:
            return not wants_more(error)
        self._heard += heard
        news = not heard or b'"events"' in self._heard or b'"canceled"' in self._heard or b'"error"' in self._heard
        refused = b"\r\n" in self._heard and b" 200 " not in self._heard.split(b"\r\n", 1)[0]
        return news or refused

    def close(self) -> None:
        self._sock.close()


class EtcdLock:
    """See the module. `settings`: endpoints; of a cluster that isn't the harness's own also `prefix` (below which its
    keys are), `tls` (`Tls.of`), `user` and `password`.
    """

    name = "etcd"
    attaches = True
    library = f"http.client of Python {sys.version.split()[0]}"
    errors = ERRORS

    def __init__(self, config: ClientConfig) -> None:
        self._ttl = config.ttl_seconds
        self._operation = config.operation_seconds
        self.renew_every_seconds = config.ttl_seconds / 3
        self.counters: Counter[str] = Counter(grant_retries=0, keepalive_retries=0, watches=0, expired_while_waiting=0)
        self._http = HttpClient(config.endpoints(), self.counters, Tls.of(config.settings.get("tls")))
        self._prefix = f"{config.settings.get('prefix', 'fencepost')}/{config.lock}/".encode()
        self._login = {"name": config.settings.get("user"), "password": config.settings.get("password")}
        if self._login["name"] is not None:
            self.counters["logins"] = 0
        self._random = random.Random(os.urandom(8))
        self._lease: str | None = None
        self._granted = config.ttl_seconds

    def connect(self, timeout_seconds: float) -> str | None:
        """Log in, where there is a user; else there is nothing to do before the first request."""
        until, why = Stamp.now().mono + timeout_seconds, None
        while self._login["name"] is not None:
            if (why := self._log_in(min(LOGIN_SECONDS, timeout_seconds))) is None:
                return None
            certain = any(word in why for word in CERTAIN)
            if certain or Stamp.now().mono + LOGIN_PAUSE_SECONDS > until:
                return f"no login as {self._login['name']!r}: {why}"
            time.sleep(LOGIN_PAUSE_SECONDS)
        return None

    # -- requests -------------------------------------------------------------------------------------------------

    def _log_in(self, timeout_seconds: float) -> str | None:
        """Get a token, which goes with every request from now on. None, or why there is none."""
        self.counters["logins"] += 1
        self._http.headers.pop("Authorization", None)
        try:
            answer = self._ask("auth/authenticate", self._login, timeout_seconds)
            self._http.headers["Authorization"] = str(answer["token"])
        except (TransportError, EtcdError) as error:
            return str(error)
        return None

    def _call(self, path: str, document: Any, timeout_seconds: float) -> Any:
        """One request. TransportError without an answer, EtcdError with etcd's refusal.

        With a token that etcd doesn't know any more the request was refused before it did anything: a fresh login,
        which is counted, and the same once more within the same deadline.
        """
        until = Stamp.now().mono + timeout_seconds
        try:
            return self._ask(path, document, timeout_seconds)
        except EtcdError as error:
            if self._login["name"] is None or not any(word in str(error) for word in LOGIN_OVER):
                raise
            left = until - Stamp.now().mono
            if left < MIN_ATTEMPT_SECONDS or self._log_in(left) is not None:
                raise
        return self._ask(path, document, max(until - Stamp.now().mono, MIN_ATTEMPT_SECONDS))

    def _ask(self, path: str, document: Any, timeout_seconds: float) -> Any:
        status, answer = self._http.json("POST", f"/v3/{path}", document, timeout_seconds)
        if isinstance(answer, dict) and "error" in answer and isinstance(answer["error"], dict):  # in a stream
            answer, status = answer["error"], 500
        if status != 200 or not isinstance(answer, dict):
            message = answer.get("message") or answer.get("error") if isinstance(answer, dict) else answer
            if status != 200 and LEASE_GONE not in str(message):
                self._http.next_endpoint()  # a server that can't serve: the next request goes to another
            raise EtcdError(str(message or f"status {status}"))
        return answer

    def _keep_alive(self) -> tuple[Stamp | None, str | None]:
        """Renew the lease once: the send time, or None and why not. LEASE_GONE when etcd says it has expired."""
        sent = Stamp.now()
        try:
            answer = self._call("lease/keepalive", {"ID": self._lease}, self._operation)
        except (TransportError, EtcdError) as error:
            return None, str(error)
        # A lease that is gone is answered with a ttl of 0, which JSON leaves out.
        if int(answer.get("result", {}).get("TTL", 0)) <= 0:
            return None, LEASE_GONE
        return sent, None

    # -- the protocol ---------------------------------------------------------------------------------------------

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """See `LockClient.acquire`."""
        until = Stamp.now().mono + wait_seconds
        since, why = self._grant(until, cancelled)
        if since is None:
            # A lease without a key holds nothing, so even an unknown grant is a certain failure to lock.
            return Acquired("fail", error=why)
        assert self._lease is not None
        own = self._prefix + f"{int(self._lease):x}".encode()
        ask = [
            {"request_put": {"key": _b64(own), "value": _b64(b"held or waiting"), "lease": self._lease}},
            {"request_range": self._lower(None)},
        ]
        compare = [{"key": _b64(own), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}]
        try:
            answer = self._call("kv/txn", {"compare": compare, "success": ask}, self._operation)
        except (TransportError, EtcdError) as error:
            return self._abandon(str(error))
        token = int(answer["header"]["revision"])
        first = answer["responses"][1]["response_range"].get("kvs", [])
        if first and int(first[0]["create_revision"]) < token:
            outcome = self._wait_turn(own, token, since, until, cancelled)
            if isinstance(outcome, Acquired):
                return outcome
            since = outcome
        notes = {"endpoint": self._http.endpoint, "lease": f"{int(self._lease):x}"}
        return Acquired("ok", token, self._granted, since, notes=notes)

    def _grant(self, until: float, cancelled: Flag) -> tuple[Stamp | None, str]:
        """A fresh lease, from whichever server answers first."""
        while True:
            sent = Stamp.now()
            try:
                seconds = str(max(1, round(self._ttl)))
                answer = self._call("lease/grant", {"TTL": seconds}, min(self._operation, until - sent.mono))
                self._lease, self._granted = str(answer["ID"]), float(answer["TTL"])
                return sent, ""
            except (TransportError, EtcdError) as error:
                why = f"no lease: {error}"
            pause = self._random.uniform(0.02, 0.1)
            if Stamp.now().mono + pause + MIN_ATTEMPT_SECONDS > until or cancelled.wait(pause):
                return None, why
            self.counters["grant_retries"] += 1

    def _lower(self, token: int | None) -> dict[str, str]:
        """The request for the next lower key than one's own; for the lowest of all without a token."""
        span = {"key": _b64(self._prefix), "range_end": _end(self._prefix), "sort_target": "CREATE", "limit": "1"}
        if token is None:
            return {**span, "sort_order": "ASCEND"}
        return {**span, "sort_order": "DESCEND", "max_create_revision": str(token - 1)}

    def _wait_turn(self, own: bytes, token: int, since: Stamp, until: float, cancelled: Flag) -> Stamp | Acquired:
        """Wait until no lower key is left and the own one is proven; the send time of the last keep-alive, or the
        end.
        """
        watch: _Watch | None = None
        try:
            while True:
                if cancelled.is_set() or Stamp.now().mono >= until:
                    return self._abandon("cancelled" if cancelled.is_set() else "wait limit: held by another")
                due = since.mono + self.renew_every_seconds
                if Stamp.now().mono >= due:
                    renewed, why = self._keep_alive()
                    if renewed is not None:
                        since = renewed
                    elif why == LEASE_GONE:
                        self.counters["expired_while_waiting"] += 1
                        return Acquired("fail", error=f"expired while waiting: {LEASE_GONE}")
                    else:
                        # Not given up: a leader that has just been elected has given the lease its full ttl again, and
                        # a waiter that leaves the queue starts at its end. Nothing is claimed before it succeeds.
                        self.counters["keepalive_retries"] += 1
                        if watch is not None:  # it hung on the server that was given up
                            watch.close()
                            watch = None
                        cancelled.wait(0.05)
                        continue
                try:
                    if watch is None:
                        lower = self._call("kv/range", self._lower(token), self._operation)
                        if not lower.get("kvs"):
                            return self._prove(own, token, since)
                        revision = int(lower["header"]["revision"]) + 1
                        watch = _Watch(self._http, lower["kvs"][0]["key"], revision, self._operation)
                        self.counters["watches"] += 1
                except (TransportError, EtcdError) as error:
                    if isinstance(error, TransportError) and error.kind == "connect":
                        self._http.next_endpoint()
                    cancelled.wait(0.05)
                    continue
                now = Stamp.now().mono
                if watch.wait(min(since.mono + self.renew_every_seconds, until) - now, cancelled):
                    watch.close()
                    watch = None
        finally:
            if watch is not None:
                watch.close()

    def _prove(self, own: bytes, token: int, since: Stamp) -> Stamp | Acquired:
        """Read the own key again after waiting: only a key that is still there holds anything."""
        try:
            answer = self._call("kv/range", {"key": _b64(own)}, self._operation)
        except (TransportError, EtcdError) as error:
            return self._abandon(f"own key not read again: {error}")
        keys = answer.get("kvs", [])
        if keys and int(keys[0]["create_revision"]) == token:
            return since
        self.counters["expired_while_waiting"] += 1
        return Acquired("fail", error="expired while waiting: the own key is gone")

    def _abandon(self, why: str) -> Acquired:
        """Give an acquire up: revoke its lease, so that no key is left that could be granted. A failure when that is
        sure.
        """
        try:
            self._call("lease/revoke", {"ID": self._lease}, self._operation)
            return Acquired("fail", error=why)
        except (TransportError, EtcdError) as error:
            if LEASE_GONE in str(error):
                return Acquired("fail", error=why)
            return Acquired("info", error=f"{why}; and its lease not revoked: {error}")

    def renew(self) -> Answered:
        """See `LockClient.renew`."""
        sent, why = self._keep_alive()
        if sent is not None:
            return Answered("ok")
        assert why is not None
        if why == LEASE_GONE:
            return Answered("fail", held=False, error=why)
        return Answered(classify(self.errors, why), error=why)

    def release(self) -> Answered:
        """See `LockClient.release`."""
        try:
            self._call("lease/revoke", {"ID": self._lease}, self._operation)
            return Answered("ok")
        except (TransportError, EtcdError) as error:
            if LEASE_GONE in str(error):
                return Answered("fail", held=False, error=str(error))
            return Answered(classify(self.errors, str(error)), error=str(error))

    @property
    def doubtful(self) -> bool:
        """See `LockClient.doubtful`."""
        return not self._http.connected

    def close(self) -> None:
        """See `LockClient.close`."""
        self._http.close()
