"""The numbers of a report: hand-overs, contenders, the words for a verdict's stats. Counting only, no judging."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from checkers.words import beside, sentence
from harness.report import files, words
from harness.report.story import Story
from harness.report.svg import join, tag


def handovers(story: Story) -> list[float]:
    """Seconds from the end of each belief to the next grant of that lock, as the verdict `progress` counts them.

    Beliefs that last to the end of the history have no hand-over.
    """
    gaps: list[float] = []
    for _, grants in story.grants.groupby("lock", sort=True):
        ok = grants["ok"].to_numpy()
        ends = grants.loc[~grants["lasting"], "belief_end"].to_numpy()
        at = np.searchsorted(ok, ends, side="left")
        come = at < len(ok)
        gaps += (ok[at[come]] - ends[come]).tolist()
    return gaps


def changes(story: Story) -> int:
    """How often the holder changed from one contender to another."""
    number = 0
    for _, grants in story.grants.groupby("lock", sort=True):
        process = grants.sort_values(["ok", "ok_line"], kind="stable")["process"]
        number += int(process.ne(process.shift()).sum()) - 1
    return number


@dataclass(frozen=True)
class Spread:
    """A distribution in three numbers (seconds)."""

    count: int
    median: float
    p95: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None when there is nothing to describe."""
        if not len(values):
            return None
        median, p95, most = (float(value) for value in np.quantile(np.asarray(values), (0.5, 0.95, 1.0)))
        return cls(len(values), median, p95, most)


def histogram(values: Sequence[float]) -> Markup | None:
    """A histogram on a logarithmic axis, five bins a decade, as SVG; None when there is nothing to show."""
    if not len(values):
        return None
    array = np.maximum(np.asarray(values, dtype=float), 1e-4)
    low = math.floor(math.log10(array.min()))
    high = max(low + 1, math.ceil(math.log10(array.max()) + 1e-9))
    bins = (high - low) * 5
    counts, _ = np.histogram(np.log10(array), bins=bins, range=(low, high))
    left, width, base, tall = 8.0, 404.0, 96.0, 78.0
    step = width / bins
    parts: list[Markup] = []
    for index, number in enumerate(counts):
        a, b = 10 ** (low + index / 5), 10 ** (low + (index + 1) / 5)
        if number:
            height = max(2.0, tall * float(number) / float(counts.max()))
            title = f"{words.seconds(a)} to {words.seconds(b)}: {words.count(int(number), 'hand-over')}"
            parts.append(
                tag(
                    "rect",
                    tag("title", title),
                    x=left + index * step + 1,
                    y=base - height,
                    width=step - 2,
                    height=height,
                    rx=2,
                    class_="column",
                )
            )
    for power in range(low, high + 1):
        x = left + (power - low) * 5 * step
        end = "start" if power == low else "end" if power == high else "middle"
        parts.append(tag("line", x1=x, x2=x, y1=base, y2=base + 4, class_="axis-line"))
        parts.append(tag("text", _decade(power), x=x, y=base + 17, class_="tick", text_anchor=end))
    parts.append(tag("line", x1=left, x2=left + width, y1=base, y2=base, class_="axis-line"))
    spread = Spread.of(values)
    assert spread is not None
    x = left + (math.log10(max(spread.median, 1e-4)) - low) * 5 * step
    parts.append(tag("line", x1=x, x2=x, y1=12, y2=base, class_="median"))
    side = "end" if x > left + width * 0.6 else "start"
    parts.append(
        tag(
            "text",
            f"median {words.seconds(spread.median)}",
            x=x + (-4 if side == "end" else 4),
            y=10,
            class_="median-text",
            text_anchor=side,
        )
    )
    return tag("svg", join(parts), viewBox="0 0 420 118", class_="histogram", role="img", aria_label="hand-over times")


def _decade(power: int) -> str:
    """Ten to this power, in seconds."""
    unit, shift = ("s", 0) if power >= 0 else ("ms", 3) if power >= -3 else ("µs", 6)
    return f"{10 ** (power + shift):,} {unit}"


