"""The figures of one run, from its folder: read once, when it ended, so that the folder isn't needed for them again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import documents
from harness.runs.book import Figures, First

MEASURES = ("handover", "handover_most", "availability", "gap", "unsafe", "lease", "stale", "fenced")
"""Median and longest hand-over, share of the time, longest gap and unsafe time in seconds; counts of findings."""


def measure(folder: Path) -> Figures:
    """What a trial's folder says: trial.json, verdict.json, and the history's lines of faults and first findings.

    What isn't there gives no figures: the outcome tells of that. Raises ConfigError for what can't be read.
    """
    trial, verdict = _document(folder / "trial.json"), _document(folder / "verdict.json")
    phases = [phase for phase in trial.get("phases") or () if isinstance(phase.get("end"), int)]
    verdicts: Mapping[str, Any] = verdict.get("verdicts") or {}
    lines = {
        name: part["findings"][0]["events"][-1]
        for name, part in verdicts.items()
        if part["valid"] is False and part["findings"] and part["findings"][0]["events"]
    }
    times, begun = _times(folder / "history.jsonl", set(lines.values())) if lines else ({}, [])
    stats = (verdicts.get("faults") or {}).get("stats") or {}
    return Figures(
        seconds=(phases[-1]["end"] - phases[0]["start"]) / 1e9 if phases else None,
        fault_seconds=sum(phase["end"] - phase["start"] for phase in phases if phase["name"] == "faults") / 1e9
        if phases
        else None,
        faults={
            "applied": int(stats.get("faults", 0)),
            **{name: int(stats.get(name, 0)) for name in ("landed", "bit", "missed", "immune")},
        },
        first={name: _first(times[line], begun) for name, line in lines.items() if line in times},
        measures=measures(verdicts),
    )


def measures(verdicts: Mapping[str, Any]) -> dict[str, float | None]:
    """What is compared of the verdicts of a verdict.json; None where it isn't known."""

    def stat(name: str, key: str) -> float | None:
        return _real((verdicts.get(name) or {}).get("stats", {}).get(key))

    def count(name: str) -> float | None:
        return _real((verdicts.get(name) or {}).get("count"))

    handover = (verdicts.get("progress") or {}).get("stats", {}).get("handover_seconds")
    handover = handover if isinstance(handover, Mapping) else {}
    return {
        "handover": _real(handover.get("median")),
        "handover_most": _real(handover.get("max")),
        "availability": stat("progress", "availability"),
        "gap": stat("progress", "longest_gap"),
        "unsafe": stat("exclusion", "unsafe_seconds"),
        "lease": count("lease"),
        "stale": count("damage"),
        "fenced": count("fenced"),
    }


def size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue  # a temporary file of somebody who writes a page
    return total


def _first(time_ns: int, begun: list[int]) -> First:
    earlier = [begin for begin in begun if begin <= time_ns]
    return First(
        seconds=time_ns / 1e9,
        since_fault=(time_ns - earlier[0]) / 1e9 if earlier else None,
        faults=len(earlier),
    )


def _times(history: Path, wanted: set[int]) -> tuple[dict[int, int], list[int]]:
    """The times of these lines of a history, and those at which faults began (not skipped ones), in their order."""
    times: dict[int, int] = {}
    begun: list[int] = []
    with history.open("rb") as file:
        for number, text in enumerate(file, 1):
            if number not in wanted and b'"fault"' not in text:
                continue
            event = json.loads(text)
            if number in wanted:
                times[number] = event["time"]
            if event.get("f") == "fault" and event.get("phase") == "start" and _counts(event):
                begun.append(event["time"])
    return times, sorted(begun)


def _counts(event: Mapping[str, Any]) -> bool:
    return event.get("receipt") != "skipped" and event.get("kind") != "outside"


def _document(path: Path) -> dict[str, Any]:
    try:
        data = documents.read_json(path)
    except FileNotFoundError:
        return {}
    return data if isinstance(data, dict) else {}


def _real(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
