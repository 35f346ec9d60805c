"""Judging one history: every verdict, and the overall word."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkers import words
from checkers.findings import Finding, Verdict, Word
from checkers.intervals import Model, build
from harness import registry
from harness.errors import UsageError
from harness.history.events import ACQUIRE, FENCED, NONE, OK, WRITE, History

#: Counts the versions of the contract (docs/contract.md) by which histories are judged, and changes with it. Every
#: judgement carries it, so that one made by other rules is not taken for one of today's.
RULES = 2

#: The order in which verdicts are shown; others that are registered follow.
BUILT_IN = ("exclusion", "lease", "fencing", "fenced", "damage", "linearizable", "progress", "faults")


@dataclass(frozen=True)
class Judgement:
    """What was decided about one history."""

    path: str
    valid: Word
    required: tuple[str, ...]
    verdicts: dict[str, Verdict]
    events: int
    grants: int

    def to_json(self) -> dict[str, Any]:
        """One object of `fencepost check --json`."""
        return {
            "path": self.path,
            "valid": self.valid,
            "required": list(self.required),
            "verdicts": {name: verdict.to_json() for name, verdict in self.verdicts.items()},
            "events": self.events,
            "grants": self.grants,
            "rules": RULES,
        }


def judge(
    history: History,
    require: Sequence[str] | None = None,
    owners: bool | None = None,
    certificates: bool = False,
) -> Judgement:
    """Decides every registered verdict of a history.

    `require` names the verdicts that make up the overall word, else the meta's list, else the contract's default.
    `owners=False` judges as a mutex that any process may release, whatever the meta says. `certificates` adds to
    `linearizable` what its answer can be checked by. Raises `UsageError` for a required verdict that nobody registered.
    A checker that crashes, can't be imported or returns what isn't a verdict gives "unknown" with the reason in `note`:
    never a pass, never the loss of the others.
    """
    known = verdict_names()
    wanted = require if require is not None else history.meta.require
    for name in wanted or ():
        if name not in known:
            raise UsageError(f"required verdict {name!r} is unknown (known: {', '.join(known)})")
    owned = history.meta.owners if owners is None else owners
    required = tuple(dict.fromkeys(wanted)) if wanted is not None else _default_required(history, owned)
    try:
        model = build(history, owners=owners, certificates=certificates)
    except Exception as error:  # noqa: BLE001  as in `_run`: without the model nothing is known, and nothing passes
        verdicts = dict.fromkeys(known, _crashed(error))
    else:
        verdicts = {name: _run(name, model) for name in known}
    grants = int(((history.f == ACQUIRE) & (history.type == OK)).sum())
    return Judgement(
        path=history.path,
        valid=_overall([verdicts[name].valid for name in required], grants >= history.meta.min_grants),
        required=required,
        verdicts=verdicts,
        events=len(history),
        grants=grants,
    )


def verdict_names() -> tuple[str, ...]:
    """All registered verdicts, the built-in ones first."""
    registered = registry.names("verdicts")
    return tuple(name for name in BUILT_IN if name in registered) + tuple(
        name for name in registered if name not in BUILT_IN
    )


def _run(name: str, model: Model) -> Verdict:
    try:
        return _checked(name, registry.load("verdicts", name)(model), model)
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a checker dies of (its import too), the others stand
        return _crashed(error)


def _crashed(error: BaseException) -> Verdict:
    reason = str(error).strip().partition("\n")[0]
    short = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    return Verdict("unknown", note=f"the checker crashed: {short}\n{traceback.format_exc()}")


def _checked(name: str, verdict: Any, model: Model) -> Verdict:
    """A checker's answer, if it is one; else "unknown", with what is wrong with it as the note.

    Types are no proof: a checker that somebody else wrote may return anything, and what reads verdicts (tables, JSON,
    `--explain`, reports) should not have to ask. Of a checker that isn't ours the findings are sorted and cut as the
    contract says.
    """
    wrong = _wrong(verdict, model)
    if wrong is None and name not in BUILT_IN:
        count = len(verdict.findings) if verdict.count is None else verdict.count
        verdict = replace(verdict, findings=words.ordered(verdict.findings), count=count)
        try:
            json.dumps(verdict.to_json(), allow_nan=False)
        except (TypeError, ValueError) as error:  # numpy's numbers and arrays, NaN, a circle
            wrong = f"what can't be written as JSON: {error}"
    return verdict if wrong is None else Verdict("unknown", note=f"the checker returned {wrong}")


def _wrong(verdict: Any, model: Model) -> str | None:
    """What keeps something from being a verdict on this history, as the object of "the checker returned"."""
    if not isinstance(verdict, Verdict):
        return f"{_a(verdict)} where a checkers.Verdict is due"
    valid, findings, count = verdict.valid, verdict.findings, verdict.count
    if not isinstance(valid, bool) and not (isinstance(valid, str) and valid == "unknown"):
        return f"valid={valid!r} ({_a(valid)}) where True, False or 'unknown' is due"
    if not isinstance(findings, Sequence) or isinstance(findings, str):
        return f"{_a(findings)} as findings where a list is due"
    for number, finding in enumerate(findings, 1):
        if not isinstance(finding, Finding):
            return f"{_a(finding)} as finding {number} where a checkers.Finding is due"
        wrong = _wrong_finding(finding, model)
        if wrong is not None:
            return f"finding {number} with {wrong}"
    if count is not None and (not _is_integer(count) or count < len(findings)):
        return f"count={count!r} with {len(findings)} findings"
    for what, value, kind in (
        ("stats", verdict.stats, Mapping),
        ("certificate", verdict.certificate, Mapping),
        ("note", verdict.note, str),
    ):
        if not isinstance(value, kind) and (value is not None or what == "stats"):
            return f"{_a(value)} as {what} where {_a_type(kind)} is due"
    return None


def _wrong_finding(finding: Finding, model: Model) -> str | None:
    if not isinstance(finding.kind, str) or not isinstance(finding.text, str):
        return "a kind or text that isn't a string"
    locks = model.once("lock names", lambda: frozenset(model.history.locks))
    if finding.lock is not None and finding.lock not in locks:
        return f"lock={finding.lock!r}, which this history doesn't have"
    if not isinstance(finding.events, Sequence) or not all(_is_integer(line) and line > 0 for line in finding.events):
        return f"events={finding.events!r} where the line numbers of events are due, as Python integers from 1"
    if not _is_integer(finding.time):
        return f"{_a(finding.time)} as time where the ns of its last event are due, as a Python integer"
    return None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _a(value: object) -> str:
    return "None" if value is None else _a_type(type(value))


def _a_type(kind: type) -> str:
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "collections.abc")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _default_required(history: History, owners: bool) -> tuple[str, ...]:
    names = ["lease"] if owners else []
    granted = (history.f == ACQUIRE) & (history.type == OK)
    if owners and bool((history.token[granted] != NONE).any()):
        names.append("fencing")
    if bool(((history.f == WRITE) & (history.type == OK) & (history.resource == FENCED)).any()):
        names.append("fenced")
    names.append("linearizable")
    if history.meta.progress_bound is not None:
        names.append("progress")
    names.append("faults")
    return tuple(names)


def _overall(words: list[Word], enough: bool) -> Word:
    if any(word is False for word in words):
        return False
    return True if enough and all(word is True for word in words) else "unknown"
