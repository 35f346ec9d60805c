"""A single Redis: what most locks in the wild run on. Its own leader; what it promises ends with its clock or its
memory.

Keys expire by the wall clock of the server (gettimeofday), so a clock that jumps forward ends leases early. A kill
loses what the persistence had not written yet; with `everysec` that is up to a second of locks and tokens, with
`none` all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.errors import AgentError, UsageError
from harness.runtime.base import ServiceSpec
from harness.systems import redis_attached
from harness.systems.asking import LOOK_SECONDS, ask_all, options, says
from harness.systems.attached import Access, Found
from harness.systems.base import Leadership, LeaseTerms, Server, Settings
from harness.systems.operating import PREFIX, Held, first_of, with_values
from harness.systems.restoring import Snapshot

PORT = 6379

OPTIONS: Mapping[str, tuple[type, Any]] = {"persistence": (str, "everysec"), "password": (str, "")}
PERSISTENCE = ("none", "everysec", "always")
CONFIG = "/etc/fencepost/redis.conf"
"""In the container. A password belongs there: on the command line everybody on the machine would see it."""

DUMP = "/data/dump.rdb"
SAVE_SECONDS = 5.0

CLIENT_PAUSE_SECONDS = 0.1
"""Our client tries again after 0.025 to 0.075 s, and one try takes its time."""

KEPT = {
    "none": (False, "nothing is written to disk: a Redis that starts again knows of no lock and no token"),
    "everysec": (
        False,
        "a write goes to the append-only file before its answer leaves, but not while an earlier fsync is under way: "
        "then it may wait for up to 2 s, and is lost by a kill (aof.c, flushAppendOnlyFile)",
    ),
    "always": (True, "every write is synced to the append-only file before its answer leaves (aof.c)"),
}
"""Persistence -> whether what was granted outlives a SIGKILL by design, and why."""

NOT_OURS = "how a Redis that exists persists is not asked"


class Redis:
    """See the module. Options: persistence (none, everysec, always), password (of the default user; none without)."""

    name = "redis"
    summary = "One Redis: SET NX PX with a counter as token."
    image = "redis"
    server_counts: tuple[int, ...] = (1,)
    client = "redis"
    port = PORT
    healthy_within_seconds = 20.0
    unlock_ways: Sequence[str] = ("key",)

    def _values(self, settings: Settings) -> dict[str, Any]:
        values = options(settings, OPTIONS)
        if values["persistence"] not in PERSISTENCE:
            known = ", ".join(PERSISTENCE)
            raise UsageError(f"system option 'persistence' must be one of {known}, not {values['persistence']!r}")
        return values

    def plan(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, ServiceSpec]:
        """See `System.plan`."""
        values = self._values(settings)
        persistence, password = values["persistence"], values["password"]
        log = ("--appendonly", "no") if persistence == "none" else ("--appendonly", "yes", "--appendfsync", persistence)
        files = {CONFIG: f"requirepass {quoted(password)}\n".encode()} if password else {}
        command = ("redis-server", *files, "--port", str(PORT), "--protected-mode", "no", "--save", "", *log)
        return {name: ServiceSpec(image=settings.image, command=command, files=files) for name in nodes}

    def recorded(self, settings: Settings) -> dict[str, Any]:
        """See `System.recorded`."""
        values = self._values(settings)
        return {
            **values,
            "password": values["password"] or None,
            "lease_clock": "the server's wall clock (gettimeofday)",
        }

    def terms(self, settings: Settings) -> LeaseTerms:
        """See `Termed.terms`. A key with PX ends to the millisecond: whoever asks for it later finds it gone
        (db.c, `keyIsExpired`). After a kill the server starts again and reads its file, which is short.
        """
        ttl = settings.ttl_seconds
        kept, why = KEPT[self._values(settings)["persistence"]] if not settings.attached else (False, NOT_OURS)
        return LeaseTerms(
            ttl_seconds=ttl,
            granularity_seconds=0.001,
            least_seconds=0.001,
            given_away_least_seconds=ttl,
            given_away_most_seconds=ttl + CLIENT_PAUSE_SECONDS,
            hand_over_seconds=1.0,
            lease_clock="realtime",
            lease_clock_reason="a key expires by the server's wall clock, gettimeofday (server.c, ustime)",
            survives_kill=kept,
            survives_kill_reason=why,
            survives_stop=self._values(settings)["persistence"] != "none",
            survives_stop_reason=KEPT["none"][1]
            if self._values(settings)["persistence"] == "none"
            else "a Redis that is told to end writes and syncs its append-only file first (server.c, finishShutdown)",
        )

    def healthy(self, servers: Sequence[Server]) -> tuple[bool, str]:
        """It answers, has loaded its data, and takes a write."""
        answers = ask_all(servers, lambda server: self._command(server, "SET fencepost:healthy 1"))
        return all(answer == "+OK" for answer in answers.values()), says(answers)

    def _command(self, server: Server, line: str) -> str:
        """One inline command; the first line of the answer."""
        return self._ask(server, line).partition("\r\n")[0]

    def _ask(self, server: Server, line: str) -> str:
        """The whole answer to one inline command, or the refusal of the password before it.

        QUIT behind it makes the server close, which ends the read.
        """
        password = self._values(server.settings)["password"]
        lines = [*([f"AUTH {quoted(password)}"] if password else []), line, "QUIT", ""]
        data = server.tcp("\r\n".join(lines).encode(), port=PORT, timeout_seconds=LOOK_SECONDS)
        answer = data.decode(errors="replace")
        return answer.removeprefix("+OK\r\n") if password else answer

    def leadership(self, servers: Sequence[Server]) -> Leadership:
        """See `System.leadership`. A single server leads whether it answers or not."""
        seen = ask_all(servers, lambda server: self._command(server, "PING"))
        return Leadership(
            servers[0].name if len(servers) == 1 else None, {name: str(said) for name, said in seen.items()}
        )

    def held(self, servers: Sequence[Server], lock: str) -> Held | None:
        """See `Unlocks.held`. An array in Redis' protocol: `*2`, then each value behind its length."""
        lines = first_of(servers, lambda server: self._ask(server, f"MGET {' '.join(lock_keys(lock))}")).split("\r\n")
        if not lines or lines[0] != "*2":
            raise AgentError(f"MGET was answered with {lines[:1]}")
        values = [line for line in lines[1:] if not line.startswith("$") or line == "$-1"]
        return held_of(lock, None if values[0] == "$-1" else values[0], values[1])

    def unlock(self, servers: Sequence[Server], held: Held, way: str) -> str:
        """See `Unlocks.unlock`."""
        done = first_of(servers, lambda server: self._command(server, unlock_command(held)))
        if done != ":1":
            raise AgentError(f"{held.key} was gone already ({done})")
        return f"DEL {held.key}"

    restores_running = False

    def snapshot(self, servers: Sequence[Server]) -> Snapshot:
        """See `Restores.snapshot`: SAVE, and the file that it writes."""
        (server,) = servers
        if (said := self._command(server, "SAVE")) != "+OK":
            raise AgentError(f"SAVE was answered with {said!r}")
        read = server.exec(["cat", DUMP], timeout_seconds=SAVE_SECONDS)
        if read.exit_code != 0:
            raise AgentError(f"{DUMP} can't be read: {read.stderr[:200].decode(errors='replace').strip()}")
        return Snapshot(f"SAVE, and a copy of {DUMP}", read.stdout)

    def restored_from(self, snapshot: Snapshot, specs: Mapping[str, ServiceSpec]) -> dict[str, Sequence[ServiceSpec]]:
        """See `Restores.restored_from`. Where there is an append-only file, a Redis reads nothing else, and one that is
        to have one and doesn't starts with nothing: so it starts without, and is told to write one afterwards.
        """
        found: dict[str, Sequence[ServiceSpec]] = {}
        for name, spec in specs.items():
            command = with_values(spec.command, {"--appendonly": "no"})
            found[name] = (replace(spec, command=command, files={**spec.files, DUMP: snapshot.data}),)
        return found

    def restore(self, servers: Sequence[Server], snapshot: Snapshot) -> str:
        """See `Restores.restore`."""
        (server,) = servers
        if self._values(server.settings)["persistence"] == "none":
            return f"started from {DUMP}"
        if (said := first_of(servers, lambda server: self._command(server, "CONFIG SET appendonly yes"))) != "+OK":
            raise AgentError(f"CONFIG SET appendonly yes was answered with {said!r}")
        return f"started from {DUMP}, then CONFIG SET appendonly yes"

    def put(self, servers: Sequence[Server], key: str, value: str) -> None:
        """See `Restores.put`."""
        if (said := first_of(servers, lambda server: self._command(server, f"SET {PREFIX}:{key} {value}"))) != "+OK":
            raise AgentError(f"SET was answered with {said!r}")

    def get(self, servers: Sequence[Server], key: str) -> str | None:
        """See `Restores.get`."""
        said = first_of(servers, lambda server: self._ask(server, f"GET {PREFIX}:{key}")).split("\r\n")
        if said[0] == "$-1":
            return None
        if not said[0].startswith("$"):
            raise AgentError(f"GET was answered with {said[0]!r}")
        return said[1]

    def version(self, server: Server) -> str:
        """See `System.version`."""
        data = self._ask(server, "INFO server")
        for line in data.splitlines():
            if line.startswith("redis_version:"):
                return line.partition(":")[2].strip()
        raise AgentError(f"INFO without redis_version: {data[:120]!r}")

    def client_config(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """See `System.client_config`."""
        password = self._values(settings)["password"]
        return {"endpoints": [[name, PORT] for name in nodes], **({"password": password} if password else {})}

    # -- a Redis that exists ------------------------------------------------------------------------------------------

    def examine(self, access: Access, settings: Settings, prefix: str) -> Found:
        """See `Attachable.examine`."""
        return redis_attached.examine(access, settings, prefix)

    def attached_config(self, access: Access, settings: Settings, relays: Sequence[str], prefix: str) -> dict[str, Any]:
        """See `Attachable.attached_config`."""
        return {**access.client_settings(relays, PORT), "prefix": prefix}

    def tidy(self, access: Access, prefix: str) -> int:
        """See `Attachable.tidy`."""
        return redis_attached.tidy(access, prefix)


def quoted(text: str) -> str:
    """A word as Redis reads it in its configuration and in inline commands, whatever is in it."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode(errors="surrogateescape")) + '"'


def lock_keys(lock: str) -> tuple[str, str]:
    """Where our client keeps a lock's owner, and the last token that was given out."""
    return f"{PREFIX}:{{{lock}}}", f"{PREFIX}:{{{lock}}}:token"


def held_of(lock: str, owner: str | None, token: str) -> Held | None:
    """What these two keys say."""
    return None if not owner else Held(lock_keys(lock)[0], owner, int(token))


def unlock_command(held: Held) -> str:
    """DEL, where the owner is still the one that was seen: nobody else's lock is meant."""
    script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
    return f"EVAL {quoted(script)} 1 {held.key} {held.owner}"
