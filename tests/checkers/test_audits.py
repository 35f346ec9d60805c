"""What a resource held at the end: acknowledged writes that are gone, refused ones that are there."""

from __future__ import annotations

from typing import Any

import pytest

from checkers import Verdict, judge
from tests.checkers.make import grant, make


def write(start: float, end: float | None, name: object, outcome: str = "ok", **keys: Any) -> list[tuple[Any, ...]]:
    both = {"resource": "unfenced", **{key: keys[key] for key in ("lock", "resource") if key in keys}}
    more = {key: value for key, value in keys.items() if key not in both}
    events: list[tuple[Any, ...]] = [(start, 0, "invoke write", {"id": name, **both, **more})]
    return events if end is None else [*events, (end, 0, f"{outcome} write", both)]


def audit(at: float, *ids: object, resource: str = "unfenced", **keys: Any) -> tuple[Any, ...]:
    return (at, "harness", "info audit", {"resource": resource, "ids": list(ids), **keys})


def damage(*events: Any, **meta: Any) -> Verdict:
    return judge(make(*events, **meta)).verdicts["damage"]


def kinds(verdict: Verdict) -> list[str]:
    return [finding.kind for finding in verdict.findings]


@pytest.mark.parametrize(
    ("outcome", "there", "found"),
    [
        ("ok", True, []), ("ok", False, ["gone-write"]),
        ("fail", True, ["ghost-write"]), ("fail", False, []),
        ("info", True, []), ("info", False, []), (None, True, []), (None, False, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a", 7, 0])
def test_what_is_known_of_a_write_and_what_was_found(
    outcome: str | None, there: bool, found: list[str], name: object
) -> None:
    """Acknowledged and lacking, refused and there; one of unknown outcome may be either."""
    mine = write(0, None, name) if outcome is None else write(0, 1, name, outcome)
    verdict = damage(*mine, audit(5, *([name] if there else [])))
    assert kinds(verdict) == found
    assert verdict.stats["looked_for"] == (outcome in ("ok", "fail"))
    assert verdict.valid == (False if found else True if outcome == "ok" else "unknown")
    if found:
        assert verdict.findings[0].events == (3, 4)


@pytest.mark.parametrize(("sent", "u", "found"), [(1, 0, 1), (0.9, 0, 0), (1.5, 0.5, 1), (1.4, 0.5, 0)])
def test_an_audit_must_have_been_sent_late_enough(sent: float, u: float, found: int) -> None:
    """From the instant of the answer on, plus what stamps may be off; a refused one that it found needs no time."""
    verdict = damage(*write(0, 1, "a"), audit(sent), uncertainty=u)
    assert (verdict.count or 0, verdict.stats["looked_for"], verdict.stats["gone"]) == (found, found, found)
    assert kinds(damage(*write(0, 1, "a", "fail"), audit(0.5, "a"), uncertainty=u)) == ["ghost-write"]


def test_each_resource_of_each_lock_by_itself() -> None:
    """An audit says nothing of another resource, nor of another lock; what no write has, or stands there twice, says
    nothing at all."""
    assert damage(*write(0, 1, "a"), audit(5, resource="fenced")).valid is True
    assert damage(*write(0, 1, "a"), audit(5, lock="b")).valid is True
    assert kinds(damage(*write(0, 1, "a", lock="b"), audit(5), audit(5, lock="b"))) == ["gone-write"]
    assert damage(*write(0, 1, "a"), audit(5, "x", "a", "a", "y")).valid is True
    assert damage(*write(0, 1, None), audit(5)).valid is True


def test_the_id_of_the_completion_wins() -> None:
    """As every key of it does."""
    again = [(0, 0, "invoke write", {"id": "a", "resource": "unfenced"}),
             (1, 0, "ok write", {"id": "b", "resource": "unfenced"})]  # fmt: skip
    assert damage(*again, audit(5, "b")).valid is True
    assert kinds(damage(*again, audit(5, "a"))) == ["gone-write"]


def test_it_needs_no_order() -> None:
    """Two writes at once without seq: stale and lost ones aren't looked for, a gone one is found."""
    two = [
        (0, 0, "invoke write", {"resource": "unfenced", "id": 1, "token": 2}),
        (0, 1, "invoke write", {"resource": "unfenced", "id": 2, "token": 1}),
        (1, 0, "ok write", {"resource": "unfenced"}), (1, 1, "ok write", {"resource": "unfenced"}),
    ]  # fmt: skip
    assert damage(*two, audit(5, 1, 2)).valid == "unknown"
    assert kinds(damage(*two, audit(5, 1))) == ["gone-write"]


def test_a_ghost_is_required_without_an_accepted_write() -> None:
    """By default `fenced` counts where its resource accepted a write, or where it is false."""
    refused = write(0, 1, "a", "fail", resource="fenced")
    assert "fenced" not in judge(make(*refused, audit(5, resource="fenced"))).required
    judgement = judge(make(*refused, audit(5, "a", resource="fenced")))
    assert "fenced" in judgement.required
    assert judgement.valid is False


def test_an_audit_is_no_event_for_anybody_else() -> None:
    """Beliefs and wants end at the last event that isn't one; and it counts among the events."""
    events = [*grant(0, 1, 0), (4, 1, "invoke acquire")]
    judgement = judge(make(*events, audit(100), ttl=1, progress_bound=2))
    assert (
        judgement.verdicts["progress"].stats == judge(make(*events, ttl=1, progress_bound=2)).verdicts["progress"].stats
    )
    assert judgement.events == 4
    both = judge(make(*grant(0, 1, 0), *grant(4, 4, 1), audit(100), ttl=1)).verdicts["exclusion"]
    assert both.stats["unsafe_seconds"] == 0


def test_it_says_what_is_gone() -> None:
    """Whose write, which one, and when it was looked for."""
    assert damage(*write(0, 1, "a"), audit(5)).findings[0].text == (
        "The unfenced resource of lock 'lock' accepted write 'a' of contender 0; 4.000 s later it was read as a whole, "
        "and that write was gone: whatever was written after it, the resource lost what it had acknowledged. Contender "
        "0 held nothing, and had never asked for the lock."
    )
    assert damage(*write(0, 9, 7, "fail"), audit(5, 7)).findings[0].text == (
        "The unfenced resource of lock 'lock' was read as a whole, and had write 7 of contender 0; 4.000 s later that "
        "write was refused."
    )
