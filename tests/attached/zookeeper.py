"""A ZooKeeper of the tests' own on loopback, with TLS and a user, as one that exists: nothing of it is a trial's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import make_digest_acl

from harness import trees
from harness.errors import FencepostError
from harness.systems import attached, zookeeper_attached
from harness.systems.zookeeper_attached import Member
from tests.attached.etcd import PASSWORD, ROOT, USER, free_ports
from tests.waiting import until

JARS = (
    *("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "commons-cli", "commons-io", "metrics-core"),
    *("snappy-java", "netty-buffer", "netty-common", "netty-handler", "netty-transport", "netty-codec"),
    *("netty-resolver", "netty-transport-native-epoll", "netty-transport-native-unix-common"),
    *("netty-transport-classes-epoll", "jackson-annotations", "jackson-core", "jackson-databind"),
    *("jetty9-server", "jetty9-servlet", "servlet-api"),
)


def command() -> list[str]:
    """A Java that this machine can run, with the jars that are in the tree. Skips without."""
    try:
        layers = trees.need(["zookeeper"])["zookeeper"].layers
    except FencepostError as error:
        pytest.skip(f"there is no ZooKeeper to be had: {error}")
    if (java := shutil.which("java")) is None:
        pytest.skip("there is no Java here")
    paths = [layer / "usr/share/java" / f"{name}.jar" for layer in layers for name in JARS]
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx96m")
    return [java, *quick, "-cp", ":".join(str(path) for path in paths if path.is_file())]


@dataclass
class ZooKeeper:
    """One that runs; `way_in` is its owner's, as endpoint options."""

    port: int
    way_in: dict[str, str]
    made: list[str] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def member(self) -> Member:
        access = attached.access([self.endpoint], self.way_in)
        return zookeeper_attached.Member(access, access.endpoints[0], 4.0)

    def serves(self) -> bool:
        try:
            with self.member() as member:
                return member.ask(lambda client: client.exists_async("/")) is not None
        except FencepostError:
            return False

    def make(self, path: str, data: bytes = b"", **options: Any) -> None:
        with self.member() as member:
            member.ask(lambda client: client.create_async(path, data, **options))

    def remove(self, path: str) -> None:
        with self.member() as member:
            member.ask(lambda client: client.delete_async(path))

    def contents(self) -> dict[str, tuple[bytes, int]]:
        """Everything that is in it, but what is its own: path -> (data, its last change)."""
        found: dict[str, tuple[bytes, int]] = {}

        def look(member: Member, path: str) -> None:
            for name in member.ask(lambda client: client.get_children_async(path or "/")):
                if name != "zookeeper":
                    look(member, f"{path}/{name}")
            data, stat = member.ask(lambda client: client.get_async(path or "/"))
            if path:
                found[path] = (data, stat.mzxid)

        with self.member() as member:
            look(member, "")
        return found


@contextmanager
def running(
    folder: Path, *, tls: Sequence[Path] = (), ca: Path | None = None, users: bool = False, tick_ms: int = 500
) -> Iterator[ZooKeeper]:
    """A ZooKeeper of one server; with TLS by that certificate and key, and with users: /fencepost is of one of them."""
    (port,) = free_ports(1)
    lines = [f"dataDir={folder}/zookeeper-{port}", f"tickTime={tick_ms}", "admin.enableServer=false"]
    flags, way_in = [], {}
    if tls:
        both = folder / f"zookeeper-{port}.pem"
        both.write_text(tls[1].read_text() + tls[0].read_text())
        lines += [f"secureClientPort={port}", "secureClientPortAddress=127.0.0.1", "ssl.clientAuth=none"]
        lines += ["serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"]
        lines += [f"ssl.keyStore.location={both}", f"ssl.trustStore.location={ca}"]
        way_in["ca_file"] = str(ca)
    else:
        lines += [f"clientPort={port}", "clientPortAddress=127.0.0.1"]
    if users:
        way_in |= {"user": "root", "password": ROOT}
    config = folder / f"zookeeper-{port}.cfg"
    config.write_text("\n".join(lines) + "\n")
    flags += ["-Dorg.slf4j.simpleLogger.logFile=System.out"]
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with (folder / f"zookeeper-{port}.log").open("wb") as log:
        process = subprocess.Popen([*command(), *flags, main, str(config)], stdout=log, stderr=log)
    zookeeper = ZooKeeper(port, way_in)
    try:
        until(zookeeper.serves, "ZooKeeper serves")
        zookeeper.make("/app", b"not yours")
        if users:
            mine = [make_digest_acl("root", ROOT, all=True)]
            may = make_digest_acl(USER, PASSWORD, read=True, create=True, delete=True)
            zookeeper.make("/fencepost", b"of its operators", acl=[*mine, may])
            with zookeeper.member() as member:  # nobody makes anything beside it
                member.ask(lambda client: client.set_acls_async("/", mine))
        yield zookeeper
    finally:
        process.terminate()
        process.wait(60)
