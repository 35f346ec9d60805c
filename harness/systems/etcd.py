"""etcd, three or five servers, spoken to through its JSON gateway.

Leases are counted in whole seconds, and etcd raises a shorter ttl than its least one without a word: `minTTL = ceil(3
* election ticks / 2 * heartbeat)` (etcdserver/server.go). With the usual 1000 ms election that is 2 s; the election
time here follows from the ttl, so that what is asked for is what is granted, and a new leader is there soon.

A lease runs on the leader's CLOCK_MONOTONIC. A new leader gives every lease its full ttl again, so fail-over never
shortens one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import AgentError, UsageError
from harness.runtime.base import ServiceSpec
from harness.systems import etcd_attached, etcd_operator
from harness.systems.asking import ask_all, ask_json, b64, in_range, options, says
from harness.systems.attached import Access, Found
from harness.systems.base import Leadership, LeaseTerms, Server, Settings
from harness.systems.operating import Held, Joining, first_of
from harness.systems.restoring import Snapshot

PORT = 2379
PEER_PORT = 2380
DATA = "/var/lib/etcd/fencepost"

OPTIONS: Mapping[str, tuple[type, Any]] = {
    "heartbeat_ms": (int, 100),
    # 6 heartbeats: a new leader within about a second. Much less, and a busy machine elects for no reason.
    "election_ms": (int, 600),
    # A killed process loses nothing that it wrote, only a machine that loses power does; so off is as safe here. On is
    # the default because users run it so.
    "fsync": (bool, True),
}

USUAL_ELECTION_MS = 1000
"""etcd's own election time, which is taken for that of a cluster that exists (its heartbeat is 100 ms, as here)."""
EXPIRY_LOOK_SECONDS = 0.5
"""How often the leader looks for leases that have run out (server/lease/lessor.go, `runLoop`)."""
COMMIT_SECONDS = 0.1
"""A revoke that a quorum agrees to, and the watch that tells the next in line."""
CLIENT_PAUSE_SECONDS = 0.5
"""What our client spends on a server that doesn't answer before it asks another one."""