def contenders(story: Story) -> pd.DataFrame:
    """One row for each contender and lock: what it tried, what it got, how long it held and waited (seconds)."""
    operations, grants = story.operations, story.grants
    index = ["process", "lock"]
    table = pd.DataFrame([(row.process, row.lock) for row in story.rows], columns=index).set_index(index)
    kind = operations["f"].astype(str) + "_" + operations["outcome"].astype(str)
    writes = operations["f"] == "write"
    kind = kind.where(~writes, kind + "_" + operations["resource"].astype(str))
    counts = pd.crosstab([operations["process"], operations["lock"]], kind) if len(operations) else pd.DataFrame()
    table = table.join(counts) if len(counts) else table
    held = grants.assign(held=grants["belief_end"] - grants["ok"], waited=grants["ok"] - grants["invoke"])
    held["beyond"] = (held["belief_end"] - np.maximum(held["core_end"], held["ok"])).clip(lower=0)
    summed = held.groupby(index).agg(
        grants=("ok", "size"),
        held=("held", "sum"),
        median_hold=("held", "median"),
        median_wait=("waited", "median"),
        beyond=("beyond", "sum"),
    )
    table = table.join(summed)
    lost = story.marks[story.marks["f"] == "lost"].groupby(index).size().rename("lost")
    table = table.join(lost)
    crashes = story.marks[story.marks["f"] == "crash"].groupby("process").size().rename("crash")
    return table.reset_index().join(crashes, on="process")


def blame(part: files.VerdictPart) -> str:
    """Who is to blame for a verdict's listed findings, and how often: `the client (3), the service (1)`."""
    counted = Counter(finding.blame for finding in part.findings if finding.blame)
    return ", ".join(f"{words.BLAME.get(name, name)} ({number})" for name, number in counted.most_common())


def kinds(part: files.VerdictPart) -> str:
    """The kinds of a verdict's listed findings, and how often: `stale-write (3), lost-update (1)`."""
    counted = Counter(finding.kind for finding in part.findings)
    return ", ".join(f"{name} ({number})" for name, number in counted.most_common())


