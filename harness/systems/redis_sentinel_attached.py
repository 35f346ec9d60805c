"""A Redis with Sentinels that exists: what `RedisSentinel` does there from the harness's host, see attached.py.

The endpoints are Sentinels. Where the primary and its replicas are is asked of them, and these are places to which
contenders need a way, too: any of them may be the primary tomorrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harness.systems.attached import (
    LOGIN,
    MOST_ENDPOINTS,
    Access,
    Endpoint,
    EndpointError,
    Found,
    Options,
    Refused,
    reach,
)
from harness.systems.base import Settings
from harness.systems.redis_attached import Server, may_be_left, remove, try_out

OPTIONS: Options = {
    **LOGIN,
    "sentinel_user": (str, "who logs in at the Sentinels, with sentinel_password"),
    "sentinel_password": (str, "env:NAME, of the Sentinels; user and password are for the Redis"),
    "group": (str, "what the Sentinels call the primary; may be left out where they watch one alone"),
}

TAKES = "+auth +sentinel|masters +sentinel|replicas +sentinel|get-master-addr-by-name"


def examine(access: Access, settings: Settings, prefix: str, *, wait: int) -> Found:
    """See `Attachable.examine`: each Sentinel, the primary that all of them name, and its replicas."""
    group: str | None = access.own.get("group")
    primaries: dict[str, Endpoint] = {}
    known: dict[Endpoint, None] = {}  # in their order
    for endpoint in access.endpoints:
        with _sentinel(access, endpoint) as sentinel:
            group = _group(sentinel, group)
            primary = primaries[str(endpoint)] = _primary(sentinel, group)
            known |= dict.fromkeys([primary, *_replicas(sentinel, group)])
    if len(set(primaries.values())) > 1:
        said = ", ".join(f"{endpoint} {primary}" for endpoint, primary in primaries.items())
        raise EndpointError(
            f"the Sentinels name different primaries of {group!r} ({said}): they don't belong together, or one takes "
            "over just now"
        )
    further = tuple(known)
    if (ways := len(access.endpoints) + len(further)) > MOST_ENDPOINTS:
        raise EndpointError(f"{ways} Sentinels and Redis are more than the {MOST_ENDPOINTS} that a trial takes")
    found = replace(access, own={**access.own, "group": group}, further=further)
    try:
        with Server(found, primary) as server:
            more = [("WAIT", "0", "1")] if wait else []
            version = try_out(server, settings, prefix, *more)
    except EndpointError as error:
        raise EndpointError(f"the primary of {group!r}, as the Sentinels say: {error}") from error
    others = [each for each in further if each != primary]
    if wait > len(others):
        raise EndpointError(f"wait={wait}, and the primary {primary} has {len(others)} replicas")
    unseen = [
        "replicas that join during the trial: contenders have a way to those that the Sentinels knew when it began",
        *(f"the replica {each}: {why}" for each in others if (why := _unreached(found, each)) is not None),
    ]
    words = f"redis {version}, the primary {primary} of {group!r} with {len(others)} replicas"
    return Found(version, words, found, tuple(unseen))


def _unreached(access: Access, endpoint: Endpoint) -> str | None:
    try:
        reach(access, endpoint)
    except EndpointError as error:
        return str(error)
    return None


def _sentinel(access: Access, endpoint: Endpoint) -> Server:
    """One Sentinel, logged in. EndpointError, in whose words the options are the Sentinels'."""
    login = (access.own.get("sentinel_user"), access.own.get("sentinel_password"))
    return Server(access, endpoint, login, "a Sentinel")


def _told(sentinel: Server, *words: str) -> object:
    """What it answers to SENTINEL …, or EndpointError with what would be right."""
    try:
        return sentinel.ask("SENTINEL", *words)
    except Refused as error:
        at = sentinel.endpoint
        if error.words.startswith("NOAUTH"):
            raise EndpointError(f"{at} wants a password (endpoint options sentinel_password, sentinel_user)") from error
        if error.words.startswith("NOPERM"):
            raise EndpointError(f"{at}: the Sentinels' user may not ask ({error.words}); it takes {TAKES}") from error
        if "unknown command" in error.words.lower():
            raise EndpointError(f"{at} is a Redis and no Sentinel; the endpoints are the Sentinels") from error
        raise


def _rows(sentinel: Server, *words: str) -> list[Mapping[str, str]]:
    """An answer of lists of names and values."""
    told = _told(sentinel, *words)
    if not isinstance(told, list) or not all(isinstance(row, list) for row in told):
        raise EndpointError(f"{sentinel.endpoint} doesn't answer as a Sentinel does: {told!r:.80}")
    return [dict(zip(map(str, row[::2]), map(str, row[1::2]), strict=False)) for row in told]


def _group(sentinel: Server, asked: str | None) -> str:
    names = [row.get("name", "") for row in _rows(sentinel, "MASTERS")]
    if asked is not None:
        if asked not in names:
            raise EndpointError(
                f"{sentinel.endpoint} watches no primary {asked!r} (it watches {', '.join(names) or 'none'})"
            )
        return asked
    if len(names) != 1:
        raise EndpointError(
            f"{sentinel.endpoint} watches {len(names) or 'no'} primaries{f' ({names})' if names else ''}; "
            "say which by the endpoint option group"
        )
    return names[0]


def _primary(sentinel: Server, group: str) -> Endpoint:
    told = _told(sentinel, "GET-MASTER-ADDR-BY-NAME", group)
    if not isinstance(told, list) or len(told) != 2:
        raise EndpointError(f"{sentinel.endpoint} doesn't say where the primary of {group!r} is: {told!r:.80}")
    return _place(sentinel, *map(str, told))


def _replicas(sentinel: Server, group: str) -> list[Endpoint]:
    return [
        _place(sentinel, row.get("ip", ""), row.get("port", ""))
        for row in _rows(sentinel, "REPLICAS", group)
        if row.get("ip") and row.get("port") != "0"  # one that it has heard of and not yet from
    ]


def _place(sentinel: Server, host: str, port: str) -> Endpoint:
    if not port.isascii() or not port.isdigit() or not 1 <= int(port[:6]) <= 65535:
        raise EndpointError(f"{sentinel.endpoint} names a place that is none: {host!r:.80} {port!r:.20}")
    return Endpoint(host, int(port))


def tidy(access: Access, prefix: str) -> int:
    """See `Attachable.tidy`: at whoever is the primary now, as the first Sentinel that answers says."""
    why = EndpointError("there is no Sentinel")
    for endpoint in access.endpoints:
        try:
            with _sentinel(access, endpoint) as sentinel:
                primary = _primary(sentinel, _group(sentinel, access.own.get("group")))
            with Server(access, primary) as server:
                return remove(server, prefix)
        except EndpointError as error:
            why = error
    raise may_be_left(prefix, why) from why
