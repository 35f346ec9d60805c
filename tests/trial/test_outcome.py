"""What word and exit code a cell gets from its verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from harness.expectations import surprising, wanted
from harness.report import words
from harness.trial.live import LiveState
from harness.trial.outcome import EXIT_CODES, decide, worst
from nemesis.bite import Bite, Tally

REQUIRED = ["lease", "fencing", "linearizable", "fenced", "progress", "faults"]


def judgement(grants: int = 40, **verdicts: Any) -> dict[str, Any]:
    values = {**dict.fromkeys([*REQUIRED, "exclusion", "damage"], True), **verdicts}
    false = any(values[name] is False for name in REQUIRED)
    return {
        "valid": not false,
        "required": REQUIRED,
        "grants": grants,
        "verdicts": {name: {"valid": value, "findings": []} for name, value in values.items()},
    }


def word(found: dict[str, Any] | None, expect: dict[str, Any] | None = None, handovers: int = 20, **more: Any) -> str:
    return decide(found, expect=expect or {}, min_grants=10, min_handovers=4, handovers=handovers, **more).word


def test_all_true_is_as_expected() -> None:
    """A cell whose required verdicts are all true exits with 0."""
    assert word(judgement()) == "as-expected"


def test_damage_and_exclusion_are_not_required() -> None:
    """A naive holder that damages the unfenced resource is a finding, not a failure of the lock."""
    assert word(judgement(damage=False, exclusion=False)) == "as-expected"


def test_a_violation_outranks_an_unknown_and_an_error() -> None:
    """What the history proves stays proven, whatever else was unknown or failed."""
    assert word(judgement(lease=False, progress="unknown"), errors=["a contender died"]) == "violation"


def test_an_expected_violation_is_no_failure() -> None:
    """`lease = false` expected and found; `linearizable` follows from it and needs no word of its own."""
    assert word(judgement(lease=False, linearizable=False), {"lease": False}) == "as-expected"


def test_a_page_is_surprised_by_what_made_the_outcome() -> None:
    """The outcome and the pages ask one function: something is flagged exactly where that made a violation."""
    expectations: list[dict[str, Any]] = [
        {},
        *({name: value} for name in ("lease", "fencing", "damage") for value in (False, "any", True)),
    ]
    for expect in expectations:
        for name in ("lease", "fencing", "linearizable", "damage"):
            for value in (True, False):
                found = judgement(**{name: value})
                values = {each: part["valid"] for each, part in found["verdicts"].items()}
                flagged = [each for each in values if surprising(each, values[each], REQUIRED, expect)]
                assert (word(found, expect) == "violation") == bool(flagged), (expect, name, value, flagged)
    assert not surprising("lease", "unknown", REQUIRED, {})
    assert wanted("linearizable", {"fencing": "any"}) == "any"


def test_the_graver_finding_is_the_reason() -> None:
    """A grant inside a promise before the refusal that came of it."""
    found = judgement(lease=False)
    found["verdicts"]["lease"]["findings"] = [
        {"kind": "early-expiry", "text": "Refused."}, {"kind": "early-grant", "text": "Both had it."},
    ]  # fmt: skip
    outcome = decide(found, expect={}, min_grants=10, min_handovers=4, handovers=20)
    assert outcome.reasons == ["lease is false: Both had it."]


def test_an_expected_violation_that_does_not_come_is_one() -> None:
    """A lock that is wrong on purpose and isn't caught means that the harness saw too little."""
    assert word(judgement(), {"lease": False}) == "violation"


def test_nothing_broken_where_nothing_happened_accuses_nobody() -> None:
    """A trial that failed, or in which too little happened, is no proof that what was expected doesn't come."""
    expect = {"exclusion": False}
    assert word(judgement(grants=0), expect, errors=["contender 0 said no hello"]) == "harness-error"
    assert word(judgement(grants=3), expect) == "inconclusive"
    assert word(judgement(), expect, tally=Tally()) == "inconclusive"
    assert word(judgement(progress="unknown"), expect) == "unknown"


def test_an_expectation_speaks_for_its_own_verdict_alone() -> None:
    """`lease = false` excuses no fall of the fencing tokens."""
    assert word(judgement(lease=False, fencing=False), {"lease": False}) == "violation"


def test_a_verdict_that_is_not_required_can_be_expected() -> None:
    """`damage = true` says: not even the unfenced resource may be hurt here."""
    assert word(judgement(damage=False), {"damage": True}) == "violation"


def test_a_fault_left_in_force_is_the_harness_failure() -> None:
    """`faults` false accuses no lock."""
    assert word(judgement(faults=False)) == "harness-error"


def test_a_fault_without_receipt_leaves_the_cell_unknown() -> None:
    """Nobody has to trust a green cell: a fault that may not have landed proves nothing."""
    assert word(judgement(faults="unknown")) == "unknown"


@pytest.mark.parametrize(("grants", "handovers"), [(9, 20), (40, 3)])
def test_too_little_is_inconclusive(grants: int, handovers: int) -> None:
    """Too few grants, or always the same holder: the cell proves nothing."""
    assert word(judgement(grants), handovers=handovers) == "inconclusive"


