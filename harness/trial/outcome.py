"""From verdicts to the word for a cell and the exit code.

    word            exit  meaning
    as-expected        0  every required verdict is what was expected of it (true, unless the cell says otherwise)
    violation          1  a verdict is false that was not expected to be, or was expected to be false and is not
    unknown            3  a required verdict could not be decided
    inconclusive       3  too few grants or hand-overs, no fault that could have mattered, or a client that knows too
                          little of what became of its requests (blind): the cell proves nothing
    harness-error      4  the harness, a node or the clean-up failed

A violation outranks all others: what the history proves stays proven, whatever failed afterwards. Save one: that
nothing broke where something was expected to proves nothing in a trial that failed, or in which too little happened.
A `faults` verdict that is false (a fault was left in force) is the harness's own failure, never the system's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.findings import gravest
from harness.expectations import RANK, Verdict, wanted
from harness.report import words
from nemesis.bite import Tally

MOST_UNKNOWN = 0.2
"""The share of the operations of a client of the user's own that may end in `info`. With more it is *blind*: an error
table that calls everything unknown keeps every verdict from accusing anybody.
"""
EXIT_CODES = {"as-expected": 0, "violation": 1, "unknown": 3, "inconclusive": 3, "harness-error": 4}


@dataclass(frozen=True)
class Outcome:
    """The word for a cell, why, and the numbers it rests on."""

    word: str
    reasons: Sequence[str]
    valid: Verdict | None
    grants: int
    handovers: int
    tally: Tally | None = None
    """What the faults came to; None in a cell without faults."""

    @property
    def exit_code(self) -> int:
        """What the command exits with for this cell alone."""
        return EXIT_CODES[self.word]

    def to_json(self) -> dict[str, Any]:
        """The object in trial.json and matrix.json (docs/layout.md)."""
        return {
            "word": self.word,
            "exit_code": self.exit_code,
            "valid": self.valid,
            "grants": self.grants,
            "handovers": self.handovers,
            "reasons": list(self.reasons),
            **({} if self.tally is None else {"faults": self.tally.to_json()}),
        }

    @property
    def faults(self) -> str:
        """What the faults came to, in words; nothing in a cell without faults."""
        return words.faults(None if self.tally is None else self.tally.to_json())

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of a green cell must know: why faults could not matter here by design, or missed."""
        return words.fault_notes(None if self.tally is None else self.tally.to_json())


def decide(
    judgement: Mapping[str, Any] | None,
    *,
    expect: Mapping[str, Verdict],
    min_grants: int,
    min_handovers: int,
    handovers: int,
    tally: Tally | None = None,
    errors: Sequence[str] = (),
    strain: str | None = None,
    unknown: float | None = None,
) -> Outcome:
    """The outcome of one cell from the object of `fencepost check --json` (None: the history could not be judged).

    `tally` is what the faults came to, None in a cell without faults. Where none landed, or all that did are known to
    have missed, nothing was tested. One that can't matter by design has been (and says why); one that doesn't measure
    it is given the benefit of the doubt. `strain` says in words that the machine was overloaded; it is told beside
    an outcome that isn't as expected, save for violations that no slowness can bring about. `unknown` is the share of
    the operations that ended in `info`, for a client of the user's own; None for ours, whose error tables are tested.
    """
    if judgement is None or "verdicts" not in judgement:
        reasons = list(errors)
        if judgement is not None and "error" in judgement:
            reasons.append(f"the history can't be read: {judgement['error']}")
        return Outcome("harness-error", reasons or ["the history was not judged"], None, 0, handovers, tally)

    verdicts: Mapping[str, Mapping[str, Any]] = judgement["verdicts"]
    required: Iterable[str] = judgement["required"]
    violations: list[str] = []
    unmet: list[str] = []
    unknowns: list[str] = []
    failures = list(errors)

    def first_words(name: str) -> str:
        findings = verdicts[name].get("findings") or []
        told = findings[gravest(finding.get("kind", "") for finding in findings)] if findings else {}
        return f": {told['text']}" if told.get("text") else ""

    for name in dict.fromkeys([*required, *expect]):
        found = verdicts[name]["valid"]
        expected = wanted(name, expect)
        if expected == "any" or found == expected:
            continue
        if name == "faults":
            (failures if found is False else unknowns).append(f"faults is {_word(found)}{first_words(name)}")
        elif found == "unknown":
            unknowns.append(f"{name} is unknown{first_words(name)}")
        elif found is False:
            violations.append(f"{name} is false{first_words(name)}")
        else:
            unmet.append(f"{name} was expected to be {_word(expected)} and is {_word(found)}")

    grants = int(judgement["grants"])
    few: list[str] = [] if tally is None or tally.landed > 0 else ["no fault landed"]
    if tally is not None and tally.toothless:
        few.append(f"{words.faults(tally.to_json())}: {'; '.join(tally.missed_by[:2])}")
    if grants < min_grants:
        few.append(f"{grants} grants, fewer than {min_grants}")
    if handovers < min_handovers:
        few.append(f"{handovers} hand-overs, fewer than {min_handovers}")
    if unknown is not None and unknown > MOST_UNKNOWN:
        few.append(f"blind: {unknown:.0%} of its operations ended in info, more than {MOST_UNKNOWN:.0%}")

    word = (
        "violation"
        if violations
        else "harness-error"
        if failures
        else "unknown"
        if unknowns
        else "inconclusive"
        if few
        else "violation"
        if unmet
        else "as-expected"
    )
    reasons = [*violations, *failures, *unknowns, *few, *unmet]
    timely = not violations or any(each.startswith("progress ") for each in violations)
    if strain is not None and word != "as-expected" and timely:
        reasons.append(strain)
    return Outcome(word, reasons, judgement["valid"], grants, handovers, tally)


def _word(value: Verdict) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else value


def worst(words: Iterable[str]) -> str:
    """The word that speaks for a whole matrix; one in which nothing was run is a harness error."""
    present = set(words)
    return next((word for word in RANK if word in present), "harness-error")
