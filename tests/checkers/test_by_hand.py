"""Corners of the contract, each a small history and what must be said of it."""

from __future__ import annotations

from typing import Any

import pytest

from checkers import Judgement, Verdict, judge
from checkers.intervals import INF, build
from harness import registry
from harness.errors import HistoryError, UsageError
from harness.history import from_events
from harness.history.events import NONE
from tests.checkers.make import S, grant, make


def kinds(judgement: Judgement, name: str) -> list[str]:
    return [finding.kind for finding in judgement.verdicts[name].findings]


def nemesis(second: float, phase: str, name: str = "f", **keys: Any) -> tuple[Any, ...]:
    return (second, "nemesis", "info fault", {"phase": phase, "id": name, **keys})


# -- intervals ---------------------------------------------------------------------------------------------------------


def test_promise_counts_from_when_the_last_success_was_sent() -> None:
    """lease_from, else the invoke; then the last renew that returned ok; shortened by the rate tolerance."""
    model = build(
        make(
            *grant(0, 1, 0, ttl=10),
            *grant(0, 1, 1, ttl=10, lease_from=S // 2),
            *grant(0, 1, 2, ttl=10),
            (3, 2, "invoke renew"),
            (4, 2, "ok renew"),
            (5, 2, "invoke renew"),
            (6, 2, "fail renew"),
            rate_tolerance=0.1,
        )
    )
    assert model.promise.tolist() == [9 * S, 9 * S + S // 2, 12 * S]


def test_a_renew_of_unknown_outcome_may_have_shortened_the_lease() -> None:
    """It extends nothing; its shorter ttl may hold, even when it was sent before the last success."""
    model = build(
        make(
            *grant(0, 1, 0, ttl=10),
            (2, 0, "invoke renew", {"ttl": 3}),
            (3, 0, "info renew"),
            (4, 0, "invoke renew"),
            (5, 0, "ok renew"),
            *grant(0, 1, 1, ttl=10),
            (2, 1, "invoke renew", {"ttl": 30}),
        )
    )
    assert model.promise.tolist() == [7 * S, 10 * S]


def test_an_unknown_ttl_leaves_no_promise() -> None:
    """Not of the acquire, and not of a renew of unknown outcome that gives none; but a renew's own ttl is known."""
    model = build(
        make(
            *grant(0, 1, 0),
            *grant(0, 1, 1),
            (2, 1, "invoke renew", {"ttl": 3}),
            (3, 1, "ok renew"),
            *grant(0, 1, 2),
            (2, 2, "invoke renew", {"ttl": 3}),
            (3, 2, "ok renew"),
            (4, 2, "invoke renew"),
        )
    )
    assert model.promise.tolist() == [NONE, 5 * S, NONE]
    assert model.L.tolist() == [NONE, 5 * S, 2 * S]


def test_what_completes_after_the_next_acquire_says_nothing_certain() -> None:
    """A renew and a release that are answered only then count as unknown: no proof, no `ended`."""
    model = build(
        make(
            *grant(0, 1, 0, ttl=5),
            (2, 0, "invoke renew"),
            (3, 0, "invoke release"),
            (4, 0, "invoke acquire"),
            (5, 0, "ok renew"),
            (5, 0, "fail release", {"held": False}),
            (6, 0, "ok acquire"),
        )
    )
    assert model.proven.tolist() == [NONE, NONE]
    assert model.ended.tolist() == [INF, INF]
    assert model.L.tolist()[0] == 3 * S  # the release that may have worked


def test_a_crash_ends_what_is_own_and_the_next_acquire_ends_the_hold() -> None:
    """After a crash nothing is the grant's own; L still ends at that process's next acquire, not at the crash."""
    model = build(
        make(
            *grant(0, 1, 0, ttl=50),
            (2, 0, "info crash"),
            (3, 0, "invoke release"),
            (4, 0, "ok release"),
            (8, 0, "invoke acquire"),
        )
    )
    assert model.belief_end.tolist() == [2 * S]
    assert model.proven.tolist() == [NONE]
    assert model.L.tolist() == [8 * S]


def test_events_of_one_process_at_one_instant_come_by_line() -> None:
    """A renew on the line before its own `lost` is still before it, one after it is not."""
    events = [*grant(0, 1, 0, ttl=9), (2, 0, "invoke renew"), (2, 0, "info lost", {"reason": "expired"})]
    first = make(*events, (2, 0, "ok renew"))
    swapped = make(*events[:2], events[3], events[2], (2, 0, "ok renew"))
    assert kinds(judge(first), "lease") == ["early-expiry"]
    assert kinds(judge(swapped), "lease") == ["early-expiry", "revived"]
    assert build(first).proven.tolist() == [2 * S]
    assert build(swapped).proven.tolist() == [NONE]


def test_locks_are_apart() -> None:
    """A release of another lock, and an acquire of it, end nothing; a crash ends every hold of its process."""
    model = build(
        make(
            *grant(0, 1, 0, lock="a"),
            *grant(0, 1, 0, lock="b"),
            (2, 0, "invoke release", {"lock": "b"}),
            (5, 0, "info crash"),
        )
    )
    assert dict(zip([model.lock_name(g) for g in range(2)], model.belief_end.tolist(), strict=True)) == {
        "a": 5 * S,
        "b": 2 * S,
    }


def test_an_endless_lock() -> None:
    """`expires: false`: the promise never ends, whatever ttl is given; what isn't given back is held for ever."""
    judgement = judge(make(*grant(0, 1, 0, ttl=1), *grant(50, 60, 1), expires=False))
    assert kinds(judgement, "lease") == ["early-grant"]
    assert (
        judge(make(*grant(0, 1, 0), (2, 0, "info lost", {"reason": "expired"}), expires=False)).verdicts["lease"].valid
        is False
    )


# -- lease and exclusion -----------------------------------------------------------------------------------------------


def test_touching_is_not_overlapping() -> None:
    """A grant at the very end of the promise, and a belief that begins where another ends, are right."""
    judgement = judge(make(*grant(0, 1, 0, ttl=5), (5, 0, "info lost"), *grant(5, 5, 1, ttl=5)))
    assert judgement.verdicts["lease"].valid is True
    assert judgement.verdicts["exclusion"].valid is True


@pytest.mark.parametrize(("u", "valid"), [(0.0, False), (0.9, False), (1.0, True), (2.0, True)])
def test_uncertainty_must_be_exceeded(u: float, valid: bool) -> None:
    """A second grant one second inside the promise: only an uncertainty below one second accuses."""
    judgement = judge(make(*grant(0, 1, 0, ttl=5), *grant(4, 4, 1, ttl=5), (5, 0, "info lost"), uncertainty=u))
    assert judgement.verdicts["lease"].valid is valid
    assert judgement.verdicts["exclusion"].valid is valid


def test_a_proof_makes_a_double_grant() -> None:
    """Without any promise: both were proven to be held at once."""
    judgement = judge(
        make(
            *grant(0, 1, 0),
            *grant(0, 2, 1),
            (5, 0, "invoke release"), (6, 0, "ok release"),
            (5, 1, "invoke release"), (6, 1, "ok release"),
        )
    )  # fmt: skip
    assert kinds(judgement, "lease") == ["double-grant"]
    assert judgement.verdicts["exclusion"].findings[0].blame == "service"


def test_unsafe_time_is_counted_once_a_lock() -> None:
    """Three believers at once are no worse than two; two locks add up."""
    locked = [
        event
        for lock in ("a", "b")
        for process, start in ((0, 1), (1, 2), (2, 3))
        for event in (*grant(start, start, process, lock=lock), (10, process, "invoke release", {"lock": lock}))
    ]
    stats = judge(make(*locked)).verdicts["exclusion"].stats
    assert stats["unsafe_seconds"] == 16.0  # from 2 s to 10 s, twice


def test_the_older_holder_asleep() -> None:
    """`unsafe_seconds_awake` leaves out when the older of the believers was frozen, whoever that is then."""
    stats = judge(
        make(
            *grant(0, 0, 0), *grant(1, 1, 1), *grant(2, 2, 2),
            nemesis(3, "start", kind="freeze", processes=[0, 1], receipt="landed"),
            (5, 0, "invoke release"),  # 1 is the older one from here
            nemesis(6, "stop", receipt="undone"),
            (9, 1, "invoke release"), (10, 2, "invoke release"),
        )
    ).verdicts["exclusion"].stats  # fmt: skip
    assert stats["unsafe_seconds"] == 8.0
    assert stats["unsafe_seconds_awake"] == 5.0


@pytest.mark.parametrize(
    ("start", "stop", "blame"),
    [(2, 5, "pause"), (2, 4, "pause"), (2, 2.5, "client"), (3.5, 8, "client"), (3, 8, "pause"), (2, None, "pause")],
)
def test_blame_pause_needs_every_part_of_the_overlap(start: float, stop: float | None, blame: str) -> None:
    """Frozen, or within one ttl after that: the overlap from 3 s to 5 s must be covered without a gap."""
    faults = [nemesis(start, "start", kind="freeze", processes=[0], receipt="landed")]
    if stop is not None:
        faults.append(nemesis(stop, "stop", receipt="undone"))
    judgement = judge(
        make(*grant(0, 1, 0, ttl=1), *grant(3, 3, 1, ttl=1), *faults, (5, 0, "invoke release"), (9, 7, "info note"))
    )
    assert [finding.blame for finding in judgement.verdicts["exclusion"].findings] == [blame]


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_the_regression_names_the_greatest_token() -> None:
    """Of all that were granted before it, the one with the greatest token; of equal ones the earliest."""
    (finding,) = (
        judge(make(*grant(0, 1, 0, 5), *grant(2, 3, 0, 9), *grant(4, 5, 0, 9), *grant(6, 7, 1, 8), ttl=1))
        .verdicts["fencing"]
        .findings
    )
    assert finding.events == (5, 8, 9)


def test_hold_order_sees_what_real_time_cannot() -> None:
    """Both pending at once; the one that was granted later by its hold has the lower token."""
    judgement = judge(
        make(
            (0, 0, "invoke acquire"), (0, 1, "invoke acquire"), (1, 1, "ok acquire", {"token": 2}),
            (3, 0, "ok acquire", {"token": 1}), (4, 0, "invoke release"), (5, 0, "ok release"), ttl=1,
        )
    )  # fmt: skip
    assert kinds(judgement, "fencing") == ["regression"]


def test_fencing_figures() -> None:
    """Pairs, those in no certain order, grants without a token, and the numbers left out."""
    stats = (
        judge(make(*grant(0, 9, 0, 1), *grant(0, 9, 1, 5), *grant(0, 9, 2, None), *grant(20, 21, 0, 7)))
        .verdicts["fencing"]
        .stats
    )
    assert dict(stats) == {"pairs": 3, "unordered_pairs": 1, "without_token": 1, "gaps": 4}


# -- writes ------------------------------------------------------------------------------------------------------------


def write(start: float, end: float | None, process: int, outcome: str = "ok", **keys: Any) -> list[tuple[Any, ...]]:
    seq = {"seq": keys.pop("seq")} if "seq" in keys else {}
    both = {"resource": keys.pop("resource", "fenced"), "lock": keys.pop("lock", "lock")}
    events: list[tuple[Any, ...]] = [(start, process, "invoke write", {**both, **keys})]
    if end is not None:
        events.append((end, process, f"{outcome} write", {**both, **seq}))
    return events


def test_a_chain_of_unknown_writes_explains() -> None:
    """From version 1 over two writes whose answers were lost to version 3; but not over one sent after the reader was
    answered, and not over one that was refused."""
    first = write(0, 1, 0, seq=1, read=0, version=1)
    last = write(10, 11, 3, seq=2, read=3, version=4)
    link = write(2, None, 1, read=1, version=2)
    assert judge(make(*first, *link, *write(3, None, 2, read=2, version=3), *last)).verdicts["fenced"].valid is True
    for broken in (write(12, None, 2, read=2, version=3), write(3, 4, 2, "fail", read=2, version=3)):
        assert kinds(judge(make(*first, *link, *last, *broken)), "fenced") == ["lost-update"]


def test_a_loop_of_unknown_writes_ends() -> None:
    """Versions that lead in a circle explain what lies on it and nothing else."""
    circle = [*write(2, None, 1, read=1, version=2), *write(2, None, 2, read=2, version=1)]
    first = write(0, 1, 0, seq=1, read=0, version=1)
    assert judge(make(*first, *circle, *write(5, 6, 3, seq=2, read=2, version=5))).verdicts["fenced"].valid is True
    assert judge(make(*first, *circle, *write(5, 6, 3, seq=2, read=7, version=8))).verdicts["fenced"].valid is False


def test_without_seq_the_order_in_time_serves_where_it_is_certain() -> None:
    """One write without `seq` is enough to leave the order of seq; then two that overlap in time make it unknown."""
    one = write(0, 1, 0, seq=9, token=2)
    assert judge(make(*one, *write(2, 3, 1, token=1))).verdicts["fenced"].valid is False
    assert judge(make(*one, *write(1, 3, 1, token=1))).verdicts["fenced"].valid == "unknown"
    assert judge(make(*one, *write(2, 3, 1, token=1), uncertainty=1)).verdicts["fenced"].valid == "unknown"


def test_one_lock_without_order_does_not_hide_another() -> None:
    """False in one lock outranks unknown in the other."""
    judgement = judge(
        make(
            *write(0, 5, 0, token=1, lock="a"), *write(0, 5, 1, token=1, lock="a"),
            *write(0, 1, 2, token=2, lock="b", seq=1), *write(2, 3, 2, token=1, lock="b", seq=2),
        )
    )  # fmt: skip
    assert judgement.verdicts["fenced"].valid is False


# -- progress ----------------------------------------------------------------------------------------------------------


def progress(*events: tuple[Any, ...], bound: float = 5, **meta: Any) -> Verdict:
    return judge(make(*events, progress_bound=bound, **meta)).verdicts["progress"]


def test_a_stretch_must_be_longer_than_the_bound() -> None:
    """Exactly as long is no violation."""
    wanting = (0, 0, "invoke acquire")
    assert progress(wanting, (5, "harness", "info end")).valid is True
    verdict = progress(wanting, (5.000000001, "harness", "info end"))
    assert verdict.valid is False
    assert verdict.findings[0].kind == "stuck"
    assert verdict.findings[0].seconds == pytest.approx(5.0)


def test_a_fault_of_no_length_ends_a_stretch() -> None:
    """A fault that started and was undone at one instant still cuts the time in two."""
    events = [(0, 0, "invoke acquire"), (8, "harness", "info end")]
    cut = [nemesis(4, "start"), nemesis(4, "stop", receipt="undone")]
    assert progress(*events).valid is False
    assert progress(events[0], *cut, events[1]).valid is True


def test_a_promise_that_was_not_given_back_is_no_stretch() -> None:
    """The crashed holder's lease has to run out first; a release that returned ok gives it back at once."""
    late = [(1, 1, "invoke acquire"), (20, "harness", "info end")]
    crashed = [*grant(0, 0, 0, ttl=16), (1, 0, "info crash")]
    released = [*grant(0, 0, 0, ttl=16), (1, 0, "invoke release"), (1, 0, "ok release")]
    assert progress(*crashed, *late).valid is True
    assert progress(*released, *late).valid is False


def test_polling_is_wanting() -> None:
    """Attempts within a tenth of the bound of each other join; a longer pause parts them."""

    def polls(pause: float) -> list[tuple[Any, ...]]:
        return [
            event
            for n in range(8)
            for event in ((n * (1 + pause), 0, "invoke acquire"), (n * (1 + pause) + 1, 0, "fail acquire"))
        ]

    assert progress(*polls(0.5)).valid is False
    assert progress(*polls(0.6)).valid is True


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_required_verdicts_make_the_word() -> None:
    """The caller's list goes before the meta's, that before the default."""
    history = make(*grant(0, 1, 0, 1, ttl=5), require=["progress"])
    assert judge(history).valid == "unknown"
    assert judge(history, require=["faults"]).valid is True
    assert judge(history, require=[]).required == ()
    with pytest.raises(UsageError, match="nonesuch"):
        judge(history, require=["nonesuch"])


def test_too_few_grants_never_hide_a_violation() -> None:
    """False outranks `min_grants`."""
    good = make(*grant(0, 1, 0, ttl=5), min_grants=2)
    bad = make(*grant(0, 1, 0, ttl=5), (2, 0, "info lost", {"reason": "expired"}), min_grants=2)
    assert judge(good).valid == "unknown"
    assert judge(bad).valid is False


def test_an_empty_history_is_unknown() -> None:
    """Nothing happened, so nothing is known; nothing crashes either."""
    judgement = judge(make())
    assert judgement.valid == "unknown"
    notes = [verdict.note or "" for verdict in judgement.verdicts.values()]
    assert not [note for note in notes if "checker crashed" in note]
    assert judgement.to_json()["grants"] == 0


def test_a_checker_that_crashes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a pass, and never the loss of the other verdicts; the traceback is kept."""

    def crash(model: object) -> Verdict:
        raise ZeroDivisionError("seven by nought")

    def load_some(kind: str, name: str) -> Any:
        if name == "damage":
            raise ImportError("no such module")
        return crash if name == "lease" else load(kind, name)

    load = registry.load
    monkeypatch.setattr(registry, "load", load_some)
    judgement = judge(make(*grant(0, 1, 0, 1, ttl=5)))
    assert judgement.valid == "unknown"
    assert "seven by nought" in (judgement.verdicts["lease"].note or "")
    assert "no such module" in (judgement.verdicts["damage"].note or "")
    assert judgement.verdicts["fencing"].valid is True


def test_extreme_numbers_are_judged() -> None:
    """Times at their limits, a ttl of ages, an uncertainty beyond all of them: a verdict, not an overflow."""
    least, most = -(2**61), 2**61
    events = [
        (2, {"time": least, "process": 0, "type": "invoke", "f": "acquire"}),
        (3, {"time": least, "process": 0, "type": "ok", "f": "acquire", "token": -(2**62), "ttl": 1e300}),
        (4, {"time": 0, "process": 1, "type": "invoke", "f": "acquire"}),
        (5, {"time": most // 2, "process": 1, "type": "ok", "f": "acquire", "token": 2**62, "ttl": 0}),
        (6, {"time": most, "process": "harness", "type": "info", "f": "end"}),
    ]

    for meta in ({}, {"uncertainty": 1e300}, {"progress_bound": 1e300}, {"expires": False}, {"owners": False}):
        judgement = judge(from_events(meta, events, "extreme"), certificates=True)
        assert [v.note for v in judgement.verdicts.values() if "checker crashed" in (v.note or "")] == []
    assert judge(from_events({}, events, "x")).verdicts["lease"].valid is False
    assert judge(from_events({"uncertainty": 1e300}, events, "x")).verdicts["lease"].valid is True


def test_a_malformed_event_in_memory_has_its_line() -> None:
    """`from_events` names the line that it was given."""
    with pytest.raises(HistoryError, match="time") as caught:
        make((0, 0, "invoke acquire"), (0, 1, "invoke acquire", {"time": "soon"}))
    assert caught.value.line == 3
