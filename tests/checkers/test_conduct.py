"""conduct: each sentence of its definition, as a small history."""

from __future__ import annotations

from typing import Any

import pytest

from checkers import Finding, Verdict, judge
from tests.checkers.make import grant, make

HELD = grant(0, 1, 0)


def conduct(*events: Any, **meta: Any) -> Verdict:
    return judge(make(*events, **{"ttl": 5, **meta})).verdicts["conduct"]


def write(start: float, end: float | None, process: int = 0, outcome: str = "ok", **keys: Any) -> list[tuple[Any, ...]]:
    keys = {"resource": "fenced", **keys}
    events: list[tuple[Any, ...]] = [(start, process, "invoke write", keys)]
    return events if end is None else [*events, (end, process, f"{outcome} write", keys)]


def renew(at: float, process: int = 0, outcome: str = "ok", **keys: Any) -> list[tuple[Any, ...]]:
    return [(at, process, "invoke renew"), (at + 0.1, process, f"{outcome} renew", keys)]


def release(at: float, outcome: str = "ok") -> list[tuple[Any, ...]]:
    return [(at, 0, "invoke release"), (at + 0.1, 0, f"{outcome} release")]


def only(verdict: Verdict) -> Finding:
    (finding,) = verdict.findings
    assert verdict.valid is False
    return finding


def test_a_write_inside_its_belief_is_right() -> None:
    """From the grant on, and sent before the belief ended, whenever it was answered."""
    assert conduct(*HELD, *write(1, 9), (3, 0, "info lost")).valid is True
    assert conduct(*HELD, (3, 0, "invoke release"), *write(3, 4)).stats["unheld_writes"] == 1
    assert conduct(*HELD, *write(3, None), (3, 0, "invoke release"), (4, 0, "ok release")).valid is True


@pytest.mark.parametrize(("outcome", "found"), [("ok", 1), ("info", 1), ("fail", 0), (None, 1)])
def test_what_was_refused_did_no_harm(outcome: str | None, found: int) -> None:
    """A write outside every belief is a finding when it took effect or may have; the figure has refused ones too."""
    late = write(5, None) if outcome is None else write(5, 6, outcome=outcome)
    verdict = conduct(*HELD, *release(3), *late)
    assert ([finding.kind for finding in verdict.findings], verdict.stats["unheld_writes"]) == (
        ["unheld-write"] * found,
        1,
    )


def test_the_event_that_says_why() -> None:
    """What ended the last belief, or a later acquire that got nothing, whichever came last; the write's own last event
    alone where there is neither."""
    assert only(conduct(*HELD, *release(3), *write(5, 6))).events == (4, 7)
    assert only(conduct(*HELD, (3, 0, "info lost"), *release(4), *write(5, 6))).events == (4, 8)
    assert only(conduct(*HELD, (3, 0, "info crash"), *write(5, None))).events == (4, 5)
    refused = [(4, 0, "invoke acquire"), (4.5, 0, "fail acquire")]
    assert only(conduct(*HELD, *release(3), *refused, *write(5, 6))).events == (7, 9)
    assert only(conduct(*HELD, (4, 0, "invoke acquire"), *write(5, 6), (7, 0, "fail acquire"))).events == (4, 6)
    assert only(conduct(*HELD, *write(5, 6, 1))).events == (5,)
    assert only(conduct(*HELD, (4, 1, "invoke acquire"), *write(5, 6, 1), (7, 1, "ok acquire"))).events == (6,)


def test_only_the_same_process_and_lock_count() -> None:
    """Somebody else's hold, and one of another lock, allow nothing; a crash ends those of every lock."""
    assert conduct(*HELD, *write(3, 4, 1)).count == 1
    assert conduct(*HELD, *write(3, 4, lock="b")).count == 1
    two = [*grant(0, 1, 0, lock="a"), *grant(0, 1, 0, lock="b")]
    assert conduct(*two, (2, 0, "info crash"), *write(3, 4, lock="a"), *write(3, 4, lock="b")).count == 2
    assert conduct(*two, (2, 0, "invoke release", {"lock": "a"}), *write(3, 4, lock="b")).valid is True


