"""ZooKeeper, three servers.

Sessions are counted in ticks: a session can't be shorter than `minSessionTimeout` (2 ticks unless set) and ends on a
tick, never before its time. The tick follows from the ttl, so that a session of that length is granted and ends soon
after it. `syncLimit` ticks without a word, and a leader steps down, or a follower looks for another leader.

Sessions expire on the leader's System.nanoTime (CLOCK_MONOTONIC). A new leader gives every session its full time again.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import AgentError, UsageError
from harness.runtime.base import ServiceSpec
from harness.systems import jute, zookeeper_attached, zookeeper_operator
from harness.systems.asking import LOOK_SECONDS, ask_all, in_range, options, says
from harness.systems.attached import Access, Found
from harness.systems.base import Leadership, LeaseTerms, Server, Settings
from harness.systems.operating import Held, Joining, first_of

PORT = 2181
PEER_PORT = 2888
ELECTION_PORT = 3888

OPTIONS: Mapping[str, tuple[type, Any]] = {
    # 0 = an eighth of the ttl, at least 100 ms.
    "tick_ms": (int, 0),
    # 1.5 s with a ttl of 2 s.
    "sync_ticks": (int, 6),
    "init_ticks": (int, 60),
    "heap_mb": (int, 96),
    # As for etcd: a killed process loses nothing that it wrote, so off is as safe here.
    "fsync": (bool, True),
}

# The first compiler alone, a small collector and the class archive: half the CPU of a start. Nothing else changes.
JVM_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Djava.net.preferIPv4Stack=true"

USUAL_TICK_MS, USUAL_SYNC_TICKS = 2000, 5
"""Those of ZooKeeper's own zoo_sample.cfg, which are taken for those of a cluster that exists."""

COMMIT_SECONDS = 0.1
"""The end of a session that a quorum agrees to, and the watch that tells the next in line."""
ELECTION_SECONDS = 1.0
"""Votes, and the synchronisation of the followers."""
CLIENT_PAUSE_SECONDS = 1.0
"""How long our client may wait before it tries to connect again."""


