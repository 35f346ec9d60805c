"""What a checker returned: a verdict on this history, or a sentence that says why it is none.

Types are no proof: a checker that somebody else wrote may return anything, and what reads verdicts (tables, JSON,
`--explain`, reports) should not have to ask.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from checkers import words
from checkers.findings import Finding, Verdict
from checkers.intervals import Model

MOST_EVENTS = 100
"""A finding names the few events that prove it; a page has a row for each."""
MOST_COUNT = 2**53
"""So much every reader of JSON can count."""
_NOTE = 20_000
"""Characters of a traceback that a note keeps, its end: the cause stands there."""


def own(verdict: Any, model: Model) -> Verdict:
    """The answer of a checker of ours, if it is one; else "unknown", with what is wrong with it as the note."""
    wrong = _wrong(verdict, model)
    return verdict if wrong is None else _refused(wrong)


def foreign(verdict: Any, model: Model) -> Verdict:
    """The same for a checker that isn't ours: its findings sorted and cut as the contract says, every line an event.

    What comes out can be written as JSON, and read again by whoever reads verdicts.
    """
    wrong = _wrong(verdict, model)
    if wrong is None:
        count = len(verdict.findings) if verdict.count is None else verdict.count
        verdict = replace(verdict, findings=words.ordered(verdict.findings), count=count)
        wrong = _wrong_detail(verdict, model)
    return verdict if wrong is None else _refused(wrong)


def crashed(error: BaseException) -> Verdict:
    """Unknown, and the traceback of what a checker died of."""
    try:
        reason = str(error).strip().partition("\n")[0]
    except BaseException:  # noqa: BLE001  an exception of theirs, whose words may raise as well
        reason = ""
    short = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    note = f"the checker crashed: {short}\n{traceback.format_exc()[-_NOTE:]}"
    return Verdict("unknown", note=note.encode(errors="backslashreplace").decode())


def encode(verdict: Verdict) -> bytes:
    """A verdict as JSON, the times of its findings included, for another process. Only of what `foreign` let pass."""
    whole = {**verdict.to_json(), "note": verdict.note, "certificate": verdict.certificate}
    whole["findings"] = [{**finding.to_json(), "time": finding.time} for finding in verdict.findings]
    return json.dumps(whole, ensure_ascii=False, allow_nan=False).encode()


def decode(data: bytes, model: Model) -> Verdict:
    """A verdict that another process encoded, looked at once more: that process ran the code of others."""
    try:
        verdict = msgspec.json.decode(data, type=Verdict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _refused(f"what can't be read: {error}")
    return foreign(verdict, model)


def _refused(wrong: str) -> Verdict:
    return Verdict("unknown", note=f"the checker returned {wrong}")


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
    if count is not None and (not _is_integer(count) or not len(findings) <= count <= MOST_COUNT):
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
    if finding.lock is not None and (not isinstance(finding.lock, str) or finding.lock not in locks):
        return f"lock={finding.lock!r}, which this history doesn't have"
    if not isinstance(finding.events, Sequence) or not all(_is_integer(line) and line > 0 for line in finding.events):
        return f"events={finding.events!r} where the line numbers of events are due, as Python integers from 1"
    if not _is_integer(finding.time):
        return f"{_a(finding.time)} as time where the ns of its last event are due, as a Python integer"
    return None


def _wrong_detail(verdict: Verdict, model: Model) -> str | None:
    """What is wrong with the listed findings of a verdict that has the right types, or with its figures."""
    for number, finding in enumerate(verdict.findings, 1):
        wrong = _wrong_part(finding, model)
        if wrong is not None:
            return f"finding {number} with {wrong}"
    try:
        data = encode(verdict)
    except (TypeError, ValueError, RecursionError) as error:  # numpy's numbers and arrays, NaN, a circle, a surrogate
        return f"what can't be written as JSON: {error}"
    try:
        json.loads(data, parse_int=_bounded)
    except (ValueError, RecursionError) as error:
        return f"what can't be read again: {error}"
    return None


def _bounded(digits: str) -> int:
    if len(digits) > 19:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _wrong_part(finding: Finding, model: Model) -> str | None:
    seconds = finding.seconds
    if seconds is not None and (not isinstance(seconds, int | float) or isinstance(seconds, bool)):
        return f"{_a(seconds)} as seconds where a number is due"
    if isinstance(seconds, float) and not math.isfinite(seconds):
        return f"seconds={seconds!r}"
    if finding.blame is not None and not isinstance(finding.blame, str):
        return f"{_a(finding.blame)} as blame where a str is due"
    if finding.certificate is not None and not isinstance(finding.certificate, Mapping):
        return f"{_a(finding.certificate)} as certificate where a Mapping is due"
    if len(finding.events) > MOST_EVENTS:
        return f"{len(finding.events)} events, more than {MOST_EVENTS}"
    lines = model.once("lines of events", lambda: np.sort(model.history.line))
    for line in finding.events:
        at = int(np.searchsorted(lines, line)) if line <= MOST_COUNT else len(lines)
        if at == len(lines) or int(lines[at]) != line:
            return f"line {line} among its events, which is no event of this history"
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
