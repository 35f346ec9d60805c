"""The report of one trial, from what lies in its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from checkers.findings import gravest
from harness.errors import HistoryError
from harness.expectations import surprising
from harness.history import read
from harness.report import figures, files, page, stored, timeline, words
from harness.report.story import Found, Story, tell

SHOWN = 3
"""Findings of a verdict that stand open on the page; the others are folded."""
LISTED = 40
"""Findings of a verdict that are on the page at all."""
IN_TABLE = frozenset({"acquires", "grants", "writes"})
"""What contenders count by themselves that the table has from the history already."""


@dataclass(frozen=True)
class VerdictRow:
    """One verdict as the table shows it."""

    name: str
    value: str
    required: bool
    expected: str | None
    """What the trial expected of it; None when nothing was said."""
    because: str | None
    """Why that is expected, where it isn't simply `true`."""
    surprising: bool
    statement: str
    count: int
    kinds: str
    blame: str
    stats: Sequence[tuple[str, str]]
    note: str | None
    first: str | None
    first_anchor: str | None
    findings: Sequence[Found]
    unplaced: Sequence[str]
    """Texts of findings that name no event."""


def write(source: Path, out: Path | None = None, *, again: bool = False) -> Path:
    """Writes the report of a trial's folder or a bare history; see `harness.report.write_trial`."""
    folder = source if source.is_dir() else source.parent
    bare = not source.is_dir()
    trial = None if bare else files.read_trial(folder)
    journal = files.Journal() if bare else files.read_journal(folder)
    path = files.history(folder) if not bare else source
    target = out or (folder / files.REPORT if not bare else source.with_suffix(".html"))

    story, problem, kept = _story(path, folder, bare, trial, journal, again)
    context = _context(story, trial, folder, target, bare, problem) | {"judged": kept.stale}
    if kept.other_rules and context["outcome_words"]:
        context["outcome_words"] = words.by_other_rules(context["outcome_words"][0])
    return page.write(target, page.render("trial.html.j2", **context), [source])


def _story(
    path: Path, folder: Path, bare: bool, trial: files.Trial | None, journal: files.Journal, again: bool
) -> tuple[Story | None, str | None, stored.Stored]:
    """The story, and what is wrong with it or why there is none: a trial that failed may have left no history, or half
    of one, and its report must say so rather than be missing. Without such an error the reader's complaint is raised.
    Last what was stored, which says why the story's verdicts are others, where they are."""
    failed = trial is not None and trial.error is not None
    if not path.exists():
        if failed:
            return None, f"There is no {path.name}: the trial failed before anything was recorded.", stored.Stored(None)
        raise HistoryError(path, 0, "no such file; a report is made from a history")
    try:
        history = read(path)
    except HistoryError as error:
        if failed:
            return None, f"The history can't be read: line {error.line}: {error.reason}", stored.Stored(None)
        raise
    kept = stored.Stored(None) if bare else stored.look(folder, path, again=again)
    checked = kept.checked if kept.checked is not None and kept.stale is None else stored.judged(history)
    problem = None if checked.cut_off is None else words.CUT_OFF.format(checked.cut_off)
    return tell(history, path, trial, journal, checked), problem, kept


def _context(
    story: Story | None, trial: files.Trial | None, folder: Path, target: Path, bare: bool, problem: str | None
) -> dict[str, Any]:
    cell = trial.cell if trial else None
    title = cell.words() if cell else (story.meta.system if story and story.meta.system else None) or folder.name
    if bare and story is not None:
        title = story.path.name
    outcome = trial.outcome if trial else None
    context: dict[str, Any] = {
        "title": title,
        "name": (trial.id if trial and trial.id else None) or (folder.name if not bare else None),
        "trial": trial,
        "cell": cell,
        "outcome": outcome,
        "reasons": [reason for reason in (outcome.reasons if outcome else []) if reason not in (trial.error or "")]
        if trial
        else [],
        "came_to": words.faults(outcome.faults) if outcome else "",
        "fault_notes": words.fault_notes(outcome.faults) if outcome and outcome.word == "as-expected" else [],
        "outcome_words": words.outcome(outcome.word) if outcome else None,
        "problem": problem,
        "story": story,
        "facts": _facts(trial, story),
        "unseen": _unseen(trial),
        "matrix": _link(folder.parent / files.INDEX, target)
        if not bare and (folder.parent / files.MATRIX).is_file()
        else None,
        "logs": [] if bare else _logs(folder, target),
        "files": [] if bare else _files(folder, target),
        "config": json.dumps(trial.config, indent=2, ensure_ascii=False, sort_keys=True)
        if trial and trial.config
        else None,
        "system": json.dumps(trial.system, indent=2, ensure_ascii=False, sort_keys=True)
        if trial and trial.system
        else None,
        "versions": _as_json(trial.versions) if trial and trial.versions else None,
        "hellos": _as_json({name: contender.hello for name, contender in trial.contenders.items() if contender.hello})
        if trial and any(contender.hello for contender in trial.contenders.values())
        else None,
        "images": _images(trial),
        "drawing": None,
        "verdicts": [],
        "short": [],
        "tiles": [],
        "contenders": None,
        "handovers": None,
        "histogram": None,
        "journal_missing": False,
        "as_json": _as_json,
        "shown": SHOWN,
        "listed": LISTED,
    }
    if story is not None and story.checked is not None:
        gaps = figures.handovers(story)
        context |= {"verdicts": _verdicts(story), "drawing": timeline.draw(story) if story.events else None}
        if not story.told:
            return context | {"short": [words.NOTHING]}
        applied = [(fault.kind, fault.target) for fault in story.faults if fault.receipt != "skipped"]
        context |= {
            "short": figures.in_short(story.checked, applied, len(story.faults), story.trial),
            "tiles": _tiles(story, gaps, outcome),
            "contenders": _contenders(story),
            "handovers": figures.Spread.of(gaps),
            "histogram": figures.histogram(gaps),
        }
    return context


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


