"""A Redis that exists: what `Redis` does there from the harness's host. See harness/systems/attached.py."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from harness.systems.attached import Access, Endpoint, EndpointError, Found, Refused, reach, unanswered
from harness.systems.base import Settings

ANSWER_SECONDS = 5.0
"""The deadline of one command."""

MOST_BYTES = 1 << 20
"""Of one answer."""

Answer = str | int | None | list[Any]


class Server:
    """One Redis or Sentinel, spoken to by redis-py, logged in. A context that closes the connection.

    Whatever answers: what it says is had within ANSWER_SECONDS and MOST_BYTES, or is an EndpointError.
    """

    def __init__(
        self,
        access: Access,
        endpoint: Endpoint,
        login: tuple[str | None, str | None] | None = None,
        what: str = "Redis",
    ) -> None:
        """`login` is user and password, where they aren't those of `access`. Raises EndpointError."""
        from workloads.clients.http import resolve
        from workloads.clients.resp import Resp  # redis-py takes 0.1 s, which only those pay who need it

        self.endpoint, self._access, self._what = endpoint, access, what
        self._user, self._password = (access.user, access.password) if login is None else login
        reach(access, endpoint)
        try:
            self._connection = Resp(
                resolve(endpoint.host, endpoint.port),
                context=None if access.tls is None else access.tls.context(),
                server_name=access.name_of(endpoint),
                most_bytes=MOST_BYTES,
            )
        except OSError as error:
            raise EndpointError(f"{endpoint} can't be reached: {error}") from error
        try:
            if self._password is not None:
                self._log_in(self._password)
        except EndpointError:
            self.close()
            raise

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connection."""
        self._connection.drop()

    def _log_in(self, password: str) -> None:
        try:
            self.ask("AUTH", *([self._user] if self._user is not None else []), password)
        except Refused as error:
            if "without any password" in error.words:
                raise EndpointError(f"{self.endpoint} asks for no password; leave it out") from error
            who = f"the password of {self._user!r}, or knows no such user" if self._user else "the password"
            raise EndpointError(f"{self.endpoint} refuses {who}: {error.words}") from error

    def ask(self, *words: str) -> Answer:
        """One command and its answer. `Refused` with Redis's own words, EndpointError where it isn't one."""
        from redis.exceptions import RedisError

        from workloads.clients.resp import refusal, words_of

        self._connection.begin(ANSWER_SECONDS)
        try:
            # A password from the environment may be any bytes.
            return _text(self._connection.ask(*(word.encode(errors="surrogateescape") for word in words)))
        except RedisError as error:
            if (refused := refusal(error)) is not None:
                raise Refused(self.endpoint, refused) from error
            raise self._unanswered(words_of(error)) from error
        except ValueError as error:
            self.close()
            raise self._unanswered(str(error)) from error

    def _unanswered(self, words: str) -> EndpointError:
        return unanswered(self._access, self.endpoint, self._what, ValueError(words[:200]))


def _text(answer: Any) -> Answer:
    """With texts where redis-py has bytes."""
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    if isinstance(answer, list):
        return [_text(each) if not isinstance(each, Exception) else str(each) for each in answer]
    if answer is None or isinstance(answer, int):
        return answer
    raise ValueError(f"it says {answer!r:.80}")


def keys(prefix: str) -> tuple[str, str]:
    """The two keys of a trial: its lock, and the counter of its tokens (workloads/clients/redis.py)."""
    return f"{prefix}:{{lock}}", f"{prefix}:{{lock}}:token"


def examine(access: Access, settings: Settings, prefix: str) -> Found:
    """See `Attachable.examine`: what the lock's script does, by itself, and all of it undone."""
    if len(access.endpoints) != 1:
        raise EndpointError(f"this lock is one of a single Redis, and there are {len(access.endpoints)} endpoints")
    with Server(access, access.endpoints[0]) as server:
        version = try_out(server, settings, prefix)
    return Found(version, f"redis {version}")


def try_out(server: Server, settings: Settings, prefix: str, *more: Sequence[str]) -> str:
    """Its version, once it did what the lock's script does, and `more` commands, and all of it was undone."""
    endpoint = server.endpoint
    try:
        told = _info(server)
        lock, token = keys(f"{prefix}-look")
        script = "redis.call('set', KEYS[1], '1', 'NX', 'PX', ARGV[1]) return redis.call('incr', KEYS[2])"
        try:
            server.ask("EVAL", script, "2", lock, token, str(round(settings.ttl_seconds * 1000)))
            for command in more:
                server.ask(*command)
        except Refused:  # it may have done the first half
            server.ask("DEL", lock, token)
            raise
        except EndpointError as error:  # and this connection has no answers any more
            raise EndpointError(f"{error}; {lock} and {token} may be left there") from error
        server.ask("DEL", lock, token)
    except Refused as error:
        if error.words.startswith("NOAUTH"):
            raise EndpointError(f"{endpoint} wants a password (endpoint options password, user)") from error
        if error.words.startswith("NOPERM"):
            words = " ".join(f"+{command[0].lower()}" for command in more)
            raise EndpointError(
                f"{endpoint}: the user may not do what a lock does ({error.words}); it takes "
                f"~fencepost/* +eval +set +get +incr +pexpire +del +info {words}".rstrip()
            ) from error
        raise
    return told["redis_version"]


def _info(server: Server) -> dict[str, str]:
    """What it tells of itself. EndpointError where that is no Redis that takes writes by itself."""
    answer = server.ask("INFO")
    lines = answer.splitlines() if isinstance(answer, str) else []
    told = dict(line.split(":", 1) for line in lines if ":" in line)
    if "redis_version" not in told:
        raise EndpointError(f"{server.endpoint} isn't Redis: it answers INFO with {answer!r:.80}")
    mode, role = told.get("redis_mode", "standalone"), told.get("role", "master")
    if mode != "standalone":
        raise EndpointError(
            f"{server.endpoint} is a Redis in the mode {mode!r}, and this lock is one of a single Redis"
        )
    if role != "master":
        raise EndpointError(f"{server.endpoint} is a replica and takes no writes; give its primary")
    return told


def tidy(access: Access, prefix: str) -> int:
    """See `Attachable.tidy`."""
    try:
        with Server(access, access.endpoints[0]) as server:
            return remove(server, prefix)
    except EndpointError as error:
        raise may_be_left(prefix, error) from error


def may_be_left(prefix: str, error: EndpointError) -> EndpointError:
    """The error of keys of which nobody knows whether they are gone."""
    return EndpointError(f"{' and '.join(keys(prefix))} may be left: {error}")


def remove(server: Server, prefix: str) -> int:
    """Remove a trial's keys, and look for them again."""
    removed = server.ask("DEL", *keys(prefix))
    if left := [key for key in keys(prefix) if server.ask("GET", key) is not None]:
        raise EndpointError(f"{', '.join(left)} came back after it was removed: somebody writes there")
    assert isinstance(removed, int)
    return removed
