"""What a person reads in a finding: that it names who did what, and says no more than is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkers import Finding, Judgement, Verdict, judge
from harness.history import read
from tests.checkers.make import grant, make

CASES = Path(__file__).parents[2] / "cases"


def case(name: str) -> Judgement:
    """A recorded case, judged."""
    return judge(read(CASES / f"{name}.jsonl"))


def verdict(name: str, *events: tuple[Any, ...], **meta: Any) -> Verdict:
    """One verdict on a history by hand."""
    return judge(make(*sorted(events, key=lambda event: event[0]), **meta)).verdicts[name]


def only(found: Verdict) -> Finding:
    assert len(found.findings) == 1, found
    return found.findings[0]


def write(second: float, process: int, resource: str = "unfenced", became: str = "ok", **keys: Any) -> list[Any]:
    """A write that is answered 0.1 s later."""
    of = {"resource": resource, **keys}
    return [(second, process, "invoke write", of), (second + 0.1, process, f"{became} write", of)]


# -- whose doing it was -----------------------------------------------------------------------------------------------


def test_a_broken_promise_is_laid_at_the_service_or_the_library() -> None:
    """What stands between a client and the service may have made it of a right answer."""
    told = only(case("etcd3-py-99").verdicts["exclusion"]).text
    assert "To blame is the service, or the client library through which it was asked" in told
    assert "The service is to blame" not in told


def test_a_double_grant_names_the_first_success_after_the_grant_of_the_other() -> None:
    """Not the last one, which may come long after the harm; and it leaves open which of the two answers was wrong."""
    finding = only(case("redlock-rb-36-extend-revives").verdicts["lease"])
    assert finding.events == (3, 5, 8, 9)
    assert "the renew of its hold that contender 0 sent after that, at +3.990 s, succeeded (line 8)" in finding.text
    assert "either that grant or this success was wrong" in finding.text
    assert "By the ttl it was this success: the lease of contender 0 had run out by +2.000 s, before" in finding.text
    assert finding.text.endswith("so it renewed a lease that was over.")
    told = case("redis-py-415-steal-by-release").verdicts["lease"].findings[0].text
    assert told.endswith("so what it released was no longer its own.")


def test_a_success_after_the_grant_is_no_word_against_it_while_the_lease_may_run() -> None:
    """Renewed until just before the other's grant, or without an end: then nothing speaks against the success."""
    events = [*grant(0, 0, 0), (1, 0, "invoke renew"), (1, 0, "ok renew"), *grant(2, 2, 1)]
    proofs = [
        (second, process, f"{kind} renew") for process in (0, 1) for second in (3, 4) for kind in ("invoke", "ok")
    ]
    for meta in ({"ttl": 1.5}, {"expires": False}, {}):
        told = only(verdict("lease", *events, *proofs, **meta))
        assert told.kind == "double-grant"
        assert "at +3.000 s, succeeded (line 8)" in told.text
        assert "had run out" not in told.text
    assert "had run out by +1.500 s" in only(verdict("lease", *events, *proofs, ttl=0.5)).text


def test_what_was_broken_meanwhile_is_named() -> None:
    """And nothing is said where nothing was."""
    assert (
        case("redis-clock-jump")
        .verdicts["lease"]
        .findings[0]
        .text.endswith(" Meanwhile fault 'c' (clock on n1) was active.")
    )
    assert "fault" not in only(case("etcd3-py-99").verdicts["lease"]).text


