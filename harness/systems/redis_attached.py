"""A Redis that exists: what `Redis` does there from the harness's host. See harness/systems/attached.py."""

from __future__ import annotations

import socket
from types import TracebackType

from harness.systems.attached import (
    CONNECT_SECONDS,
    WHOLE_SECONDS,
    Access,
    Endpoint,
    EndpointError,
    Found,
    Refused,
    reach,
    unanswered,
    within,
)
from harness.systems.base import Settings

ANSWER_SECONDS = 5.0
"""The deadline of one command."""

MOST_BYTES = 1 << 20
"""Of one answer."""

Answer = str | int | None


class Server:
    """One Redis, spoken to in its protocol, logged in. A context that closes the connection."""

    def __init__(self, access: Access, endpoint: Endpoint) -> None:
        """Raises EndpointError."""
        self.endpoint, self._access = endpoint, access
        reach(access, endpoint)
        try:
            sock = socket.create_connection((endpoint.host, endpoint.port), timeout=CONNECT_SECONDS)
            if access.tls is not None:
                sock = access.tls.context().wrap_socket(sock, server_hostname=access.name_of(endpoint))
        except OSError as error:
            raise EndpointError(f"{endpoint} can't be reached: {error}") from error
        sock.settimeout(ANSWER_SECONDS)
        self._sock, self._stream = sock, sock.makefile("rb")
        try:
            if access.password is not None:
                self._log_in(access)
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
        self._stream.close()
        self._sock.close()

    def _log_in(self, access: Access) -> None:
        try:
            self.ask("AUTH", *([access.user] if access.user is not None else []), access.password or "")
        except Refused as error:
            if "without any password" in error.words:
                raise EndpointError(f"{self.endpoint} asks for no password; leave it out") from error
            who = f"the password of {access.user!r}, or knows no such user" if access.user else "the password"
            raise EndpointError(f"{self.endpoint} refuses {who}: {error.words}") from error

    def ask(self, *words: str) -> Answer:
        """One command and its answer. `Refused` with Redis's own words, EndpointError where it isn't one."""
        parts = [f"*{len(words)}\r\n".encode()]
        for word in words:
            data = word.encode(errors="surrogateescape")  # a password from the environment may be any bytes
            parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
        try:
            with within(WHOLE_SECONDS, lambda: self._sock):
                self._sock.sendall(b"".join(parts))
                return self._read()
        except (OSError, ValueError) as error:
            raise unanswered(self._access, self.endpoint, "Redis", error) from error

    def _read(self) -> Answer:
        """One answer. OSError or ValueError for what is none."""
        line = self._stream.readline(65536)
        kind, rest = line[:1], line[1:].rstrip(b"\r\n")
        if not line.endswith(b"\r\n") or kind not in b"+-:$":
            raise ValueError("it closes the connection" if not line else f"it says {line[:60]!r}")
        if kind == b"-":
            raise Refused(self.endpoint, rest.decode(errors="replace"))
        if kind == b"+":
            return rest.decode(errors="replace")
        number = int(rest)
        if kind == b":":
            return number
        if number < 0:
            return None
        if number > MOST_BYTES:
            raise ValueError(f"it answers with {number} bytes")
        data = self._stream.read(number + 2)
        if len(data) < number + 2:
            raise ValueError(f"it closes the connection {len(data)} bytes into an answer of {number}")
        return data[:-2].decode(errors="replace")


def keys(prefix: str) -> tuple[str, str]:
    """The two keys of a trial: its lock, and the counter of its tokens (workloads/clients/redis.py)."""
    return f"{prefix}:{{lock}}", f"{prefix}:{{lock}}:token"


def examine(access: Access, settings: Settings, prefix: str) -> Found:
    """See `Attachable.examine`: what the lock's script does, by itself, and all of it undone."""
    if len(access.endpoints) != 1:
        raise EndpointError(f"this lock is one of a single Redis, and there are {len(access.endpoints)} endpoints")
    (endpoint,) = access.endpoints
    with Server(access, endpoint) as server:
        try:
            told = _info(server)
            lock, token = keys(f"{prefix}-look")
            script = "redis.call('set', KEYS[1], '1', 'NX', 'PX', ARGV[1]) return redis.call('incr', KEYS[2])"
            try:
                server.ask("EVAL", script, "2", lock, token, str(round(settings.ttl_seconds * 1000)))
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
                raise EndpointError(
                    f"{endpoint}: the user may not do what a lock does ({error.words}); it takes "
                    "~fencepost/* +eval +set +get +incr +pexpire +del +info"
                ) from error
            raise
    return Found(told["redis_version"], f"redis {told['redis_version']}")


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
    (endpoint,) = access.endpoints
    try:
        with Server(access, endpoint) as server:
            removed = server.ask("DEL", *keys(prefix))
            left = [key for key in keys(prefix) if server.ask("GET", key) is not None]
    except EndpointError as error:
        raise EndpointError(f"{' and '.join(keys(prefix))} may be left: {error}") from error
    if left:
        raise EndpointError(f"{', '.join(left)} came back after it was removed: somebody writes there")
    assert isinstance(removed, int)
    return removed
