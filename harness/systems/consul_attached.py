"""A Consul that exists: what `Consul` does there from the harness's host. See harness/systems/attached.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import quote

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
"""The deadline of one request."""

PERMISSIONS = 'key_prefix "fencepost/" { policy = "write" } and session_prefix "" { policy = "write" }'


class Agent:
    """One endpoint, a server or a client agent, after it was seen that it is a Consul. A context that closes it."""

    def __init__(self, access: Access, endpoint: Endpoint) -> None:
        """Raises EndpointError."""
        self._access, self.endpoint = access, endpoint
        self._token: str | None = access.own.get("token")
        reach(access, endpoint)
        try:
            self._http = HttpClient([(endpoint.host, endpoint.port)], Counter(), access.tls)
        except OSError as error:
            raise EndpointError(f"{endpoint}: {error}") from error
        if self._token is not None:
            self._http.headers["X-Consul-Token"] = self._token.encode(errors="surrogateescape").decode("latin-1")
        try:
            self._identify()
            self._check_token()
        except EndpointError:
            self.close()
            raise

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connection."""
        self._http.close()

    def _exchange(self, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        try:
            return self._http.json(method, path, document, ANSWER_SECONDS)
        except (TransportError, ValueError) as error:  # a token that no header may have
            raise unanswered(self._access, self.endpoint, "Consul", error) from error

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        """One request, whose answer is JSON. `Refused` with Consul's own words, EndpointError without an answer."""
        status, answer = self._exchange(method, path, document)
        if status == 403:
            raise self._denied(str(answer))
        if status != 200:
            raise Refused(self.endpoint, f"status {status}, {answer}")
        return answer

    def _denied(self, words: str) -> EndpointError:
        if "ACL not found" in words:
            return EndpointError(f"{self.endpoint} refuses the token: {words}")
        if self._token is None:
            return EndpointError(f"{self.endpoint} wants a token (the endpoint option token): {words}")
        return EndpointError(
            f"{self.endpoint}: the token doesn't allow what a trial does ({words}); it takes {PERMISSIONS}"
        )

    def _identify(self) -> None:
        """Ask what it tells everybody: the address of its leader."""
        status, answer = self._exchange("GET", "/v1/status/leader")
        if status == 200 and isinstance(answer, str):
            if not answer:
                raise EndpointError(f"{self.endpoint} knows of no leader just now")
            return
        if status == 500 and "No known Consul servers" in str(answer):
            raise EndpointError(f"{self.endpoint} is a client agent that knows no servers")
        if (wanted := wants_tls(self._access, self.endpoint)) is not None:
            raise wanted
        raise EndpointError(
            f"{self.endpoint} isn't Consul: it answers GET /v1/status/leader with status {status}, {answer!r:.80}"
        )

    def _check_token(self) -> None:
        if self._token is None:
            return
        status, answer = self._exchange("GET", "/v1/acl/token/self")
        if status == 401 and "ACL support disabled" in str(answer):
            raise EndpointError(f"{self.endpoint} asks for no token; leave it out")
        if status == 403:
            raise self._denied(str(answer))

    def version(self) -> str | None:
        """The version that it tells, to those who may read of agents; None to others."""
        status, answer = self._exchange("GET", "/v1/agent/self")
        config = answer.get("Config") if status == 200 and isinstance(answer, dict) else None
        return str(config["Version"]) if isinstance(config, dict) and "Version" in config else None


@contextmanager
def _understood(endpoint: Endpoint) -> Iterator[None]:
    """What only looks like a Consul sends what isn't looked for."""
    try:
        yield
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        what = f"{type(error).__name__}: {error}"
        raise EndpointError(f"{endpoint} doesn't answer as Consul does: {what}") from error


def examine(access: Access, settings: Settings, prefix: str, *, node_checks: bool) -> Found:
    """See `Attachable.examine`: a session and a key that it takes, through the first endpoint; the others must see it
    by a consistent read, or they are of another cluster.
    """
    with ExitStack() as closing:
        agents = [closing.enter_context(Agent(access, endpoint)) for endpoint in access.endpoints]
        first, *others = agents
        with _understood(first.endpoint), _key(first, settings, f"{prefix}/look", node_checks) as session:
            for agent in others:
                with _understood(agent.endpoint):
                    try:
                        seen = agent.ask("GET", f"/v1/kv/{quote(f'{prefix}/look')}?consistent")[0]["Session"]
                    except Refused as error:
                        if "status 404" not in error.words:
                            raise
                        seen = None
                if seen != session:
                    where = f"{agent.endpoint} doesn't know what was written through {first.endpoint}"
                    raise EndpointError(f"the endpoints are of different clusters: {where}")
        versions = {version for agent in agents if (version := agent.version()) is not None}
    version = "/".join(sorted(versions)) or None
    return Found(version, f"consul {version or 'of a version that it does not tell to us'}")


@contextmanager
def _key(agent: Agent, settings: Settings, key: str, node_checks: bool) -> Iterator[str]:
    """A session that holds a key, as a lock client makes both; its id. Neither is left."""
    wanted = {
        "Name": key,
        "TTL": f"{round(settings.ttl_seconds * 1000)}ms",
        "LockDelay": "0s",
        "NodeChecks": ["serfHealth"] if node_checks else [],
    }
    try:
        session = str(agent.ask("PUT", "/v1/session/create", wanted)["ID"])
    except Refused as error:
        if "TTL" in error.words:
            raise EndpointError(
                f"{agent.endpoint} grants no session of {settings.ttl_seconds:g} s, so give another ttl, or have its "
                f"session_ttl_min lowered: {error.words}"
            ) from error
        raise
    try:
        if agent.ask("PUT", f"/v1/kv/{quote(key)}?acquire={quote(session)}", "1") is not True:
            raise EndpointError(f"{agent.endpoint} doesn't let a fresh session take the key {key}")
        yield session
        agent.ask("DELETE", f"/v1/kv/{quote(key)}")
    except BaseException:
        with suppress(EndpointError):  # the first error is told
            agent.ask("DELETE", f"/v1/kv/{quote(key)}")
        raise
    finally:
        with suppress(EndpointError):  # it ends by itself then
            agent.ask("PUT", f"/v1/session/destroy/{quote(session)}")


def tidy(access: Access, prefix: str) -> int:
    """See `Attachable.tidy`: keys and sessions, by the first endpoint that answers, and read again after that."""

    def remove(endpoint: Endpoint) -> int:
        with Agent(access, endpoint) as agent, _understood(endpoint):
            removed = len(_keys(agent, prefix))
            agent.ask("DELETE", f"/v1/kv/{quote(prefix)}/?recurse")
            for session in agent.ask("GET", "/v1/session/list") or ():
                if str(session["Name"]).startswith(prefix):
                    agent.ask("PUT", f"/v1/session/destroy/{quote(session['ID'])}")
            left = _keys(agent, prefix)
        if left:
            raise CameBack(f"{', '.join(left)} came back after it was removed: somebody writes there")
        return removed

    return at_any(access, remove, f"keys below {prefix}/ may be left (their sessions end by themselves)")


def _keys(agent: Agent, prefix: str) -> list[str]:
    try:
        return [str(key) for key in agent.ask("GET", f"/v1/kv/{quote(prefix)}/?keys&consistent") or ()]
    except Refused as error:
        if "status 404" in error.words:
            return []
        raise
