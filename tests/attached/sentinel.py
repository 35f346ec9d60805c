"""A Redis with a replica and two Sentinels of the tests' own on loopback, as one that exists: nothing is a trial's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import FencepostError
from harness.systems import attached, redis_attached, redis_sentinel_attached
from tests.attached import redis
from tests.attached.etcd import ROOT, free_ports
from tests.attached.redis import Redis
from tests.waiting import until

SENTINELS_OWN = "sentinels-Own-3"


@dataclass
class Sentinels:
    """Those that run, with what they watch; `way_in` is their owner's, as endpoint options."""

    endpoints: list[str]
    primary: Redis
    replica: Redis
    way_in: dict[str, str]

    def ask(self, number: int, *words: str) -> redis_attached.Answer:
        access = attached.access(self.endpoints, self.way_in, redis_sentinel_attached.OPTIONS)
        with redis_sentinel_attached._sentinel(access, access.endpoints[number]) as sentinel:
            return sentinel.ask(*words)

    def knows_all(self) -> bool:
        """Whether each knows of the replica, and of the other Sentinel, and both name the same primary, which
        the replica follows.
        """
        try:
            named = [self.ask(number, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main") for number in (0, 1)]
            roles: list[Any] = [redis.ask("ROLE") for redis in (self.primary, self.replica)]
            if named[0] != named[1] or {"connected"} != {role[3] for role in roles if role[0] == "slave"}:
                return False
            leads = self.primary if roles[0][0] == "master" else self.replica
            if leads.ask("WAIT", "1", "500") != 1:
                return False
            for number in range(len(self.endpoints)):
                (told,) = self._rows(number, "MASTERS")
                if (told["num-slaves"], told["num-other-sentinels"], told["flags"]) != ("1", "1", "master"):
                    return False
                if self._rows(number, "REPLICAS", "main")[0]["flags"] != "slave":
                    return False
        except (FencepostError, ValueError, KeyError):
            return False
        return True

    def _rows(self, number: int, *words: str) -> list[dict[str, str]]:
        told: Any = self.ask(number, "SENTINEL", *words)
        return [dict(zip(row[::2], row[1::2], strict=True)) for row in told]


@contextmanager
def running(
    folder: Path, *, tls: Sequence[Path] = (), ca: Path | None = None, passwords: bool = False
) -> Iterator[Sentinels]:
    """With TLS by that certificate and key everywhere, and passwords: the Sentinels' is another than the Redis'."""
    alike = {"tls": tls, "ca": ca, "users": passwords}
    inner = ["tls-replication yes"] if tls else []
    inner += [f"masterauth {ROOT}"] if passwords else []
    with ExitStack() as closing:
        first = closing.enter_context(redis.running(folder, **alike, words=inner))  # type: ignore[arg-type]
        follows = [*inner, f"replicaof 127.0.0.1 {first.port}", "repl-diskless-sync-delay 0"]
        second = closing.enter_context(redis.running(folder, **alike, words=follows, contents=False))  # type: ignore[arg-type]
        ports = free_ports(2)
        for port in ports:
            closing.enter_context(_sentinel(folder, port, first.port, tls, ca, passwords))
        way_in = {"ca_file": str(ca)} if tls else {}
        way_in |= {"sentinel_password": SENTINELS_OWN} if passwords else {}
        sentinels = Sentinels([f"127.0.0.1:{port}" for port in ports], first, second, way_in)
        until(sentinels.knows_all, "the Sentinels know each other, and the replica")
        yield sentinels


@contextmanager
def _sentinel(
    folder: Path, port: int, watched: int, tls: Sequence[Path], ca: Path | None, passwords: bool
) -> Iterator[None]:
    lines = ["bind 127.0.0.1", f"dir {folder}", f"port {0 if tls else port}"]
    if tls:
        lines += [f"tls-port {port}", f"tls-cert-file {tls[0]}", f"tls-key-file {tls[1]}", "tls-auth-clients no"]
        lines += [f"tls-ca-cert-file {ca}", "tls-replication yes"]
    lines += [f"sentinel monitor main 127.0.0.1 {watched} 1", "sentinel down-after-milliseconds main 60000"]
    if passwords:
        lines += [f"requirepass {SENTINELS_OWN}", f"sentinel sentinel-pass {SENTINELS_OWN}"]
        lines += [f"sentinel auth-pass main {ROOT}"]
    config = folder / f"sentinel-{port}.conf"
    config.write_text("\n".join(lines) + "\n")
    with (folder / f"sentinel-{port}.log").open("wb") as log:
        process = subprocess.Popen([*redis.command(), str(config), "--sentinel"], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)
