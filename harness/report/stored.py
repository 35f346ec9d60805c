"""The verdicts of a trial: those in its verdict.json while they hold, else what is judged anew from its history.

Stored verdicts are never mixed with others. They hold while they are those of this history, of every verdict that is
installed now, and made by the rules of today (`checkers.RULES`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec

from checkers import RULES, judge
from harness import registry
from harness.history import History
from harness.report import files, words


@dataclass(frozen=True)
class Stored:
    """What verdict.json says, and whether it may be shown."""

    checked: files.Checked | None
    """None where there is no such file."""
    stale: str | None = None
    """Why it can't be shown; None where it can, or isn't there."""
    other_rules: bool = False
    """Whether it was made by other rules than today's; then so was the trial's outcome."""


def look(folder: Path, history: Path, *, again: bool = False) -> Stored:
    """The stored verdicts of a trial. `again` distrusts them. Raises ConfigError with file, key and reason."""
    path = folder / files.VERDICT
    checked = files.read_verdict(path)
    if checked is None:
        return Stored(None)
    other = checked.error is None and checked.rules != RULES
    return Stored(checked, _stale(checked, path, history, again), other)


def judged(history: History) -> files.Checked:
    """What `fencepost check --json` says of the history."""
    return msgspec.json.decode(json.dumps(judge(history).to_json()), type=files.Checked)


def by_rules(rules: int | None) -> str:
    """`rules 1`, or what stands for none: the marks came with the second version."""
    return f"rules {rules}" if rules is not None else "rules older than any mark"


def _stale(checked: files.Checked, path: Path, history: Path, again: bool) -> str | None:
    if again:
        return "as was asked"
    if checked.error:
        return f"{files.VERDICT} only says that the history could not be read"
    if checked.rules != RULES:
        return f"{files.VERDICT} was made by {by_rules(checked.rules)}, and today's are rules {RULES}"
    if history.exists() and path.stat().st_mtime < history.stat().st_mtime:
        return f"{files.VERDICT} is older than the history"
    lacking = [name for name in registry.names("verdicts") if name not in checked.verdicts]
    return f"{files.VERDICT} does not know {words.listing(lacking)}" if lacking else None
