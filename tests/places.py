"""The written list of tests that don't run everywhere: the table in docs/tests.md, under "Not everywhere"."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).parent.parent / "docs" / "tests.md"


class Entry(NamedTuple):
    """`tests` is a file, or one test in it; `only` is where alone it runs; `reason` is why."""

    tests: str
    only: str
    reason: str


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All of them."""
    table = DOCUMENT.read_text().partition("\n## Not everywhere\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return tuple(Entry(tests.strip("`"), only, reason) for tests, only, reason in rows[2:])


def bare(nodeid: str) -> str:
    """A test's name without its parameters and without the group that pytest-xdist has put it in."""
    return nodeid.partition("@")[0].partition("[")[0]


def listed(nodeid: str, only: str | None = None) -> bool:
    """Whether a test, or its file, is in the list; with `only` for that place."""
    name = bare(nodeid)
    return any(each.tests in (name, name.partition("::")[0]) and only in (None, each.only) for each in entries())
