"""What a history leaves unsaid: answers that prove nothing, renewals that nobody saw, leases that may run longer."""

from __future__ import annotations

from typing import Any

import pytest

from checkers import Verdict, judge
from checkers.intervals import INF, build
from harness.history.events import NONE
from tests.checkers.make import S, grant, make

UNSEEN = {"renewals": "unseen"}


# -- proves ------------------------------------------------------------------------------------------------------------


def test_a_release_that_proves_nothing_gives_back_all_the_same() -> None:
    """It ends what is its own and the hold, and is no proof of it."""
    history = [*grant(0, 1, 0, ttl=9), (5, 0, "invoke release"), (6, 0, "ok release", {"proves": False})]
    model = build(make(*history))
    assert (model.proven.tolist(), model.L.tolist(), model.given_row.tolist()) == ([NONE], [5 * S], [3])
    assert build(make(*history[:3], (6, 0, "ok release", {"proves": True}))).proven.tolist() == [5 * S]


def test_a_renew_that_proves_nothing_is_one_of_unknown_outcome() -> None:
    """It prolongs nothing, and its ttl, its answer's before its own, may be the one that counts."""
    events = [*grant(0, 1, 0, ttl=10), (2, 0, "invoke renew", {"ttl": 8}), (3, 0, "ok renew", {"proves": False})]
    model = build(make(*events))
    assert (model.proven.tolist(), model.promise.tolist()) == ([NONE], [8 * S])
    assert build(make(*events[:3], (3, 0, "ok renew", {"proves": False, "ttl": 4}))).promise.tolist() == [4 * S]


def test_it_takes_nothing_back() -> None:
    """An ok that proves nothing, after the service said that the hold is gone, is no `revived`."""
    gone = [*grant(0, 1, 0, ttl=1), (5, 0, "info lost", {"reason": "expired"})]
    for f in ("renew", "release"):
        answers = [(6, 0, f"invoke {f}"), (7, 0, f"ok {f}", {"proves": False})]
        assert judge(make(*gone, *answers)).verdicts["lease"].valid is True
        assert judge(make(*gone, answers[0], (7, 0, f"ok {f}"))).verdicts["lease"].valid is False


# -- solid -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("u", "solid"), [(0, 1), (4, 1), (4.000000001, 0)])
def test_a_core_must_outlast_the_uncertainty(u: float, solid: int) -> None:
    """Held for certain from 1 s to 5 s: that tells nothing where stamps may be off by more."""
    lease = judge(make(*grant(0, 1, 0, ttl=5), uncertainty=u)).verdicts["lease"]
    assert (lease.stats["solid"], lease.valid) == (solid, True if solid else "unknown")


# -- unseen renewals ---------------------------------------------------------------------------------------------------


def overlap(first: dict[str, Any], second: dict[str, Any], *more: Any, at: float = 20) -> tuple[Any, Any]:
    """Two beliefs that overlap from `at` to 25 s: what blame, and what `lease` says."""
    judgement = judge(
        make(*grant(0, 1, 0, ttl=5, **first), *more, *grant(at, at, 1, ttl=50, **second), (25, 0, "invoke release"))
    )
    return judgement.verdicts["exclusion"].findings[0].blame, judgement.verdicts["lease"].valid


def test_whose_renewals_matter() -> None:
    """The earlier holder's: then service or client is wrong, and nobody can tell which. The other's say nothing."""
    assert overlap(UNSEEN, {}) == ("unseen", "unknown")
    assert overlap({}, {}) == ("client", True)
    assert overlap({}, UNSEEN) == ("client", True)
    assert overlap(UNSEEN, {}, at=3) == ("service", False)


def test_a_late_one_whose_renewals_are_unseen() -> None:
    """It looks late only to somebody who doesn't see that it was renewed meanwhile."""
    late = [*grant(0, 9, 0, ttl=50), (1, 1, "invoke acquire")]

    def said(**keys: Any) -> tuple[Any, Any]:
        judgement = judge(make(*late, (20, 1, "ok acquire", {"ttl": 2, **keys}), (25, 0, "info lost")))
        return judgement.verdicts["exclusion"].findings[0].blame, judgement.verdicts["lease"].valid

    assert said() == ("late-grant", True)
    assert said(**UNSEEN) == ("unseen", "unknown")


