"""A Consul of the tests' own on loopback, with TLS and tokens, as one that exists: nothing of it is a trial's."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness import trees
from harness.errors import FencepostError
from harness.systems import attached, consul_attached
from harness.systems.consul import Consul as System
from tests.attached.etcd import free_ports
from tests.waiting import until

ROOT = "5d1f6c9e-0c1b-4f5e-9a77-3f0e6d5b7a10"
RULES = 'key_prefix "fencepost/" { policy = "write" } session_prefix "" { policy = "write" }'


def command() -> str:
    """A Consul that this machine can run: its own, or that in the tree. Skips without."""
    if (own := shutil.which("consul")) is not None:
        return own
    found: list[Path] = []
    with suppress(FencepostError):
        found = [layer / "usr/bin/consul" for layer in trees.need(["consul"])["consul"].layers]
    path = next((path for path in found if path.is_file()), None)
    if path is None or subprocess.run([path, "version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no Consul that runs here")
    return str(path)


@dataclass
class Consul:
    """One that runs; `way_in` is its owner's, as endpoint options."""

    port: int
    way_in: dict[str, str]
    token: str = ""
    """Of one who may use fencepost/ alone, where there are tokens."""

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        access = attached.access([self.endpoint], self.way_in, attached.own_options(System()))
        with consul_attached.Agent(access, access.endpoints[0]) as agent:
            return agent.ask(method, path, document)

    def serves(self) -> bool:
        try:
            made = self.ask("PUT", "/v1/session/create", {"NodeChecks": []})  # its node is registered then
            self.ask("PUT", f"/v1/session/destroy/{made['ID']}")
        except FencepostError:
            return False
        return True

    def contents(self) -> tuple[Any, Any]:
        """Everything that is in it: its keys with their last change, and its sessions."""
        keys = self.ask("GET", "/v1/kv/?recurse")
        sessions = self.ask("GET", "/v1/session/list")
        return [(key["Key"], key["ModifyIndex"]) for key in keys], [session["Name"] for session in sessions]


@contextmanager
def running(
    folder: Path, *, tls: Sequence[Path] = (), ca: Path | None = None, tokens: bool = False, ttl_min: str = "1s"
) -> Iterator[Consul]:
    """A Consul; with TLS by that certificate and key, and with tokens: its owner's, and one for fencepost/ alone."""
    http, server, serf = free_ports(3)
    config: dict[str, Any] = {
        "server": True,
        "bootstrap_expect": 1,
        "bind_addr": "127.0.0.1",
        "data_dir": str(folder / f"consul-{http}"),
        "node_name": "own",
        "session_ttl_min": ttl_min,
        "performance": {"raft_multiplier": 1},
        "disable_update_check": True,
        "connect": {"enabled": False},
        "ports": {
            "http": -1 if tls else http,
            "https": http if tls else -1,
            "server": server,
            "serf_lan": serf,
            "serf_wan": -1,
            "dns": -1,
            "grpc": -1,
        },
    }
    way_in = {}
    if tls:
        config |= {"cert_file": str(tls[0]), "key_file": str(tls[1]), "ca_file": str(ca)}
        way_in["ca_file"] = str(ca)
    if tokens:
        config["acl"] = {"enabled": True, "default_policy": "deny", "tokens": {"master": ROOT}}
        way_in["token"] = ROOT
    path = folder / f"consul-{http}.json"
    path.write_text(json.dumps(config))
    with (folder / f"consul-{http}.log").open("wb") as log:
        process = subprocess.Popen([command(), "agent", "-config-file", str(path)], stdout=log, stderr=log)
    consul = Consul(http, way_in)
    try:
        until(consul.serves, "Consul serves")
        consul.ask("PUT", "/v1/kv/app/config", "not yours")
        consul.ask("PUT", "/v1/kv/fencepost", "only begins alike")
        consul.ask("PUT", "/v1/session/create", {"Name": "fencepost of somebody else", "NodeChecks": []})
        if tokens:
            consul.ask("PUT", "/v1/acl/policy", {"Name": "locks", "Rules": RULES})
            consul.token = str(consul.ask("PUT", "/v1/acl/token", {"Policies": [{"Name": "locks"}]})["SecretID"])
        yield consul
    finally:
        process.terminate()
        process.wait(60)
