"""Consul, three servers. Contenders talk to the servers directly, each to one of them; with `client_agents`, as Consul
is meant to be used, each to a client agent beside it, which passes their requests on.

What decides about safety and timing, all recorded:
- `session_ttl_min` is 10 s unless set; it is set to the ttl of the trial, so that short leases are had.
- A session ends between one and *two* ttl after its last renewal: the servers' timers run for twice the ttl
  (`SessionTTLMultiplier`), and a new leader starts them anew. The timers are the leader's, on CLOCK_MONOTONIC.
- lock-delay: after a session was *invalidated* (not after a release) nobody gets its locks for so long. It is there for
  holders that don't know yet. Its default of 15 s is most of a short trial; 1 s keeps the mechanism in play. Together
  with the doubled ttl a lock is free again 2 ttl + lock-delay after its holder was last heard of, at the latest.
- `raft_multiplier` 1 is Consul's own setting for production: a new leader after about a second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.runtime.base import ServiceSpec
from harness.systems import consul_attached, consul_operator
from harness.systems.asking import ask_all, ask_json, in_range, options, says
from harness.systems.attached import Access, Found
from harness.systems.base import Leadership, LeaseTerms, Server, Settings
from harness.systems.operating import Held, Joining, first_of
from harness.systems.restoring import Snapshot

PORT = 8500

OPTIONS: Mapping[str, tuple[type, Any]] = {
    "lock_delay_seconds": (float, 1.0),
    "raft_multiplier": (int, 1),
    "behavior": (str, "release"),
    "believe_404": (bool, False),
    "client_agents": (bool, False),
    "node_checks": (bool, False),
}
USUAL_MULTIPLIER = 5
"""Consul's own `raft_multiplier`, which is taken for that of a cluster that exists."""
CLIENT_AGENT = "client-agent"
"""The service beside each contender."""
CLIENT_AGENT_SECONDS = 1.0
"""What a client agent may take to find that its server is gone, and to ask another one."""

CLIENT_PAUSE_SECONDS = 0.2
"""Our client asks again 0.05 to 0.15 s after a lock-delay kept it out, and one request takes its time."""


COMMON: Mapping[str, Any] = {
    "client_addr": "0.0.0.0",
    # The default of 30 s between two tries to join would be most of a trial.
    "retry_interval": "500ms",
    # Gossip between three neighbours needs no patience; the leader forms when all have been seen.
    "gossip_lan": {"gossip_interval": "100ms", "probe_interval": "500ms", "probe_timeout": "200ms"},
    "disable_update_check": True,
    "connect": {"enabled": False},
}
"""What servers and client agents have in common."""