def test_lease_is_unknown_whatever_the_blame() -> None:
    """A pause after the other's grant tells nothing about the renewals before it."""
    keys = {"id": "f", "kind": "pause", "processes": [0], "receipt": "landed"}
    assert overlap(UNSEEN, {}, (19, "nemesis", "info fault", {"phase": "start", **keys})) == ("pause", "unknown")


def test_beliefs_that_overlap_by_no_more_than_u_say_nothing() -> None:
    """As for exclusion."""
    events = [
        *grant(0, 1, 0, ttl=5, **UNSEEN),
        *grant(20, 20, 1, ttl=50),
        (25, 0, "invoke release"),
        (90, 1, "info lost"),
    ]
    assert judge(make(*events, uncertainty=3)).verdicts["lease"].valid == "unknown"
    assert judge(make(*events, uncertainty=5)).verdicts["lease"].valid is True
    assert judge(make(*events, uncertainty=4.999999999)).verdicts["lease"].valid == "unknown"


# -- the latest end of a lease -----------------------------------------------------------------------------------------


def test_when_a_lease_has_run_out_at_the_latest() -> None:
    """From the last completion that didn't fail, with the greatest ttl; the invoke of one that was never answered."""
    renew, ok = (5, 0, "invoke renew", {"ttl": 7}), (6, 0, "ok renew")

    def latest(*more: Any, keys: dict[str, Any] | None = None, **meta: Any) -> int:
        history = make(*grant(0, 1, 0, **{"ttl": 10, **(keys or {})}), *more, (9, 0, "info crash"), **meta)
        return int(build(history).latest[0])

    assert latest() == 11 * S
    assert latest(renew, ok) == 16 * S
    assert latest(renew) == 15 * S
    assert latest(renew, (8, 0, "info renew")) == 18 * S
    assert latest(renew, (8, 0, "fail renew")) == 11 * S
    assert latest((5, 0, "invoke renew", {"ttl": 30}), ok) == 36 * S
    assert latest(renew, ok, rate_tolerance=0.5) == 21 * S
    assert latest(keys=UNSEEN) == 19 * S
    assert latest(expires=False) == INF
    assert latest(keys={"ttl": None}) == NONE
    assert latest(keys={"ttl": None, **UNSEEN}) == INF
    assert latest(keys={"ttl": None}, ttl=3) == 4 * S


def progress(*events: Any, **meta: Any) -> Verdict:
    return judge(make(*events, **{"progress_bound": 3, **meta})).verdicts["progress"]


@pytest.mark.parametrize(("until", "valid"), [(18, True), (18.000000001, False)])
def test_the_wait_counts_from_the_latest_end(until: float, valid: bool) -> None:
    """A renew that was never answered may have prolonged the lease of the crashed holder, to 15 s."""
    events = [*grant(0, 0, 0, ttl=10), (0, 1, "invoke acquire"), (5, 0, "invoke renew"), (6, 0, "info crash")]
    assert progress(*events, *grant(until, until, 1)[1:]).valid is valid


def test_what_ends_a_lease_before_that() -> None:
    """The service's word, and an own release that returned ok; but never before its last proof."""
    held, wanting, end = grant(0, 0, 0, ttl=50), (0, 1, "invoke acquire"), (20, 1, "info acquire")
    assert progress(*held, wanting, (5, 0, "info crash"), end).valid is True
    assert progress(*held, wanting, (5, 0, "info lost", {"reason": "expired"}), end).valid is False
    assert progress(*held, wanting, (5, 0, "invoke release"), (5, 0, "ok release"), end).valid is False
    proof = [(18, 0, "invoke renew"), (18.5, 0, "ok renew", {"ttl": 1})]
    short = grant(0, 0, 0, ttl=1)
    assert progress(*short, wanting, (1, 0, "info lost"), *proof, end).valid is True
    assert progress(*short, wanting, (1, 0, "info lost"), end).valid is False
    # With a ttl that nobody knows nothing says that the crashed holder had it for any time.
    assert progress(*grant(0, 0, 0), wanting, (5, 0, "info crash"), end).valid is False
    assert progress(*grant(0, 0, 0, **UNSEEN), wanting, (5, 0, "info crash"), end).valid is True