def test_a_client_that_mostly_does_not_know_is_blind_and_never_green() -> None:
    """An error table that calls everything unknown clears everybody; what was found all the same stays found."""
    assert word(judgement(), unknown=0.2) == "as-expected"
    assert word(judgement(), unknown=0.21) == "inconclusive"
    assert word(judgement(exclusion=False), {"exclusion": False}, unknown=0.21) == "inconclusive"
    assert word(judgement(lease=False), unknown=0.9) == "violation"
    told = decide(judgement(), expect={}, min_grants=10, min_handovers=4, handovers=20, unknown=0.461)
    assert list(told.reasons) == ["blind: 46% of its operations ended in info, more than 20%"]


def test_how_much_is_unknown_counts_what_is_asked_of_the_lock() -> None:
    """Completions of acquire, renew and release: no invokes, no writes, and no faults."""
    live = LiveState()
    assert live.unknown_share == 0
    for kind, f in [
        ("invoke", "acquire"), ("info", "acquire"), ("ok", "acquire"), ("fail", "renew"), ("ok", "release"),
        ("info", "write"), ("info", "lost"), ("ok", "acquire"),
    ]:  # fmt: skip
        live.feed({"time": 1, "type": kind, "f": f, "process": 0, "reason": "expired"})
    assert live.unknown_share == 1 / 5


def test_a_cell_in_which_no_fault_landed_is_inconclusive() -> None:
    """Skipped faults are no failure, but a cell that had no other shows nothing of what it is named after."""
    assert word(judgement(), tally=Tally()) == "inconclusive"
    assert word(judgement(), tally=Tally(landed=1)) == "as-expected"


def test_what_others_did_is_a_harness_error_unless_the_history_proves_a_violation() -> None:
    """The history says itself that nobody can be blamed for standing still; a lease broken meanwhile is broken."""
    paused = {"errors": ["redis on n1 was paused, and no fault did that"]}
    assert word(judgement(progress="unknown", faults="unknown"), **paused) == "harness-error"
    assert word(judgement(progress="unknown", faults="unknown", lease=False), **paused) == "violation"


def test_no_judgement_is_a_harness_error() -> None:
    """A history that can't be judged is never a pass."""
    assert word(None) == "harness-error"
    assert word({"path": "x", "error": {"line": 3, "reason": "not JSON"}}) == "harness-error"


def test_the_worst_word_speaks_for_a_matrix() -> None:
    """A violation outranks all."""
    assert worst(["as-expected", "unknown", "violation", "harness-error"]) == "violation"
    assert worst(["as-expected", "unknown", "harness-error"]) == "harness-error"
    assert worst([]) == "harness-error", "a matrix in which nothing ran must never look like a pass"
    assert [EXIT_CODES[name] for name in ("as-expected", "violation", "unknown", "harness-error")] == [0, 1, 3, 4]


def tally(*bits: Any) -> Tally:
    """Of faults that landed: True, False, "immune", or None where it isn't measured."""
    found = Tally()
    for bit in bits:
        remedy = "fault_on of at least 5.4 s" if bit is False else None
        found = found.with_(None if bit is None else Bite(bit, f"because it is {bit}", remedy=remedy))
    return found


@pytest.mark.parametrize(
    ("bits", "expected", "said"),
    [
        ((True, True, True), "as-expected", "3 faults, 3 bit"),
        ((True, False, False), "as-expected", "3 faults, 1 bit, 2 missed"),
        ((False, False), "inconclusive", "2 faults, 2 missed"),
        (("immune", "immune"), "as-expected", "2 faults, immune"),
        (("immune", False), "as-expected", "2 faults, 1 missed, 1 immune"),
        ((None, None), "as-expected", "2 faults, not measured"),
        ((None, False), "as-expected", "2 faults, 1 missed, 1 not measured"),
        ((), "inconclusive", "no fault landed"),
    ],
)
def test_a_cell_in_which_no_fault_bit_proves_nothing(bits: tuple[Any, ...], expected: str, said: str) -> None:
    """It says why, and what to set. Faults that can't matter by design do not make it so, nor those of others that
    don't measure it.
    """
    found = decide(judgement(), expect={}, min_grants=10, min_handovers=4, handovers=20, tally=tally(*bits))
    assert (found.word, found.faults) == (expected, said)
    if expected == "inconclusive" and bits:
        assert found.reasons == ["2 faults, 2 missed: because it is False; it takes fault_on of at least 5.4 s"]
    told = found.to_json()["faults"]
    assert words.faults(told) == said
    assert Tally.from_json(told) == tally(*bits)
    assert words.fault_notes(told) == found.notes


def test_why_a_green_cell_is_green_is_said_once() -> None:
    """The reason of an immune one, and of one that missed; nothing of those that bit."""
    found = decide(
        judgement(),
        expect={},
        min_grants=10,
        min_handovers=4,
        handovers=20,
        tally=tally(True, "immune", "immune", False),
    )
    assert list(found.notes) == [
        "immune by design: because it is immune",
        "missed: because it is False; it takes fault_on of at least 5.4 s",
    ]


def test_a_violation_outranks_a_fault_that_missed() -> None:
    """What was proven is, with or without it; what did not come where nothing bit accuses nobody."""
    assert word(judgement(lease=False), tally=tally(False)) == "violation"
    assert word(judgement(), {"lease": False}, tally=tally(False)) == "inconclusive"
