"""The lock of Consul, by its leader-election guide, over the HTTP API.

A session with a ttl, a lock-delay and no health checks (`NodeChecks: []`: else the gossip of the server it was made
through decides about it too); the key is taken with `?acquire=`, waited for with a blocking query, renewed every ttl/2,
given back with `?release=`.

The token is the key's ModifyIndex, the Raft index of the command that took it, read back after the acquire with
`?consistent` and only accepted while the session on it is one's own. Not LockIndex: that counts from 1 again when the
key is deleted, by hand or by a session whose behaviour is `delete`. Taking the key again with the same session
changes neither.

Each acquire has a fresh session, so a late release can only end the hold that it was sent for. Making a session without
taking the key locks nothing.

"Session id not found" (404) is not the end of a session. A server that has just been elected answers renewals from what
it has applied so far (`Session.Renew` of agent/consul/session_endpoint.go asks only whether it leads, not whether it is
caught up), and doesn't know yet of a session that was made moments before its predecessor fell. So after a 404 the
session is looked up with `?consistent`, and only where that finds none it is over. `believe_404` leaves that out, as
HashiCorp's own `api.Lock` does; docs/found.md tells what it costs.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from workloads.clients.base import Acquired, Answered, ClientConfig, Outcome, classify
from workloads.clients.http import HttpClient, Tls, TransportError
from workloads.clocks import Flag, Stamp

NO_SESSION = "status 404"
DENIED = "denied while it lives"
INVALID_SESSION = "status 500: invalid session"

ERRORS: Mapping[str, Outcome] = {
    # No connection, so nothing was sent.
    "connect": "fail",
    "send": "info",
    "timeout": "info",
    "disconnect": "info",
    "garbage": "info",
    # Refused before anything was proposed.
    "status 4": "fail",
    "status 500: No cluster leader": "fail",
    "status 500: node is not the leader": "fail",
    "status 500: rpc error getting client": "fail",  # a follower that could not even connect to the leader
    # The state machine's own answer to an acquire with a session that is gone.
    INVALID_SESSION: "fail",
    # It lives, and was not renewed.
    DENIED: "fail",
    # "leadership lost while committing log", "rpc error making call: EOF", "raft apply failed", "… i/o deadline
    # reached"
    "*": "info",
}

MIN_ATTEMPT_SECONDS = 0.05


def _left(until: float) -> float:
    """Seconds for one more request before `until`, on Stamp's mono; never so few that it can't be answered."""
    return max(until - Stamp.now().mono, MIN_ATTEMPT_SECONDS)


class ConsulError(Exception):
    """An answer that isn't 200; begins with "status N: "."""


