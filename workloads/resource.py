"""The protected resource, as a contender uses it: twin ledgers in PostgreSQL, one that checks tokens and one that
doesn't.

A row for each (run, lock, resource) holds the version, the high-water mark of the tokens and the count of accepted
writes. A write is one statement: the row's lock puts all writers in an order, `seq` numbers them in it, and the
ledger keeps each. `fenced` refuses a token below its mark, and raises the mark when a holder *reads*, too: else the
last write of the holder before could slip in between the new one's read and write and be lost. `unfenced` takes
everything; only its ledger tells. Rows of the ledger are added and never changed, so that at the end of a trial each
write can be looked for in it by its id (`harness/trial/resource.py` does).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import psycopg2
from psycopg2.extensions import connection as Connection

Resource = Literal["fenced", "unfenced"]
FENCED: Resource = "fenced"
UNFENCED: Resource = "unfenced"

STATEMENT_SECONDS = 2.0
"""The server ends a statement that takes longer; nothing of it has happened then."""

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS fencepost;
CREATE TABLE IF NOT EXISTS fencepost.resource (
    run text, lock text, resource text,
    version bigint NOT NULL DEFAULT 0, mark bigint NOT NULL DEFAULT -1, seq bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (run, lock, resource));
CREATE TABLE IF NOT EXISTS fencepost.ledger (
    run text, lock text, resource text, seq bigint, id bigint NOT NULL,
    process int, token bigint, read bigint, version bigint,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run, lock, resource, seq), UNIQUE (run, lock, resource, id));
"""
# Several contenders start at once, and CREATE … IF NOT EXISTS of two sessions can still collide.
SETUP_LOCK = "SELECT pg_advisory_xact_lock(20090929)"

ROW = "run = %(run)s AND lock = %(lock)s AND resource = %(resource)s"
READ = {
    UNFENCED: f"SELECT version FROM fencepost.resource WHERE {ROW}",
    FENCED: f"UPDATE fencepost.resource SET mark = %(token)s WHERE {ROW} AND mark <= %(token)s RETURNING version",
}
LEDGER_COLUMNS = "run, lock, resource, seq, id, process, token, read, version"


def write_statement(condition: str) -> str:
    """The statement of a write that is accepted on this condition, besides."""
    return f"""
WITH accepted AS (
    UPDATE fencepost.resource SET seq = seq + 1, version = %(version)s, mark = COALESCE(%(token)s, mark)
    WHERE {ROW} {condition} RETURNING seq)
INSERT INTO fencepost.ledger ({LEDGER_COLUMNS})
SELECT %(run)s, %(lock)s, %(resource)s, seq, %(id)s, %(process)s, %(token)s, %(read)s, %(version)s FROM accepted
RETURNING seq"""


WRITE = {UNFENCED: write_statement(""), FENCED: write_statement("AND mark <= %(token)s")}
Statements = tuple[Mapping[Resource, str], Mapping[Resource, str]]


class ResourceError(Exception):
    """A statement that went wrong. `type` is `fail` when it certainly changed nothing, else `info`."""

    def __init__(self, type_: Literal["fail", "info"], text: str) -> None:
        self.type = type_
        super().__init__(text)


