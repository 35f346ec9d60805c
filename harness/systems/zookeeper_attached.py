"""A ZooKeeper that exists: what `ZooKeeper` does there from the harness's host. See harness/systems/attached.py."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from harness.systems.attached import (
    Access,
    CameBack,
    Endpoint,
    EndpointError,
    Found,
    Refused,
    at_any,
    reach,
    unanswered,
    wants_tls,
)
from harness.systems.base import Settings

SESSION_SECONDS = 10.0
"""How long a session may take to begin."""
TIDY_SECONDS = 6.0
"""What the session that tidies up asks for; whatever it gets is right."""
ANSWER_SECONDS = 5.0
"""The deadline of one request."""
LOOK_SECONDS = 0.02

TAKES = "it takes create, delete and read on /fencepost"


class Member:
    """One endpoint, in a session of its own, by kazoo. A context that ends both.

    Whatever answers: a request ends within ANSWER_SECONDS, and the connection with the context.
    """

    def __init__(self, access: Access, endpoint: Endpoint, ttl_seconds: float) -> None:
        """Raises EndpointError."""
        from workloads.clients import keeper  # kazoo takes 0.1 s, which only those pay who need it
        from workloads.clients.http import resolve

        self.endpoint, self._access = endpoint, access
        reach(access, endpoint)
        if (wanted := wants_tls(access, endpoint)) is not None:  # it would wait for a hello, and we for a session
            raise wanted
        try:
            address = resolve(endpoint.host, endpoint.port)[1][0]
        except OSError as error:
            raise EndpointError(f"{endpoint} can't be reached: {error}") from error
        self._handler = keeper.Handler(access.tls, {address: access.name_of(endpoint)})
        self.granted_seconds = 0.0
        from kazoo.retry import KazooRetry

        once: Any = KazooRetry
        quiet = logging.getLogger("fencepost.kazoo")
        quiet.propagate = False
        quiet.setLevel(logging.CRITICAL)
        host = f"[{address}]:{endpoint.port}" if ":" in address else f"{address}:{endpoint.port}"
        login = None if access.user is None else (access.user, access.password or "")
        retry = {"command_retry": once(max_tries=0), "connection_retry": once(max_tries=0)}
        self._client = keeper.client([host], ttl_seconds, self._handler, self._agreed, login, logger=quiet, **retry)
        try:
            self._begin()
        except EndpointError:
            self.close()
            raise

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _agreed(self, seconds: float) -> None:
        self.granted_seconds = seconds

    def _begin(self) -> None:
        end = time.monotonic() + SESSION_SECONDS
        self._client.start_async()
        while not (self._client.connected and self.granted_seconds):  # the latter once it has logged in, too
            left = end - time.monotonic()
            if left <= 0 or self._client._connection.connection_stopped.is_set():
                raise self._unanswered(f"no session within {SESSION_SECONDS:g} s" if left <= 0 else "no session")
            time.sleep(min(LOOK_SECONDS, left))

    def _unanswered(self, what: str) -> EndpointError:
        last = self._handler.last
        why = self._handler.error or (None if last is None else last.error)
        said = "" if last is None or not last.heard else f", it says {last.heard!r}"
        return unanswered(
            self._access, self.endpoint, "ZooKeeper", ValueError(f"{what}{said}{f' ({why})' if why else ''}")
        )

    def close(self) -> None:
        """End the session and the connection. Idempotent."""
        from kazoo.exceptions import KazooException

        if not self._client.connected:
            self._handler.cut()  # else whoever drips would be listened to
        with suppress(KazooException, OSError, AttributeError):
            self._client.stop()
        self._handler.cut()
        with suppress(KazooException, OSError, AttributeError):
            self._client.close()

    def ask(self, request: Callable[[Any], Any]) -> Any:
        """One request: a function from kazoo's client to its async result. What it came to, `Refused` with the name of
        ZooKeeper's own error, or EndpointError without an answer.
        """
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            result = request(self._client).get(timeout=ANSWER_SECONDS)
        except KazooTimeoutError as error:
            raise self._unanswered(f"no whole answer within {ANSWER_SECONDS:g} s") from error
        except KazooException as error:
            name = type(error).__name__
            if name in ("ConnectionLoss", "ConnectionClosedError", "SessionExpiredError"):
                raise self._unanswered(f"the connection ends ({name})") from error
            raise Refused(self.endpoint, f"{name} {error}".strip()) from error
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise self._unanswered(f"{type(error).__name__}: {error}") from error
        for each in result if isinstance(result, list) else ():
            if isinstance(each, KazooException):  # those of a transaction stand in its results
                raise Refused(self.endpoint, type(each).__name__)
        return result

    def version(self) -> str | None:
        """The version that it tells by `srvr`, which is allowed unless somebody has forbidden it; None then."""
        from kazoo.exceptions import KazooException

        try:
            told = self._client.command(b"srvr")
        except (OSError, KazooException):
            return None
        found = re.search(r"version: (\d+(?:\.\d+)+)", told)
        return None if found is None else found[1]


def examine(access: Access, settings: Settings, prefix: str) -> Found:
    """See `Attachable.examine`: through the first endpoint all that a lock client does, and it is undone; the others
    must see it once they have caught up, or they are of another cluster.
    """
    with ExitStack() as closing:
        members = [
            closing.enter_context(Member(access, endpoint, settings.ttl_seconds)) for endpoint in access.endpoints
        ]
        for member in members:
            _check_session(member, settings)
        first, *others = members
        try:
            _try_out(first, prefix)
            for member in others:
                member.ask(lambda client: client.sync_async(f"/{prefix}"))
                if member.ask(lambda client: client.exists_async(f"/{prefix}")) is None:
                    where = f"{member.endpoint} doesn't know what was made through {first.endpoint}"
                    raise EndpointError(f"the endpoints are of different clusters: {where}")
        except BaseException:
            with suppress(EndpointError):  # the first error is told
                _remove(first, prefix)
            raise
        _remove(first, prefix)
        versions = {version for member in members if (version := member.version()) is not None}
    version = "/".join(sorted(versions)) or None
    return Found(version, f"zookeeper {version or 'of a version that it does not tell to us'}")


def _check_session(member: Member, settings: Settings) -> None:
    wanted, granted = settings.ttl_seconds, member.granted_seconds
    if not abs(granted - wanted) <= 0.002:
        raise EndpointError(
            f"{member.endpoint} grants a session of {granted:g} s where {wanted:g} s is asked for, and a lock would be "
            f"judged by another promise than it made; give a ttl of {granted:g} s, or have its minSessionTimeout (two "
            "ticks) or maxSessionTimeout changed"
        )


def _try_out(member: Member, prefix: str) -> None:
    from workloads.clients.keeper import MARK, ROOT

    try:
        if member.ask(lambda client: client.exists_async(f"/{ROOT}")) is None:
            with suppress(_Exists):
                _make(member, f"/{ROOT}", MARK)
        member.ask(lambda client: client.create_async(f"/{prefix}"))
        path = member.ask(lambda client: client.create_async(f"/{prefix}/look-", ephemeral=True, sequence=True))
        member.ask(lambda client: client.get_children_async(f"/{prefix}"))

        def check(client: Any) -> Any:
            transaction = client.transaction()
            transaction.check(path, -1)
            return transaction.commit_async()

        member.ask(check)
        member.ask(lambda client: client.delete_async(path))
    except Refused as error:
        if error.words.startswith("NoAuthError"):
            raise EndpointError(_not_allowed(member)) from error
        if "RequireAuth" in error.words:
            raise EndpointError(f"{member.endpoint} wants a user and a password (endpoint options)") from error
        raise


class _Exists(Exception):
    """Somebody else has made it meanwhile."""


def _make(member: Member, path: str, data: bytes) -> None:
    try:
        member.ask(lambda client: client.create_async(path, data))
    except Refused as error:
        if error.words.startswith("NodeExistsError"):
            raise _Exists from error
        raise


def _not_allowed(member: Member) -> str:
    user = member._access.user
    if user is None:
        return f"{member.endpoint} wants a user and a password (endpoint options) who may use /fencepost; {TAKES}"
    return (
        f"{member.endpoint}: {user!r} with this password may not use /fencepost (ZooKeeper takes any password, and "
        f"only its ACLs know better); {TAKES}"
    )


def _remove(member: Member, prefix: str) -> int:
    """All nodes of the trial, and /fencepost where a trial made it and no other is left; how many of the former."""
    from workloads.clients.keeper import MARK, ROOT

    removed = _remove_below(member, f"/{prefix}")
    try:
        data, _ = member.ask(lambda client: client.get_async(f"/{ROOT}"))
        if data == MARK:
            member.ask(lambda client: client.delete_async(f"/{ROOT}"))
    except Refused as error:
        if not error.words.startswith(("NoNodeError", "NotEmptyError", "NoAuthError")):
            raise
    return removed


def _remove_below(member: Member, path: str) -> int:
    removed = 0
    try:
        for child in member.ask(lambda client: client.get_children_async(path)):
            removed += _remove_below(member, f"{path}/{child}")
        member.ask(lambda client: client.delete_async(path))
        removed += 1
    except Refused as error:
        if not error.words.startswith("NoNodeError"):
            raise
    return removed


def tidy(access: Access, prefix: str) -> int:
    """See `Attachable.tidy`: by the first endpoint that answers, and looked for again after that."""

    def remove(endpoint: Endpoint) -> int:
        with Member(access, endpoint, TIDY_SECONDS) as member:
            removed = _remove(member, prefix)
            left = member.ask(lambda client: client.exists_async(f"/{prefix}")) is not None
        if left:
            raise CameBack(f"/{prefix} came back after it was removed: somebody writes there")
        return removed

    return at_any(access, remove, f"/{prefix} may be left (what holds the lock in it ends with its session)")
