"""The runs of one or several matrices, put together cell by cell: what tables for documents are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from checkers import RULES
from harness import documents
from harness.errors import ConfigError, UsageError
from harness.runs import book, pooled
from harness.runs.book import Run
from harness.runs.measure import measure
from harness.runs.pooled import Pooled
from harness.runs.rule import Rule


@dataclass(frozen=True)
class Gathered:
    """One cell over all folders. Cells are the same where all that was asked for is, save the seed."""

    name: str
    """`redis × clock-leader offset=60, naive`; with a mark behind it where another cell has the same name."""
    runs: Sequence[Run]
    pooled: Pooled

    @property
    def place(self) -> tuple[str, str]:
        """System and fault."""
        return _place(self.runs[0])


def gather(folders: Sequence[Path]) -> list[Gathered]:
    """Every cell that has a run in any of these matrices, in the order in which they come.

    Raises ConfigError (file, key, reason) for a folder that is none of a matrix, or whose runs were judged by other
    rules than today's: verdicts of two rules are never added up. UsageError for a folder that is given twice.
    """
    places = [folder.resolve() for folder in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise UsageError(f"{folder} is given twice, and no run counts twice")
    series: dict[str, list[list[Run]]] = {}
    for folder in folders:
        for runs in pooled.by_cell(_runs(folder)).values():
            series.setdefault(runs[0].same or json.dumps(runs[0].place, sort_keys=True), []).append(runs)
    names = [_name(parts[0][0]) for parts in series.values()]
    return [
        Gathered(
            name if names.count(name) == 1 else f"{name} #{key[:4]}",
            [run for part in parts for run in part],
            pooled.pool(*parts),
        )
        for name, (key, parts) in zip(names, series.items(), strict=True)
    ]


def _runs(folder: Path) -> list[Run]:
    pages = book.read(folder)
    runs = pages.counted() if pages is not None else _of_old(folder)
    for run in runs:
        if run.rules != RULES:
            raise ConfigError(folder, run.trial, f"was judged by rules {run.rules}, today's are rules {RULES}")
    return runs


def _of_old(folder: Path) -> list[Run]:
    """The runs of a matrix without a book: one for each cell, as its matrix.json and the folders of its trials say."""
    path = folder / "matrix.json"
    try:
        matrix = documents.read_json(path)
    except FileNotFoundError:
        raise ConfigError(path, None, "no such file; a matrix is a folder that `fencepost matrix` wrote") from None
    try:
        return [_of_cell(folder, number, cell, matrix.get("rules")) for number, cell in enumerate(matrix["cells"])]
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise ConfigError(path, None, f"not the matrix.json of a matrix: {error}") from None


def _of_cell(folder: Path, number: int, cell: dict[str, Any], rules: int | None) -> Run:
    home = folder / cell["trial"]
    try:
        required = documents.read_json(home / "verdict.json").get("required") or []
    except FileNotFoundError:
        required = []
    return Run(
        cell=number,
        run=1,
        trial=cell["trial"],
        rule=Rule(runs=1),
        place=cell["cell"],
        outcome=cell["outcome"],
        verdicts=cell["verdicts"],
        required=required,
        expect=cell.get("expect") or {},
        rules=rules,
        figures=measure(home),
    )


def _place(run: Run) -> tuple[str, str]:
    return str(run.place.get("system")), str(run.place.get("fault"))


def _name(run: Run) -> str:
    system, fault = _place(run)
    parameters = run.place.get("parameters") or {}
    guarded = parameters.get("guarded")  # as an earlier version wrote it
    kind = parameters.get("holder") or (None if guarded is None else "guarded" if guarded else "naive")
    # Of a table, `fault_options.clocks`, its key alone, as `TrialConfig.fault_words` says it.
    told = [f" {key.rpartition('.')[2]}={value}" for key, value in parameters.items() if "." in key]
    return f"{system} × {fault}{''.join(told)}" + ("" if kind is None else f", {kind}")
