"""The mail room of the workload `statements`: three worlds in one PostgreSQL, which take the batches of one job.

`unfenced` takes whatever it is given. `fenced` refuses a batch whose token is lower than one that it has seen. Both
are the twins of `workloads/resource.py`: a batch is one write, numbered and kept in their ledger. `idempotent` knows of
no token; it files each statement by customer and month, and what is filed already it swallows (a unique key, and ON
CONFLICT DO NOTHING).

What it keeps besides the ledger is its own account of what came to it, from which alone is counted what the job came to
(`workloads/tally.py`): a row for each statement that it took, and one for each batch that it was offered. Both are
written by the very command that takes the batch, or refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from workloads.resource import FENCED, LEDGER_COLUMNS, ROW, SCHEMA, Attempt, Stale, Twins

World = Literal["unfenced", "fenced", "idempotent"]
IDEMPOTENT: World = "idempotent"

MAILING_SCHEMA = f"""
{SCHEMA}
CREATE TABLE IF NOT EXISTS fencepost.statement (
    run text, lock text, world text, month int, customer int, id bigint NOT NULL, process int,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX IF NOT EXISTS statement_of ON fencepost.statement (run, lock, world, month, customer);
CREATE UNIQUE INDEX IF NOT EXISTS one_statement ON fencepost.statement (run, lock, month, customer)
    WHERE world = 'idempotent';
CREATE TABLE IF NOT EXISTS fencepost.batch (
    run text, lock text, world text, id bigint NOT NULL, process int, token bigint, month int,
    offered int, taken int, refused bool,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
"""

# One statement has one snapshot: which month it is, who has none in it yet, and the version, are of one instant.
# A month ends once all have one, and is never begun before.
LOOK = """
WITH sent AS (
    SELECT month, count(DISTINCT customer) AS customers FROM fencepost.statement
    WHERE run = %(run)s AND lock = %(lock)s AND world = %(world)s GROUP BY month),
last AS (SELECT coalesce(max(month), 1) AS month FROM sent),
now AS (
    SELECT last.month + CASE WHEN sent.customers >= %(customers)s THEN 1 ELSE 0 END AS month
    FROM last LEFT JOIN sent ON sent.month = last.month)
SELECT
    now.month,
    (SELECT version FROM fencepost.resource WHERE run = %(run)s AND lock = %(lock)s AND resource = %(world)s),
    ARRAY(
        SELECT customer FROM generate_series(1, %(customers)s) AS customer
        WHERE NOT EXISTS (
            SELECT FROM fencepost.statement AS s
            WHERE s.run = %(run)s AND s.lock = %(lock)s AND s.world = %(world)s
                AND s.month = now.month AND s.customer = customer.customer)
        ORDER BY customer LIMIT %(batch)s)
FROM now"""

BATCH_COLUMNS = "run, lock, world, id, process, token, month, offered, taken, refused"
STATEMENT_COLUMNS = "run, lock, world, month, customer, id, process"

# As with the twins a read raises the mark, else the last batch of the holder before could slip in behind it. A look
# that is refused is a batch that is refused.
RAISE_MARK = f"""
WITH raised AS (UPDATE fencepost.resource SET mark = %(token)s WHERE {ROW} AND mark <= %(token)s RETURNING 1),
batch AS (
    INSERT INTO fencepost.batch ({BATCH_COLUMNS})
    SELECT %(run)s, %(lock)s, %(resource)s, %(id)s, %(process)s, %(token)s, NULL, 0, 0, true
    WHERE NOT EXISTS (SELECT FROM raised))
SELECT count(*) FROM raised"""


def _send(condition: str) -> str:
    return f"""
WITH accepted AS (
    UPDATE fencepost.resource SET seq = seq + 1, version = %(version)s, mark = coalesce(%(token)s, mark)
    WHERE {ROW} {condition} RETURNING seq),
entry AS (
    INSERT INTO fencepost.ledger ({LEDGER_COLUMNS})
    SELECT %(run)s, %(lock)s, %(resource)s, seq, %(id)s, %(process)s, %(token)s, %(read)s, %(version)s FROM accepted),
posted AS (
    INSERT INTO fencepost.statement ({STATEMENT_COLUMNS})
    SELECT %(run)s, %(lock)s, %(resource)s, %(month)s, customer, %(id)s, %(process)s
    FROM accepted, unnest(%(customers)s::int[]) AS customer RETURNING 1),
batch AS (
    INSERT INTO fencepost.batch ({BATCH_COLUMNS})
    SELECT %(run)s, %(lock)s, %(resource)s, %(id)s, %(process)s, %(token)s, %(month)s,
        cardinality(%(customers)s::int[]), (SELECT count(*) FROM posted), NOT EXISTS (SELECT FROM accepted))
SELECT seq FROM accepted"""


SEND = {"unfenced": _send(""), "fenced": _send("AND mark <= %(token)s")}

FILE = f"""
WITH posted AS (
    INSERT INTO fencepost.statement ({STATEMENT_COLUMNS})
    SELECT %(run)s, %(lock)s, 'idempotent', %(month)s, customer, %(id)s, %(process)s
    FROM unnest(%(customers)s::int[]) AS customer
    ON CONFLICT (run, lock, month, customer) WHERE world = 'idempotent' DO NOTHING RETURNING 1),
batch AS (
    INSERT INTO fencepost.batch ({BATCH_COLUMNS})
    SELECT %(run)s, %(lock)s, 'idempotent', %(id)s, %(process)s, %(token)s, %(month)s,
        cardinality(%(customers)s::int[]), (SELECT count(*) FROM posted), false)
SELECT count(*) FROM posted"""


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at one world showed: the month, and the next customers who have no statement in it yet.

    `version` is that of the twin; None in the idempotent world, which has none.
    """

    month: int
    version: int | None
    customers: Sequence[int]


class MailRoom(Twins):
    """One contender's connection to all three worlds. Not safe for two threads at once."""

    schema = MAILING_SCHEMA

    def look(self, world: World, token: int | None, *, customers: int, batch: int, attempt: Attempt) -> Look:
        """Who has none yet, of so many customers; at most a batch of them.

        The fenced world raises its mark to the token first, or refuses with `Stale`: whoever has a lower one can send
        nothing any more that was not there at this look.
        """
        if world == FENCED:
            values = {"resource": world, "token": token, "id": attempt.id}
            if not self._one(RAISE_MARK, values):
                raise Stale(token)
        row = self._row_of(LOOK, {"world": world, "customers": customers, "batch": batch})
        assert row is not None, "an aggregate has a row"
        month, version, missing = row
        return Look(month, version, missing)

    def send(self, world: World, token: int | None, look: Look, attempt: Attempt) -> int:
        """Send a batch to a twin, and return its `seq`; `Stale` when the fenced one refused."""
        seq = self._one(SEND[world], {**self._batch(token, look, attempt), "resource": world, "read": look.version})
        if seq is None:
            raise Stale(token)
        return seq

    def file(self, token: int | None, look: Look, attempt: Attempt) -> int:
        """Send a batch to the idempotent world; how many of it were taken, the others having one already."""
        taken = self._one(FILE, self._batch(token, look, attempt))
        assert taken is not None, "a count has a row"
        return taken

    def _batch(self, token: int | None, look: Look, attempt: Attempt) -> dict[str, Any]:
        return {
            "token": token,
            "month": look.month,
            "customers": list(look.customers),
            "id": attempt.id,
            "version": attempt.version,
        }
