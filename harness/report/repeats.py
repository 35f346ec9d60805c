"""A matrix's page, as far as cells have several runs: what was seen in how many, what it took, how often they flake."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.report import files, words
from harness.runs import spelled
from harness.runs.pooled import Rate


@dataclass(frozen=True)
class Row:
    """One cell of several runs."""

    cell: files.Cell
    parameters: str
    runs: str
    tone: str
    outcomes: str
    seen: Sequence[str]
    faults: str
    first: str
    links: Sequence[tuple[str, str]]
    """Words and relative links of the runs that tell most, as far as they are still there."""


@dataclass(frozen=True)
class Flakes:
    """How often runs came to nothing that anybody can use, over all cells."""

    runs: int
    counts: Sequence[tuple[str, int]]
    cells: Sequence[tuple[str, str]]
    """The cells in which that happened, and how often what did."""


def rows(folder: Path, target: Path, cells: Sequence[files.MatrixCell], differing: Sequence[str]) -> list[Row]:
    """A row for each cell that has several runs."""
    return [_row(folder, target, cell, differing) for cell in cells if cell.repeats is not None]


def _row(folder: Path, target: Path, listed: files.MatrixCell, differing: Sequence[str]) -> Row:
    pooled = listed.repeats
    assert pooled is not None
    seen = spelled.seen(pooled)
    telling = [
        (f"the first with a finding: {pooled.telling.get('first')}", pooled.telling.get("first")),
        (f"most unsafe time: {pooled.telling.get('worst')}", pooled.telling.get("worst")),
    ]
    if not pooled.telling:
        telling = [(listed.trial, listed.trial)]
    return Row(
        cell=listed.cell,
        parameters=parameters(listed.cell, differing),
        runs=spelled.runs(pooled),
        tone=words.outcome(listed.outcome.word)[1],
        outcomes=spelled.outcomes(pooled),
        seen=spelled.shown(pooled),
        faults=spelled.faults(pooled),
        first=f"{seen[0]}: {spelled.to_first(seen[1])}" if seen else "",
        links=[(text, link) for text, name in telling if name and (link := link_to(folder, target, name))],
    )


def flakes(cells: Sequence[files.MatrixCell]) -> Flakes | None:
    """Over all cells that have several runs; None where none has."""
    several = [(cell, cell.repeats) for cell in cells if cell.repeats is not None]
    if not several:
        return None

    def odd(repeats: Any) -> dict[str, int]:
        none = Rate(k=0, n=0)
        counts = {word: repeats.words.get(word, none).k for word in ("inconclusive", "harness-error", "unknown")}
        return {**counts, "wrongly red": repeats.wrongly_red.k}

    total: dict[str, int] = {}
    where = []
    for cell, repeats in several:
        counts = odd(repeats)
        for word, count in counts.items():
            total[word] = total.get(word, 0) + count
        happened = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        if happened:
            where.append((f"{cell.cell.system} × {cell.cell.fault}", f"{happened} of {repeats.runs}"))
    return Flakes(sum(repeats.runs for _, repeats in several), list(total.items()), where)


def parameters(cell: files.Cell, differing: Sequence[str]) -> str:
    """The parameters in which cells of the matrix differ: `naive, ttl 3.0`."""
    values = {"workload": cell.workload, **cell.parameters}
    return ", ".join(_parameter(name, values[name]) for name in differing if name in values)


def _parameter(name: str, value: Any) -> str:
    """`naive`, `ttl 3.0`; of a table (`fault_options.offset`) its key."""
    if name == "holder" and isinstance(value, str):
        return value
    if name == "guarded" and isinstance(value, bool):  # as an earlier version wrote it
        return "guarded" if value else "naive"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name.rpartition('.')[2]} {text}"


def link_to(folder: Path, target: Path, trial: str) -> str | None:
    """The link from the page to a trial's report; None where there is none."""
    path = folder / trial / files.REPORT
    if not path.is_file():
        return None
    try:
        relative = path.resolve().relative_to(target.parent.resolve())
    except ValueError:
        return path.resolve().as_uri()
    return quote(os.fsencode(relative.as_posix()))