def test_a_deadline_is_spoken_of_only_where_there_is_one() -> None:
    """A client that went on: past its deadline, after the service's refusal, or for all that anybody knows rightly."""
    held = [*grant(0, 0, 0), (9, 0, "invoke release"), (9, 0, "ok release")]
    other = [*grant(5, 6, 1), (8, 1, "invoke release"), (8, 1, "ok release")]
    renewed = [(1, 0, "invoke renew"), (1, 0, "ok renew")]
    refused = [(4, 0, "invoke renew"), (4, 0, "fail renew", {"held": False})]
    late = [event if event[2] != "ok release" else (9, 0, "fail release", {"held": False}) for event in held]

    def because(*events: tuple[Any, ...], **meta: Any) -> str:
        finding = only(verdict("exclusion", *events, **meta))
        assert finding.blame == "client"
        return finding.text.rpartition(". Contender 0 ")[2]

    failed = [(1, 0, "invoke renew"), (1, 0, "fail renew")]
    assert because(*late, *other, ttl=3) == (
        "went on past its own deadline: that was +3.000 s, by its ttl from its acquire, which it never renewed."
    )
    assert because(*late, *other, *failed, ttl=3) == (
        "went on past its own deadline: that was +3.000 s, by its ttl from its acquire, as no renew succeeded."
    )
    assert because(*late, *other, *renewed, ttl=3) == (
        "went on past its own deadline: that was +4.000 s, by its ttl from its renew of line 4."
    )
    assert because(*late, *other, *refused, ttl=3) == (
        "went on all the same after the service had said that it doesn't hold it, at +4.000 s (line 5)."
    )
    assert because(*late, *other) == "went on believing in it; no ttl is known, so nothing says when its hold was over."


def test_by_how_much_a_grant_came_too_late_is_told() -> None:
    """A ttl counts from when it was asked for, or from where the client says that the lease began."""
    told = only(case("etcd-11456-expired-waiter").verdicts["exclusion"]).text
    assert told.endswith(
        "The grant of contender 1 had run out before it arrived: its ttl of 5 s, counted from when it was asked for "
        "(line 5), had been over for 14.020 s. It used that grant all the same, which a client that looks at the time "
        "when the answer comes does not; whether service, network or library was late nobody can tell."
    )


def test_a_moved_clock_is_held_against_the_ttl() -> None:
    """The holder could not know, and the history does."""
    told = only(case("k8s-wall-clock-step").verdicts["exclusion"]).text
    assert "The clock of contender 0 had been moved; by its ttl its lease was over by +15.450 s." in told


def test_a_promise_is_told_with_its_length() -> None:
    """What was promised and when it ends; where its parts had several lengths, only the end."""
    told = only(case("patroni-2868-not-the-ttl").verdicts["lease"]).text
    assert "its renew of line 4 promised it 120 s, so until at least +129.980 s" in told
    shorter = [(1, 0, "invoke renew", {"ttl": 20}), (1, 0, "ok renew")]
    told = verdict("lease", *grant(0, 0, 0, ttl=30), *shorter, *grant(5, 5, 1, ttl=30)).findings[0].text
    assert "its renew of line 4 promised it until at least +21.000 s" in told


def test_whose_doing_it_was_is_told_of_every_broken_promise() -> None:
    """An early end, a token given twice, one that fell."""
    for name, which, at, end in (
        ("consul-20424-early-expiry", "lease", 0, "contender 0 had not released the lock."),
        ("etcd-17780-revision-regress", "fencing", 0, "it gave one token out twice."),
        ("redis-6062-manual-failover", "fencing", 1, "its tokens fell."),
    ):
        told = case(name).verdicts[which].findings[at].text.partition(" Meanwhile ")[0]
        assert told.endswith(f"To blame is the service, or the client library through which it was asked: {end}")
    told = case("redis-failover-loses-acknowledged-writes").verdicts["lease"].findings[1]
    assert told.kind == "early-expiry"
    assert "said that it doesn't hold it any more, though this lock doesn't expire" in told.text


