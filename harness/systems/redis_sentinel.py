"""Redis with Sentinel: one primary that takes writes, replicas that follow it, and a Sentinel beside each of them.

A majority of the Sentinels decides that the primary is down, when it was silent for `down_after_ms`, and makes a
replica the new one. Replication is asynchronous: what the old primary has granted in its last moments, locks and
tokens, the new one may never have heard of. And one that is cut off from the Sentinels doesn't know that it was
replaced: it goes on granting to whoever reaches it, until it is told. `min_replicas_to_write` makes it stop when its
replicas have been silent for `max_lag_seconds`; `wait` makes our client ask how many replicas have its lock, and give
it back where they are too few. Neither makes a failover safe; they make its window smaller.

The nodes are told of each other from the start (`known-replica`, `known-sentinel`): by itself a Sentinel looks for
replicas every 10 s, and for other Sentinels every 2. Each Redis and each Sentinel keeps its configuration, which
Sentinels rewrite, with its data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import AgentError, UsageError
from harness.runtime.base import ServiceSpec
from harness.systems import redis_sentinel_attached
from harness.systems.asking import LOOK_SECONDS, ask_all, in_range, options, says
from harness.systems.attached import MOST_ENDPOINTS, Access, Found
from harness.systems.base import Leadership, LeaseTerms, Server, Settings
from harness.systems.operating import Held
from harness.systems.redis import (
    CLIENT_PAUSE_SECONDS,
    KEPT,
    NOT_OURS,
    PERSISTENCE,
    held_of,
    lock_keys,
    quoted,
    unlock_command,
)
from harness.systems.roles import Quorum, Role

PORT = 6379
SENTINEL_PORT = 26379
GROUP = "fencepost"
"""What the Sentinels call the primary with its replicas."""
REDIS, SENTINEL = "redis", "sentinel"
SEED = "/etc/fencepost/{0}.conf"
"""A service's configuration as it begins, in its container; the one that it keeps is written into its data."""

OPTIONS: Mapping[str, tuple[type, Any]] = {
    "persistence": (str, "everysec"),
    "password": (str, ""),
    # 0 = half the ttl (MOST_DOWN_AFTER_MS at most), so that a failover is over within two or three leases.
    "down_after_ms": (int, 0),
    "failover_timeout_ms": (int, 3000),
    "min_replicas_to_write": (int, 0),
    "max_lag_seconds": (int, 2),
    "wait": (int, 0),
}

USUAL_DOWN_AFTER_MS = 30_000
"""Sentinel's own `down-after-milliseconds`, which is taken for that of a cluster that exists."""
MOST_DOWN_AFTER_MS = 600_000

ELECTION_SECONDS = 1.0
"""A Sentinel waits for up to 1 s before it stands for election, so that not all do at once (sentinel.c,
SENTINEL_MAX_DESYNC)."""
PROMOTION_SECONDS = 2.0
"""The elected one asks the replicas for their state, each second, before and after it makes one of them the primary
(sentinel.c, the period of INFO while a primary is down)."""
CLIENT_SECONDS = 0.5
"""What our client spends on a Sentinel that doesn't answer before it asks another one."""


