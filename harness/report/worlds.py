"""What became of one job in three worlds, for the page and the terminal: a number, a sentence, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads import tally

WHY = {
    "unfenced": "The mail room takes whatever it is given.",
    "fenced": "It refuses a batch whose token is older than one that it has seen.",
    "idempotent": "It files by customer and month, and takes one of each.",
}


@dataclass(frozen=True)
class Card:
    """One world. `twice` is how many customers got two statements; `told` what was done about it, or to whom."""

    world: str
    why: str
    twice: int
    told: str

    @property
    def headline(self) -> str:
        """`20 customers got two statements`."""
        return (
            f"{tally.count(self.twice, 'customer')} got two statements" if self.twice else "nobody got two statements"
        )


def cards(counted: Mapping[str, Any]) -> list[Card]:
    """A card for each world, from the answer to `tally.TALLY`. ValueError when it isn't one."""
    found = []
    for world, told in tally.read(counted).items():
        if told.twice:
            what = f"customers {told.whom()}"
        elif world == "fenced":
            what = f"{tally.count(told.refused, 'batch', 'batches')} refused"
        else:
            what = f"{tally.count(told.swallowed, 'statement')} swallowed"
        found.append(Card(world, WHY[world], told.twice, what))
    return found


def otherwise(counted: Mapping[str, Any]) -> list[str]:
    """What did not come out as the story goes, a sentence each; empty when all of it did."""
    told = tally.read(counted)
    missing = [world for world in tally.WORLDS if world not in told]
    if missing:
        return [f"nothing was sent to the {' and the '.join(missing)} world"]
    found = []
    if not told["unfenced"].twice:
        found.append("unfenced: no customer got two statements: the pause did not hit a batch on its way")
    for world in ("fenced", "idempotent"):
        if told[world].twice:
            found.append(
                f"{world}: {tally.count(told[world].twice, 'customer')} got two statements ({told[world].whom()})"
            )
    if not told["fenced"].refused:
        found.append("fenced: no batch was refused")
    if not told["idempotent"].swallowed:
        found.append("idempotent: no statement was swallowed")
    return found
