"""Resources that are WRONG on purpose: the workload `lock`, whose fenced twin doesn't fence as it should.

They are workloads of their own, by names that say so, and no setting of the right one: nobody gets one by accident.
Which statements are wrong is in each class; all else is the right resource's (`workloads/resource.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workloads.lock import LockWorkload

if TYPE_CHECKING:
    from workloads.resource import Twins


class OffByOne(LockWorkload):
    """It refuses a token that is lower than its mark less one: so the holder before the last one still gets through."""

    name = "zoo-fence-off-by-one"
    summary = "WRONG on purpose: as lock, on a resource whose fence lets the token before the newest through, too."

    def _kind_of_twins(self) -> type[Twins]:
        return off_by_one()


class Unraised(LockWorkload):
    """It looks at the token of a read and doesn't remember it: between a new holder's read and its write the old one's
    write slips in, and is lost.
    """

    name = "zoo-fence-unraised"
    summary = "WRONG on purpose: as lock, on a resource whose fence doesn't raise its mark when a new holder reads."

    def _kind_of_twins(self) -> type[Twins]:
        return unraised()


def off_by_one() -> type[Twins]:
    """The twins of the first one."""
    from workloads.resource import FENCED, READ, ROW, WRITE, Twins, write_statement

    passes = "mark - 1 <= %(token)s"
    read = f"UPDATE fencepost.resource SET mark = GREATEST(mark, %(token)s) WHERE {ROW} AND {passes} RETURNING version"

    class Wrong(Twins):
        statements = ({**READ, FENCED: read}, {**WRITE, FENCED: write_statement(f"AND {passes}")})

    return Wrong


def unraised() -> type[Twins]:
    """The twins of the second one."""
    from workloads.resource import FENCED, READ, ROW, Twins

    class Wrong(Twins):
        statements = (
            {**READ, FENCED: f"SELECT version FROM fencepost.resource WHERE {ROW} AND mark <= %(token)s"},
            Twins.statements[1],
        )

    return Wrong
