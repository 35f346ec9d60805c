"""What the statement job came to, as the mail room itself has it: who got two, what was refused, what was swallowed.

The harness asks with `TALLY` on the resource's own node, once nobody writes any more; no contender is asked. Standard
library only, and no database: the harness imports it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WORLDS = ("unfenced", "fenced", "idempotent")

MOST_LISTED = 1000
"""Customers with two statements that are listed by name, for each world; all are counted."""

# For psql: one JSON document, from one snapshot.
TALLY = f"""
WITH doubled AS (
    SELECT world, month, customer, count(*) AS times, json_agg(id ORDER BY at) AS ids
    FROM fencepost.statement WHERE run = :'run' GROUP BY lock, world, month, customer HAVING count(*) > 1),
batches AS (
    SELECT world, count(*) FILTER (WHERE NOT refused) AS taken, count(*) FILTER (WHERE refused) AS refused,
        coalesce(sum(taken), 0) AS statements, coalesce(max(month), 0) AS months,
        coalesce(sum(offered - taken) FILTER (WHERE NOT refused), 0) AS swallowed
    FROM fencepost.batch WHERE run = :'run' GROUP BY world)
SELECT coalesce(json_object_agg(world, json_build_object(
    'batches', batches.taken, 'refused', batches.refused, 'statements', batches.statements,
    'swallowed', batches.swallowed, 'months', batches.months,
    'twice', (SELECT count(*) FROM doubled WHERE doubled.world = batches.world),
    'doubled', coalesce((
        SELECT json_agg(json_build_object('month', month, 'customer', customer, 'times', times, 'ids', ids))
        FROM (
            SELECT * FROM doubled WHERE doubled.world = batches.world
            ORDER BY month, customer LIMIT {MOST_LISTED}) AS few
    ), '[]'))), '{{}}')
FROM batches;
"""


@dataclass(frozen=True)
class Counted:
    """One world's account. A customer counts once for each month in which he got more than one statement."""

    batches: int
    """Taken."""
    refused: int
    statements: int
    swallowed: int
    """Statements that were not filed, because there was one for that customer and month."""
    months: int
    """The last month that was begun; 0 when nothing was sent."""
    twice: int
    """How many customers got two statements, or more, for one month."""
    doubled: Sequence[tuple[int, int]]
    """Those, by month and number: the first `MOST_LISTED`."""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Counted:
        """From one world's object in the answer to `TALLY`. ValueError when it isn't one."""
        try:
            counts = {name: said[name] for name in ("batches", "refused", "statements", "swallowed", "months", "twice")}
            doubled = [(each["month"], each["customer"]) for each in said["doubled"]]
        except (KeyError, TypeError) as error:
            raise ValueError(f"no account of a mail room: {error!r}") from error
        for name, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise ValueError(f"no account of a mail room: {name} is {count!r}")
        return cls(**counts, doubled=doubled)

    def whom(self, most: int = 6) -> str:
        """Who got two, in a few words: "181-200", or with the month where there was more than one."""
        parts = []
        for month in dict.fromkeys(month for month, _ in self.doubled):
            numbers = ranges(customer for each, customer in self.doubled if each == month)
            spans = numbers.split(", ")
            shown = ", ".join(spans[:most]) + (", …" if len(spans) > most else "")
            parts.append(shown if self.months <= 1 else f"{shown} in month {month}")
        return "; ".join(parts[:most]) + ("; …" if len(parts) > most else "")


def read(said: Mapping[str, Any]) -> dict[str, Counted]:
    """World -> its account, from the answer to `TALLY`; a world to which nothing was sent is left out."""
    return {world: Counted.of(said[world]) for world in WORLDS if world in said}


def told(said: Mapping[str, Any]) -> list[str]:
    """The answer to `TALLY` in a sentence for each world."""
    lines = []
    for world, counted in read(said).items():
        if counted.twice:
            came = f"{count(counted.twice, 'customer')} got two statements ({counted.whom()})"
        else:
            came = f"of {count(counted.statements, 'statement')} none was a customer's second"
        parts = [came]
        if counted.refused:
            parts.append(f"{count(counted.refused, 'batch', 'batches')} refused")
        if counted.swallowed:
            parts.append(f"{count(counted.swallowed, 'statement')} swallowed")
        lines.append(f"{world}: {'; '.join(parts)}")
    return lines


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 batch`, `3 batches`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as people write them.

    >>> ranges([3, 1, 2, 7, 9, 8])
    '1-3, 7-9'
    """
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def numbers(text: str) -> list[int]:
    """What `ranges` wrote, as numbers again. ValueError when it didn't.

    >>> numbers("1-3, 7")
    [1, 2, 3, 7]
    """
    found: list[int] = []
    for span in text.split(", "):
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
