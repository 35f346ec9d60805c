"""The protected resource: PostgreSQL on a node of its own, which no fault touches. Contenders write to it
(`workloads/resource.py`); the harness starts it and, at the end, reads back what it accepted: on the resource's own
node, so that this needs no contender to be well, nor a route from the host into the trial's network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from harness.errors import HarnessError
from harness.runtime.base import Node, ServiceSpec

IMAGE = "postgres"
PORT = 5432
USER = "fencepost"
PASSWORD = "fencepost"  # of a database that lives for minutes on a network that nobody else is on
DATABASE = "fencepost"

SETTINGS: Mapping[str, str] = {
    # It must survive nothing: a trial whose resource crashes is void. What is judged is the order in which it accepted.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    # Idle helpers only cost start-up and memory here.
    "autovacuum": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "max_logical_replication_workers": "0",
    "max_worker_processes": "0",
}

CLUSTER: Mapping[str, str] = {
    "POSTGRES_USER": USER,
    "POSTGRES_PASSWORD": PASSWORD,
    "POSTGRES_DB": DATABASE,
    "POSTGRES_HOST_AUTH_METHOD": "trust",
    "POSTGRES_INITDB_ARGS": "--no-sync --wal-segsize=1",  # small files, as each trial has its own cluster in memory
}
"""The cluster that is asked for at its first start. Our image has just this one ready (docker/postgres/image.toml),
which saves a second of a processor; an official one makes it."""


def service(image: str = IMAGE) -> ServiceSpec:
    """How PostgreSQL is run: the official image's own environment and command line."""
    command = ["postgres", *(word for key, value in SETTINGS.items() for word in ("-c", f"{key}={value}"))]
    return ServiceSpec(image=image, command=command, env=CLUSTER)


def connection(host: str) -> dict[str, Any]:
    """How it is reached on this host: the keys of "resource" in workloads/PROTOCOL.md, without the run."""
    return {"host": host, "port": PORT, "user": USER, "password": PASSWORD, "dbname": DATABASE}


def ready(node: Node) -> tuple[bool, str]:
    """Whether the resource on this node takes connections, in PostgreSQL's words. One look; slow (a new process)."""
    done = node.run(["pg_isready", "-h", "127.0.0.1", "-p", str(PORT), "-U", USER])
    return done.exit_code == 0, (done.stdout + done.stderr).decode(errors="replace").strip()


# -- what it accepted -------------------------------------------------------------------------------------------------


class Write(msgspec.Struct, frozen=True):
    """One row of the ledger: a write as the resource itself wrote it down. The order of its keys is that of a row.

    `at` is the server's clock, for people.
    """

    lock: str
    resource: Literal["fenced", "unfenced"]
    seq: int
    id: int
    process: int | None
    token: int | None
    read: int | None
    version: int | None
    at: str


class _Answer(msgspec.Struct):
    twins: list[tuple[str, Literal["fenced", "unfenced"]]]
    writes: list[Write]


@dataclass(frozen=True)
class Reading:
    """All that the resource holds of a run, read at one instant."""

    asked_ns: int
    """When it was asked, in time of the history."""
    writes: Sequence[Write]
    """In the resource's own order."""
    twins: Sequence[tuple[str, str]]
    """The (lock, resource) of every ledger that there is, those without a write too."""

    def ids(self, lock: str, resource: str) -> list[int]:
        """The ids of the writes found in one ledger."""
        return [write.id for write in self.writes if (write.lock, write.resource) == (lock, resource)]


QUIET_SECONDS = 10.0
"""How long a statement of a contender that is gone may go on before it is given up: the server ends one after 2 s."""

# What a contender sent last may still be under way when its process is gone. A session that has ended does no more.
QUIESCE = f"""
DO $$
DECLARE others int;
BEGIN
    FOR look IN 1 .. {round(QUIET_SECONDS * 100)} LOOP
        PERFORM pg_stat_clear_snapshot();
        SELECT count(pg_terminate_backend(pid)) INTO others FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid();
        EXIT WHEN others = 0;
        PERFORM pg_sleep(0.01);
    END LOOP;
    IF others > 0 THEN RAISE EXCEPTION '% sessions of contenders have not ended', others; END IF;
END $$;
"""

# One statement has one snapshot. One JSON document is whole, or none.
READ = """
SELECT json_build_object(
    'twins', (SELECT coalesce(json_agg(json_build_array(lock, resource) ORDER BY lock, resource), '[]')
              FROM fencepost.resource WHERE run = :'run'),
    'writes', (SELECT coalesce(json_agg(row ORDER BY row.lock, row.resource, row.seq), '[]')
               FROM (SELECT lock, resource, seq, id, process, token, read, version, at
                     FROM fencepost.ledger WHERE run = :'run') AS row));
"""


def read(node: Node, run: str, now: Callable[[], int]) -> Reading:
    """What the resource on this node holds of a run, all of it, by one read; whatever still writes is ended first.

    The read sees everything that was acknowledged before it was sent: there is one server, and one statement sees
    all that was committed before it began. `now` is the clock of the history. Raises HarnessError, with the resource's
    own words, when it could not be read whole.
    """
    _psql(node, QUIESCE, run, QUIET_SECONDS + 5.0)
    asked = now()
    answer = _psql(node, READ, run, 30.0)
    try:
        found = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HarnessError(f"the ledger on {node.name} can't be read: {error}") from error
    return Reading(asked, found.writes, found.twins)


def ask(node: Node, run: str, sql: str) -> dict[str, Any]:
    """The JSON object that a statement for psql returns, of a run (`:'run'` in it). HarnessError when there is none."""
    try:
        return msgspec.json.decode(_psql(node, sql, run, 30.0), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HarnessError(f"what the resource on {node.name} counted can't be read: {error}") from error


def _psql(node: Node, sql: str, run: str, timeout_seconds: float) -> bytes:
    options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", f"run={run}"]
    place = ["-h", "127.0.0.1", "-p", str(PORT), "-U", USER, "-d", DATABASE]
    done = node.run(["psql", *options, *place], stdin=sql.encode(), timeout_seconds=timeout_seconds)
    if done.exit_code != 0:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        raise HarnessError(f"the ledger on {node.name} can't be read: {told[0] if told else 'no reason given'}")
    return done.stdout
