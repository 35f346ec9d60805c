"""What the runs of a cell say together: *k of n* for each word and verdict, with the interval; the first and the worst.

`pool` takes the runs of one cell, from one matrix or from several (each its own series, in the order of its runs).
Interrupted runs are none of them.

A rate has the 95 % interval of `harness.runs.intervals`. Where a cell was stopped by violations n was left to chance:
then the rate of its violations has the interval for that (`inverse`), over the runs up to the one that stopped it, and
no other rate of the cell has one. Neither has a sum of series of which some were stopped so and some were not.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from harness.expectations import RANK
from harness.runs import intervals
from harness.runs.book import First, Run

FAULTS = ("applied", "bit", "missed", "immune")


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """k of n runs."""

    k: int
    n: int
    low: float | None = None
    high: float | None = None
    """The 95 % interval; None where there is none."""
    inverse: bool = False
    """Whether it is the one for runs that were stopped by the k-th."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict over the runs that were judged for it."""

    false: Rate
    unknown: Rate


class ToFirst(msgspec.Struct, frozen=True, kw_only=True):
    """How long it took to see something for the first time, and how long it takes in a run that shows it."""

    trial: str
    """The first run that showed it."""
    runs: int
    """Which run that was, counted from 1."""
    seconds: float | None
    """Of trials, those of the runs before it included."""
    fault_seconds: float | None
    """The same of their phases of faults, from the first fault on in the run that showed it."""
    faults: int
    """Faults that had begun by then, those of the runs before included."""
    median_seconds: float | None
    """Over the runs that show it: from the first fault to the finding."""
    median_faults: float
    """Over the runs that show it: faults up to the finding."""


class Pooled(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of a cell."""

    runs: int
    words: dict[str, Rate]
    """By the word of the outcome, the gravest first."""
    violations: Rate
    """Runs in which a verdict is false that is required, or that the cell expects anything of."""
    wrongly_red: Rate
    """Runs that count as a violation only because one that was expected did not show."""
    verdicts: dict[str, Verdict]
    stopped: str | None = None
    """Why the cell had enough runs, in words; None while it hasn't."""
    surplus: int = 0
    """Runs that had begun when a violation stopped the cell; they are in no rate of violations."""
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    """Over all runs: `applied`, and of these those that `bit`, `missed` or were `immune`."""
    first: dict[str, ToFirst] = msgspec.field(default_factory=dict)
    """By verdict, of those that were ever false; under "violation" that of any that counts as one."""
    telling: dict[str, str] = msgspec.field(default_factory=dict)
    """`first`: the first run with a violation (or with any false verdict); `worst`: the one with most unsafe time."""
    measures: dict[str, float | None] = msgspec.field(default_factory=dict)
    """Medians of the figures that are compared."""
    seconds: float = 0.0
    fault_seconds: float = 0.0
    """Of all trials, and of their phases of faults."""
    wall: float = 0.0
    """Seconds that the runs took, all in all."""
    size: float = 0.0
    """Bytes that a run takes on the disk (median, before any folder went)."""


def pool(*series: Sequence[Run]) -> Pooled:
    """What these runs of one cell say together; each series is that of one matrix, by run."""
    series = tuple(part for part in series if part)
    runs = [run for part in series for run in part]
    rules = [part[-1].rule for part in series]
    stops = [rule.stopped_at(part) for rule, part in zip(rules, series, strict=True)]
    chance = any(stop is not None for stop in stops)

    def rate(k: int, n: int) -> Rate:
        low, high = (None, None) if chance else intervals.binomial(k, n)
        return Rate(k=k, n=n, low=low, high=high)

    def share(shown: Callable[[Run], bool]) -> Rate:
        return rate(sum(map(shown, runs)), len(runs))

    words = Counter(run.word for run in runs)
    names = dict.fromkeys(name for run in runs for name in run.verdicts)
    reasons = [rule.enough(part) for rule, part in zip(rules, series, strict=True)]
    return Pooled(
        runs=len(runs),
        words={word: rate(words[word], len(runs)) for word in sorted(words, key=_rank)},
        violations=_violations(series, stops) if chance else share(lambda run: run.violates),
        wrongly_red=share(lambda run: run.wrongly_red),
        verdicts={name: _verdict([run.verdicts[name] for run in runs if name in run.verdicts], rate) for name in names},
        stopped=reasons[0] if len(set(reasons)) == 1 else None,
        surplus=sum(len(part) - stop for part, stop in zip(series, stops, strict=True) if stop is not None),
        faults={name: sum(run.figures.faults.get(name, 0) for run in runs) for name in FAULTS},
        first=_firsts(runs, names),
        telling=_telling(runs),
        measures=_medians(runs),
        seconds=sum(run.figures.seconds or 0.0 for run in runs),
        fault_seconds=sum(run.figures.fault_seconds or 0.0 for run in runs),
        wall=sum(run.wall for run in runs),
        size=float(statistics.median([run.size for run in runs])) if runs else 0.0,
    )


def by_cell(runs: Iterable[Run]) -> dict[int, list[Run]]:
    """The runs of each cell of a matrix, by run."""
    cells: dict[int, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.cell, run.run)):
        cells.setdefault(run.cell, []).append(run)
    return cells