class ConsulLock:
    """See the module. `settings`: endpoints, lock_delay_seconds, behavior (release, delete), believe_404, node_checks
    (sessions with the check serfHealth); of a cluster that isn't the harness's own also `prefix` (below which its keys
    are, and with which the names of its sessions begin), `tls` (`Tls.of`) and `token`.
    """

    name = "consul"
    attaches = True
    library = f"http.client of Python {sys.version.split()[0]}"
    errors = ERRORS

    def __init__(self, config: ClientConfig) -> None:
        self._ttl = config.ttl_seconds
        self._operation = config.operation_seconds
        self.renew_every_seconds = config.ttl_seconds / 2
        self.counters: Counter[str] = Counter(
            session_retries=0,
            acquire_retries=0,
            renew_retries=0,
            look_retries=0,
            lock_delays=0,
            expired_while_waiting=0,
            sessions_left=0,
            denied_alive=0,
        )
        self._http = HttpClient(config.endpoints(), self.counters, Tls.of(config.settings.get("tls")))
        if (token := config.settings.get("token")) is not None:
            self._http.headers["X-Consul-Token"] = str(token)
        prefix = config.settings.get("prefix")
        self._key = f"/v1/kv/{quote(prefix or 'fencepost')}/{quote(config.lock)}"
        self._lock_delay = float(config.settings.get("lock_delay_seconds", 15.0))
        self._behavior = str(config.settings.get("behavior", "release"))
        self._checks = ["serfHealth"] if config.settings.get("node_checks", False) else []
        self._believe_404 = bool(config.settings.get("believe_404", False))
        self._owner = f"{f'{prefix} ' if prefix else ''}contender {config.process}"
        self._random = random.Random(os.urandom(8))
        self._session = ""
        self._left: list[str] = []

    def connect(self, timeout_seconds: float) -> str | None:
        """Nothing to do before the first request."""
        return None

    # -- requests -------------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, document: Any = None, *, timeout_seconds: float | None = None) -> Any:
        """One request. TransportError without an answer, ConsulError with one that isn't 200."""
        status, answer = self._http.json(method, path, document, timeout_seconds or self._operation)
        if status != 200:
            if status >= 500 and "invalid session" not in str(answer):
                self._http.next_endpoint()  # a server that can't serve: the next request goes to another
            raise ConsulError(f"status {status}: {answer or ''}")
        return answer

    def _renew(self) -> tuple[Stamp | None, str]:
        """Renew the session: the send time, or None and why not. NO_SESSION… when it is gone. All in one deadline."""
        until = Stamp.now().mono + self._operation
        for _ in range(2):
            sent = Stamp.now()
            try:
                self._call("PUT", f"/v1/session/renew/{self._session}", timeout_seconds=_left(until))
            except (TransportError, ConsulError) as error:
                why = str(error)
            else:
                return sent, ""
            if self._believe_404 or not why.startswith(NO_SESSION):
                break
            why = self._looked_up(why, until)
            # Once more where it lives: that look went through the log, so its leader has caught up by now.
            if not why.startswith(DENIED):
                break
        return None, why

    def _looked_up(self, why: str, until: float) -> str:
        """What a renewal's 404 is worth, by a look through the log: itself, DENIED…, or why that look had no answer."""
        try:
            found = self._call("GET", f"/v1/session/info/{self._session}?consistent", timeout_seconds=_left(until))
        except (TransportError, ConsulError) as error:
            return f"not looked up: {error}, after {why}"
        if not found:
            return why
        self.counters["denied_alive"] += 1
        return f"{DENIED}: {why}"

    def _destroy(self, until: float) -> str | None:
        """End the session, and with it whatever it holds. None, or why that is not certain; it is tried again then."""
        self._left.append(self._session)
        return self._clear_left(until)

    def _clear_left(self, until: float) -> str | None:
        """End the sessions that were left behind: one may hold the lock, for twice its ttl and the lock-delay."""
        while self._left:
            try:
                self._call("PUT", f"/v1/session/destroy/{self._left[0]}", timeout_seconds=_left(until))
            except (TransportError, ConsulError) as error:
                self.counters["sessions_left"] += 1
                return str(error)
            self._left.pop(0)
        return None

    # -- the protocol ---------------------------------------------------------------------------------------------

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """See `LockClient.acquire`."""
        until = Stamp.now().mono + wait_seconds
        since, why = self._make_session(until, cancelled)
        if since is None:
            return Acquired("fail", error=why)
        while True:
            if cancelled.is_set() or Stamp.now().mono >= until:
                return self._abandon("cancelled" if cancelled.is_set() else "wait limit: held by another")
            if Stamp.now().mono >= since.mono + self.renew_every_seconds:
                renewed, why = self._renew()
                if renewed is not None:
                    since = renewed
                elif why.startswith(NO_SESSION):
                    self.counters["expired_while_waiting"] += 1
                    return Acquired("fail", error=f"expired while waiting: {why}")
                else:
                    self.counters["renew_retries"] += 1
                    cancelled.wait(0.05)
                    continue
            try:
                taken = self._call("PUT", f"{self._key}?acquire={self._session}", self._owner)
            except (TransportError, ConsulError) as error:
                if str(error).startswith(INVALID_SESSION):
                    self.counters["expired_while_waiting"] += 1
                    return Acquired("fail", error=f"expired while waiting: {error}")
                # Asked again, whatever became of it: the same session may take the same key twice, and a session that
                # was left behind would keep everybody out for twice its ttl.
                self.counters["acquire_retries"] += 1
                cancelled.wait(0.05)
                continue
            if taken is True:
                answer = self._read_back(since)
                if answer is not None:
                    return answer
                continue
            self._wait_for_change(min(since.mono + self.renew_every_seconds, until), cancelled)

    def _make_session(self, until: float, cancelled: Flag) -> tuple[Stamp | None, str]:
        """A fresh session, through whichever server answers first."""
        document = {
            "Name": self._owner,
            "TTL": f"{round(self._ttl * 1000)}ms",
            "LockDelay": f"{round(self._lock_delay * 1000)}ms",
            "NodeChecks": self._checks,
            "Behavior": self._behavior,
        }
        while True:
            self._clear_left(min(Stamp.now().mono + self._operation, until))
            sent = Stamp.now()
            try:
                timeout = min(self._operation, _left(until))
                made = self._call("PUT", "/v1/session/create", document, timeout_seconds=timeout)
                self._session = str(made["ID"])
                return sent, ""
            except (TransportError, ConsulError) as error:
                why = f"no session: {error}"
            pause = self._random.uniform(0.02, 0.1)
            if Stamp.now().mono + pause + MIN_ATTEMPT_SECONDS > until or cancelled.wait(pause):
                return None, why
            self.counters["session_retries"] += 1

    def _read_back(self, since: Stamp) -> Acquired | None:
        """Read the key after taking it: the token, and the proof that it is ours. None: take it again."""
        try:
            entry = self._call("GET", f"{self._key}?consistent")[0]
        except (TransportError, ConsulError):
            self.counters["acquire_retries"] += 1
            return None
        if entry.get("Session") != self._session:
            self.counters["acquire_retries"] += 1
            return None
        notes = {"endpoint": self._http.endpoint, "session": self._session[:8], "lock_index": entry["LockIndex"]}
        return Acquired("ok", int(entry["ModifyIndex"]), self._ttl, since, notes=notes)

    def _wait_for_change(self, until: float, cancelled: Flag) -> None:
        """Wait until the key may be free: a blocking query while it is held, a short pause in a lock-delay."""
        try:
            entry = self._call("GET", self._key)[0]
            left = until - Stamp.now().mono
            if entry.get("Session"):
                if left > 0:
                    wait = max(1, round(min(left, 0.5) * 1000))  # short, so that a stop is heard
                    path = f"{self._key}?index={entry['ModifyIndex']}&wait={wait}ms"
                    self._call("GET", path, timeout_seconds=wait / 1000 * 17 / 16 + self._operation)
                return
        except ConsulError as error:
            if str(error).startswith(NO_SESSION):
                return  # no such key: free
            self.counters["look_retries"] += 1
        except TransportError:
            self.counters["look_retries"] += 1
        else:
            self.counters["lock_delays"] += 1
        cancelled.wait(self._random.uniform(0.05, 0.15))

    def _abandon(self, why: str) -> Acquired:
        """Give an acquire up: without its session it can't come to hold anything. A failure when that is certain."""
        left = self._destroy(Stamp.now().mono + self._operation)
        if left is None:
            return Acquired("fail", error=why)
        return Acquired("info", error=f"{why}; and its session not destroyed: {left}")

    def renew(self) -> Answered:
        """See `LockClient.renew`."""
        sent, why = self._renew()
        if sent is not None:
            return Answered("ok")
        if why.startswith(NO_SESSION):
            return Answered("fail", held=False, error=why)
        return Answered(classify(self.errors, why), error=why)

    def release(self) -> Answered:
        """See `LockClient.release`. The session goes too, and with it a hold whose release got no answer; all in one
        deadline, past which it is ended before the next one is made.
        """
        until = Stamp.now().mono + self._operation
        try:
            released = self._call("PUT", f"{self._key}?release={self._session}", timeout_seconds=_left(until))
        except (TransportError, ConsulError) as error:
            answer = Answered(classify(self.errors, str(error)), error=str(error))
        else:
            answer = (
                Answered("ok") if released is True else Answered("fail", held=False, error="not held by the session")
            )
        self._destroy(until)
        return answer

    @property
    def doubtful(self) -> bool:
        """See `LockClient.doubtful`."""
        return not self._http.connected

    def close(self) -> None:
        """See `LockClient.close`."""
        self._http.close()