class ZooKeeper:
    """See the module. Options: tick_ms, sync_ticks, init_ticks, heap_mb, fsync."""

    name = "zookeeper"
    summary = "ZooKeeper: ephemeral sequential nodes, sessions."
    image = "zookeeper"
    server_counts: tuple[int, ...] = (3, 5)
    client = "zookeeper"
    port = PORT
    healthy_within_seconds = 60.0
    unlock_ways: Sequence[str] = ("node",)
    inoperable: Mapping[str, str] = {
        "restore": "a snapshot is put back by its admin server, one server after the other and with an administrator's "
        "password, which isn't driven here"
    }

    def _options(self, settings: Settings) -> dict[str, Any]:
        values = options(settings, OPTIONS)
        if values["tick_ms"] == 0:
            values["tick_ms"] = max(100, round(settings.ttl_seconds * 1000 / 8))
        in_range("tick_ms", values["tick_ms"], 20, 60000, "ms")
        in_range("sync_ticks", values["sync_ticks"], 2, 1000, "ticks")
        in_range("init_ticks", values["init_ticks"], 2, 10000, "ticks")
        in_range("heap_mb", values["heap_mb"], 32, 65536, "MiB")
        return values

    def _values(self, settings: Settings) -> dict[str, Any]:
        values = self._options(settings)
        if settings.ttl_seconds * 1000 < 2 * values["tick_ms"]:
            raise UsageError(
                f"a session lasts two ticks at least, so with tick_ms={values['tick_ms']} a ttl of "
                f"{settings.ttl_seconds:g} s can't be had"
            )
        return values

    def plan(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, ServiceSpec]:
        """See `System.plan`. By the environment variables of the official image."""
        values = self._values(settings)
        ensemble = " ".join(f"server.{_number(name)}={name}:{PEER_PORT}:{ELECTION_PORT};{PORT}" for name in nodes)
        extra = [f"minSessionTimeout={2 * values['tick_ms']}", "maxSessionTimeout=3600000"]
        # Members can be taken out and let in by whoever asks; no client of ours does, and nobody else is here.
        extra += ["reconfigEnabled=true", "skipACL=yes"]
        if not values["fsync"]:
            extra.append("forceSync=no")
        env = {
            "ZOO_SERVERS": ensemble,
            "ZOO_TICK_TIME": str(values["tick_ms"]),
            "ZOO_INIT_LIMIT": str(values["init_ticks"]),
            "ZOO_SYNC_LIMIT": str(values["sync_ticks"]),
            "ZOO_STANDALONE_ENABLED": "false",
            "ZOO_ADMINSERVER_ENABLED": "false",
            "ZOO_4LW_COMMANDS_WHITELIST": "srvr",
            "ZOO_CFG_EXTRA": " ".join(extra),
            "ZK_SERVER_HEAP": str(values["heap_mb"]),
            "JVMFLAGS": JVM_FLAGS,
        }
        command = ("zkServer.sh", "start-foreground")
        return {
            name: ServiceSpec(image=settings.image, command=command, env={**env, "ZOO_MY_ID": str(_number(name))})
            for name in nodes
        }

    def recorded(self, settings: Settings) -> dict[str, Any]:
        """See `System.recorded`."""
        values = self._values(settings)
        least = 2 * values["tick_ms"] / 1000
        return {
            **values,
            "jvm_flags": JVM_FLAGS,
            "minimum_session_seconds": least,
            "lease_clock": "System.nanoTime (CLOCK_MONOTONIC) of the leader",
        }

    def terms(self, settings: Settings) -> LeaseTerms:
        """See `Termed.terms`. From ZooKeeper's own source and kazoo's:

        - Sessions end at the next whole tick after their time (`ExpiryQueue.roundToNextInterval`), and a session that
          is served by a follower counts from when the leader is told, half a tick later at most (`Learner.ping`, which
          answers the leader's ping).
        - kazoo pings when it was silent for a third of the session, unseen: so much later than the last request in the
          history the session may have begun anew.
        - A leader that is gone is noticed after syncLimit ticks at the latest, an election waits 200 ms for better
          votes (`FastLeaderElection.finalizeWait`) and synchronises; sessions start anew. kazoo tries to connect again
          after a second at most.
        """
        values, ttl = self._options(settings), settings.ttl_seconds
        if settings.attached:
            values |= {"tick_ms": USUAL_TICK_MS, "sync_ticks": USUAL_SYNC_TICKS}
        tick = values["tick_ms"] / 1000
        return LeaseTerms(
            ttl_seconds=ttl,
            granularity_seconds=0.001,
            # What a cluster that exists grants at least is found by asking it.
            least_seconds=0.001 if settings.attached else 2 * tick if settings.options.get("tick_ms") else 0.2,
            given_away_least_seconds=ttl,
            given_away_most_seconds=ttl + ttl / 3 + 1.5 * tick + COMMIT_SECONDS,
            hand_over_seconds=values["sync_ticks"] * tick + ELECTION_SECONDS + CLIENT_PAUSE_SECONDS,
            lease_clock="monotonic",
            lease_clock_reason="the leader counts sessions by System.nanoTime, CLOCK_MONOTONIC "
            "(org.apache.zookeeper.common.Time.currentElapsedTime)",
            survives_kill=True,
            survives_kill_reason="a session and its nodes are in the transaction logs of a quorum, written before they "
            "are granted; what a process has written outlives its SIGKILL, synced or not",
        )

    def healthy(self, servers: Sequence[Server]) -> tuple[bool, str]:
        """All serve, one of them leads, and through each a session and a node in it can be made."""
        states = ask_all(servers, self._state)
        seen = self._said(states)
        modes = [state[0] for state in states.values() if isinstance(state, tuple)]
        if len(modes) != len(servers) or modes.count("leader") != 1:
            return False, says(seen)
        writes = ask_all(servers, self._write)
        if any(answer is not None for answer in writes.values()):
            return False, f"{says(seen)}; a write: {says(writes)}"
        return True, says(seen)

    def _state(self, server: Server) -> tuple[str, int, str]:
        """One server's view: its mode, the epoch (the high half of its zxid), its version. AgentError while it
        doesn't serve.
        """
        told = server.tcp(b"srvr", port=PORT, timeout_seconds=LOOK_SECONDS).decode(errors="replace")
        facts = dict(line.partition(": ")[::2] for line in told.splitlines())
        if "Mode" not in facts or "Zxid" not in facts:
            raise AgentError(told.strip()[:120] or "an empty answer")
        version = facts.get("Zookeeper version", "").partition("-")[0]
        return facts["Mode"], int(facts["Zxid"], 16) >> 32, version

    def _write(self, server: Server) -> None:
        """A session, an ephemeral node in it, and its end, in ZooKeeper's own protocol: a quorum agrees to each of
        them.
        """
        path = f"/fencepost-healthy-{server.name}"
        anyone = jute.WORLD + jute.text("world") + jute.text("anyone")
        create = jute.text(path) + jute.buffer(b"") + anyone + struct.pack(">i", 1)  # 1: ephemeral
        ((error, _),) = jute.ask(server, PORT, [(jute.CREATE, create)])
        if error not in (jute.OK, jute.NODE_EXISTS):
            raise AgentError(f"create was answered with error {error}")

    def _said(self, states: Mapping[str, tuple[str, int, str] | str]) -> dict[str, str]:
        return {
            name: state if isinstance(state, str) else f"{state[0]}, epoch {state[1]}" for name, state in states.items()
        }

    def leadership(self, servers: Sequence[Server]) -> Leadership:
        """See `System.leadership`. The highest epoch counts: a leader that was cut off goes on for up to syncLimit."""
        states = ask_all(servers, self._state)
        leaders = {
            name: state[1] for name, state in states.items() if not isinstance(state, str) and state[0] == "leader"
        }
        newest = max(leaders, key=lambda name: leaders[name]) if leaders else None
        return Leadership(newest, self._said(states), None if newest is None else leaders[newest])

    def held(self, servers: Sequence[Server], lock: str) -> Held | None:
        """See `Unlocks.held`."""
        return first_of(servers, lambda server: zookeeper_operator.held(server, PORT, lock))

    def unlock(self, servers: Sequence[Server], held: Held, way: str) -> str:
        """See `Unlocks.unlock`: `zkCli.sh delete` of the owner's node."""
        return first_of(servers, lambda server: zookeeper_operator.unlock(server, PORT, held, way))

    def members(self, servers: Sequence[Server]) -> list[str]:
        """See `Reconfigures.members`."""
        return [f"n{number}" for number in zookeeper_operator.members(servers, PORT)]

    def leave(self, servers: Sequence[Server], member: str) -> str:
        """See `Reconfigures.leave`. One that was removed goes on, without a vote, until it is ended."""
        others = [server for server in servers if server.name != member]
        if member not in self.members(others):
            return f"{member} was no member any more"
        return zookeeper_operator.reconfigure(others, PORT, leaving=_number(member))

    def admit(self, servers: Sequence[Server], member: str, spec: ServiceSpec) -> Joining:
        """See `Reconfigures.admit`: it asks those that its configuration names, and follows without a vote at first."""
        return Joining("nothing yet", None, keep_data=False)

    def admitted(self, servers: Sequence[Server], member: str) -> str:
        """See `Reconfigures.admitted`: it gets its vote."""
        others = [server for server in servers if server.name != member]
        if member in self.members(others):
            return f"{member} was a member already"
        joining = f"server.{_number(member)}={_voter(member)}"
        return zookeeper_operator.reconfigure(others, PORT, joining=joining)

    def version(self, server: Server) -> str:
        """See `System.version`."""
        return self._state(server)[2]

    def client_config(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """See `System.client_config`."""
        return {"endpoints": [[name, PORT] for name in nodes]}

    # -- a cluster that exists ----------------------------------------------------------------------------------------

    def examine(self, access: Access, settings: Settings, prefix: str) -> Found:
        """See `Attachable.examine`."""
        return zookeeper_attached.examine(access, settings, prefix)

    def attached_config(self, access: Access, settings: Settings, relays: Sequence[str], prefix: str) -> dict[str, Any]:
        """See `Attachable.attached_config`."""
        return {**access.client_settings(relays, PORT), "prefix": prefix}

    def tidy(self, access: Access, prefix: str) -> int:
        """See `Attachable.tidy`."""
        return zookeeper_attached.tidy(access, prefix)


def _number(node: str) -> int:
    """A server's number is that of its node."""
    return int(node.removeprefix("n"))


def _voter(node: str) -> str:
    return f"{node}:{PEER_PORT}:{ELECTION_PORT}:participant;{PORT}"