def cells(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """`cells` of matrix.json: an entry for each cell that has a run, the pooled figures with those that have several.

    Such a cell has the word of its worst run, and a verdict is false there when it ever was.
    """
    made = []
    for every in by_cell(runs).values():
        counted = [run for run in every if not run.interrupted] or every[-1:]
        shown = representative(counted)
        entry: dict[str, Any] = {
            "trial": shown.trial,
            "cell": shown.place,
            "outcome": shown.outcome,
            "verdicts": shown.verdicts,
            "expect": shown.expect,
            "expect_reason": shown.expect_reason,
        }
        if (version := versions(counted)) is not None:
            entry["version"] = version
        if len(counted) > 1 or not shown.rule.single:
            names = dict.fromkeys(name for run in counted for name in run.verdicts)
            entry["verdicts"] = {name: _worst(name, counted) for name in names}
            entry["required"] = shown.required
            entry["repeats"] = msgspec.to_builtins(pool([run for run in counted if not run.interrupted]))
        made.append(entry)
    return made


def versions(runs: Sequence[Run]) -> str | None:
    """Which version of the system ran, as its servers told; all of them where runs differ in it."""
    return "/".join(sorted({run.version for run in runs if run.version is not None})) or None


def representative(runs: Sequence[Run]) -> Run:
    """The run that stands for its cell: of those with the worst word the first that shows a violation, or anything."""
    worst = min((run.word for run in runs), key=_rank)
    candidates = [run for run in runs if run.word == worst]
    return next(
        (run for shows in (_violates, _false) for run in candidates if shows(run)),
        candidates[0],
    )


def kept(runs: Sequence[Run]) -> set[str]:
    """The folders of a cell's telling runs: not as expected, the first, the first with a finding, the worst."""
    telling = _telling(runs)
    return {
        *(run.trial for run in runs if run.word != "as-expected"),
        *(run.trial for run in runs[:1]),
        *telling.values(),
        representative(runs).trial,
    }


def _rank(word: str) -> int:
    return RANK.index(word) if word in RANK else 0


def _violates(run: Run) -> bool:
    return run.violates


def _false(run: Run) -> bool:
    return any(value is False for value in run.verdicts.values())


def _worst(name: str, runs: Sequence[Run]) -> bool | str:
    values = [run.verdicts.get(name, True) for run in runs]
    return next((value for value in values if value is False), next((v for v in values if v is not True), True))


def _violations(series: Sequence[Sequence[Run]], stops: Sequence[int | None]) -> Rate:
    """Of a cell that a violation stopped: over the runs up to that one. No interval for a mixture."""
    k = sum(run.violates for part, stop in zip(series, stops, strict=True) for run in part[:stop])
    n = sum(len(part[:stop]) for part, stop in zip(series, stops, strict=True))
    if any(stop is None for stop in stops):
        return Rate(k=k, n=n)
    low, high = intervals.inverse(k, n)
    return Rate(k=k, n=n, low=low, high=high, inverse=True)


def _verdict(values: Sequence[bool | str], rate: Callable[[int, int], Rate]) -> Verdict:
    false = sum(value is False for value in values)
    unknown = sum(value == "unknown" for value in values)
    return Verdict(false=rate(false, len(values)), unknown=rate(unknown, len(values)))


def _firsts(runs: Sequence[Run], names: Iterable[str]) -> dict[str, ToFirst]:
    def of_name(name: str) -> Callable[[Run], First | None]:
        return lambda run: run.figures.first.get(name) if run.verdicts.get(name) is False else None

    def of_any(run: Run) -> First | None:
        found = [run.figures.first[name] for name in run.broken if name in run.figures.first]
        return min(found, key=lambda first: first.seconds, default=None)

    found = {"violation": _to_first(runs, of_any)} | {name: _to_first(runs, of_name(name)) for name in names}
    return {name: first for name, first in found.items() if first is not None}


def _to_first(runs: Sequence[Run], of: Callable[[Run], First | None]) -> ToFirst | None:
    shown = [(number, run, first) for number, run in enumerate(runs) if (first := of(run)) is not None]
    if not shown:
        return None
    number, run, first = shown[0]
    before = runs[:number]
    since = [each.since_fault for _, _, each in shown if each.since_fault is not None]
    return ToFirst(
        trial=run.trial,
        runs=number + 1,
        seconds=first.seconds + sum(each.figures.seconds or 0.0 for each in before),
        fault_seconds=None
        if first.since_fault is None
        else first.since_fault + sum(each.figures.fault_seconds or 0.0 for each in before),
        faults=first.faults + sum(each.figures.faults.get("applied", 0) for each in before),
        median_seconds=statistics.median(since) if since else None,
        median_faults=float(statistics.median([each.faults for _, _, each in shown])),
    )


def _telling(runs: Sequence[Run]) -> dict[str, str]:
    first = next((run for shows in (_violates, _false) for run in runs if shows(run)), None)
    unsafe = [(run.figures.measures.get("unsafe") or 0.0, -number) for number, run in enumerate(runs)]
    longest, number = max(unsafe, default=(0.0, 0))
    return {
        **({"first": first.trial} if first is not None else {}),
        **({"worst": runs[-number].trial} if longest > 0 else {}),
    }


def _medians(runs: Sequence[Run]) -> dict[str, float | None]:
    names = dict.fromkeys(name for run in runs for name in run.figures.measures)
    known = {name: [value for run in runs if (value := run.figures.measures.get(name)) is not None] for name in names}
    return {name: statistics.median(values) if values else None for name, values in known.items()}
