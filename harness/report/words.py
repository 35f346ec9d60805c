"""What the report says in words: verdicts, outcomes, events, durations. No markup here, and no judgement of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from harness import registry
from harness.history.events import OUTSIDE, PAUSED

VERDICTS = ("exclusion", "lease", "fencing", "fenced", "damage", "conduct", "linearizable", "progress", "faults")
"""The order in which verdicts are shown; a verdict of a third party follows after these."""

_STATEMENTS: dict[str, dict[str, str]] = {
    "exclusion": {
        "true": "Two contenders never believed at once that they held the lock.",
        "false": "Two contenders believed at once that they held the lock.",
        "unknown": "Whether two contenders believed at once that they held the lock can't be told.",
    },
    "lease": {
        "true": "Every lease was kept for as long as it had been promised.",
        "false": "The service, or the client library through which it was asked, broke a lease that it had promised.",
        "unknown": "Too little is known of the leases to say whether they were kept.",
    },
    "fencing": {
        "true": "Tokens rose strictly in the order of the grants.",
        "false": "Tokens did not rise strictly in the order of the grants.",
        "unknown": "Too few grants carry a token to say whether tokens rise.",
    },
    "fenced": {
        "true": "The resource that checks tokens took no stale write and lost nothing.",
        "false": "The resource that checks tokens took a stale write, or does not hold what it answered.",
        "unknown": "The resource that checks tokens accepted no write that could be judged.",
    },
    "damage": {
        "true": "The twin resource that checks nothing came to no harm either.",
        "false": "The twin resource that checks nothing took a stale write, or does not hold what it answered.",
        "unknown": "The twin resource that checks nothing accepted no write that could be judged.",
    },
    "conduct": {
        "true": "Each contender acted only while it believed in its hold, and left alone what it had given up.",
        "false": "A contender acted on a lock that it did not believe to hold.",
        "unknown": "Nobody was granted the lock, so nobody could act without it.",
    },
    "linearizable": {
        "true": "All grants fit into one order with one holder at a time.",
        "false": "No order of the grants has one holder at a time.",
        "unknown": "Whether all grants fit into one order can't be told.",
    },
    "progress": {
        "true": "No stretch in which the lock was free, wanted and undisturbed was longer than the bound.",
        "false": "Somebody wanted the free lock for longer than the bound, and got nothing.",
        "unknown": "Nothing bounds the wait, nobody tried, or somebody else interfered meanwhile.",
    },
    "faults": {
        "true": "Every fault took effect, and every one was undone.",
        "false": "A fault was not undone.",
        "unknown": "A fault has no proof that it took effect, or somebody other than the nemesis interfered.",
    },
}

BLAME = {
    "service": "the service, or the client library through which it was asked",
    "pause": "a pause of the earlier holder",
    "clock": "a clock that was moved",
    "late-grant": "a grant that arrived after its lease",
    "unseen": "the service or the client: renewals that nobody saw",
    "client": "the client",
}

WITHOUT_END = "The history is cut off, so that this can't be told."

CUT_OFF = "The history is cut off: {}. A line may be missing that clears somebody, so every verdict is unknown."


OUTCOMES = {
    "as-expected": ("as expected", "good"),
    "violation": ("violation", "bad"),
    "unknown": ("unknown", "odd"),
    "inconclusive": ("inconclusive", "odd"),
    "harness-error": ("harness error", "bad"),
}


#: Of a history alone: it says nothing of a twin that the resource had, nor of what it wasn't told.
_OF_A_HISTORY: dict[str, dict[str, str]] = {
    "damage": {
        "true": "The resource that checks nothing came to no harm.",
        "false": "The resource that checks nothing took a stale write, or does not hold what it answered.",
        "unknown": "The resource that checks nothing accepted no write that could be judged.",
    },
    "faults": {"true": "Every fault that was recorded took effect, and every one was undone."},
}

NO_FAULT = "No fault was applied."

NO_FAULT_RECORDED = "No fault was recorded."

NOTHING = "Nothing was recorded: no contender ever did anything, so there is nothing to tell."


def statement(verdict: str, value: str, stats: Mapping[str, Any] | None = None, *, trial: bool = True) -> str:
    """One sentence on what a verdict's value ("true", "false", "unknown") means; of a plug-in what it asks.

    `stats` are the verdict's own figures: `faults` is true also where there was none. Without a `trial` it is said of a
    history that others may have recorded.
    """
    if verdict == "faults" and value == "true" and stats and stats.get("faults") == 0:
        none = NO_FAULT if trial else NO_FAULT_RECORDED
        return "Every fault was skipped, so none took effect." if stats.get("skipped") else none
    if not trial and value in (own := _OF_A_HISTORY.get(verdict, {})):
        return own[value]
    known = _STATEMENTS.get(verdict)
    return known[value] if known else question(verdict) or f"The verdict {verdict} is {value}."


def question(verdict: str) -> str | None:
    """The line of `fencepost list` for a verdict of a third party; None for ours, and for one that isn't there now."""
    return None if verdict in _STATEMENTS else registry.headline("verdicts", verdict)


