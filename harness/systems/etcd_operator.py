"""What an operator orders an etcd to do, by the calls that etcdctl makes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.errors import AgentError
from harness.runtime.base import ServiceSpec
from harness.systems.asking import ask_json, b64
from harness.systems.base import Server
from harness.systems.etcd_attached import span
from harness.systems.operating import PREFIX, Held, Joining, first_of

CHANGE_SECONDS = 5.0
"""What a change of the membership may take: it goes through the log, and waits for the member that applies it."""


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
    return Joining(f"member add {name} {url}", replace(spec, command=_with(spec.command, told)), keep_data=False)


def _change(server: Server, port: int, what: str, document: Any) -> Any:
    path = f"/v3/cluster/member/{what}"
    return ask_json(server, "POST", path, port=port, document=document, timeout_seconds=CHANGE_SECONDS)


def _with(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A command line with other values behind these flags."""
    before = ["", *command]
    return [values.get(flag, word) for flag, word in zip(before, command, strict=False)]