class Stale(ResourceError):
    """The fenced twin refused: it has seen a higher token."""

    def __init__(self, token: int | None) -> None:
        super().__init__("fail", f"stale token {token}: the resource has seen a higher one")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to write: its id, and the version that it would make. Both are its own in the whole trial.

    The version is no `read + 1`: that of a stale reader could pass for the right one.
    """

    id: int
    version: int


class Attempts:
    """Numbers a contender's attempts by the microsecond of the trial at which each is made: 1250417003 is contender 3's
    at 1.250417 s. A count from 1 would give some number twice when the contender is started again; and a number costs a
    reader of millions of writes eight bytes, where a name costs a hundred.
    """

    def __init__(self, process: int, epoch_ns: int) -> None:
        self._process, self._epoch = process, epoch_ns
        self._last = 0

    def next(self) -> Attempt:
        """A new one."""
        now = (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - self._epoch) // 1000
        self._last = max(now, self._last + 1)
        number = self._last * 1000 + self._process % 1000
        return Attempt(number, number)


class Twins:
    """One contender's connection to both ledgers of one lock. Not safe for two threads at once."""

    statements: Statements = (READ, WRITE)
    """What a read and a write are, by the twin."""
    schema = SCHEMA
    """What is made where it isn't there yet; other things that a resource keeps may follow (`workloads/mailing.py`)."""

    def __init__(self, config: Mapping[str, Any], lock: str, process: int) -> None:
        self._config, self._process = config, process
        self._row = {"run": config["run"], "lock": lock, "process": process}
        self._connection: Connection | None = None
        self.reconnects = -1  # the first connection is none

    def prepare(self, timeout_seconds: float) -> str | None:
        """Connect, waiting for a server that is still starting, and make this run's rows. None, or why it can't."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                connection = self._connect()
                with connection.cursor() as cursor:
                    cursor.execute(f"BEGIN; {SETUP_LOCK}; {self.schema}")
                    for resource in (FENCED, UNFENCED):
                        cursor.execute(
                            "INSERT INTO fencepost.resource (run, lock, resource) VALUES (%s, %s, %s) "
                            "ON CONFLICT DO NOTHING",
                            (self._row["run"], self._row["lock"], resource),
                        )
                    cursor.execute("COMMIT")
                return None
            except psycopg2.Error as error:
                self.close()
                if time.monotonic() > deadline:
                    return f"no usable PostgreSQL within {timeout_seconds:g} s: {error}"
            time.sleep(0.1)

    def _connect(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._config)
            self.reconnects += 1
        return self._connection

    def _one(self, sql: str, values: Mapping[str, Any]) -> int | None:
        """The number that a statement returns, None without a row. ResourceError says whether it can have happened."""
        row = self._row_of(sql, values)
        return None if row is None else int(row[0])

    def _row_of(self, sql: str, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The first row that a statement returns. ResourceError says whether it can have happened."""
        try:
            connection = self._connect()
        except psycopg2.Error as error:
            raise ResourceError("fail", f"no connection to the resource: {error}") from error
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, {**self._row, **values})
                return cursor.fetchone()
        except psycopg2.Error as error:
            # With an SQLSTATE it is the server's answer: the statement was rolled back. Without, nobody answered.
            broken = error.pgcode is None or connection.closed
            if connection.closed:
                self.close()
            raise ResourceError("info" if broken else "fail", str(error).strip()) from error

    def read(self, resource: Resource, token: int | None) -> int:
        """The version; the fenced twin raises its mark to the token, or refuses with `Stale`."""
        version = self._one(self.statements[0][resource], {"resource": resource, "token": token})
        if version is None:
            raise Stale(token)
        return version

    def write(self, resource: Resource, token: int | None, read: int, attempt: Attempt) -> int:
        """Write, and return `seq`; `Stale` when the fenced twin refused."""
        values = {"resource": resource, "token": token, "read": read, "id": attempt.id, "version": attempt.version}
        seq = self._one(self.statements[1][resource], values)
        if seq is None:
            raise Stale(token)
        return seq

    def close(self) -> None:
        """Drop the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def connect(config: Mapping[str, Any]) -> Connection:
    """A connection whose every wait ends: the server stops long statements, the kernel gives up on a silent peer."""
    connection = psycopg2.connect(
        host=config["host"],
        port=int(config["port"]),
        user=config["user"],
        password=config["password"],
        dbname=config["dbname"],
        connect_timeout=2,
        keepalives_idle=1,
        keepalives_interval=1,
        tcp_user_timeout=round(STATEMENT_SECONDS * 1000),
        options=f"-c statement_timeout={round(STATEMENT_SECONDS * 1000)}",
    )
    connection.autocommit = True
    return connection
