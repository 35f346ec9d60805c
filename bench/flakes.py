"""How far a matrix can be relied on: for every cell, over all runs of one or several matrices, what came of them.

    python -m bench.flakes results/soak-1 results/soak-2

Prints a Markdown table: how many runs came to nothing (inconclusive, a harness error, unknown, wrongly red: an expected
violation that did not show), how many faults bit, what was seen in k of n runs with the 95 % interval, and how many
seconds and faults it takes to see it. Figures of folders add up; runs that were broken off count nowhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.runs import spelled
from harness.runs.gathered import Gathered, gather
from harness.runs.pooled import FAULTS, Pooled

FLAKES = ("inconclusive", "harness-error", "unknown")
HEAD = (
    "cell", "runs", *FLAKES, "wrongly red", "violation",
    *FAULTS, "seen (95 % interval)", "median s to it", "median faults to it",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m bench.flakes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of matrices")
    print("\n".join(table(gather(parser.parse_args().folders))))


def table(cells: Sequence[Gathered]) -> list[str]:
    """The lines of the table, the last two over all cells."""
    rows = [_row(cell) for cell in cells]
    numeric = range(1, len(HEAD) - 3)
    totals = ["all cells", *(str(sum(int(row[column]) for row in rows)) for column in numeric), "", "", ""]
    ruler = ["---", *("---:" for _ in numeric), "---", "---:", "---:"]
    return [_line(row) for row in (HEAD, ruler, *rows, totals)]


def _row(cell: Gathered) -> list[str]:
    found = cell.pooled
    return [
        cell.name,
        str(found.runs),
        *(str(_count(found, word)) for word in FLAKES),
        str(found.wrongly_red.k),
        str(_count(found, "violation")),
        *(str(found.faults.get(name, 0)) for name in FAULTS),
        "<br>".join(spelled.shown(found)) or "nothing",
        *_first(found),
    ]


def _count(found: Pooled, word: str) -> int:
    return found.words[word].k if word in found.words else 0


def _first(found: Pooled) -> tuple[str, str]:
    names = [name for name in found.first if name != "violation"]
    seconds = [
        f"{name} {first.median_seconds:.1f}"
        for name in names
        if (first := found.first[name]).median_seconds is not None
    ]
    return "<br>".join(seconds), "<br>".join(f"{name} {found.first[name].median_faults:g}" for name in names)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