def outcome(word: str) -> tuple[str, str]:
    """An outcome's words and its tone: `good`, `bad` or `odd`."""
    return OUTCOMES.get(word, (word, "odd"))


def by_other_rules(word: str) -> tuple[str, str]:
    """The words of an outcome that rests on verdicts of other rules than today's, and its tone."""
    return f"{word}, by the rules of then", "odd"


def truth(value: Any) -> str:
    """A verdict's value as a word: "true", "false" or "unknown"."""
    return "true" if value is True else "false" if value is False else "unknown"


def in_order(names: Mapping[str, Any]) -> list[str]:
    """Verdict names in the order of VERDICTS; others after them, as they come."""
    return [name for name in VERDICTS if name in names] + [name for name in names if name not in VERDICTS]


def seconds(value: float | None) -> str:
    """A duration or instant in seconds, with as many digits as it deserves; "–" for none, "∞" for never."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    size = abs(value)
    if size >= 99.995:
        return f"{value:,.1f} s"
    if size >= 0.9995:
        return f"{value:.2f} s"
    if size >= 0.00995:
        return f"{value * 1e3:.0f} ms"
    if size >= 0.00099995:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} µs" if size else "0 s"


def moment(iso: str) -> str:
    """An ISO 8601 time as `2026-11-29 21:25:13 UTC`; what isn't one, as it is."""
    try:
        read = datetime.fromisoformat(iso)
        return iso if read.tzinfo is None else f"{read.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):
        return iso


def instant(value: float) -> str:
    """A point on the time axis, to the millisecond."""
    return f"{value:,.3f} s"


def share(value: float | None) -> str:
    """A share as per cent."""
    if value is None or math.isnan(value):
        return "–"
    return f"{100 * value:.1f} %"


def whole(value: float | None) -> str:
    """A number of things; "–" when unknown."""
    return "–" if value is None or math.isnan(value) else f"{value:,.0f}"


def count(number: int, one: str, many: str | None = None) -> str:
    """`3 grants`, `1 grant`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listing(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) <= 1:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def bit(value: Any) -> str:
    """Whether a fault had the chance to matter, as its stop says; nothing where it doesn't."""
    if value is None:
        return ""
    return {True: "it could matter", False: "it had no chance to matter"}.get(value, "by design it can't matter")


def faults(counts: Mapping[str, Any] | None) -> str:
    """What the faults of a trial came to: `3 faults, 3 bit`, `3 faults, 1 bit, 2 missed`, `3 faults, immune`.

    `counts`: how many landed, bit, missed, were immune; None in a cell without faults, which says nothing.
    """
    if counts is None:
        return ""
    landed = counts.get("landed", 0)
    if not landed:
        return "no fault landed"
    said = {word: counts.get(word, 0) for word in ("bit", "missed", "immune")}
    said["not measured"] = landed - sum(said.values())
    parts = [(word, number) for word, number in said.items() if number > 0]
    if len(parts) == 1 and parts[0][0] in ("immune", "not measured"):
        return f"{count(landed, 'fault')}, {parts[0][0]}"
    return ", ".join([count(landed, "fault"), *(f"{number} {word}" for word, number in parts)])


