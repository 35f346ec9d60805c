"""When a fault on servers ends, and what became of whoever held through it: on a trial that is only told of.

Time is what the test says it is, and who leads, who holds and what was answered follows from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.systems.base import Leadership, LeaseTerms
from nemesis import faults
from nemesis.base import Environment, Seeks
from nemesis.bite import SeenHold, SeenRequest
from nemesis.witness import WITHOUT_EVERY, Witness

S = 1_000_000_000
TTL = 2.0


@dataclass
class Story:
    """A trial in which n1 leads and c1 holds, until something else is said. Moments in s."""

    moves_at: float | None = 1.0
    """When n2 leads."""
    renews_at: Sequence[float] = (0.5, 1.2, 1.9, 2.6, 3.3, 4.0)
    """When c1 sends a renewal that is answered ok 10 ms later."""
    refused_at: float | None = None
    """When c1 was told that it doesn't hold."""
    ends_at: float | None = None
    """When c1 stops believing."""
    holder: str | None = "c1"
    renewals_seen: bool = True
    servers: Sequence[str] = ("n1", "n2", "n3")
    holds_until_told: bool = True
    clock: float = 0.0
    asked: list[tuple[float, Collection[str]]] = field(default_factory=list)

    def now(self) -> int:
        return int(self.clock * S)

    def terms(self) -> LeaseTerms:
        return LeaseTerms(TTL, 1.0, 1.0, TTL, 2.6, 3.5, "monotonic", "", True, "")

    def wait_until_told(self, timeout_seconds: float) -> str | None:
        assert timeout_seconds <= TTL
        return self.holder

    def hold_of(self, node: str, at_ns: int | None = None) -> SeenHold | None:
        by = self.clock if at_ns is None else at_ns / S
        sent = max((each for each in self.renews_at if each <= by and each + 0.01 <= self.clock), default=-0.3)
        hold = SeenHold(node, 1, 7, -S, int((sent + TTL) * S), True, None, None, None)
        if self.ends_at is not None and self.clock >= self.ends_at:
            hold = replace(hold, ended_ns=int(self.ends_at * S), ended_by="crash")
        return hold if self.renewals_seen else replace(hold, promise_end_ns=None, renewals_seen=False)

    def requests(self, since_ns: int, until_ns: int) -> Sequence[SeenRequest]:
        sent = [int(each * S) for each in self.renews_at]
        found = [SeenRequest("c1", 1, "renew", each, each + S // 100, "ok", None) for each in sent]
        if self.refused_at is not None:
            at = int(self.refused_at * S)
            found.append(SeenRequest("c1", 1, "renew", at, at + S // 100, "fail", False))
        return [each for each in found if cast(int, each.done_ns) <= until_ns and cast(int, each.done_ns) >= since_ns]

    def leadership(self, but: Collection[str] = ()) -> Leadership:
        self.asked.append((self.clock, but))
        moved = self.moves_at is not None and self.clock >= self.moves_at
        return Leadership("n2", {}, 5) if moved else Leadership("n1", {}, 4)

    def ripe_at(self, witness: Witness, until: float = 6.0) -> float | None:
        """When the moment comes, asked every 20 ms as a trial does; None when it doesn't."""
        while self.clock < until:
            if witness.ripe(cast(Environment, self)):
                return round(self.clock, 2)
            self.clock = round(self.clock + 0.02, 2)
        return None


def begun(story: Story, how: str = "moment", silent: Collection[str] = ("n1",), number: int = 1) -> Witness:
    """A witness of a fault that begins at 0 s."""
    env, witness = cast(Environment, story), Witness(how)
    witness.turn(number)
    witness.summon(env, 10.0)
    witness.begin(env, Leadership("n1", {}, 4), silent)
    return witness


def told(witness: Witness) -> dict[str, Any]:
    """What the journal gets."""
    said = witness.told()
    assert said is not None
    return dict(said)


def test_the_moment_is_when_the_old_promise_is_over_and_a_new_one_stands() -> None:
    """The lease that the frozen leader knows of is over by its count; the witness has renewed it at the new one."""
    story = Story()
    witness = begun(story)
    assert story.ripe_at(witness) == pytest.approx(1.7 + 0.2, abs=0.03)
    said = told(witness)
    assert (said["node"], said["leads"], said["ended"]) == ("c1", "n2", "the moment had come")
    assert said["moved_ns"] == pytest.approx(1.0 * S, abs=0.15 * S)
    assert said["renewed_ns"] == 0.5 * S  # while the leader was frozen: it was another that answered
    assert said["promise_end_ns"] == 1.7 * S  # when the fault began


def test_where_the_old_leader_still_answers_a_renewal_counts_from_the_move_on() -> None:
    """A leader that was cut off goes on renewing until it notices: its promise counts from there."""
    story = Story()
    witness = begun(story, silent=())
    assert story.ripe_at(witness) == pytest.approx(0.5 + TTL + 0.2, abs=0.03)
    assert told(witness)["renewed_ns"] == 1.2 * S
    late = Story(moves_at=2.0)
    assert late.ripe_at(begun(late)) == pytest.approx(2.0, abs=0.15)  # for the move, when that takes longer


@given(moves_at=st.floats(0.0, 5.0), every=st.floats(0.1, 3.0), silent=st.sampled_from([(), ("n1",)]))
def test_never_before_every_old_promise_is_over(moves_at: float, every: float, silent: tuple[str, ...]) -> None:
    """And never without a renewal since, or outside the witness's promise, whatever the times."""
    story = Story(moves_at=moves_at, renews_at=[0.05 + every * step for step in range(int(8 / every))])
    at = story.ripe_at(begun(story, silent=silent), until=8.0)
    if at is None:
        assert every > TTL - 0.1  # renewals so rare that the promise is over between them, or just at its end
        return
    old = max((sent for sent in story.renews_at if sent <= (0.0 if silent else moves_at)), default=-0.3)
    assert at >= max(moves_at, old + TTL + 0.2) - 0.01
    assert any(sent + 0.01 <= at < sent + TTL + 0.02 for sent in story.renews_at)


@pytest.mark.parametrize(
    ("story", "why"),
    [
        (Story(moves_at=None), "the schedule's time was over"),
        (Story(renews_at=()), "the schedule's time was over"),
        (Story(ends_at=0.4), "the witness's hold ended before"),
        (Story(renewals_seen=False), "the witness's renewals are unseen"),
    ],
)
def test_without_a_moment_the_fault_lasts_as_the_schedule_says(story: Story, why: str) -> None:
    """Leadership stays, the witness is cut off, its hold ends, or nobody sees it renew: and the journal says which."""
    witness = begun(story)
    assert story.ripe_at(witness) is None
    assert told(witness)["ended"] == why


def test_servers_are_asked_at_times_and_not_the_one_that_cannot_answer() -> None:
    """Asking costs something, and a frozen server a second."""
    story = Story(moves_at=2.0)
    story.ripe_at(begun(story))
    assert len(story.asked) <= 2.1 / 0.1
    assert {but for _, but in story.asked} == {("n1",)}
    everybody = Story()
    assert everybody.ripe_at(begun(everybody, silent=everybody.servers)) is None
    assert everybody.asked == []  # there is nobody to ask


def test_a_witness_alone_does_not_end_the_fault() -> None:
    """`witness = "hold"`; and without one there is nothing to tell."""
    story = Story()
    assert story.ripe_at(begun(story, "hold")) is None
    nobody = Story(holder=None)
    for witness in (begun(nobody), begun(Story(), "none"), begun(Story(), number=WITHOUT_EVERY)):
        assert nobody.ripe_at(witness) is None
        assert witness.told() is None
        assert witness.seen(cast(Environment, nobody))


@pytest.mark.parametrize(
    ("story", "seen_at", "came_to"),
    [
        (Story(), 3.31, "it holds on"),
        (Story(refused_at=3.05), 3.06, "it was told that it does not hold"),
        (Story(ends_at=3.2), 3.2, "it ended its hold (crash)"),
        (Story(renews_at=(1.2, 2.6)), 4.6, "its promise is over"),
    ],
)
def test_the_witness_is_let_go_when_it_was_seen_what_became_of_its_hold(
    story: Story, seen_at: float, came_to: str
) -> None:
    """Not before: what follows from the fault's end is to meet a hold that stands."""
    env, witness = cast(Environment, story), begun(story)
    story.clock = 3.0
    while not witness.seen(env):
        story.clock = round(story.clock + 0.01, 2)
        assert story.clock < 6
    assert story.clock == pytest.approx(seen_at, abs=0.02)
    assert told(witness)["came_to"] == came_to


@pytest.mark.parametrize("kind", ["freeze", "partition", "kill", "clock"])
def test_faults_on_servers_seek(kind: str) -> None:
    """And those with a parameter for it name what it may be."""
    assert isinstance(faults.make(kind, "leader", {}), Seeks)
    if kind in ("freeze", "partition"):
        with pytest.raises(UsageError, match=f"{kind}: parameter 'witness' must be one of moment, hold, none"):
            faults.make(kind, "leader", {"witness": "holds"})