def test_an_overlap_by_answers_that_can_t_both_be_right_says_what_speaks_for_whom() -> None:
    """A lease that was over by its ttl, or one that never is: then no time was promised that a grant could lie in."""
    told = only(case("redlock-rb-36-extend-revives").verdicts["exclusion"]).text
    assert told.endswith(
        "it granted the lock to contender 1, and yet accepted the renew that contender 0 sent later (line 8; see "
        "lease). Contender 0 had gone on past its own deadline besides: by its ttl its lease was over by +2.000 s."
    )
    told = only(case("hindsight-726-pooled-session").verdicts["exclusion"]).text
    assert told.endswith("accepted the release that contender 0 sent later (line 6; see lease).")
    told = case("redis-failover-loses-acknowledged-writes").verdicts["exclusion"].findings[0].text
    assert "it granted contender 1 a lock that doesn't expire, and that contender 0 had not given back (see" in told
    assert "(the service had told it that it doesn't hold it)" in told


def test_each_reason_of_a_loss_is_told() -> None:
    """A contender that gave a lock up says why, and so does the finding."""
    for reason, told in (
        ("expired", "the service had told it that its lease was over"),
        ("deadline", "its own deadline was over"),
        ("disconnected", "it had lost its connection"),
        ("renew-failed", "it could not renew"),
    ):
        events = [*grant(0, 0, 0), (3, 0, "info lost", {"reason": reason}), *grant(1, 2, 1)]
        assert f"noticed that it had lost it ({told})" in only(verdict("exclusion", *events)).text
    assert "had lost it." in only(verdict("exclusion", *grant(0, 0, 0), (3, 0, "info lost"), *grant(1, 2, 1))).text


# -- writes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        (
            "vitess-8309-as-fail",
            [
                "of the unfenced resource. It held nothing: its acquire of line 15 had failed.",
                "Contender 0 held lock 'lock' by its own account (granted in line 3).",
            ],
        ),
        (
            "cilium-42920-slow-shutdown",
            [
                "Contender 0 held nothing: it had said 15.000 s before that write (line 35) that its own deadline was "
                "over."
            ],
        ),
        (
            "gc-pause-statement-job",
            [
                "Contender 0 held lock 'lock' by its own account (granted in line 3), though by its ttl its lease had "
                "run out 12.190 s before that write."
            ],
        ),
    ],
)
def test_damage_says_what_its_writers_held(name: str, sentences: list[str]) -> None:
    """The one who was harmed and the one who did it, each by what it had of the lock when it wrote."""
    told = case(name).verdicts["damage"].findings[0].text
    for sentence in sentences:
        assert sentence in told


def test_why_a_writer_held_nothing() -> None:
    """Whatever ended its hold, or that it never had any; the event that says so is in the finding."""
    harmed = write(9, 1, seq=1, read=0, version=1)
    harm = write(10, 0, seq=2, read=0, version=2)
    had = grant(0, 1, 0)
    for events, told in (
        ([], ", and had never asked for the lock."),
        ([*had, (8, 0, "invoke release"), (8, 0, "info release")], ": it had given the lock back 2.000 s before that"),
        ([*had, (8, 0, "info crash")], ": it had crashed 2.000 s before that write (line 4)."),
        ([(8, 0, "invoke acquire")], ": its acquire of line 2 had had no answer."),
        ([(8, 0, "invoke acquire"), (8, 0, "info acquire")], ": its acquire of line 3 was of unknown outcome."),
    ):
        finding = only(verdict("damage", *events, *harmed, *harm))
        assert f"Contender 0 held nothing{told}" in finding.text, finding.text
        assert len(finding.events) == 3 + bool(events)


def test_a_service_that_had_refused_the_writer_is_told() -> None:
    """It went on believing, and the resource took what it wrote."""
    refused = [(2, 0, "invoke renew"), (2, 0, "fail renew", {"held": False})]
    harm = [*write(9, 1, seq=1, read=0, version=1), *write(10, 0, seq=2, read=0, version=2)]
    told = only(verdict("damage", *grant(0, 1, 0), *refused, *harm)).text
    assert "though the service had said 8.000 s before that write (line 5) that it doesn't hold it." in told