def fault_notes(counts: Mapping[str, Any] | None) -> list[str]:
    """Why faults could not matter by design, or missed, each reason once; of what `faults` takes."""
    reasons = counts or {}
    return [
        *(f"immune by design: {reason}" for reason in reasons.get("immune_by", ())),
        *(f"missed: {reason}" for reason in reasons.get("missed_by", ())),
    ]


def scalars(evidence: Any) -> str:
    """The plain values at the top of a fault's evidence: `offset 30.0, clocks realtime`."""
    if not isinstance(evidence, Mapping):
        return ""
    return ", ".join(f"{name} {value}" for name, value in evidence.items() if isinstance(value, str | int | float))


def who(process: Any) -> str:
    """Who did an event."""
    if isinstance(process, bool) or not isinstance(process, int):
        return str(process)
    return f"contender {process}"


def event(keys: Mapping[str, Any]) -> str:
    """What an event says, in words: `acquire: granted, token 34`."""
    f, kind = str(keys.get("f", "?")), str(keys.get("type", "?"))
    extra: list[str] = []
    if f == "fault":
        phase = {"start": "begins", "stop": "ends"}.get(str(keys.get("phase")), str(keys.get("phase")))
        what = f" ({keys.get('what') or PAUSED})" if keys.get("kind") == OUTSIDE else ""
        text = f"fault {keys.get('id', '')} {phase}: {keys.get('kind', '?')}{what}"
        if keys.get("targets"):
            extra.append("on " + ", ".join(str(target) for target in keys["targets"]))
        if keys.get("receipt"):
            extra.append(str(keys["receipt"]))
        if keys.get("bit") is not None:
            extra.append(bit(keys["bit"]))
    elif f == "audit":
        found = keys.get("ids")
        text = f"the {keys.get('resource', '?')} resource was read as a whole"
        extra.append(f"{count(len(found) if isinstance(found, list) else 0, 'write')} found")
    elif f in ("lost", "crash"):
        text = {"lost": "no longer believes that it holds", "crash": "crashed"}[f]
        if keys.get("reason"):
            extra.append(str(keys["reason"]))
    else:
        text = {
            ("acquire", "invoke"): "asks for the lock",
            ("acquire", "ok"): "is granted the lock",
            ("acquire", "fail"): "did not get the lock",
            ("acquire", "info"): "does not know whether it got the lock",
            ("renew", "invoke"): "asks to renew",
            ("renew", "ok"): "has renewed",
            ("renew", "fail"): "could not renew",
            ("renew", "info"): "does not know whether it renewed",
            ("release", "invoke"): "gives the lock up",
            ("release", "ok"): "has given the lock up",
            ("release", "fail"): "could not give the lock up",
            ("release", "info"): "does not know whether it gave the lock up",
            ("write", "invoke"): "writes",
            ("write", "ok"): "write accepted",
            ("write", "fail"): "write refused",
            ("write", "info"): "does not know whether the write was accepted",
        }.get((f, kind), f"{f} {kind}")
        if keys.get("resource"):
            extra.append(f"{keys['resource']} resource")
        for key in ("id", "token", "seq", "read", "version"):
            if keys.get(key) is not None:
                extra.append(f"{key} {keys[key]}")
        if keys.get("ttl") is not None:
            extra.append(f"ttl {keys['ttl']} s")
        if keys.get("held") is False:
            extra.append("the service says: not held")
        if keys.get("proves") is False:
            extra.append("which proves nothing")
        if keys.get("renewals") == "unseen":
            extra.append("its renewals are unseen")
    if keys.get("error"):
        extra.append(str(keys["error"]))
    return text + (", " + ", ".join(extra) if extra else "")
