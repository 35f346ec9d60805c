"""Pooled figures in words, for the terminal, the page and the tables of `bench` alike."""

from __future__ import annotations

from harness.runs.pooled import Pooled, Rate, ToFirst

OUTCOMES = {"as-expected": "as expected", "harness-error": "harness error"}
"""Words of outcomes that are spelled otherwise than they are written down."""


def rate(found: Rate) -> str:
    """`3 of 20 (3.2-38 %)`; `1 of 7 (0.36-46 %, n by chance)` where a violation stopped the runs."""
    said = f"{found.k} of {found.n}"
    if found.low is None or found.high is None:
        return said
    return f"{said} ({percent(found.low)}-{percent(found.high)} %{', n by chance' if found.inverse else ''})"


def percent(share: float) -> str:
    """Two digits that count: `0.36`, `3.2`, `38`, `100`."""
    value = 100 * share
    return "0" if value == 0 else f"{value:.2g}" if value < 99.5 else "100" if share == 1 else ">99"


def outcomes(pooled: Pooled) -> str:
    """`18 of 20 as expected, 2 violation`: all words, the most frequent with its interval."""
    first, *others = sorted(pooled.words.items(), key=lambda item: -item[1].k)
    head = f"{rate(first[1])} {OUTCOMES.get(first[0], first[0])}"
    return ", ".join([head, *(f"{found.k} {OUTCOMES.get(word, word)}" for word, found in others)])


def shown(pooled: Pooled) -> list[str]:
    """`lease 3 of 20 (3.2-38 %)` for each verdict that was ever false, `progress unknown 1 of 20 (…)`."""
    false = [f"{name} {rate(found.false)}" for name, found in pooled.verdicts.items() if found.false.k]
    unknown = [f"{name} unknown {rate(found.unknown)}" for name, found in pooled.verdicts.items() if found.unknown.k]
    stopped = [f"violations {rate(pooled.violations)}"] if pooled.violations.inverse else []
    return [*stopped, *false, *unknown]


def runs(pooled: Pooled) -> str:
    """`7, stopped by 1 violation`."""
    said = str(pooled.runs)
    if pooled.stopped is not None and not pooled.stopped.endswith((" run", " runs")):
        said += f", stopped by {pooled.stopped}"
    if pooled.surplus:
        said += f" ({pooled.surplus} had begun already)"
    return said


def faults(pooled: Pooled) -> str:
    """`60: 55 bit, 5 missed`; nothing where none was applied."""
    known = [f"{pooled.faults[name]} {word}" for name, word in _FAULTS if pooled.faults.get(name)]
    applied = pooled.faults.get("applied", 0)
    return f"{applied}" + (f": {', '.join(known)}" if known else "") if applied else ""


_FAULTS = (("bit", "bit"), ("missed", "missed"), ("immune", "immune"))


def seen(pooled: Pooled) -> tuple[str, ToFirst] | None:
    """What it took to see the first violation; where none counts as one, the first verdict that was false. By name."""
    return next(iter(pooled.first.items()), None)


def to_first(first: ToFirst) -> str:
    """`run 2, 31.2 s (22.1 s of faults), 4 faults`."""
    said = f"run {first.runs}"
    if first.seconds is not None:
        said += f", {first.seconds:.1f} s"
    if first.fault_seconds is not None:
        said += f" ({first.fault_seconds:.1f} s of faults)"
    return f"{said}, {first.faults} fault{'' if first.faults == 1 else 's'}"


def size(count: float) -> str:
    """`5.2 MB`."""
    for unit, share in (("GB", 1e9), ("MB", 1e6)):
        if count >= share:
            return f"{count / share:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"
