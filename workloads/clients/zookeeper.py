"""The lock of ZooKeeper, by its recipe, over kazoo: an ephemeral sequential node, the lowest holds, watch the
predecessor.

The name begins with a uuid, so that a create whose answer was lost can be found again. The token is the czxid of the
own node, the number of the transaction that made it.

What kazoo leaves to its user:

- It says LOST only when it has *reconnected* and heard that the session is gone. SUSPENDED is therefore doubt, and loss
  is the business of one's own timer (the deadline of a guarded contender).
- Its own pings can't be seen from outside. So `since` is the send time of the last request of ours that the session
  answered, and renewing is such a request: a *check* of the own node, alone in a transaction. Not a read: any server
  answers reads, one that was cut off from the others too, and would so "prove" a lock that the rest has given to
  another. A quorum must agree to a transaction, and it leaves the node, and the neighbour's watch on it, untouched.
- One-shot watches are gone after a reconnect (kazoo 732: waiters that wait for ever). Whatever wakes a waiter, it looks
  again; a reconnect wakes it.
- A request made while the connection is down waits in a queue and may be sent later, when nobody expects it any more.
  So nothing is asked without a connection, and a client whose create came to an unknown end is given up with its
  session.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import kazoo
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from workloads.clients import keeper
from workloads.clients.base import Acquired, Answered, ClientConfig, Outcome, classify
from workloads.clients.http import Tls, resolve
from workloads.clients.keeper import MARK, ROOT
from workloads.clocks import Flag, Stamp

NO_NODE = "NoNodeError"
EXPIRED = "SessionExpiredError"

ERRORS: Mapping[str, Outcome] = {
    # Nothing was asked without a connection.
    "not connected": "fail",
    "ConnectionClosedError": "fail",
    # The connection broke, or no answer came, after the request had been handed to kazoo.
    "ConnectionLoss": "info",
    "timeout": "info",
    # ZooKeeper's own answers.
    NO_NODE: "fail",
    EXPIRED: "fail",
    "SessionMovedError": "fail",
    "RolledBackError": "fail",
    "NoAuthError": "fail",
    "ThrottledOpError": "fail",
    "*": "info",
}

LOOK_AGAIN_SECONDS = 0.25
LOG_LEVEL = logging.WARNING


def _address(host: str, port: int) -> str:
    """The server as kazoo takes it, by one address: by name it would try each of them, for a whole ttl when cut off."""
    _, address = resolve(host, port)
    return f"[{address[0]}]:{port}" if ":" in address[0] else f"{address[0]}:{port}"


class ZooKeeperError(Exception):
    """A request that failed; begins with a kind of the error table."""


class ZooKeeperLock:
    """See the module. `settings`: endpoints; of a cluster that isn't the harness's own also `prefix` (below which its
    nodes are), `tls` (`Tls.of`), `user` and `password`.
    """

    name = "zookeeper"
    attaches = True
    library = f"kazoo {kazoo.__version__}"
    errors = ERRORS

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._ttl = config.ttl_seconds
        self._operation = config.operation_seconds
        self.renew_every_seconds = config.ttl_seconds / 3
        self.counters: Counter[str] = Counter(
            connections=0, suspended=0, expired=0, sessions_given_up=0, creates_recovered=0, looks=0
        )
        self._hosts = [_address(host, port) for host, port in config.endpoints()]
        self._prefix: str | None = config.settings.get("prefix")
        self._folder = f"/{self._prefix or ROOT}/{config.lock}"
        self._tls = Tls.of(config.settings.get("tls"))
        names = {} if self._tls is None else self._tls.names
        self._names = {resolve(host, port)[1][0]: names.get(host, host) for host, port in config.endpoints()}
        user, password = config.settings.get("user"), config.settings.get("password")
        self._login = None if user is None else (str(user), str(password))
        self._client: Any = None
        self._owner = 0
        """The session that made the own node."""
        self._negotiated = config.ttl_seconds
        self._woken = threading.Event()
        self._path = ""

    # -- the session ----------------------------------------------------------------------------------------------

    def connect(self, timeout_seconds: float) -> str | None:
        """A session, and the folder of the lock. The servers may still be starting."""
        deadline = time.monotonic() + timeout_seconds
        self._open()
        why = "no connection"
        while (left := deadline - time.monotonic()) > 0:
            if self._connected(min(left, 1.0)):
                try:
                    if self._prefix is not None:
                        self._mark_root(min(left, 5.0))
                    self._ask(lambda client: client.ensure_path_async(self._folder), min(left, 5.0))
                    return None
                except ZooKeeperError as error:
                    why = str(error)
        return f"no session within {timeout_seconds:g} s: {why}"

    def _mark_root(self, timeout_seconds: float) -> None:
        """Make the folder of all trials, where there is none, as one that goes with the last of them."""
        root = f"/{ROOT}"
        if self._ask(lambda client: client.exists_async(root), timeout_seconds) is None:
            try:
                self._ask(lambda client: client.create_async(root, MARK), timeout_seconds)
            except ZooKeeperError as error:
                if not str(error).startswith("NodeExistsError"):
                    raise

    def _open(self) -> None:
        """A client of its own session. kazoo's retries: of commands none; of connections, each one counted."""
        logging.basicConfig(
            format="%(asctime)s %(name)s: %(message)s"
        )  # to stderr, which is kept as the contender's log
        logger = logging.getLogger("kazoo")
        logger.setLevel(LOG_LEVEL)
        client = keeper.client(
            self._hosts,
            self._ttl,
            keeper.Handler(self._tls, self._names),
            self._agreed,
            self._login,
            command_retry=KazooRetry(max_tries=0),
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=1.5, max_jitter=0.5, max_delay=0.5),
            logger=logger,
        )
        client.add_listener(lambda state: self._heard(client, state))
        client.start_async()
        self._client = client

    def _agreed(self, seconds: float) -> None:
        self._negotiated = seconds

    def _heard(self, client: Any, state: str) -> None:
        """kazoo's listener: called in its connection thread, must not block."""
        if client is not self._client:
            return
        if state == KazooState.CONNECTED:
            self.counters["connections"] += 1
        elif state == KazooState.SUSPENDED:
            self.counters["suspended"] += 1
        elif client.client_state == KeeperState.EXPIRED_SESSION:
            # The one case in which the service itself said it; LOST also comes when we close.
            self.counters["expired"] += 1
            self._config.on_lost("expired")
        self._woken.set()

    def _connected(self, seconds: float) -> bool:
        """Wait for a connection, at most so long."""
        end = time.monotonic() + seconds
        while not self._client.connected and (left := end - time.monotonic()) > 0:
            self._woken.wait(min(left, 0.05))
            self._woken.clear()
        return bool(self._client.connected)

    def _give_up_session(self) -> None:
        """A new client with a new session; the old one is closed aside, as soon as kazoo can.

        Everything that the old session still holds ends with it: at its close, or when it expires.
        """
        self.counters["sessions_given_up"] += 1
        old, self._client = self._client, None

        def stop() -> None:
            # kazoo waits for its connection thread and complains when that takes long; the session expires then.
            with contextlib.suppress(KazooException, OSError, AttributeError):
                old.stop()
                old.close()

        threading.Thread(target=stop, name="closing", daemon=True).start()
        self._open()

    def _ask(self, request: Callable[[Any], Any], timeout_seconds: float | None = None) -> Any:
        """One request (a function from the client to kazoo's async result), one deadline. ZooKeeperError otherwise."""
        if not self._client.connected:
            raise ZooKeeperError("not connected")
        try:
            return request(self._client).get(timeout=timeout_seconds or self._operation)
        except KazooTimeoutError as error:
            raise ZooKeeperError(f"timeout: no answer within {timeout_seconds or self._operation:.2f} s") from error
        except (ConnectionLoss, ConnectionClosedError, NoNodeError, SessionExpiredError, KazooException) as error:
            raise ZooKeeperError(f"{type(error).__name__}: {error}".rstrip(": ")) from error

    def _check(self) -> Stamp:
        """Prove to a quorum that the own node is there; the send time. ZooKeeperError NO_NODE, EXPIRED: it is gone."""
        sent = Stamp.now()

        def request(client: Any) -> Any:
            transaction = client.transaction()
            transaction.check(self._path, -1)
            return transaction.commit_async()

        for result in self._ask(request):  # the errors of a transaction stand in its results
            if isinstance(result, Exception):
                raise ZooKeeperError(f"{type(result).__name__}: {result}".rstrip(": "))
        self._check_session()
        return sent

    def _check_session(self) -> None:
        """ZooKeeperError EXPIRED where the own node is another session's. kazoo goes on with a new one by itself.

        A leader that was frozen, and wakes without a quorum, tells clients that their session has expired; those that
        follow the next leader have the session, and the node, for a while yet. Nothing that the new session does makes
        that last.
        """
        if self._client._session_id != self._owner:  # `client_id` would be None without a connection, too
            raise ZooKeeperError(f"{EXPIRED}: the own node is that of a session before")

    # -- the protocol ---------------------------------------------------------------------------------------------

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """See `LockClient.acquire`."""
        until = time.monotonic() + wait_seconds
        while not self._connected(min(LOOK_AGAIN_SECONDS, max(until - time.monotonic(), 0))):
            if cancelled.is_set() or time.monotonic() >= until:
                return Acquired("fail", error="cancelled" if cancelled.is_set() else "not connected")
        prefix = f"{uuid.uuid4().hex}-lock-"
        since = Stamp.now()
        try:
            path = f"{self._folder}/{prefix}"
            self._path, stat = self._ask(
                lambda client: client.create_async(path, b"", ephemeral=True, sequence=True, include_data=True)
            )
        except ZooKeeperError as error:
            if classify(self.errors, str(error)) == "fail":
                return Acquired("fail", error=f"create: {error}")
            found = self._recover(prefix)
            if isinstance(found, Acquired):
                return found
            self._path, stat = found
        self._owner = stat.ephemeralOwner
        try:
            waited = self._wait_turn(until, cancelled)
            if waited is None:
                return self._abandon("cancelled" if cancelled.is_set() else "wait limit: held by another")
            if waited:
                since = self._check()
            else:
                self._check_session()
        except ZooKeeperError as error:
            if str(error).startswith((NO_NODE, EXPIRED)):
                return Acquired("fail", error=f"expired while waiting: {error}")
            return self._abandon(str(error))
        return Acquired("ok", stat.czxid, self._negotiated, since, notes={"node": self._path.rpartition("-")[2]})

    def _recover(self, prefix: str) -> tuple[str, Any] | Acquired:
        """Find the node of a create whose answer was lost.

        After a `sync` on the same session the answer is final: a request that another server still held for this
        session would be refused as moved.
        """
        if self._connected(self._operation):
            try:
                self._ask(lambda client: client.sync_async(self._folder))
                names = self._ask(lambda client: client.get_children_async(self._folder))
                own = [name for name in names if name.startswith(prefix)]
                if not own:
                    return Acquired("fail", error="create: connection lost, and no node was made")
                path = f"{self._folder}/{own[0]}"
                stat = self._ask(lambda client: client.exists_async(path))
                if stat is not None:
                    self.counters["creates_recovered"] += 1
                    return path, stat
                return Acquired("fail", error="expired while waiting: the own node is gone")
            except ZooKeeperError as error:
                why = str(error)
        else:
            why = "not connected"
        self._give_up_session()
        return Acquired("info", error=f"create: connection lost, and not found out what became of it: {why}")

    def _wait_turn(self, until: float, cancelled: Flag) -> bool | None:
        """Wait to be the lowest. Whether that took waiting; None when the time was up or the contender was stopped."""
        own = self._path.rpartition("/")[2]
        waited = False
        while True:
            if cancelled.is_set() or time.monotonic() >= until:
                return None
            self._woken.clear()
            try:
                self.counters["looks"] += 1
                names = self._ask(lambda client: client.get_children_async(self._folder))
                queue = sorted(names, key=lambda name: name.rpartition("-")[2])
                if own not in queue:
                    raise ZooKeeperError(f"{NO_NODE}: {own}")
                place = queue.index(own)
                if place == 0:
                    return waited
                waited = True
                before = f"{self._folder}/{queue[place - 1]}"
                if self._gone(before):
                    continue
            except ZooKeeperError as error:
                if str(error).startswith((NO_NODE, EXPIRED)):
                    raise
                waited = True  # whatever was seen before the connection broke is old
                self._connected(min(LOOK_AGAIN_SECONDS, max(until - time.monotonic(), 0.01)))
                continue  # and look again: no watch stands
            while not self._woken.wait(min(LOOK_AGAIN_SECONDS, max(until - time.monotonic(), 0.001))):
                if cancelled.is_set() or time.monotonic() >= until:
                    return None

    def _gone(self, path: str) -> bool:
        """Whether the node is gone; if not, whatever happens to it wakes us."""
        return self._ask(lambda client: client.exists_async(path, watch=lambda _: self._woken.set())) is None

    def _abandon(self, why: str) -> Acquired:
        """Give an acquire up: delete the own node, so that it can't be granted. A failure when that is certain."""
        try:
            self._ask(lambda client: client.delete_async(self._path))
        except ZooKeeperError as error:
            if not str(error).startswith((NO_NODE, EXPIRED)):
                self._give_up_session()
                return Acquired("info", error=f"{why}; and its node not deleted: {error}")
        return Acquired("fail", error=why)

    def renew(self) -> Answered:
        """See `LockClient.renew`."""
        try:
            self._check()
            return Answered("ok")
        except ZooKeeperError as error:
            return self._answer(error)

    def release(self) -> Answered:
        """See `LockClient.release`. Without a certain answer the session is given up too, which ends the hold for
        sure.
        """
        try:
            self._ask(lambda client: client.delete_async(self._path))
            return Answered("ok")
        except ZooKeeperError as error:
            answer = self._answer(error)
            if answer.held is None:
                self._give_up_session()
            return answer

    def _answer(self, error: ZooKeeperError) -> Answered:
        text = str(error)
        if text.startswith((NO_NODE, EXPIRED)):
            return Answered("fail", held=False, error=text)
        return Answered(classify(self.errors, text), error=text)

    @property
    def doubtful(self) -> bool:
        """SUSPENDED: kazoo has no connection just now."""
        return self._client is None or not self._client.connected

    def close(self) -> None:
        """See `LockClient.close`. Not by kazoo's stop, which ends the session: the process ends, and the session
        expires.
        """