def test_a_fence_that_refuses_a_holder_because_tokens_fell_is_told() -> None:
    """The fence did its work, and kept out somebody who had the lock: the fault is in the tokens."""
    told = case("redis-6062-manual-failover").verdicts["fenced"]
    assert told.valid is True
    assert told.note == (
        "no stale write got through, but a write of a contender that held the lock was refused, because tokens had "
        "fallen (line 21: contender 1 with token 81, after token 91)"
    )
    rightly = case("gc-pause-statement-job").verdicts["fenced"]
    assert rightly.note == "it refused a write (line 18: contender 0 with token 33)"
    several = case("etcd-15247-recorded-3.5.16").verdicts["fenced"]
    assert several.note == "it refused 5 writes (the first in line 408: contender 1 with token 39)"


# -- orders, and who waits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "etcd3-py-99",
            "lock 'lock': by what the service answered both were held at once, as lease says (early-grant).",
        ),
        (
            "hindsight-726-pooled-session",
            "by what the service answered both were held at once, as lease says (double-grant).",
        ),
        ("etcd-17780-revision-regress", "two contenders have the same token, as fencing says (duplicate)."),
        ("own-token-falls", "the later one has the lower token, as fencing says (regression)."),
        (
            "consul-20424-early-expiry",
            "the grant of line 3: it ended inside its promise, as lease says (early-expiry).",
        ),
        ("revived", "the grant of line 3: the service took back that it was over, as lease says (revived)."),
    ],
)
def test_linearizable_points_to_who_has_said_it(name: str, text: str) -> None:
    """What lease or fencing have found is not told a second time; what only it can see is told in full."""
    judgement = case(name)
    found = judgement.verdicts["linearizable"].findings[0]
    assert found.text.startswith("No order explains the grant")
    assert found.text.endswith(text)
    said = "lease" if "lease says" in text else "fencing"
    kind = text.rpartition("(")[2].rstrip(").")
    assert kind in [finding.kind for finding in judgement.verdicts[said].findings]
    assert "must come before" in only(case("cycle-of-three").verdicts["linearizable"]).text


def test_no_time_is_called_short() -> None:
    """Forty seconds after the first grant is not "only"."""
    told = only(verdict("fencing", *grant(0, 0, 0, 9), *grant(40, 41, 1, 3)))
    assert told.kind == "regression"
    assert "though it asked for it 40.000 s after the first grant" in told.text


def test_stuck_says_how_the_last_hold_ended() -> None:
    """That nobody held it is not known: somebody may, where a release was never answered or renewals go on."""
    told = only(case("curator-678-release-lost").verdicts["progress"])
    assert "nobody was known to hold it" in told.text
    assert told.text.endswith(
        " The release of its last holder, contender 0, is of unknown outcome (line 6): the service may still hold it "
        "for that contender, though by its ttl its lease was over 30.000 s after its grant (line 3), unless something "
        "kept it alive unseen."
    )
    assert "; the bound is " in told.text
    assert 6 in told.events
    told = only(case("kazoo-732-stuck").verdicts["progress"])
    assert told.text.endswith(
        " Its last holder, contender 0, had given it back, and was told ok (line 7). An acquire of contender 1, which "
        "asks no more, had failed (line 5): whatever that left behind may stand in the way."
    )
    wait = (20, 1, "invoke acquire")
    for events, ended in (
        ([(2, 0, "info crash")], "Its last holder, contender 0, had crashed (line 4), and never given it back."),
        (
            [(2, 0, "info lost")],
            "Its last holder, contender 0, had said that it had lost it (line 4), and never given it",
        ),
        ([(2, 0, "invoke release"), (2, 0, "fail release")], "The release of its last holder, contender 0, had failed"),
        (
            [(2, 0, "invoke release"), (2, 0, "ok release", {"proves": False})],
            "Its last holder, contender 0, had given it back (line 5, an ok that proves nothing).",
        ),
    ):
        stuck = verdict("progress", *grant(0, 1, 0), *events, wait, (60, 2, "info note"), ttl=1, progress_bound=9)
        assert ended in only(stuck).text, only(stuck).text
    never = only(verdict("progress", wait, (60, 2, "info note"), progress_bound=9))
    assert never.text.endswith("until the history ended; the bound is 9.000 s. Nobody had ever been granted it.")