class RedisSentinel:
    """See the module. Options: persistence, password, down_after_ms, failover_timeout_ms, min_replicas_to_write,
    max_lag_seconds, wait (replicas that must have a lock before our client believes in it).
    """

    name = "redis-sentinel"
    summary = "Redis with replicas and Sentinels that make one of them the primary."
    image = "redis"
    server_counts: tuple[int, ...] = (3, 5)
    client = "redis-sentinel"
    endpoint_options: Mapping[str, tuple[type, str]] = redis_sentinel_attached.OPTIONS
    client_options: Sequence[str] = ("wait",)
    port = SENTINEL_PORT
    healthy_within_seconds = 30.0
    unlock_ways: Sequence[str] = ("key",)
    inoperable: Mapping[str, str] = {
        "restore": "a replica is overwritten by whoever is the primary then, and the Sentinels may choose another",
        "reconfigure": "Sentinels find replicas and each other by themselves, and forget nobody: nobody is a member",
    }
    roles: Sequence[Role] = (
        Role(
            "primary",
            "the Redis that takes writes, as the Sentinels say",
            service=REDIS,
            leads=True,
            vacancy="no Sentinel could be asked, or they don't know one; a primary may take writes all the same",
        ),
        Role(
            "replica",
            "a Redis that follows the primary, by its own word",
            service=REDIS,
            means="no write is taken where min_replicas_to_write asks for it",
        ),
        Role(
            "sentinel",
            "a Sentinel that answers",
            service=SENTINEL,
            means="contenders that ask it first ask another one; without a majority of them nobody takes over",
        ),
    )
    quorum = Quorum(voters=SENTINEL, candidates=REDIS, holds_on=True, forwards=False)

    def _values(self, settings: Settings) -> dict[str, Any]:
        values = options(settings, OPTIONS)
        if values["persistence"] not in PERSISTENCE:
            known = ", ".join(PERSISTENCE)
            raise UsageError(f"system option 'persistence' must be one of {known}, not {values['persistence']!r}")
        if values["down_after_ms"] == 0:
            values["down_after_ms"] = min(round(settings.ttl_seconds * 500), MOST_DOWN_AFTER_MS)
        in_range("down_after_ms", values["down_after_ms"], 100, MOST_DOWN_AFTER_MS, "ms")
        in_range("failover_timeout_ms", values["failover_timeout_ms"], 500, 3_600_000, "ms")
        if settings.attached:
            values["down_after_ms"] = USUAL_DOWN_AFTER_MS
        replicas = MOST_ENDPOINTS if settings.attached else settings.servers - 1
        in_range("min_replicas_to_write", values["min_replicas_to_write"], 0, replicas, "replicas")
        in_range("max_lag_seconds", values["max_lag_seconds"], 1, 3600, "s")
        in_range("wait", values["wait"], 0, replicas, "replicas")
        return values

    def plan(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[ServiceSpec]]:
        """See `System.plan`. The first node begins as the primary."""
        values = self._values(settings)
        primary = next(iter(nodes.values()))[0]
        return {
            name: (
                _service(settings.image, REDIS, PORT, self._redis(values, addresses[0], primary)),
                _service(settings.image, SENTINEL, SENTINEL_PORT, self._sentinel(values, name, nodes, primary)),
            )
            for name, addresses in nodes.items()
        }

    def _redis(self, values: Mapping[str, Any], address: str, primary: str) -> list[str]:
        password = quoted(values["password"])
        persistence = values["persistence"]
        return [
            f"port {PORT}",
            "protected-mode no",
            "dir /data",
            'save ""',
            *(["appendonly no"] if persistence == "none" else ["appendonly yes", f"appendfsync {persistence}"]),
            "repl-diskless-sync-delay 0",  # else the first copy waits for 5 s, should more replicas come
            f"replica-announce-ip {address}",
            f"min-replicas-to-write {values['min_replicas_to_write']}",
            f"min-replicas-max-lag {values['max_lag_seconds']}",
            *([f"requirepass {password}", f"masterauth {password}"] if values["password"] else []),
            *([] if address == primary else [f"replicaof {primary} {PORT}"]),
        ]

    def _sentinel(
        self, values: Mapping[str, Any], name: str, nodes: Mapping[str, Sequence[str]], primary: str
    ) -> list[str]:
        others = {other: addresses[0] for other, addresses in nodes.items() if other != name}
        replicas = [addresses[0] for addresses in nodes.values() if addresses[0] != primary]
        return [
            f"port {SENTINEL_PORT}",
            "protected-mode no",
            "dir /data",
            f"sentinel myid {_id(name)}",
            f"sentinel announce-ip {nodes[name][0]}",
            f"sentinel monitor {GROUP} {primary} {PORT} {len(nodes) // 2 + 1}",
            f"sentinel down-after-milliseconds {GROUP} {values['down_after_ms']}",
            f"sentinel failover-timeout {GROUP} {values['failover_timeout_ms']}",
            f"sentinel parallel-syncs {GROUP} {max(1, len(replicas))}",
            *([f"sentinel auth-pass {GROUP} {quoted(values['password'])}"] if values["password"] else []),
            *(f"sentinel known-replica {GROUP} {address} {PORT}" for address in replicas),
            *(
                f"sentinel known-sentinel {GROUP} {address} {SENTINEL_PORT} {_id(other)}"
                for other, address in others.items()
            ),
        ]

    def recorded(self, settings: Settings) -> dict[str, Any]:
        """See `System.recorded`."""
        values = self._values(settings)
        return {
            **values,
            "password": values["password"] or None,
            "lease_clock": "the wall clock (gettimeofday) of the primary",
        }

    def terms(self, settings: Settings) -> LeaseTerms:
        """See `Termed.terms`. While nobody takes over, those of a single Redis. A failover takes until the Sentinels
        agree that the primary is down, one of them is elected, and a replica made the primary.
        """
        values, ttl = self._values(settings), settings.ttl_seconds
        down_after = values["down_after_ms"] / 1000
        kept, why = KEPT[values["persistence"]] if not settings.attached else (False, NOT_OURS)
        return LeaseTerms(
            ttl_seconds=ttl,
            granularity_seconds=0.001,
            least_seconds=0.001,
            given_away_least_seconds=ttl,
            given_away_most_seconds=ttl + CLIENT_PAUSE_SECONDS,
            hand_over_seconds=down_after + ELECTION_SECONDS + PROMOTION_SECONDS + CLIENT_SECONDS,
            lease_clock="realtime",
            lease_clock_reason="a key expires by the wall clock of the primary, gettimeofday (server.c, ustime)",
            survives_kill=False,
            survives_kill_reason="a write is answered before any replica has it, so that a new primary may lack it"
            + ("" if kept else f"; and {why}"),
            survives_stop=values["persistence"] != "none",
            survives_stop_reason="one that is told to end takes no more writes, waits for its replicas for up to 10 s "
            "(shutdown-timeout, server.c), and syncs its append-only file"
            if values["persistence"] != "none"
            else KEPT["none"][1],
        )

    # -- asking ---------------------------------------------------------------------------------------------------

    def _ask(self, server: Server, service: str, *commands: str) -> list[list[str]]:
        """The answer to each of some commands, by a redis-cli that is kept running beside the service."""
        port = PORT if service == REDIS else SENTINEL_PORT
        password = self._values(server.settings)["password"] if service == REDIS else ""
        marks = [f"fencepost-{number}" for number in range(len(commands))]
        question = "".join(f"{command}\nPING {mark}\n" for command, mark in zip(commands, marks, strict=True))
        lines = server.ask(
            ["redis-cli", "-p", str(port)],
            question,
            marks[-1],
            service=service,
            env={"REDISCLI_AUTH": password} if password else {},
            timeout_seconds=LOOK_SECONDS,
        )
        answers: list[list[str]] = [[]]
        for line in lines:
            if line in marks:
                answers.append([])
            else:
                answers[-1].append(line)
        return answers

    def _role(self, server: Server) -> tuple[str, str]:
        """A Redis' own word: ("master", "") or ("slave", "connected" or whatever its link is)."""
        (told,) = self._ask(server, REDIS, "ROLE")
        if told[0] == "master":
            return "master", ""
        if told[0] == "slave":
            return "slave", told[3]
        raise AgentError(told[0])

    def _view(self, server: Server) -> dict[str, str]:
        """What a Sentinel knows of the primary: ip, flags, config-epoch, num-slaves, num-other-sentinels."""
        told, address = self._ask(
            server, SENTINEL, f"SENTINEL MASTER {GROUP}", f"SENTINEL GET-MASTER-ADDR-BY-NAME {GROUP}"
        )
        if len(told) < 2 or len(address) != 2:
            raise AgentError((told or address or ["an empty answer"])[0])
        # Whom it names to clients: from the promotion on the new one, while the state of the group tells of the old one
        # until all replicas follow (sentinel.c, sentinelGetCurrentMasterAddress).
        return {**dict(zip(told[::2], told[1::2], strict=False)), "ip": address[0]}

    def healthy(self, servers: Sequence[Server]) -> tuple[bool, str]:
        """One primary with all others behind it, of which every Sentinel knows, with all other Sentinels; and a write
        that all replicas have.
        """
        listening = ask_all(servers, self._listen)
        if any(word is not None for word in listening.values()):
            return False, says({name: word or "listens" for name, word in listening.items()})
        roles, views = ask_all(servers, self._role), ask_all(servers, self._view)
        seen = says(self._said(roles, views))
        primaries = [server for server in servers if roles[server.name] == ("master", "")]
        others = str(len(servers) - 1)
        known = all(
            isinstance(view, dict)
            and view.get("flags") == "master"
            and view.get("num-slaves") == view.get("num-other-sentinels") == others
            for view in views.values()
        )
        linked = sum(role == ("slave", "connected") for role in roles.values()) == len(servers) - 1
        if len(primaries) != 1 or not known or not linked:
            return False, seen
        wrote = ask_all(primaries, self._write)[primaries[0].name]
        return wrote == [["OK"], [others]], f"{seen}; a write: {wrote}"

    def _listen(self, server: Server) -> None:
        """AgentError while one of its services takes no connection: redis-cli would be asked in vain, and for long."""
        for port in (PORT, SENTINEL_PORT):
            server.tcp(b"PING\r\n", port=port, read_bytes=1, timeout_seconds=LOOK_SECONDS / 2)

    def _write(self, server: Server) -> list[list[str]]:
        replicas = server.settings.servers - 1
        return self._ask(server, REDIS, "SET fencepost:healthy 1", f"WAIT {replicas} 300")[:2]

    def _said(
        self, roles: Mapping[str, tuple[str, str] | str], views: Mapping[str, dict[str, str] | str]
    ) -> dict[str, str]:
        """Node -> what its Redis and its Sentinel said."""
        said = {}
        for name, role in roles.items():
            view = views[name]
            redis = role if isinstance(role, str) else {"master": "primary", "slave": f"replica ({role[1]})"}[role[0]]
            sentinel = (
                view
                if isinstance(view, str)
                else f"{view.get('ip')} {view.get('flags')}, epoch {view.get('config-epoch')}, "
                f"{view.get('num-slaves')} replicas, {view.get('num-other-sentinels')} other sentinels"
            )
            said[name] = f"{redis}; sentinel: {sentinel}"
        return said

    def leadership(self, servers: Sequence[Server]) -> Leadership:
        """See `System.leadership`. The primary of the Sentinel with the newest configuration; where none can be asked,
        the one Redis that says that it is it. Its term is the epoch of the failover that made it.
        """
        return self._leadership(servers, *self._both(servers))

    def _both(
        self, servers: Sequence[Server]
    ) -> tuple[dict[str, tuple[str, str] | str], dict[str, dict[str, str] | str]]:
        """What all Redis and all Sentinels say, asked at once."""
        answers = ask_all([_Half(server, half) for server in servers for half in (REDIS, SENTINEL)], self._half)
        roles: dict[str, tuple[str, str] | str] = {}
        views: dict[str, dict[str, str] | str] = {}
        for server in servers:
            role, view = answers[f"{server.name}/{REDIS}"], answers[f"{server.name}/{SENTINEL}"]
            assert not isinstance(role, dict)
            assert not isinstance(view, tuple)
            roles[server.name], views[server.name] = role, view
        return roles, views

    def _half(self, half: _Half) -> tuple[str, str] | dict[str, str]:
        return self._role(half.server) if half.half == REDIS else self._view(half.server)

    def _leadership(
        self,
        servers: Sequence[Server],
        roles: Mapping[str, tuple[str, str] | str],
        views: Mapping[str, dict[str, str] | str],
    ) -> Leadership:
        seen = self._said(roles, views)
        told = [view for view in views.values() if isinstance(view, dict) and "ip" in view]
        if told:
            newest = max(told, key=lambda view: int(view["config-epoch"]))
            leader = next((server.name for server in servers if server.address == newest["ip"]), None)
            return Leadership(leader, seen, int(newest["config-epoch"]))
        masters = [name for name, role in roles.items() if role == ("master", "")]
        return Leadership(masters[0] if len(masters) == 1 else None, seen)

    def standing(self, servers: Sequence[Server]) -> Mapping[str, Sequence[str]]:
        """See `Roled.standing`."""
        roles, views = self._both(servers)
        leader = self._leadership(servers, roles, views).leader
        return {
            "primary": [] if leader is None else [leader],
            "replica": [name for name, role in roles.items() if role[0] == "slave" and name != leader],
            "sentinel": [name for name, view in views.items() if isinstance(view, dict)],
        }

    def hand_over(self, servers: Sequence[Server], leader: str) -> str:
        """See `HandsOver.hand_over`: SENTINEL FAILOVER, asked of the first Sentinel that takes it. Nobody has to agree
        that the primary is down.
        """
        refused = []
        for server in servers:
            try:
                (told,) = self._ask(server, SENTINEL, f"SENTINEL FAILOVER {GROUP}")
            except AgentError as error:
                told = [str(error)]
            if told == ["OK"]:
                return f"SENTINEL FAILOVER, taken by the Sentinel on {server.name}"
            refused.append(f"{server.name}: {' '.join(told)}")
        raise AgentError(f"no Sentinel took a failover: {'; '.join(refused)}")

    def held(self, servers: Sequence[Server], lock: str) -> Held | None:
        """See `Unlocks.held`: what the primary says, which may be news to its replicas."""
        (told,) = self._ask(self._primary(servers), REDIS, f"MGET {' '.join(lock_keys(lock))}")
        if len(told) != 2:
            raise AgentError(f"MGET was answered with {told[:3]}")
        return held_of(lock, told[0], told[1])

    def unlock(self, servers: Sequence[Server], held: Held, way: str) -> str:
        """See `Unlocks.unlock`: DEL, at the primary."""
        (told,) = self._ask(self._primary(servers), REDIS, unlock_command(held))
        if told != ["1"]:
            raise AgentError(f"{held.key} was gone already ({' '.join(told)})")
        return f"DEL {held.key}"

    def _primary(self, servers: Sequence[Server]) -> Server:
        leader = self.leadership(servers).leader
        for server in servers:
            if server.name == leader:
                return server
        raise AgentError("no Sentinel names a primary")

    def version(self, server: Server) -> str:
        """See `System.version`."""
        (told,) = self._ask(server, REDIS, "INFO server")
        for line in told:
            if line.startswith("redis_version:"):
                return line.partition(":")[2].strip()
        raise AgentError(f"INFO without redis_version: {told[:3]!r}")

    def client_config(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """See `System.client_config`. The endpoints are the Sentinels; they tell where the primary is."""
        values = self._values(settings)
        return {
            "endpoints": [[name, SENTINEL_PORT] for name in nodes],
            "group": GROUP,
            "wait": values["wait"],
            **({"password": values["password"]} if values["password"] else {}),
        }

    # -- a cluster that exists ----------------------------------------------------------------------------------------

    def examine(self, access: Access, settings: Settings, prefix: str) -> Found:
        """See `Attachable.examine`."""
        return redis_sentinel_attached.examine(access, settings, prefix, wait=self._values(settings)["wait"])

    def attached_config(self, access: Access, settings: Settings, relays: Sequence[str], prefix: str) -> dict[str, Any]:
        """See `Attachable.attached_config`. What the Sentinels call the primary and its replicas has a relay each."""
        ways = dict(zip(access.ways, relays, strict=True))
        return {
            **access.client_settings(relays, SENTINEL_PORT),
            **access.own,  # group, and the password of the Sentinels
            "prefix": prefix,
            "wait": self._values(settings)["wait"],
            "ways": {f"{each.host}:{each.port}": [ways[each], SENTINEL_PORT] for each in access.further},
        }

    def tidy(self, access: Access, prefix: str) -> int:
        """See `Attachable.tidy`."""
        return redis_sentinel_attached.tidy(access, prefix)


class _Half:
    """One of the two services of a server, so that both can be asked at once."""

    def __init__(self, server: Server, half: str) -> None:
        self.server, self.half, self.name = server, half, f"{server.name}/{half}"


def _service(image: str, name: str, port: int, lines: Sequence[str]) -> ServiceSpec:
    """A service that begins with these lines of configuration, and later goes on with what was made of them."""
    seed, kept = SEED.format(name), f"/data/{name}.conf"
    start = f"docker-entrypoint.sh redis-server {kept}" + (" --sentinel" if name == SENTINEL else "")
    script = f"[ -e {kept} ] || cp {seed} {kept}; exec {start}"
    files = {seed: "".join(f"{line}\n" for line in lines).encode()}
    return ServiceSpec(image, ("sh", "-c", script), files=files, name=name, port=port)


def _id(node: str) -> str:
    """A Sentinel's id: 40 hexadecimal digits."""
    return hashlib.sha1(f"fencepost/{node}".encode(), usedforsecurity=False).hexdigest()
