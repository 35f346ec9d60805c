"""An etcd that exists: what `Etcd` does there from the harness's host. See harness/systems/attached.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.systems.asking import b64
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
from workloads.clients.http import HttpClient, TransportError

ANSWER_SECONDS = 5.0
"""The deadline of one request; a login costs a server a tenth of a second of work."""


class Member:
    """One endpoint, spoken to in JSON, after it was seen that it is an etcd."""

    def __init__(self, access: Access, endpoint: Endpoint) -> None:
        """Raises EndpointError."""
        self._access, self.endpoint = access, endpoint
        reach(access, endpoint)
        try:
            self._http = HttpClient([(endpoint.host, endpoint.port)], Counter(), access.tls)
        except OSError as error:
            raise EndpointError(f"{endpoint}: {error}") from error
        try:
            self.version = self._version()
            if access.user is not None:
                self._log_in(access)
        except EndpointError:
            self.close()
            raise

    def _exchange(self, method: str, path: str, document: Any) -> tuple[int, Any]:
        try:
            return self._http.json(method, path, document, ANSWER_SECONDS)
        except TransportError as error:
            raise unanswered(self._access, self.endpoint, "etcd", error) from error

    def _version(self) -> str:
        status, answer = self._exchange("GET", "/version", None)
        if status == 200 and isinstance(answer, dict) and "etcdserver" in answer:
            return str(answer["etcdserver"])
        if (wanted := wants_tls(self._access, self.endpoint)) is not None:
            raise wanted
        raise EndpointError(f"{self.endpoint} isn't etcd: it answers GET /version with status {status}, {answer!r:.80}")

    def _log_in(self, access: Access) -> None:
        try:
            told = self.ask("auth/authenticate", {"name": access.user, "password": access.password})
        except Refused as error:
            if "not enabled" in error.words:
                raise EndpointError(f"{self.endpoint} knows no users; leave user and password out") from error
            raise EndpointError(
                f"{self.endpoint} refuses the password of {access.user!r}, or knows no such user: {error.words}"
            ) from error
        if not isinstance(told.get("token"), str):
            raise EndpointError(f"{self.endpoint} takes the password, and answers without a token as etcd gives one")
        self._http.headers["Authorization"] = told["token"]

    def ask(self, path: str, document: Any) -> dict[str, Any]:
        """One request. `Refused` with etcd's own words, EndpointError without an answer."""
        status, answer = self._exchange("POST", f"/v3/{path}", document)
        if status == 200 and isinstance(answer, dict) and "error" not in answer:
            return answer
        words = answer.get("message") or answer.get("error") if isinstance(answer, dict) else answer
        raise Refused(self.endpoint, str(words or f"status {status}"))

    def close(self) -> None:
        """Drop the connection."""
        self._http.close()


@contextmanager
def _understood(endpoint: Endpoint) -> Iterator[None]:
    """EndpointError for JSON that is no answer of etcd's: a gateway, or a thing that only tells a version alike."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise EndpointError(f"{endpoint} doesn't answer as etcd does: {type(error).__name__}: {error}") from error


def span(prefix: str) -> dict[str, str]:
    """All keys below a prefix: what is `prefix/…`, and nothing that only begins alike."""
    return {"key": b64(f"{prefix}/"), "range_end": b64(f"{prefix}0")}  # "0" is what follows "/"


def examine(access: Access, settings: Settings, prefix: str) -> Found:
    """See `Attachable.examine`: on each endpoint a lease, a key that hangs on it, and the lease's end with the key."""
    if access.password is not None and access.user is None:
        raise EndpointError("etcd knows no password without a user: give the endpoint option user too")
    versions: dict[str, str] = {}
    clusters: dict[str, str] = {}
    for number, endpoint in enumerate(access.endpoints):
        member = Member(access, endpoint)
        try:
            with _understood(endpoint):
                clusters[str(endpoint)] = _try_out(member, access, settings, f"{prefix}/look{number}")
        finally:
            member.close()
        versions[str(endpoint)] = member.version
    if len(set(clusters.values())) > 1:
        said = ", ".join(f"{endpoint} of {cluster}" for endpoint, cluster in clusters.items())
        raise EndpointError(f"the endpoints are of different clusters ({said})")
    version = "/".join(sorted(set(versions.values())))
    return Found(version, f"etcd {version}, cluster {next(iter(clusters.values()))}")


def _try_out(member: Member, access: Access, settings: Settings, key: str) -> str:
    """The id of its cluster, once all worked that a lock client does."""
    try:
        granted = member.ask("lease/grant", {"TTL": str(round(settings.ttl_seconds))})
        lease, seconds = str(granted["ID"]), float(granted["TTL"])
        try:
            member.ask("kv/put", {"key": b64(key), "value": b64("1"), "lease": lease})
        finally:
            member.ask("lease/revoke", {"ID": lease})
    except Refused as error:
        if "user name is empty" in error.words or "invalid auth token" in error.words:
            raise EndpointError(f"{member.endpoint} wants a user and a password (endpoint options)") from error
        if "permission denied" in error.words:
            raise EndpointError(
                f"{member.endpoint}: {access.user!r} may not read and write keys below fencepost/, which is all that a "
                "trial uses; grant it that"
            ) from error
        raise
    if not abs(seconds - settings.ttl_seconds) <= 1e-6:  # also what is no number
        raise EndpointError(
            f"{member.endpoint} grants a lease of {seconds:g} s where {settings.ttl_seconds:g} s is asked for, and a "
            f"lock would be judged by another promise than it made; give a ttl of {seconds:g} s or more"
        )
    return f"{int(granted['header']['cluster_id']):x}"


def tidy(access: Access, prefix: str) -> int:
    """See `Attachable.tidy`: by the first endpoint that answers, and read again after that."""

    def remove(endpoint: Endpoint) -> int:
        member = Member(access, endpoint)
        try:
            with _understood(endpoint):
                removed = int(member.ask("kv/deleterange", span(prefix)).get("deleted", 0))
                left = int(member.ask("kv/range", {**span(prefix), "count_only": True}).get("count", 0))
        finally:
            member.close()
        if left:
            raise CameBack(f"{left} keys below {prefix}/ came back after they were removed: somebody writes there")
        return removed

    return at_any(access, remove, f"keys below {prefix}/ may be left (they hang on leases, and end with them)")