def minimum_ttl_seconds(heartbeat_ms: int, election_ms: int) -> int:
    """The shortest lease that etcd grants: a shorter ttl is raised to it (etcdserver/server.go, `minTTL`)."""
    ticks = election_ms // heartbeat_ms
    return math.ceil((3 * ticks // 2) * heartbeat_ms / 1000)


class Etcd:
    """See the module. Options: heartbeat_ms, election_ms, fsync."""

    name = "etcd"
    summary = "etcd: leases on a Raft store, keys in create_revision order."
    image = "etcd"
    server_counts: tuple[int, ...] = (3, 2, 5)
    client = "etcd"
    port = PORT
    healthy_within_seconds = 30.0
    unlock_ways: Sequence[str] = ("key", "lease")

    def _options(self, settings: Settings) -> dict[str, Any]:
        values = options(settings, OPTIONS)
        in_range("heartbeat_ms", values["heartbeat_ms"], 10, 5000, "ms")
        in_range("election_ms", values["election_ms"], 5 * values["heartbeat_ms"], 50000, "ms (5 heartbeats at least)")
        return values

    def _values(self, settings: Settings) -> dict[str, Any]:
        values = self._options(settings)
        least = minimum_ttl_seconds(values["heartbeat_ms"], values["election_ms"])
        if settings.ttl_seconds < least:
            raise UsageError(
                f"etcd grants no lease below {least} s with an election time of {values['election_ms']} ms, "
                f"and the ttl is {settings.ttl_seconds:g} s; give a longer ttl or a shorter election_ms"
            )
        if abs(settings.ttl_seconds - round(settings.ttl_seconds)) > 1e-6:
            raise UsageError(
                f"etcd counts leases in whole seconds, so a ttl of {settings.ttl_seconds:g} s can't be had"
            )
        return values

    def plan(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, ServiceSpec]:
        """See `System.plan`. Works with the images that the etcd project publishes: no entry point, `etcd` in PATH."""
        values = self._values(settings)
        members = ",".join(f"{name}=http://{name}:{PEER_PORT}" for name in nodes)
        common = [
            *("--data-dir", DATA),
            *("--initial-cluster", members),
            *("--initial-cluster-state", "new"),
            *("--initial-cluster-token", "fencepost"),
            *("--heartbeat-interval", str(values["heartbeat_ms"])),
            *("--election-timeout", str(values["election_ms"])),
            *("--listen-peer-urls", f"http://0.0.0.0:{PEER_PORT}"),
            *("--listen-client-urls", f"http://0.0.0.0:{PORT}"),
        ]
        if not values["fsync"]:
            common.append("--unsafe-no-fsync")
        return {
            name: ServiceSpec(
                image=settings.image,
                data=(DATA,),
                command=(
                    *("etcd", "--name", name),
                    *("--initial-advertise-peer-urls", f"http://{name}:{PEER_PORT}"),
                    *("--advertise-client-urls", f"http://{name}:{PORT}"),
                    *common,
                ),
            )
            for name in nodes
        }

    def recorded(self, settings: Settings) -> dict[str, Any]:
        """See `System.recorded`."""
        values = self._values(settings)
        least = minimum_ttl_seconds(values["heartbeat_ms"], values["election_ms"])
        return {**values, "minimum_ttl_seconds": least, "lease_clock": "CLOCK_MONOTONIC of the leader"}

    def terms(self, settings: Settings) -> LeaseTerms:
        """See `Termed.terms`. In the words of etcd's server/lease/lessor.go and server/etcdserver/server.go:

        - Whole seconds (`TTL int64`), `minTTL` at least.
        - A lease ends at `expiry`, the ttl after its last renewal on the leader's clock, and its keys when the leader
          has looked (`runLoop`: every 500 ms) and a quorum has agreed to revoke it.
        - After an election the new leader adds an election timeout to every full ttl (`Promote(electionTimeout)`). An
          election comes within two election timeouts of the last heartbeat (raft's `randomizedElectionTimeout`), and
          one may fail by a split vote.
        """
        values, ttl = self._options(settings), settings.ttl_seconds
        if settings.attached:
            values |= {"election_ms": USUAL_ELECTION_MS}
        election = values["election_ms"] / 1000
        return LeaseTerms(
            ttl_seconds=ttl,
            granularity_seconds=1.0,
            # What a cluster that exists grants at least is found by asking it.
            least_seconds=1.0
            if settings.attached
            else float(minimum_ttl_seconds(values["heartbeat_ms"], values["election_ms"])),
            given_away_least_seconds=ttl,
            given_away_most_seconds=ttl + EXPIRY_LOOK_SECONDS + COMMIT_SECONDS,
            hand_over_seconds=(2 + 2 + 1) * election + CLIENT_PAUSE_SECONDS,
            lease_clock="monotonic",
            lease_clock_reason="the leader's lessor compares Go's time.Now() with its expiry, by CLOCK_MONOTONIC "
            "(server/lease/lessor.go)",
            survives_kill=True,
            survives_kill_reason="a lease and its keys are in the Raft log of a quorum, written before they are "
            "granted; what a process has written outlives its SIGKILL, fsync or not",
        )

    def serves(self, server: Server) -> bool:
        """See `FirstServes.serves`: it answers other members.

        A new member asks one after the other, in the order of their names, whether it is known already, until one has
        answered (server/etcdserver/bootstrap.go, `isMemberBootstrapped`). One that has opened its port, and asks around
        itself, doesn't answer: three that start at once wait for each other, 1 s for each question. Where nothing
        listens yet, that is told at once.
        """
        try:
            ask_json(server, "GET", "/members", port=PEER_PORT)
        except (AgentError, ValueError):
            return False
        return True

    def healthy(self, servers: Sequence[Server]) -> tuple[bool, str]:
        """Every server names the same leader, and a write through each succeeds."""
        states = ask_all(servers, self._state)
        leaders = {state[1] for state in states.values() if isinstance(state, tuple)}
        seen = self._said(states)
        if len(leaders) != 1 or None in leaders or any(isinstance(state, str) for state in states.values()):
            return False, says(seen)
        writes = ask_all(servers, self._write)
        if any(answer is not None for answer in writes.values()):
            return False, f"{says(seen)}; a write: {says(writes)}"
        return True, says(seen)

    def _write(self, server: Server) -> None:
        ask_json(server, "POST", "/v3/kv/put", port=PORT, document={"key": b64("fencepost/healthy"), "value": b64("1")})

    def _state(self, server: Server) -> tuple[str, str | None, int]:
        """One server's view: its own member id, the leader's (None without one), and the Raft term."""
        status = ask_json(server, "POST", "/v3/maintenance/status", port=PORT, document={})
        leader = status.get("leader", "0")
        return status["header"]["member_id"], None if leader == "0" else leader, int(status.get("raftTerm", 0))

    def _said(self, states: Mapping[str, tuple[str, str | None, int] | str]) -> dict[str, str]:
        names = {state[0]: name for name, state in states.items() if isinstance(state, tuple)}
        said = {}
        for name, state in states.items():
            if isinstance(state, str):
                said[name] = state
            elif state[1] is None:
                said[name] = f"no leader, term {state[2]}"
            else:
                said[name] = f"leader {names.get(state[1], state[1])}, term {state[2]}"
        return said

    def leadership(self, servers: Sequence[Server]) -> Leadership:
        """See `System.leadership`. The highest Raft term counts; a leader that is silent itself is found by its id."""
        states = ask_all(servers, self._state)
        seen = self._said(states)
        views = [state for state in states.values() if isinstance(state, tuple) and state[1] is not None]
        if not views:
            return Leadership(None, seen)
        _, leader, term = max(views, key=lambda view: view[2])
        for name, state in states.items():
            if isinstance(state, tuple) and state[0] == leader:
                return Leadership(name, seen, term)
        answering = [server for server in servers if isinstance(states[server.name], tuple)]
        for members in ask_all(answering, self._members).values():
            if isinstance(members, dict) and leader in members:
                return Leadership(members[leader], seen, term)
        return Leadership(None, seen, term)

    def _members(self, server: Server) -> dict[str, str]:
        listed = ask_json(server, "POST", "/v3/cluster/member/list", port=PORT, document={"linearizable": False})
        return {member["ID"]: member.get("name", "") for member in listed["members"]}

    def hand_over(self, servers: Sequence[Server], leader: str) -> str:
        """See `HandsOver.hand_over`: `etcdctl move-leader`, to the member that was last in the list of all others."""
        told = next(server for server in servers if server.name == leader)
        members = {name: number for number, name in self._members(told).items()}
        others = [server.name for server in servers if server.name != leader and server.name in members]
        if not others:
            raise AgentError(f"{leader} knows of no other member")
        order = {"targetID": members[others[-1]]}
        ask_json(told, "POST", "/v3/maintenance/transfer-leadership", port=PORT, document=order)
        return f"move-leader from {leader} to {others[-1]}"

    def held(self, servers: Sequence[Server], lock: str) -> Held | None:
        """See `Unlocks.held`: the oldest key below the lock's prefix, by a linearizable read."""
        return first_of(servers, lambda server: etcd_operator.held(server, PORT, lock))

    def unlock(self, servers: Sequence[Server], held: Held, way: str) -> str:
        """See `Unlocks.unlock`: `etcdctl del` of the owner's key, whose lease lives on; or `etcdctl lease revoke`."""
        return first_of(servers, lambda server: etcd_operator.unlock(server, PORT, held, way))

    def members(self, servers: Sequence[Server]) -> list[str]:
        """See `Reconfigures.members`."""
        return [each["name"] for each in etcd_operator.members(servers, PORT) if each.get("name")]

    def leave(self, servers: Sequence[Server], member: str) -> str:
        """See `Reconfigures.leave`."""
        return etcd_operator.remove(servers, PORT, member)

    def admit(self, servers: Sequence[Server], member: str, spec: ServiceSpec) -> Joining:
        """See `Reconfigures.admit`."""
        return etcd_operator.add(servers, PORT, member, f"http://{member}:{PEER_PORT}", spec)

    def admitted(self, servers: Sequence[Server], member: str) -> str:
        """See `Reconfigures.admitted`: it has its vote since it was added."""
        return "nothing more"

    restores_running = False

    def snapshot(self, servers: Sequence[Server]) -> Snapshot:
        """See `Restores.snapshot`."""
        return etcd_operator.snapshot(servers, PORT, first_of(servers, self.version))

    def restored_from(self, snapshot: Snapshot, specs: Mapping[str, ServiceSpec]) -> dict[str, Sequence[ServiceSpec]]:
        """See `Restores.restored_from`."""
        return etcd_operator.restored_from(snapshot, specs, DATA)

    def restore(self, servers: Sequence[Server], snapshot: Snapshot) -> str:
        """See `Restores.restore`."""
        return "snapshot restore, on each node"

    def put(self, servers: Sequence[Server], key: str, value: str) -> None:
        """See `Restores.put`."""
        etcd_operator.put(servers, PORT, key, value)

    def get(self, servers: Sequence[Server], key: str) -> str | None:
        """See `Restores.get`."""
        return etcd_operator.get(servers, PORT, key)

    def version(self, server: Server) -> str:
        """See `System.version`."""
        return str(ask_json(server, "GET", "/version", port=PORT)["etcdserver"])

    def client_config(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """See `System.client_config`."""
        return {"endpoints": [[name, PORT] for name in nodes]}

    # -- a cluster that exists ----------------------------------------------------------------------------------------

    def examine(self, access: Access, settings: Settings, prefix: str) -> Found:
        """See `Attachable.examine`."""
        return etcd_attached.examine(access, settings, prefix)

    def attached_config(self, access: Access, settings: Settings, relays: Sequence[str], prefix: str) -> dict[str, Any]:
        """See `Attachable.attached_config`."""
        return {**access.client_settings(relays, PORT), "prefix": prefix}

    def tidy(self, access: Access, prefix: str) -> int:
        """See `Attachable.tidy`."""
        return etcd_attached.tidy(access, prefix)
