"""The page of a matrix: systems by faults, each cell its verdicts; what was found, in words; the systems compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from checkers import RULES
from checkers.findings import gravest
from harness.errors import ConfigError
from harness.expectations import surprising
from harness.history import read
from harness.report import figures, files, page, repeats, stored, words
from harness.report.repeats import link_to
from harness.runs import spelled
from harness.runs.measure import MEASURES

Measures = Mapping[str, float | None]


@dataclass(frozen=True)
class Badge:
    """One verdict of one cell. `flag` marks the one that was not expected."""

    name: str
    value: str
    flag: bool
    title: str
    share: str = ""
    """`3/20`: in how many of several runs it was false (or unknown, where it never was false)."""


@dataclass(frozen=True)
class CellView:
    """One trial in the grid."""

    link: str | None
    """Relative link to the trial's report; None when there is none."""
    cell: files.Cell
    words: str
    tone: str
    note: str
    badges: Sequence[Badge]
    title: str
    """Why it ended as it did, and why that was expected."""
    runs: str
    """`3 of 20` for the word, where the cell has several runs; else nothing."""
    parameters: str
    """The parameters in which cells of this matrix differ."""
    beside: str | None
    """What the word leaves out: verdicts that are false and neither required nor expected."""
    because: str | None
    """Why it came out as was expected, where that is anything but all true."""


@dataclass(frozen=True)
class Trial:
    """One cell with its stored verdicts and the figures that are compared (NaN where unknown)."""

    listed: files.MatrixCell
    checked: files.Checked | None
    other_rules: bool
    """Whether its outcome rests on verdicts of other rules than today's; the verdicts here never do."""
    measures: Measures


COLUMNS = {
    "handover": "median hand-over",
    "handover_most": "longest hand-over",
    "availability": "availability",
    "gap": "longest gap",
    "unsafe": "unsafe time",
    "lease": "broken leases",
    "stale": "harm, unfenced",
    "fenced": "harm, fenced",
}
"""The figures of a trial."""


def write(folder: Path, out: Path | None = None) -> Path:
    """Writes a matrix's page; see `harness.report.write_matrix`."""
    matrix = _with_clients(folder, files.read_matrix(folder))
    target = out or folder / files.INDEX
    trials = [_trial(folder, matrix, number) for number in range(len(matrix.cells))]
    table = _table(trials)
    planned = matrix.planned or []
    cells = [*planned, *(trial.listed.cell for trial in trials), *(left.cell for left in matrix.left_out)]
    systems = list(dict.fromkeys(cell.system for cell in cells))
    faults = list(dict.fromkeys(cell.fault for cell in cells))
    differing = _differing(matrix)
    outcomes = Counter(_outcome(trial) for trial in trials)
    context = {
        "matrix": matrix,
        "name": matrix.id or folder.name,
        "systems": systems,
        "versions": _versions(matrix.cells),
        "faults": faults,
        "grid": _grid(folder, target, trials, differing),
        "not_run": _not_run(matrix),
        "left_out": {(out.cell.system, out.cell.fault): out.rule for out in matrix.left_out},
        "counts": [(*shown, number) for shown, number in outcomes.most_common()],
        "anew": _anew(trials),
        "short": _short(trials, differing),
        "surprises": _surprises(folder, target, trials),
        "compared": _compared(table, systems),
        "pivots": _pivots(table, systems, faults),
        "repeats": repeats.rows(folder, target, matrix.cells, differing),
        "flakes": repeats.flakes(matrix.cells),
    }
    return page.write(target, page.render("matrix.html.j2", **context), [folder])


def _outcome(trial: Trial) -> tuple[str, str]:
    """An outcome's words and tone; of one that rests on verdicts of other rules they say that."""
    shown = words.outcome(trial.listed.outcome.word)
    return words.by_other_rules(shown[0]) if trial.other_rules else shown