def _verdicts(story: Story) -> list[VerdictRow]:
    checked = story.checked
    assert checked is not None
    expect = story.trial.expect if story.trial else {}
    by_verdict: dict[str, list[Found]] = {}
    for found in story.found:
        by_verdict.setdefault(found.verdict, []).append(found)
    rows = []
    for name in words.in_order(checked.verdicts):
        part = checked.verdicts[name]
        value = words.truth(part.valid)
        required = name in checked.required
        expected = expect.get(name)
        wanted = words.truth(expected) if isinstance(expected, bool) else expected
        placed = by_verdict.get(name, [])
        first = gravest(finding.kind for finding in part.findings)
        anchors = {found.number: found.anchor for found in placed}
        rows.append(
            VerdictRow(
                name=name,
                value=value,
                required=required,
                expected=wanted,
                because=story.trial.expect_reason if story.trial and wanted not in (None, "true") else None,
                surprising=surprising(name, part.valid, checked.required, expect),
                statement=_statement(story, name, value, part),
                count=part.count,
                kinds=figures.kinds(part),
                blame=figures.blame(part),
                stats=figures.stats(part.stats),
                note=part.note,
                first=part.findings[first].text if part.findings else None,
                first_anchor=anchors.get(first + 1),
                findings=placed[:LISTED],
                unplaced=[finding.text for finding in part.findings if not finding.events],
            )
        )
    return rows


def _statement(story: Story, name: str, value: str, part: files.VerdictPart) -> str:
    """One sentence on what a verdict's value means of this history."""
    assert story.checked is not None
    if not story.told and value != "false":
        return "Nothing was recorded."
    if story.checked.cut_off is not None:
        return words.WITHOUT_END
    return words.statement(name, value, part.stats, trial=story.trial is not None)


def _tiles(story: Story, gaps: Sequence[float], outcome: files.Outcome | None) -> list[tuple[str, str, str | None]]:
    """The few numbers that are looked for first: (name, value, what it means)."""
    assert story.checked is not None
    parts = story.checked.verdicts
    spread = figures.Spread.of(gaps)
    exclusion, progress = parts.get("exclusion"), parts.get("progress")
    number = outcome.handovers if outcome and outcome.handovers is not None else figures.changes(story)
    availability = figures.number(progress, "availability")
    tiles: list[tuple[str, str, str | None]] = [
        ("grants", f"{len(story.grants):,}", None),
        ("hand-overs", f"{max(0, number):,}", "times that the holder changed"),
        (
            "median hand-over",
            words.seconds(spread.median) if spread else "–",
            "from the end of a belief to the next grant",
        ),
        (
            "availability",
            words.share(availability),
            "share of the time in which somebody believed that he held the lock",
        ),
        (
            "longest gap",
            words.seconds(figures.number(progress, "longest_gap")),
            "the longest stretch in which the lock was free and wanted, nothing being broken",
        ),
        ("unsafe", words.seconds(figures.number(exclusion, "unsafe_seconds")), "time with two or more believers"),
    ]
    return tiles


def _contenders(story: Story) -> list[dict[str, Any]]:
    table = figures.contenders(story)
    several = table["lock"].nunique() > 1
    nodes = {(row.process, row.lock): row for row in story.rows}
    known = story.trial.contenders if story.trial else {}
    rows = []

    def whole(row: Mapping[Any, Any], name: str) -> int:
        value = row.get(name)
        return 0 if value is None or pd.isna(value) else int(value)

    for row in table.to_dict("records"):
        at = nodes[int(row["process"]), str(row["lock"])]
        contender = known.get(str(at.process))
        rows.append(
            {
                "process": at.process,
                "lock": at.lock if several else None,
                "node": at.node,
                "kind": at.kind,
                "client": contender.client if contender else None,
                "counts": _counts(contender),
                "asked": sum(whole(row, f"acquire_{outcome}") for outcome in ("ok", "fail", "info")),
                "granted": whole(row, "grants"),
                "not_granted": whole(row, "acquire_fail"),
                "unsure": whole(row, "acquire_info"),
                "renewed": whole(row, "renew_ok"),
                "renew_bad": whole(row, "renew_fail") + whole(row, "renew_info"),
                "lost": whole(row, "lost"),
                "crash": whole(row, "crash"),
                "held": _real(row, "held"),
                "median_hold": _real(row, "median_hold"),
                "median_wait": _real(row, "median_wait"),
                "beyond": _real(row, "beyond"),
                **{
                    f"{resource}_{name}": whole(row, f"write_{outcome}_{resource}")
                    for resource in ("fenced", "unfenced")
                    for name, outcome in (("ok", "ok"), ("refused", "fail"), ("unsure", "info"))
                },
            }
        )
    return rows


