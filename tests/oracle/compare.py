"""The oracle and the checkers, side by side on one history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from checkers import judge as judge_by_checkers
from harness.errors import HistoryError
from harness.history.reader import read as read_by_harness
from tests.afresh import afresh
from tests.oracle.reading import Event, Malformed, read
from tests.oracle.said import Finding, Judgement
from tests.oracle.verdicts import judge

#: Stats that the contract defines precisely. Of `progress` it does so of the longest stretch alone.
STATS = {
    "exclusion": ("unsafe_seconds", "unsafe_seconds_awake"),
    "lease": ("grants", "solid", "late"),
    "fencing": ("pairs", "unordered_pairs", "without_token", "gaps"),
    "fenced": ("writes", "stale", "lost", "looked_for", "gone", "ghosts", "unknown_outcome"),
    "damage": ("writes", "stale", "lost", "looked_for", "gone", "ghosts", "unknown_outcome"),
    "conduct": ("unheld_writes", "stray_renews"),
    "progress": ("longest_gap",),
    "faults": ("bit", "missed", "immune"),
}


def ours(data: bytes, *, partial: bool = False) -> Judgement | Malformed:
    """What the oracle says; `partial` judges a history that was cut off as if it were whole."""
    try:
        return judge(read(data), partial=partial)
    except Malformed as error:
        return error


def theirs(data: bytes, path: Path, *, partial: bool = False) -> dict[str, Any] | HistoryError:
    """What the checkers say, in the contract's JSON form; the history goes through a file at `path`."""
    afresh(path, data)
    try:
        return judge_by_checkers(read_by_harness(path, format="fencepost"), partial=partial).to_json()
    except HistoryError as error:
        return error


def disagreements(data: bytes, path: Path, oracle: Judgement | Malformed | None = None) -> list[str]:
    """Where the two differ, in words, on all of it or on what is there of it; empty when they agree. `oracle` is what
    the oracle says, where that is known."""
    oracle = ours(data) if oracle is None else oracle
    found = differences(oracle, theirs(data, path))
    if isinstance(oracle, Judgement) and oracle.cut_off:
        partly = differences(ours(data, partial=True), theirs(data, path, partial=True))
        found += [f"--partial: {what}" for what in partly]
    return found


def differences(oracle: Judgement | Malformed, checked: dict[str, Any] | HistoryError) -> list[str]:
    if isinstance(oracle, Malformed) or isinstance(checked, HistoryError):
        if isinstance(oracle, Malformed) and isinstance(checked, HistoryError):
            return [] if checked.line in oracle.lines else [f"malformed: oracle {oracle}, checkers {checked}"]
        return [f"oracle {oracle if isinstance(oracle, Malformed) else 'reads it'}, checkers {checked}"]
    found = []

    def same(what: str, left: Any, right: Any) -> None:
        if left != right:
            found.append(f"{what}: oracle {left!r}, checkers {right!r}")

    same("valid", oracle.valid, checked["valid"])
    same("required", oracle.required, sorted(checked["required"]))
    same("events", oracle.events, checked["events"])
    same("grants", oracle.grants, checked["grants"])
    same("verdicts", sorted(oracle.verdicts), sorted(checked["verdicts"]))
    for name, verdict in oracle.verdicts.items():
        other = checked["verdicts"][name]
        same(f"{name}.valid", verdict.valid, other["valid"])
        if "Traceback" in str(other.get("note")):
            found.append(f"{name}: {other['note']}")
        found += [f"{name}: {what}" for what in _disordered(other["findings"], oracle.placed)]
        if name == "linearizable":
            same(f"{name}.count > 0", bool(verdict.findings), other["count"] > 0)
            continue
        same(f"{name}.count", len(verdict.findings), other["count"])
        for key in STATS.get(name, ()) if verdict.stats else ():  # none without owners
            same(f"{name}.stats.{key}", verdict.stats[key], _near(other["stats"][key], verdict.stats[key]))
        found += [f"{name}: {what}" for what in _unmatched(verdict.findings, other["findings"])]
    return found


def _disordered(listed: list[dict[str, Any]], placed: dict[int, Event]) -> list[str]:
    """Events come in order of time (ties by line), findings by the time of the last of their events; all have words."""
    wrong = []
    for finding in listed:
        positions = [placed[line].position for line in finding["events"]]
        if not positions or positions != sorted(set(positions)):
            wrong.append(f"events not in order: {finding}")
        if not finding["text"]:
            wrong.append(f"no words: {finding}")
    ends = [max(placed[line].time for line in finding["events"]) for finding in listed if finding["events"]]
    return [*wrong, "findings not in order"] if ends != sorted(ends) else wrong


def _near(value: Any, exact: Any) -> Any:
    """The exact value where a float is the one nearest to it."""
    return exact if isinstance(value, float) and value == float(exact) else value


def _unmatched(expected: list[Finding], listed: list[dict[str, Any]]) -> list[str]:
    """Findings that have no partner, each partner used once. A listed one may name more events than it must."""
    partner: dict[int, int] = {}

    def match(i: int, tried: set[int]) -> bool:
        for j, other in enumerate(listed):
            if j not in tried and _fits(expected[i], other):
                tried.add(j)
                if j not in partner or match(partner[j], tried):
                    partner[j] = i
                    return True
        return False

    missing = [finding for i, finding in enumerate(expected) if not match(i, set())]
    surplus = [other for j, other in enumerate(listed) if j not in partner]
    return [f"oracle alone has {finding}" for finding in missing] + [
        f"checkers alone have {other}" for other in surplus
    ]


def _fits(finding: Finding, other: dict[str, Any]) -> bool:
    return (
        finding.kind == other["kind"]
        and finding.lock == other["lock"]
        and finding.lines <= set(other["events"])
        and not (finding.no_more and finding.lines != set(other["events"]))
        and finding.blame == other.get("blame")
        and (finding.seconds is None or float(finding.seconds) == other.get("seconds"))
    )