def _anew(trials: Sequence[Trial]) -> str | None:
    """A sentence on the cells whose verdicts are not those that they ended with."""
    number = sum(trial.other_rules for trial in trials)
    if not number:
        return None
    ended = f"{words.count(number, 'cell')} of {len(trials)} ended under other rules than today's (rules {RULES})."
    return f"{ended} Their verdicts were judged anew for this page; their outcomes are those of then."


def _trial(folder: Path, matrix: files.Matrix, number: int) -> Trial:
    """A cell with its verdicts, all of one making: as they are stored, or judged anew where other rules made them.

    Raises ConfigError where there are such verdicts and no history to judge.
    """
    listed = matrix.cells[number]
    home = folder / listed.trial
    history = files.history(home)
    kept = stored.look(home, history)
    checked, other = kept.checked, kept.other_rules
    if kept.checked is None and listed.verdicts and matrix.rules != RULES:
        other = True
    if listed.repeats is not None:
        return _repeated(folder, matrix, number, kept)
    if other:
        if not history.is_file():
            made = stored.by_rules(checked.rules if checked else matrix.rules)
            reason = f"was judged by {made}, today's are rules {RULES}, and there is no {history} to judge anew"
            raise ConfigError(folder / files.MATRIX, f"cells[{number + 1}]", reason)
        checked = stored.judged(read(history))
    if checked is not None and checked.error is None and (other or matrix.rules != RULES):
        listed = msgspec.structs.replace(listed, verdicts={name: part.valid for name, part in checked.verdicts.items()})
    parts = checked.verdicts if checked else {}

    def count(*names: str) -> float | None:
        known = [parts[name].count for name in names if name in parts]
        return float(sum(known)) if known else None

    handover = parts["progress"].stats.get("handover_seconds") if "progress" in parts else None
    handover = handover if isinstance(handover, Mapping) else {}
    return Trial(
        listed,
        checked,
        other,
        {
            "handover": _real(handover.get("median")),
            "handover_most": _real(handover.get("max")),
            "availability": figures.number(parts.get("progress"), "availability"),
            "gap": figures.number(parts.get("progress"), "longest_gap"),
            "unsafe": figures.number(parts.get("exclusion"), "unsafe_seconds"),
            "lease": count("lease"),
            "stale": count("damage"),
            "fenced": count("fenced"),
            "grants": None if listed.outcome.grants is None else float(listed.outcome.grants),
        },
    )


def _repeated(folder: Path, matrix: files.Matrix, number: int, kept: stored.Stored) -> Trial:
    """A cell of several runs: what they say together, beside the verdicts of the one that stands for them.

    Raises ConfigError where other rules than today's made what they say: hundreds of runs aren't judged for a page.
    """
    listed = matrix.cells[number]
    assert listed.repeats is not None
    if matrix.rules != RULES:
        reason = f"its runs were judged by {stored.by_rules(matrix.rules)}, today's are rules {RULES}"
        raise ConfigError(folder / files.MATRIX, f"cells[{number + 1}]", reason)
    medians: dict[str, float | None] = {**dict.fromkeys(MEASURES), **listed.repeats.measures}
    grants = listed.outcome.grants
    return Trial(
        listed,
        None if kept.other_rules else kept.checked,
        False,
        {**medians, "grants": None if grants is None else float(grants)},
    )


