"""What an operator orders a Consul to do, by the calls that the command `consul` makes."""

from __future__ import annotations

import json
from urllib.parse import quote

from harness.errors import AgentError
from harness.systems.asking import LOOK_SECONDS, body_of
from harness.systems.base import Server
from harness.systems.operating import PREFIX, Held
from harness.systems.restoring import Snapshot

LEAVE_SECONDS = 15.0
SNAPSHOT_SECONDS = 15.0


def _ask(server: Server, method: str, path: str, port: int) -> bytes | None:
    """The body of an answer; None for "not found"."""
    reply = server.http(method, path, port=port, timeout_seconds=LOOK_SECONDS)
    return None if reply.status == 404 else body_of(reply)


def held(server: Server, port: int, lock: str) -> Held | None:
    """The session on the lock's key, by a consistent read; its token is the key's ModifyIndex."""
    key = f"{PREFIX}/{lock}"
    found = _ask(server, "GET", f"/v1/kv/{quote(key)}?consistent", port)
    entry = json.loads(found)[0] if found is not None else {}
    return Held(key, entry["Session"], int(entry["ModifyIndex"])) if entry.get("Session") else None


def unlock(server: Server, port: int, held: Held, way: str) -> str:
    """End the owner's session; or release the key in its name, or delete it, and the session lives on."""
    key = quote(held.key)
    if way == "session":
        _said_true(_ask(server, "PUT", f"/v1/session/destroy/{held.owner}", port))
        return f"session destroy {held.owner}"
    if way == "release":
        _said_true(_ask(server, "PUT", f"/v1/kv/{key}?release={held.owner}", port))
        return f"kv put -release -session={held.owner} {held.key}"
    _said_true(_ask(server, "DELETE", f"/v1/kv/{key}?cas={held.token}", port))
    return f"kv delete -cas -modify-index={held.token} {held.key}"


def members(server: Server, port: int) -> list[str]:
    """The servers in Raft's configuration, by the leader's word, those without a vote too."""
    found = _ask(server, "GET", "/v1/operator/raft/configuration", port)
    return [each["Node"] for each in json.loads(found or b"{}")["Servers"]]


def leave(server: Server, port: int) -> str:
    """`consul leave`, at the one that goes. It says good-bye for as long as `leave_drain_time`, and ends."""
    body_of(server.http("PUT", "/v1/agent/leave", port=port, timeout_seconds=LEAVE_SECONDS))
    return f"leave, at {server.name}"


def _said_true(answer: bytes | None) -> None:
    if answer is None or answer.strip() != b"true":
        raise AgentError(f"it was gone already: {(answer or b'not found')[:120].decode(errors='replace').strip()}")


def snapshot(server: Server, port: int) -> Snapshot:
    """`consul snapshot save`, from the leader's state."""
    data = body_of(server.http("GET", "/v1/snapshot", port=port, timeout_seconds=SNAPSHOT_SECONDS))
    return Snapshot(f"snapshot save, at {server.name}", data)


def restore(server: Server, port: int, snapshot: Snapshot) -> str:
    """`consul snapshot restore`, which the leader does, and all the others after it."""
    body_of(server.http("PUT", "/v1/snapshot", port=port, body=snapshot.data, timeout_seconds=SNAPSHOT_SECONDS))
    return f"snapshot restore, at {server.name}"


def put(server: Server, port: int, key: str, value: str) -> None:
    """`consul kv put`."""
    path = f"/v1/kv/{quote(f'{PREFIX}/{key}')}"
    answer = body_of(server.http("PUT", path, port=port, body=value.encode(), timeout_seconds=LOOK_SECONDS))
    if answer.strip() != b"true":
        raise AgentError(f"{key} was not written: {answer[:120].decode(errors='replace').strip()}")


def get(server: Server, port: int, key: str) -> str | None:
    """`consul kv get`, a consistent read."""
    found = _ask(server, "GET", f"/v1/kv/{quote(f'{PREFIX}/{key}')}?raw&consistent", port)
    return None if found is None else found.decode()