def test_renewals_that_go_on_in_a_stretch_are_named() -> None:
    """They are nobody's own after the release, and may be what keeps the lock."""
    given = [(2, 0, "invoke release"), (2, 0, "ok release")]
    renews = [(second, 0, f"{kind} renew") for second in (30, 40) for kind in ("invoke", "ok")]
    events = [*grant(0, 1, 0), *given, (20, 1, "invoke acquire"), *renews, (60, 1, "info acquire")]
    told = only(verdict("progress", *events, ttl=1, progress_bound=9))
    assert told.text.endswith("But contender 0 went on renewing it, and that succeeded (line 8, and 1 more).")
    assert 8 in told.events


def test_the_longest_wait_of_anybody_is_told() -> None:
    """A lock that was never free too long may still have kept somebody waiting to the end."""
    told = case("consul-4935-zombie-renewer").verdicts["progress"]
    assert told.valid is True
    assert told.stats["longest_wait"] == 388
    assert told.note == (
        "it was never free, wanted and undisturbed for longer than the bound of 150.000 s; the longest wait of anybody "
        "was 388.000 s, in vain, of contender 1 (line 8), behind contender 0, which said that it had lost it (line 7), "
        "and went on renewing it (52 ok, the last in line 113)"
    )
    told = case("consul-1172-2xttl").verdicts["progress"]
    assert told.note == (
        "no progress_bound; the longest wait of anybody was 34.200 s, of contender 1 (line 4), behind contender 0, "
        "which crashed (line 5)"
    )
    assert verdict("progress", *grant(0, 1, 0), progress_bound=9).stats["longest_wait"] == 1
    assert verdict("progress", (1, 0, "info crash"), progress_bound=9).stats["longest_wait"] is None


def test_whom_somebody_waited_for_is_told() -> None:
    """The last who was granted it, unless that one had given it back before, or is the waiter itself."""

    def behind(*events: tuple[Any, ...]) -> str:
        note = verdict("progress", *events, progress_bound=99).note or ""
        return note.partition(" (line ")[2].partition(")")[2]

    given = [(2, 0, "invoke release"), (3, 0, "ok release")]
    unsure = [(2, 0, "invoke release"), (3, 0, "info release")]
    late = grant(5, 20, 1)
    assert behind(*grant(0, 1, 0), *late) == ", behind contender 0, which believed that it held it (granted in line 3)"
    assert behind(*grant(0, 1, 0), *unsure, *late) == ", behind contender 0, which released it without an ok (line 4)"
    assert behind(*grant(0, 1, 0), *given, *grant(1, 20, 1)) == ", behind contender 0, which released it (line 5)"
    assert behind(*grant(0, 1, 0), *given, *late) == ""
    assert behind(*grant(0, 1, 1), *late) == ""


def test_who_polls_waits_from_its_first_attempt() -> None:
    """Attempts that follow each other within a tenth of the bound are one wait; beyond that it had stopped wanting."""

    def polls(process: int, *seconds: float) -> list[Any]:
        return [(s + d, process, f"{kind} acquire") for s in seconds for d, kind in ((0, "invoke"), (0.5, "fail"))]

    events = [*polls(0, 0, 1, 2), *polls(1, 0.1), *grant(3, 4, 0), *polls(1, 30, 31)]
    assert verdict("progress", *events, progress_bound=50).stats["longest_wait"] == 4
    assert verdict("progress", *events, progress_bound=1).stats["longest_wait"] == 1
