"""A Redis of the tests' own on loopback, with TLS and users, as one that exists: nothing of it is a trial's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import trees
from harness.errors import FencepostError
from harness.systems import attached, redis_attached
from harness.systems.attached import EndpointError
from tests.attached.etcd import PASSWORD, ROOT, USER, free_ports
from tests.waiting import until


def command() -> list[str]:
    """A Redis that this machine can run: its own, or that in the tree with the loader and libraries there."""
    if (own := shutil.which("redis-server")) is not None:
        return [own]
    try:
        layers = trees.need(["redis"])["redis"].layers
    except FencepostError as error:
        pytest.skip(f"there is no Redis to be had: {error}")

    def first(path: str) -> str:
        return str(next(found for layer in layers if (found := layer / path).exists()))

    where = "usr/lib/x86_64-linux-gnu"
    libraries = ":".join(str(layer / where) for layer in layers)
    return [first(f"{where}/ld-linux-x86-64.so.2"), "--library-path", libraries, first("usr/bin/redis-server")]


@dataclass
class Redis:
    """One that runs."""

    port: int
    way_in: dict[str, str]
    """How its owner gets in, as endpoint options."""

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(self, *words: str) -> redis_attached.Answer:
        access = attached.access([self.endpoint], self.way_in)
        with redis_attached.Server(access, access.endpoints[0]) as server:
            return server.ask(*words)

    def answers(self) -> bool:
        try:
            return self.ask("PING") == "PONG"
        except EndpointError:
            return False

    def contents(self) -> redis_attached.Answer:
        """A digest of everything that is in it."""
        return self.ask("EVAL", DIGEST, "0")


DIGEST = """
local all = {}
for _, key in ipairs(redis.call('keys', '*')) do all[#all + 1] = key .. '=' .. redis.call('get', key) end
table.sort(all)
return table.concat(all, ' ')"""


@contextmanager
def running(
    folder: Path,
    *,
    tls: Sequence[Path] = (),
    ca: Path | None = None,
    users: bool = False,
    words: Sequence[str] = (),
    contents: bool = True,
) -> Iterator[Redis]:
    """A Redis; with TLS by that certificate and key, and with users: `default`, one who may use fencepost/ alone, and
    a guest who may do nothing of it. `words` are further lines of its configuration; it has `contents` unless it is
    none to write to.
    """
    (port,) = free_ports(1)
    lines = ["bind 127.0.0.1", f"dir {folder}", f"dbfilename redis-{port}.rdb", "save ''", f"port {0 if tls else port}"]
    way_in = {}
    if tls:
        lines += [f"tls-port {port}", f"tls-cert-file {tls[0]}", f"tls-key-file {tls[1]}", "tls-auth-clients no"]
        lines += [f"tls-ca-cert-file {ca}"]
        way_in["ca_file"] = str(ca)
    if users:
        may = "~fencepost/* +eval +set +get +incr +pexpire +del +info +wait"
        lines += [
            f"requirepass {ROOT}",
            f"user {USER} on >{PASSWORD} resetchannels {may}",
            "user guest on >x-1y-2z ~x +get",
        ]
        way_in["password"] = ROOT
    lines += words
    config = folder / f"redis-{port}.conf"
    config.write_text("\n".join(lines) + "\n")
    with (folder / f"redis-{port}.log").open("wb") as log:
        process = subprocess.Popen([*command(), str(config)], stdout=log, stderr=log)
    redis = Redis(port, way_in)
    try:
        until(redis.answers, "Redis answers")
        if contents:
            redis.ask("SET", "app:config", "not yours")
            redis.ask("SET", "fencepost", "only begins alike")
        yield redis
    finally:
        process.terminate()
        process.wait(60)
