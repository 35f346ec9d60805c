"""The words of findings: names of contenders, tokens and spans of time, said the same way everywhere."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping

from checkers import pairs
from checkers.findings import LISTED, Finding
from checkers.intervals import SECOND, Model
from harness.history.events import NONE, OUTSIDE, PAUSED, RELEASE, Fault, Ints

#: So many pairs are looked at before the first `LISTED` by the time of their last event are picked.
_LOOKED_AT = 20 * LISTED

#: So many faults are named in one sentence.
_NAMED = 3

#: Whom a broken promise is laid at: what stands between a client and the service may have made it of a right answer.
SERVICE = "the service, or the client library through which it was asked"

BLAME = f"To blame is {SERVICE}"
"""How a sentence that says so begins."""


def seconds(ns: int) -> float:
    """ns as seconds, exact enough to be printed."""
    return ns / SECOND


def span(ns: int) -> str:
    """A length of time as people write it: `2.500 s`, `1.2 ms`, `40 ns`."""
    if ns == 0:
        return "0 s"
    if abs(ns) >= SECOND // 10:
        return f"{ns / SECOND:.3f} s"
    if abs(ns) >= 10_000:
        return f"{ns / 1_000_000:.3f} ms"
    return f"{ns} ns"


def after(ns: int, since: int) -> str:
    """A time relative to the first event of a finding: `2.500 s later`, `at the same instant`."""
    delta = ns - since
    if delta == 0:
        return "at the same instant"
    return f"{span(delta)} later" if delta > 0 else f"{span(-delta)} before that"


def at(ns: int, since: int) -> str:
    """A point in time relative to the first event of a finding: `+2.500 s`."""
    return f"-{span(since - ns)}" if ns < since else f"+{span(ns - since)}"


def sentence(text: str) -> str:
    """A text with a capital at its beginning and a full stop at its end."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def beside(required: Iterable[str], words: Mapping[str, object]) -> str | None:
    """What an overall word leaves out: `exclusion and damage are false, and not required`; None where that is nothing.
    `words` is what each verdict says (true, false or "unknown")."""
    wanted = set(required)
    names = [name for name, word in words.items() if word is False and name not in wanted]
    if not names:
        return None
    listed = " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
    return f"{listed} {'is' if len(names) == 1 else 'are'} false, and not required"


def who(model: Model, grant: int) -> str:
    return f"contender {model.process_id(grant)}"


def token(model: Model, grant: int) -> str:
    """` (token 7)`, or nothing where there is none."""
    value = int(model.token[grant])
    return "" if value == NONE else f" (token {value})"


def lock(model: Model, grant: int) -> str:
    return f"lock {model.lock_name(grant)!r}"


def operation(model: Model, row: int) -> str:
    """`release` or `renew`, whichever a row is of."""
    return "release" if model.history.f[row] == RELEASE else "renew"


def fault(fault: Fault) -> str:
    """`fault 'f1' (freeze on c0, contender 0)`."""
    on = ", ".join([*fault.targets, *(f"contender {process}" for process in fault.processes)])
    what = f"{OUTSIDE}: {fault.what or PAUSED}" if fault.outside else fault.kind or "of unknown kind"
    return f"fault {fault.id!r} ({what}{' on ' + on if on else ''})"


def meanwhile(model: Model, low: int, high: int) -> str:
    """A sentence, after a space, on the faults that were active in [low, high] (ns), where there were any: what was
    broken meanwhile, and no word on whether that is why."""
    active = [
        each
        for each in model.history.faults
        if not each.skipped and each.start <= high and (each.stop is None or each.stop >= low)
    ]
    if not active:
        return ""
    named = [fault(each) for each in active[:_NAMED]]
    more = f" and {len(active) - _NAMED} more" if len(active) > _NAMED else ""
    return f" Meanwhile {', '.join(named)}{more} {'was' if len(active) == 1 else 'were'} active."


def lines(model: Model, rows: Iterable[int]) -> tuple[tuple[int, ...], int]:
    """The line numbers of rows in order of time, each once, and the time of the last. Rows past the end are dropped."""
    count = len(model.history)
    kept = sorted({int(row) for row in rows if 0 <= row < count})
    return tuple(model.line(row) for row in kept), int(model.history.time[kept[-1]]) if kept else 0


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by the time of their last event (ties by their lines), cut to those that are listed."""
    return sorted(findings, key=lambda finding: (finding.time, finding.events, finding.kind))[:LISTED]


def all_pairs(model: Model, until: Ints) -> Iterator[tuple[int, int]]:
    """The pairs (a, b) of `pairs.listed` with s = ok and t = `until`, of all locks together, by ascending b."""

    def of(group: Ints) -> Iterator[tuple[int, int]]:
        for i, j in pairs.listed(model.ok[group], until[group]):
            yield int(group[j]), int(group[i])

    for b, a in heapq.merge(*(of(group) for group in model.by_lock)):
        yield a, b


def pick_pairs(
    model: Model,
    until: Ints,
    count: int,
    evidence: Callable[[Model, int, int], list[int]],
    tell: Callable[[Model, int, int, list[int]], Finding],
) -> list[Finding]:
    """The first `LISTED` of `count` pair findings by the time of their last event, without making them all.

    A pair's last event is never before b's ok, and pairs come by ascending b: once enough of those seen end before
    the ok of the pair at hand, no later one can come before them. Where proofs lie so far behind that this doesn't
    happen within `_LOOKED_AT` pairs, the two grants are listed as the only events.
    """
    if not count:
        return []
    ok_row, rows_of = model.ok_row, {}
    last_row: list[tuple[int, int, int]] = []
    horizon = len(model.history)
    for a, b in all_pairs(model, until):
        if len(last_row) == _LOOKED_AT:
            horizon = int(ok_row[b])
            break
        rows = evidence(model, a, b)
        rows_of[a, b] = rows
        last_row.append((max(row for row in rows if row < len(model.history)), a, b))
    settled = sorted(entry for entry in last_row if entry[0] < horizon)
    if count <= _LOOKED_AT or len(settled) >= LISTED:
        return [tell(model, a, b, rows_of[a, b]) for _, a, b in settled[:LISTED]]
    return [tell(model, a, b, [int(ok_row[a]), int(ok_row[b])]) for _, a, b in last_row[:LISTED]]