def stats(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A verdict's stats as pairs of words, in their own order; what is empty is left out."""
    pairs = []
    for key, value in values.items():
        text = _stat(key, value)
        if text is not None:
            pairs.append((_NAMES.get(key, key.replace("_", " ")), text))
    return pairs


_NAMES = {
    "unsafe_seconds": "unsafe time",
    "unsafe_seconds_awake": "of it while the older holder was awake",
    "handover_seconds": "hand-over",
    "stale": "stale writes",
    "lost": "lost updates",
    "looked_for": "writes held against an audit",
    "gone": "acknowledged, and gone",
    "ghosts": "refused, and there",
    "unknown_outcome": "writes of unknown outcome",
    "unheld_writes": "writes without the lock",
    "stray_renews": "renews of what was given up",
    "bit": "could matter",
    "missed": "had no chance to matter",
    "immune": "can't matter by design",
    "gaps": "numbers left out",
    "longest_gap": "longest stretch free, wanted and undisturbed",
    "longest_wait": "longest wait of anybody",
    "pairs": "pairs of grants",
    "unordered_pairs": "pairs in no certain order",
}


def _stat(key: str, value: Any) -> str | None:
    timed = "seconds" in key or key in ("longest_gap", "longest_wait", "first_grant_after")
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if key == "availability":
            return words.share(float(value))
        return words.seconds(float(value)) if timed else f"{value:,}" if isinstance(value, int) else f"{value:g}"
    if isinstance(value, list | tuple):
        numbers = [float(each) for each in value if isinstance(each, int | float) and not isinstance(each, bool)]
        if numbers and len(numbers) == len(value) and timed:
            spread = Spread.of(numbers)
            assert spread is not None
            return f"{spread.count} × median {words.seconds(spread.median)}, longest {words.seconds(spread.most)}"
        return words.listing([str(_stat(key, each)) for each in value[:8]]) + (" …" if len(value) > 8 else "") or None
    if isinstance(value, Mapping):
        # Of a spread the count is no duration, and three of its figures tell enough.
        wanted = [name for name in ("count", "median", "p99", "max") if name in value] or list(value)
        shown = [f"{name} {_stat('' if name == 'count' else key, value[name]) or '–'}" for name in wanted[:8]]
        return ", ".join(shown) + (" …" if len(wanted) > 8 else "") or None
    return str(value)


def number(part: files.VerdictPart | None, key: str) -> float | None:
    """A stat as a number, or None where there is none."""
    value = None if part is None else part.stats.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def in_short(
    checked: files.Checked, faults: Sequence[tuple[str, str | None]], skipped: int, trial: files.Trial | None
) -> list[str]:
    """What happened in a few sentences. `faults` are (kind, target word) of those that were applied; without a `trial`
    (a history alone, as somebody else may have recorded it) nothing is known of a twin, nor of faults that nobody
    recorded."""
    parts = checked.verdicts
    said: list[str] = []
    if faults:
        counted = Counter(f"{kind} {target}" if target else kind for kind, target in faults)
        said.append(
            "Faults: "
            + words.listing([f"{name} ({times}×)" if times > 1 else name for name, times in counted.items()])
            + "."
        )
    elif skipped:
        said.append("All faults were skipped.")
    else:
        said.append(words.NO_FAULT if trial else words.NO_FAULT_RECORDED)
    if checked.cut_off is not None:
        return [*said, words.CUT_OFF.format(checked.cut_off)]
    left = left_out(checked, trial.expect if trial else {})
    if left is not None:
        said.insert(0, sentence(left))
    exclusion = parts.get("exclusion")
    if exclusion is not None and exclusion.valid is False:
        unsafe = number(exclusion, "unsafe_seconds")
        text = "Two contenders believed at once that they held the lock"
        if unsafe is not None:
            text += f", for {words.seconds(unsafe)} in total"
        guilty = Counter(finding.blame for finding in exclusion.findings if finding.blame).most_common()
        if guilty:
            text += "; to blame: " + words.listing([words.BLAME.get(str(name), str(name)) for name, _ in guilty])
        said.append(text + ".")
    elif exclusion is not None:
        said.append(words.statement("exclusion", words.truth(exclusion.valid), trial=trial is not None))
    for name in ("lease", "fencing"):
        if name in parts:
            text = words.statement(name, words.truth(parts[name].valid))
            if parts[name].valid is False:
                text = text.removesuffix(".") + f" ({kinds(parts[name])})."
            said.append(text)
    damage = [
        _harm(parts[name], label)
        for name, label in (("fenced", "fenced resource"), ("damage", f"unfenced {'twin' if trial else 'resource'}"))
        if name in parts
    ]
    said += [text for text in damage if text]
    conduct = parts.get("conduct")
    if conduct is not None and conduct.valid is False:
        said.append(words.statement("conduct", "false"))
    progress = parts.get("progress")
    if progress is not None and progress.valid is False:
        said.append(words.statement("progress", "false"))
    told = parts.get("faults")
    if told is not None and told.valid is not True:
        said.append(words.statement("faults", words.truth(told.valid)))
    return said


def left_out(checked: files.Checked, expect: Mapping[str, Any]) -> str | None:
    """What the word for a trial or a history leaves out: verdicts that are false, and neither required nor spoken of in
    `expect`. None where that is nothing, and where the word is false anyway."""
    if checked.valid is False:
        return None
    found = {name: part.valid for name, part in checked.verdicts.items()}
    told = beside([*checked.required, *expect], found)
    return told if told is None or checked.valid is not True else f"true of what was required; {told}"


def _harm(part: files.VerdictPart, label: str) -> str | None:
    if part.valid == "unknown":
        return None
    if part.valid is True:
        writes = number(part, "writes")
        return f"The {label} came to no harm" + (f" in {words.count(int(writes), 'write')}." if writes else ".")
    harm = [
        words.count(int(value), one, many)
        for key, one, many in (
            ("stale", "stale write", "stale writes"),
            ("lost", "lost update", "lost updates"),
            ("gone", "acknowledged write that is gone", "acknowledged writes that are gone"),
            ("ghosts", "refused write that is there", "refused writes that are there"),
        )
        if (value := number(part, key))
    ]
    return f"The {label} was harmed: {words.listing(harm) or words.count(part.count, 'finding')}."