def _real(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _table(trials: Sequence[Trial]) -> pd.DataFrame:
    """One row for each trial: `system fault`, and its figures as floats (NaN where unknown)."""
    rows = [
        {"system": trial.listed.cell.system, "fault": trial.listed.cell.fault, **trial.measures} for trial in trials
    ]
    columns = ["system", "fault", *COLUMNS, "grants"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype(dict.fromkeys(columns[2:], "float64"))


# -- the grid


def _with_clients(folder: Path, matrix: files.Matrix) -> files.Matrix:
    """The matrix with what its contenders asked with as a parameter of each cell, where their hellos tell."""
    cells = []
    for each in matrix.cells:
        trial = files.read_trial(folder / each.trial)
        clients = {contender.client for contender in (trial.contenders if trial else {}).values()} - {None}
        if clients and "client" not in each.cell.parameters:
            told = {"client": words.listing(sorted(map(str, clients)))}
            cell = msgspec.structs.replace(each.cell, parameters={**each.cell.parameters, **told})
            each = msgspec.structs.replace(each, cell=cell)
        cells.append(each)
    return msgspec.structs.replace(matrix, cells=cells)


def _differing(matrix: files.Matrix) -> list[str]:
    """The parameters in which cells of the same system and fault differ. Seeds mostly do, drawn as they are: they are
    told where cells differ in nothing else."""
    seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in matrix.cells:
        seen.setdefault((each.cell.system, each.cell.fault), []).append(
            {"workload": each.cell.workload, **each.cell.parameters}
        )
    names: dict[str, None] = {}
    for parameters in seen.values():
        for name in dict.fromkeys(key for each in parameters for key in each if key != "seed"):
            if any(each.get(name) != parameters[0].get(name) for each in parameters):
                names[name] = None
        told = [repr([(name, each.get(name)) for name in names]) for each in parameters]
        if len(set(told)) < len(told):
            names["seed"] = None
    return list(names)


def _versions(cells: Sequence[files.MatrixCell]) -> dict[str, str]:
    """System -> the versions of it that ran, where its name doesn't say them already."""
    ran: dict[str, dict[str, None]] = {}
    for each in cells:
        if each.version is not None and not each.cell.system.endswith(f"@{each.version}"):
            ran.setdefault(each.cell.system, {})[each.version] = None
    return {system: ", ".join(sorted(found)) for system, found in ran.items()}


def _not_run(matrix: files.Matrix) -> dict[tuple[str, str], int]:
    """How many of the planned cells of each system and fault did not run."""
    left = Counter((cell.system, cell.fault) for cell in matrix.planned or [])
    left.subtract(Counter((each.cell.system, each.cell.fault) for each in matrix.cells))
    return {place: number for place, number in left.items() if number > 0}


def _grid(
    folder: Path, target: Path, trials: Sequence[Trial], differing: Sequence[str]
) -> dict[tuple[str, str], list[CellView]]:
    grid: dict[tuple[str, str], list[CellView]] = {}
    for trial in trials:
        cell = trial.listed.cell
        grid.setdefault((cell.system, cell.fault), []).append(_view(folder, target, trial, differing))
    return grid


def _note(grants: int | None, faults: Mapping[str, Any] | None) -> list[str]:
    came_to = words.faults(faults)
    return [*([] if grants is None else [words.count(grants, "grant")]), *([came_to] if came_to else [])]


def _view(folder: Path, target: Path, trial: Trial, differing: Sequence[str]) -> CellView:
    listed = trial.listed
    outcome, tone = _outcome(trial)
    parameters = repeats.parameters(listed.cell, differing)
    grants = listed.outcome.grants
    several = listed.repeats
    return CellView(
        link=link_to(folder, target, listed.trial),
        cell=listed.cell,
        words=outcome,
        tone="good" if tone == "good" else tone,
        note=words.count(several.runs, "run") if several else ", ".join(_note(grants, listed.outcome.faults)),
        badges=[_badge(trial, name) for name in words.in_order(listed.verdicts)],
        title="\n".join([*listed.outcome.reasons, *words.fault_notes(listed.outcome.faults), *_expected(listed)]),
        runs=f"{several.words[listed.outcome.word].k} of {several.runs}" if several else "",
        parameters=parameters,
        beside=figures.left_out(trial.checked, listed.expect) if trial.checked and outcome == "as expected" else None,
        because=listed.expect_reason if outcome == "as expected" else None,
    )


def _expected(listed: files.MatrixCell) -> list[str]:
    """`expected: lease false (expires by the wall clock)`, where anything but true is expected."""
    wanted = [f"{name} {words.truth(value) if value != 'any' else 'any'}" for name, value in listed.expect.items()]
    because = f" ({listed.expect_reason})" if listed.expect_reason else ""
    return [f"expected: {', '.join(wanted)}{because}"] if wanted else []


def _badge(trial: Trial, name: str) -> Badge:
    value = words.truth(trial.listed.verdicts[name])
    required = trial.checked.required if trial.checked else []
    expected = trial.listed.expect.get(name)
    part = trial.checked.verdicts.get(name) if trial.checked else None
    said = words.statement(name, value, part.stats if part else None)
    title = f"{name}: {value}. {said}" if words.question(name) else f"{name}: {said}"
    if part is not None and part.findings:
        title += "\n" + part.findings[gravest(finding.kind for finding in part.findings)].text
    if expected is not None and expected != "any":
        wanted = words.truth(expected)
        title += f"\nexpected: {wanted}"
        if trial.listed.expect_reason and wanted != "true":
            title += f" ({trial.listed.expect_reason})"
    flag = surprising(name, trial.listed.verdicts[name], required, trial.listed.expect)
    several = trial.listed.repeats
    if several is None or name not in several.verdicts:
        return Badge(name, value, flag, title)
    found = several.verdicts[name]
    rate = found.false if found.false.k else found.unknown
    if value != "true":
        title = f"{name}: {value} in {spelled.rate(rate)} runs\n{title}"
    missed = expected is False and found.false.k < found.false.n
    return Badge(name, value, flag or missed, title, f"{rate.k}/{rate.n}" if rate.k else "")


# -- in words


def _short(trials: Sequence[Trial], differing: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """What was violated, by whom, under what: (tone, head, a sentence for each system), the gravest first."""
    said: list[tuple[str, str, list[str]]] = []
    told: set[str] = set()
    names = _names(trials, differing)
    for name, head, tone in (
        ("lease", "Promises broken", "bad"),
        ("fencing", "Tokens out of order", "bad"),
        ("fenced", "Harm in spite of fencing", "bad"),
        ("damage", "Harm without fencing", "odd"),
        ("exclusion", "Two believers", "odd"),
        ("progress", "Stuck", "bad"),
        ("faults", "Faults not proven", "odd"),
    ):
        hit = [trial for trial in trials if trial.listed.verdicts.get(name) is False]
        if hit:
            said.append((tone, head, _who_and_when(name, hit, names, told)))
    clean = []
    for name, text in (
        ("lease", "every lease promise was kept"),
        ("fencing", "tokens rose everywhere"),
        ("fenced", "the resource that checks tokens was never harmed"),
        ("damage", "the unfenced twin was never harmed"),
        ("exclusion", "never did two contenders believe at once"),
    ):
        values = [trial.listed.verdicts[name] for trial in trials if name in trial.listed.verdicts]
        if values and all(value is True for value in values):
            clean.append(text)
    if clean:
        text = words.listing(clean) + "."
        said.append(("good", "Held in every cell", [text[0].upper() + text[1:]]))
    return said


def _names(trials: Sequence[Trial], differing: Sequence[str]) -> dict[str, str]:
    """What the cells of a system are called in a sentence, by their trials: by their fault, and where several have it
    by their client or whatever else they differ in."""
    cells = {trial.listed.trial: trial.listed.cell for trial in trials}
    several = Counter((cell.system, cell.fault) for cell in cells.values())
    names = {}
    for trial, cell in cells.items():
        by = ["client"] if "client" in differing and "client" in cell.parameters else differing
        more = repeats.parameters(cell, by) if several[cell.system, cell.fault] > 1 else ""
        names[trial] = cell.fault + (f", {more}" if more else "")
    return names


def _who_and_when(name: str, hit: Sequence[Trial], names: Mapping[str, str], told: set[str]) -> list[str]:
    """`redis under clock-leader (3 early-grant).`, `etcd under freeze-holder (2.1 s; blame …).`, a line a system. Why a
    cell was expected to come out so is said once: `told` has those of which it was."""
    by_system: dict[str, list[str]] = {}
    for trial in hit:
        cell = trial.listed.cell
        more = [_as_expected(trial.listed, told)] if trial.listed.expect.get(name) is False else []
        part = trial.checked.verdicts.get(name) if trial.checked else None
        if trial.listed.repeats is not None:
            more.append(f"in {spelled.rate(trial.listed.repeats.verdicts[name].false)} runs")
        elif part is not None:
            if name == "exclusion":
                unsafe = trial.measures["unsafe"]
                if unsafe is not None:
                    more.append(words.seconds(unsafe))
                blame = Counter(finding.blame for finding in part.findings if finding.blame).most_common(1)
                if blame:
                    more.append(f"blame {words.BLAME.get(str(blame[0][0]), str(blame[0][0]))}")
            else:
                more += [f"{number} {kind}" for kind, number in Counter(f.kind for f in part.findings).most_common()]
        called = names[trial.listed.trial]
        by_system.setdefault(cell.system, []).append(called + (f" ({'; '.join(more)})" if more else ""))
    return [f"{system} under {words.listing(faults)}." for system, faults in by_system.items()]


def _as_expected(listed: files.MatrixCell, told: set[str]) -> str:
    if not listed.expect_reason or listed.trial in told:
        return "as expected"
    told.add(listed.trial)
    return f"as expected: {listed.expect_reason}"


def _surprises(folder: Path, target: Path, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """The cells that didn't end as expected, with the reasons."""
    return [
        {
            "cell": trial.listed.cell,
            "link": link_to(folder, target, trial.listed.trial),
            "words": " ".join([_outcome(trial)[0], *_share(trial)]),
            "tone": _outcome(trial)[1],
            "reasons": trial.listed.outcome.reasons,
        }
        for trial in trials
        if trial.listed.outcome.word != "as-expected"
    ]


def _share(trial: Trial) -> list[str]:
    """In how many runs of several it ended so."""
    several, word = trial.listed.repeats, trial.listed.outcome.word
    return [f"in {several.words[word].k} of {several.runs} runs"] if several else []


# -- compared


def _compared(table: pd.DataFrame, systems: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each system; the bars are shares of the largest value of their column."""
    if table.empty:
        return []
    calm = table[table["fault"] == "none"].groupby("system")
    every = table.groupby("system")
    columns = {
        "cells": every.size().astype("float64"),
        "grants": every["grants"].sum(min_count=1),
        "handover": calm["handover"].median(),
        "handover_most": every["handover_most"].max(),
        "available": calm["availability"].mean(),
        "available_least": every["availability"].min(),
        "gap": every["gap"].max(),
        "unsafe": every["unsafe"].sum(min_count=1),
        "lease": every["lease"].sum(min_count=1),
        "stale": every["stale"].sum(min_count=1),
        "fenced": every["fenced"].sum(min_count=1),
    }
    frame = pd.DataFrame(columns).reindex([system for system in systems if system in set(table["system"])])
    shares = frame.div(frame.max().where(frame.max() > 0)).fillna(0.0)
    rows = []
    for system in frame.index:
        values = frame.loc[system].to_dict()
        rows.append({"system": system, "share": shares.loc[system].to_dict(), **values})
    return rows


def _pivots(
    table: pd.DataFrame, systems: Sequence[str], faults: Sequence[str]
) -> list[tuple[str, str, list[tuple[str, list[tuple[str, float]]]]]]:
    """Tables of one figure, faults by systems: (title, tone, [(fault, [(text, share of the largest)])])."""
    made = []
    for name, title, tone, spell in (
        ("handover", "Median hand-over", "", words.seconds),
        ("handover_most", "Longest hand-over", "", words.seconds),
        ("availability", "Availability", "plain", words.share),
        ("unsafe", "Unsafe time", "hurt", words.seconds),
    ):
        pivot = table.pivot_table(
            index="fault", columns="system", values=name, aggfunc="mean", observed=True, dropna=False
        )
        pivot = pivot.reindex(index=list(faults), columns=list(systems))
        most = pivot.max().max()
        if not isinstance(most, float) or math.isnan(most):
            continue
        rows = []
        for fault in faults:
            cells = []
            for system in systems:
                value = float(pivot.loc[fault].to_dict()[system])
                cells.append((spell(value), 0.0 if math.isnan(value) or not most else value / most))
            rows.append((fault, cells))
        made.append((title, tone, rows))
    return made