def test_one_process_goes_by_line_where_stamps_tie() -> None:
    """A write on the line before the loss was sent before it, whatever its stamp."""
    first = [*HELD, (3, 0, "invoke write", {"resource": "fenced"}), (3, 0, "info lost")]
    swapped = [*HELD, first[3], first[2]]
    assert conduct(*first).valid is True
    assert conduct(*swapped).valid is False


def test_a_renew_of_what_was_given_up() -> None:
    """After a release that was sent, whatever became of it, and after a crash; proof or no proof. One finding a grant,
    with the first of the renews and the time to the last."""
    finding = only(conduct(*HELD, *release(3, "fail"), *renew(3.5), *renew(9, proves=False)))
    assert (finding.kind, finding.events, finding.seconds) == ("stray-renew", (4, 7), 6.0)
    assert only(conduct(*HELD, (3, 0, "info crash"), *renew(4))).events == (4, 6)
    assert conduct(*HELD, *release(3), *renew(4, outcome="fail")).valid is True
    assert conduct(*HELD, *release(3), *renew(4, outcome="info")).valid is True
    again = conduct(*HELD, *release(3), *renew(4), *grant(5, 6, 0), *renew(7), *release(8), *renew(9), *renew(10))
    assert (again.count, again.stats["stray_renews"]) == (2, 3)


def test_a_renew_of_what_was_lost() -> None:
    """More than one ttl after the loss; with a ttl that nobody knows, never."""
    lost = [*HELD, (3, 0, "info lost")]
    assert conduct(*lost, *renew(8)).valid is True
    assert only(conduct(*lost, *renew(8.000000001))).events == (4, 6)
    assert conduct(*lost, *renew(80), ttl=None).valid is True
    # A later acquire that got nothing gives nothing up.
    asked = [(4, 0, "invoke acquire"), (5, 0, "fail acquire")]
    assert conduct(*HELD, *asked, *renew(50)).valid is True
    assert only(conduct(*lost, *release(4), *renew(4.5))).events == (5, 8)


def test_a_renew_of_what_was_never_had() -> None:
    """One finding for all of a process and a lock before its first grant."""
    finding = only(conduct(*renew(1), *renew(3), *grant(4, 5, 0), *renew(6)))
    assert (finding.events, finding.seconds) == ((3,), 2.0)


def test_when_nothing_can_be_said() -> None:
    """Without owners; and where nobody was granted anything and nobody did anything."""
    assert conduct(*HELD, *release(3), *write(4, 5), owners=False).valid == "unknown"
    assert conduct((0, 0, "invoke acquire"), (1, 0, "fail acquire")).valid == "unknown"
    assert conduct(*write(1, 2)).valid is False
    assert conduct(*HELD).valid is True


def test_it_says_who_did_what_when() -> None:
    """In words, with times from the first event of the finding."""
    text = only(conduct(*HELD, *release(3), *write(5, 6))).text
    assert text == (
        "Contender 0 released lock 'lock'; 2.000 s later it sent a write to the fenced resource under it all the same: "
        "it was accepted."
    )
    text = only(conduct(*HELD, *release(3), *renew(4), *renew(7))).text
    assert text == (
        "Contender 0 released lock 'lock'; 1.000 s later it sent a renew all the same, which succeeded (and 1 more, "
        "the last 4.000 s after that): it keeps from everybody else what it had given up."
    )


def test_many_are_counted_and_a_thousand_listed() -> None:
    """The earliest of them."""
    many = [event for n in range(1200) for event in write(5 + n, 5.5 + n)]
    verdict = conduct(*HELD, *release(3), *many)
    assert (verdict.count, len(verdict.findings), verdict.findings[-1].events) == (1200, 1000, (4, 2005))