def _real(row: Mapping[Any, Any], name: str) -> float | None:
    value = row.get(name)
    return None if value is None or pd.isna(value) else float(value)


def _counts(contender: files.Contender | None) -> str | None:
    """`434 polls, 1 reconnects`: what a contender counted by itself, zeros and what the table has already left out."""
    told = (contender.bye or {}) if contender else {}
    return ", ".join(
        f"{value:,} {name.replace('_', ' ')}"
        for name, value in told.items()
        if name not in IN_TABLE and isinstance(value, int | float) and not isinstance(value, bool) and value
    )


def _facts(trial: files.Trial | None, story: Story | None) -> list[tuple[str, str]]:
    """Versions and settings that stand under the title."""
    facts: list[tuple[str, str]] = []
    if trial is not None:
        if trial.epoch.get("utc"):
            facts.append(("when", words.moment(str(trial.epoch["utc"]))))
        facts += [(name, _version(version)) for name, version in trial.versions.items() if version is not None]
        if trial.endpoints:
            facts.append(("endpoints", _place(trial.endpoints)))
        if trial.cell:
            facts += [(name, _short(value)) for name, value in trial.cell.parameters.items() if value is not None]
        if trial.config.get("seed") is not None and "seed" not in dict(facts):
            facts.append(("seed", str(trial.config["seed"])))
    if story is not None:
        meta = story.meta
        if meta.ttl is not None and "ttl" not in dict(facts):
            facts.append(("ttl", words.seconds(meta.ttl)))
        if meta.uncertainty:
            facts.append(("uncertainty", words.seconds(meta.uncertainty)))
        if not meta.expires:
            facts.append(("leases", "never expire"))
        facts.append(("events", f"{story.events:,}"))
    return facts


def _place(endpoints: Mapping[str, Any]) -> str:
    """Where a cluster that exists is, and how one gets in: "127.0.0.1:2379 (TLS, as locksmith)"."""
    at = endpoints.get("at")
    where = ", ".join(map(str, at.values())) if isinstance(at, Mapping) else "?"
    user = endpoints.get("user")
    how = [*(["TLS"] if endpoints.get("tls") else []), *([f"as {user}"] if user else [])]
    return where + (f" ({', '.join(how)})" if how else "")


def _unseen(trial: files.Trial | None) -> list[str]:
    """What nobody could see of a cluster that isn't ours, a sentence each."""
    told = (trial.endpoints or {}).get("unseen") if trial else None
    return [str(each) for each in told] if isinstance(told, list) else []


def _version(version: Any) -> str:
    """A version in a word or two; of one that is told at length (an engine's) what it says first."""
    if isinstance(version, Mapping):
        return str(next(iter(version.values()), "–"))
    return str(version)


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)


def _images(trial: files.Trial | None) -> list[tuple[str, str, str, str]]:
    """(name, reference, id, origin) of each image."""
    rows = []
    for name, image in (trial.images if trial else {}).items():
        if isinstance(image, Mapping):
            reference, identity, origin = (str(image.get(key) or "–") for key in ("reference", "id", "origin"))
            rows.append((name, reference, identity, origin))
        else:
            rows.append((name, str(image), "–", "–"))
    return rows


def _link(path: Path, target: Path) -> str:
    """A link from the page to a file beside it, safe in an attribute."""
    return quote(os.fsencode(Path(os.path.relpath(path, target.parent)).as_posix()))


def _logs(folder: Path, target: Path) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """For each node its logs: (file name, link, bytes)."""
    logs = folder / "logs"
    if not logs.is_dir():
        return []
    found = []
    for node in sorted(path for path in logs.iterdir() if path.is_dir()):
        kept = [
            (path.name, _link(path, target), path.stat().st_size) for path in sorted(node.iterdir()) if path.is_file()
        ]
        if kept:
            found.append((node.name, kept))
    return found


def _files(folder: Path, target: Path) -> list[tuple[str, str, int]]:
    """The trial's own files."""
    names = (files.TRIAL, files.HISTORY, files.FAULTS, "ledger.jsonl", files.VERDICT, "harness.log")
    return [
        (name, _link(folder / name, target), (folder / name).stat().st_size)
        for name in names
        if (folder / name).is_file()
    ]