class Consul:
    """See the module. Options: lock_delay_seconds, raft_multiplier, behavior (release, delete), believe_404 (a
    renewal that is answered "not found" ends the hold, unconfirmed), client_agents, node_checks (sessions end with the
    health of the node that they were made on, as gossip sees it: Consul's default).
    """

    name = "consul"
    summary = "Consul: sessions with a ttl on a Raft store, lock-delay."
    endpoint_options: Mapping[str, tuple[type, str]] = {"token": (str, "env:NAME, an ACL token")}
    client_options: Sequence[str] = ("lock_delay_seconds", "behavior", "believe_404", "node_checks")
    image = "consul"
    server_counts: tuple[int, ...] = (3, 5)
    client = "consul"
    port = PORT
    healthy_within_seconds = 45.0
    unlock_ways: Sequence[str] = ("session", "release", "key")

    def _values(self, settings: Settings) -> dict[str, Any]:
        values = options(settings, OPTIONS)
        in_range("lock_delay_seconds", values["lock_delay_seconds"], 0, 60, "s")
        in_range("raft_multiplier", values["raft_multiplier"], 1, 10, "")
        if values["behavior"] not in ("release", "delete"):
            raise UsageError(f"system option 'behavior' must be release or delete, not {values['behavior']!r}")
        return values

    def plan(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, ServiceSpec]:
        """See `System.plan`. The configuration goes in by CONSUL_LOCAL_CONFIG, as the official image takes it."""
        values = self._values(settings)
        common = {
            **COMMON,
            "server": True,
            "bootstrap_expect": len(nodes),
            "session_ttl_min": f"{round(settings.ttl_seconds * 1000)}ms",
            "performance": {"raft_multiplier": values["raft_multiplier"]},
            # A killed server comes back; it must not have been thrown out meanwhile.
            "autopilot": {"cleanup_dead_servers": False},
            "leave_on_terminate": False,
            "skip_leave_on_interrupt": True,
            "ports": {"dns": -1, "serf_wan": -1},
        }
        specs = {}
        for name, addresses in nodes.items():
            others = [other[0] for neighbour, other in nodes.items() if neighbour != name]
            own = {"node_name": name, "bind_addr": addresses[0], "advertise_addr": addresses[0], "retry_join": others}
            env = {"CONSUL_LOCAL_CONFIG": json.dumps({**common, **own})}
            specs[name] = ServiceSpec(image=settings.image, command=("agent",), env=env)
        return specs

    def beside(
        self, settings: Settings, nodes: Mapping[str, Sequence[str]], contenders: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[ServiceSpec]]:
        """See `Accompanies.beside`. A client agent leaves when it is told to end, as it does by default."""
        if not self._values(settings)["client_agents"]:
            return {}
        servers = [addresses[0] for addresses in nodes.values()]
        specs = {}
        for name, (address, *_) in contenders.items():
            own = {"node_name": name, "bind_addr": address, "advertise_addr": address, "retry_join": servers}
            env = {"CONSUL_LOCAL_CONFIG": json.dumps({**COMMON, "server": False, "ports": {"dns": -1}, **own})}
            specs[name] = [ServiceSpec(settings.image, ("agent",), env, name=CLIENT_AGENT, port=PORT)]
        return specs

    def beside_healthy(self, beside: Sequence[Server]) -> tuple[bool, str]:
        """A session can be made through each: it has found a server, and its node is registered."""
        wrote = ask_all(beside, self._write)
        return all(answer is None for answer in wrote.values()), says(
            {name: "a session was made" if answer is None else answer for name, answer in wrote.items()}
        )

    def recorded(self, settings: Settings) -> dict[str, Any]:
        """See `System.recorded`."""
        return {
            **self._values(settings),
            "session_ttl_min_seconds": settings.ttl_seconds,
            "session_ends_within_seconds": 2 * settings.ttl_seconds,
            "lease_clock": "CLOCK_MONOTONIC of the leader",
        }

    def terms(self, settings: Settings) -> LeaseTerms:
        """See `Termed.terms`. From Consul's agent/consul/session_ttl.go and its page on sessions:

        - Sessions are made in ms here (`session_ttl_min` is the trial's ttl, and so the least).
        - "Consul will not expire the session before the TTL is reached, but it is allowed to delay the expiration past
          the TTL", and after that nobody gets the lock for the lock-delay. It does delay: the timer runs for
          `structs.SessionTTLMultiplier` = 2 ttl.
        - After an election the timers start anew (`initializeSessionTimers`). A follower waits one to two heartbeat
          timeouts of 1 s for its leader, and an election takes one to two of as much (hashicorp/raft), each times
          `raft_multiplier`.
        """
        values, ttl = self._values(settings), settings.ttl_seconds
        if settings.attached:
            values |= {"raft_multiplier": USUAL_MULTIPLIER}
        delay = values["lock_delay_seconds"]
        return LeaseTerms(
            ttl_seconds=ttl,
            granularity_seconds=0.001,
            least_seconds=0.001,
            given_away_least_seconds=ttl + delay,
            given_away_most_seconds=2 * ttl + delay + CLIENT_PAUSE_SECONDS,
            hand_over_seconds=4.0 * values["raft_multiplier"]
            + 0.5
            + (CLIENT_AGENT_SECONDS if values["client_agents"] else 0.0),
            lease_clock="monotonic",
            lease_clock_reason="the leader's timers are Go's time.AfterFunc, by CLOCK_MONOTONIC "
            "(agent/consul/session_ttl.go)",
            survives_kill=True,
            survives_kill_reason="a session and its keys are in the Raft log of a quorum, synced to disk (raft-boltdb) "
            "before they are granted",
        )

    def healthy(self, servers: Sequence[Server]) -> tuple[bool, str]:
        """Every server names the same leader, and a session can be made through each (which needs its node
        registered).
        """
        states = ask_all(servers, self._state)
        seen = self._said(servers, states)
        leaders = {state[0] for state in states.values() if isinstance(state, tuple)}
        if len(leaders) != 1 or "" in leaders or any(isinstance(state, str) for state in states.values()):
            return False, says(seen)
        writes = ask_all(servers, self._write)
        if any(answer is not None for answer in writes.values()):
            return False, f"{says(seen)}; a session: {says(writes)}"
        return True, says(seen)

    def _write(self, server: Server) -> None:
        checks = ["serfHealth"] if self._values(server.settings)["node_checks"] else []
        wanted = {"NodeChecks": checks, "LockDelay": "0s"}
        made = ask_json(server, "PUT", "/v1/session/create", port=PORT, document=wanted)
        ask_json(server, "PUT", f"/v1/session/destroy/{made['ID']}", port=PORT)

    def _state(self, server: Server) -> tuple[str, int]:
        """One server's view: the leader's address ("" without one) and the Raft term."""
        stats = ask_json(server, "GET", "/v1/agent/self", port=PORT)["Stats"]
        return stats["consul"]["leader_addr"], int(stats["raft"]["term"])

    def _said(self, servers: Sequence[Server], states: Mapping[str, tuple[str, int] | str]) -> dict[str, str]:
        said = {}
        for name, state in states.items():
            if isinstance(state, str):
                said[name] = state
            else:
                leader = self._name(servers, state[0])
                said[name] = f"{f'leader {leader}' if leader else 'no leader'}, term {state[1]}"
        return said

    def _name(self, servers: Sequence[Server], address: str) -> str | None:
        host = address.rpartition(":")[0]
        return next((server.name for server in servers if server.address == host), None)

    def leadership(self, servers: Sequence[Server]) -> Leadership:
        """See `System.leadership`. The highest Raft term counts: a leader that was cut off keeps its old one."""
        states = ask_all(servers, self._state)
        views = [state for state in states.values() if isinstance(state, tuple) and state[0]]
        newest = max(views, key=lambda view: view[1], default=None)
        leader, term = (None, None) if newest is None else (self._name(servers, newest[0]), newest[1])
        return Leadership(leader, self._said(servers, states), term)

    def held(self, servers: Sequence[Server], lock: str) -> Held | None:
        """See `Unlocks.held`."""
        return first_of(servers, lambda server: consul_operator.held(server, PORT, lock))

    def unlock(self, servers: Sequence[Server], held: Held, way: str) -> str:
        """See `Unlocks.unlock`: `consul session destroy`, or what the command `consul kv` does to the key alone."""
        return first_of(servers, lambda server: consul_operator.unlock(server, PORT, held, way))

    def members(self, servers: Sequence[Server]) -> list[str]:
        """See `Reconfigures.members`."""
        return first_of(servers, lambda server: consul_operator.members(server, PORT))

    def leave(self, servers: Sequence[Server], member: str) -> str:
        """See `Reconfigures.leave`."""
        return consul_operator.leave(next(server for server in servers if server.name == member), PORT)

    def admit(self, servers: Sequence[Server], member: str, spec: ServiceSpec) -> Joining:
        """See `Reconfigures.admit`: one that left finds the others by `retry_join`, and keeps its data."""
        return Joining("nothing: it joins by itself", None, keep_data=True)

    def admitted(self, servers: Sequence[Server], member: str) -> str:
        """See `Reconfigures.admitted`: the leader takes it in when gossip tells of it."""
        return "nothing more"

    restores_running = True

    def snapshot(self, servers: Sequence[Server]) -> Snapshot:
        """See `Restores.snapshot`."""
        return first_of(servers, lambda server: consul_operator.snapshot(server, PORT))

    def restored_from(self, snapshot: Snapshot, specs: Mapping[str, ServiceSpec]) -> dict[str, Sequence[ServiceSpec]]:
        """See `Restores.restored_from`: nothing is started anew."""
        return {}

    def restore(self, servers: Sequence[Server], snapshot: Snapshot) -> str:
        """See `Restores.restore`."""
        return first_of(servers, lambda server: consul_operator.restore(server, PORT, snapshot))

    def put(self, servers: Sequence[Server], key: str, value: str) -> None:
        """See `Restores.put`."""
        first_of(servers, lambda server: consul_operator.put(server, PORT, key, value))

    def get(self, servers: Sequence[Server], key: str) -> str | None:
        """See `Restores.get`."""
        return first_of(servers, lambda server: consul_operator.get(server, PORT, key))

    def version(self, server: Server) -> str:
        """See `System.version`."""
        return str(ask_json(server, "GET", "/v1/agent/self", port=PORT)["Config"]["Version"])

    def client_config(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """See `System.client_config`."""
        values = self._values(settings)
        return {
            **self._of_client(values),
            "endpoints": [["127.0.0.1", PORT]] if values["client_agents"] else [[name, PORT] for name in nodes],
        }

    def _of_client(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: values[name] for name in self.client_options}

    # -- a cluster that exists ----------------------------------------------------------------------------------------

    def examine(self, access: Access, settings: Settings, prefix: str) -> Found:
        """See `Attachable.examine`."""
        return consul_attached.examine(access, settings, prefix, node_checks=self._values(settings)["node_checks"])

    def attached_config(self, access: Access, settings: Settings, relays: Sequence[str], prefix: str) -> dict[str, Any]:
        """See `Attachable.attached_config`."""
        told = {**self._of_client(self._values(settings)), **access.client_settings(relays, PORT), "prefix": prefix}
        return {**told, "token": access.own.get("token")}

    def tidy(self, access: Access, prefix: str) -> int:
        """See `Attachable.tidy`."""
        return consul_attached.tidy(access, prefix)
