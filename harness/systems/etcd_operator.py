"""What an operator orders an etcd to do, by the calls that etcdctl makes."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.errors import AgentError
from harness.runtime.base import ServiceSpec
from harness.systems.asking import ask_json, b64, body_of
from harness.systems.base import Server
from harness.systems.etcd_attached import span
from harness.systems.operating import PREFIX, Held, Joining, first_of, with_values
from harness.systems.restoring import Snapshot

CHANGE_SECONDS = 5.0
"""What a change of the membership may take: it goes through the log, and waits for the member that applies it."""

SNAPSHOT_SECONDS = 10.0
SNAPSHOT = "/var/tmp/fencepost.snapshot"
"""Where a snapshot lies in the container that it is unpacked in."""


def held(server: Server, port: int, lock: str) -> Held | None:
    """The key that holds the lock: the one of the lowest create_revision, which is its owner's token."""
    first = {**span(f"{PREFIX}/{lock}"), "sort_order": "ASCEND", "sort_target": "CREATE", "limit": "1"}
    found = ask_json(server, "POST", "/v3/kv/range", port=port, document=first).get("kvs", [])
    if not found:
        return None
    key, revision = base64.b64decode(found[0]["key"]).decode(), int(found[0]["create_revision"])
    return Held(key, f"{int(found[0].get('lease', 0)):x}", revision)


def unlock(server: Server, port: int, held: Held, way: str) -> str:
    """Delete the owner's key, which is named after its lease and so no other's; or revoke that lease."""
    if way == "lease":
        ask_json(server, "POST", "/v3/lease/revoke", port=port, document={"ID": str(int(held.owner, 16))})
        return f"lease revoke {held.owner}"
    deleted = ask_json(server, "POST", "/v3/kv/deleterange", port=port, document={"key": b64(held.key)})
    if deleted.get("deleted") != "1":
        raise AgentError(f"{held.key} was gone already")
    return f"del {held.key}"


def members(servers: Sequence[Server], port: int) -> list[dict[str, Any]]:
    """All members as etcd lists them, by a linearizable read; one that has never started has no `name`."""

    def listed(server: Server) -> list[dict[str, Any]]:
        found = ask_json(server, "POST", "/v3/cluster/member/list", port=port, document={"linearizable": True})
        return list(found["members"])

    return first_of(servers, listed)


def remove(servers: Sequence[Server], port: int, name: str) -> str:
    """`etcdctl member remove`, asked of the others. The one that was removed ends by itself."""
    others = [server for server in servers if server.name != name]
    numbers = [each["ID"] for each in members(others, port) if each.get("name") == name]
    if not numbers:
        return f"{name} was no member any more"
    first_of(others, lambda server: _change(server, port, "remove", {"ID": numbers[0]}))
    return f"member remove {int(numbers[0]):x} ({name})"


def add(servers: Sequence[Server], port: int, name: str, url: str, spec: ServiceSpec) -> Joining:
    """`etcdctl member add`; then it starts with no data, told who is there (`--initial-cluster-state existing`)."""
    others = [server for server in servers if server.name != name]
    known = members(others, port)
    if not any(each.get("peerURLs") == [url] for each in known):
        first_of(others, lambda server: _change(server, port, "add", {"peerURLs": [url]}))
        known = members(others, port)
    # One that was added and not started has no name yet: it is the one that comes.
    cluster = ",".join(f"{each.get('name') or name}={url}" for each in known for url in each["peerURLs"])
    told = {"--initial-cluster": cluster, "--initial-cluster-state": "existing"}
    return Joining(f"member add {name} {url}", replace(spec, command=with_values(spec.command, told)), keep_data=False)


def snapshot(servers: Sequence[Server], port: int, version: str) -> Snapshot:
    """`etcdctl snapshot save`: the whole store of one member, in messages that end with its checksum."""

    def saved(server: Server) -> Snapshot:
        reply = server.http("POST", "/v3/maintenance/snapshot", port=port, body=b"{}", timeout_seconds=SNAPSHOT_SECONDS)
        messages = [json.loads(line) for line in body_of(reply).splitlines() if line.strip()]
        if refused := [each["error"] for each in messages if "error" in each]:
            raise AgentError(f"a snapshot was refused: {refused[0]}")
        data = b"".join(base64.b64decode(each["result"].get("blob", "")) for each in messages)
        return Snapshot(f"snapshot save, at {server.name}", data, version)

    return first_of(servers, saved)


def restored_from(snapshot: Snapshot, specs: Mapping[str, ServiceSpec], data: str) -> dict[str, Sequence[ServiceSpec]]:
    """`etcdctl snapshot restore` on each node, which makes a member of a new cluster, and then etcd as it was planned.

    From 3.6 on it is `etcdutl` that does it.
    """
    tool = "etcdutl" if _numbers(snapshot.version) >= (3, 6) else "etcdctl"
    found: dict[str, Sequence[ServiceSpec]] = {}
    for name, spec in specs.items():
        told = dict(itertools.pairwise(spec.command))
        command = [
            *(tool, "snapshot", "restore", SNAPSHOT, "--name", name, "--data-dir", data),
            *("--initial-cluster", told["--initial-cluster"], "--initial-cluster-token", "fencepost-restored"),
            *("--initial-advertise-peer-urls", told["--initial-advertise-peer-urls"]),
        ]
        env = {**spec.env, "ETCDCTL_API": "3"}
        found[name] = (replace(spec, command=command, env=env, files={SNAPSHOT: snapshot.data}), spec)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in version.split(".")[:2])


def put(servers: Sequence[Server], port: int, key: str, value: str) -> None:
    """`etcdctl put`."""
    document = {"key": b64(f"{PREFIX}/{key}"), "value": b64(value)}
    first_of(servers, lambda server: ask_json(server, "POST", "/v3/kv/put", port=port, document=document))


def get(servers: Sequence[Server], port: int, key: str) -> str | None:
    """`etcdctl get`, a linearizable read."""
    document = {"key": b64(f"{PREFIX}/{key}")}
    found = first_of(servers, lambda server: ask_json(server, "POST", "/v3/kv/range", port=port, document=document))
    return base64.b64decode(found["kvs"][0]["value"]).decode() if found.get("kvs") else None


def _change(server: Server, port: int, what: str, document: Any) -> Any:
    path = f"/v3/cluster/member/{what}"
    return ask_json(server, "POST", path, port=port, document=document, timeout_seconds=CHANGE_SECONDS)
