"""Whether faults on servers, on clocks and on connections bit: measured on a trial that is only told of.

Agents answer what the test says that they measure, so that each measurement decides by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import AgentError, UsageError
from harness.systems.base import Leadership, LeaseTerms
from nemesis import faults
from nemesis.bite import Bite, SeenHold, SeenRequest, SeenWait
from nemesis.clock import Clock
from nemesis.freeze import Freeze
from nemesis.kill import Kill
from nemesis.leading import Leading
from nemesis.reset import Reset
from tests.nemesis.usual import Usual

S = 1_000_000_000
TERMS = LeaseTerms(2.0, 0.0, 0.0, 2.0, 2.5, 1.0, "monotonic", "it counts by that", False, "it keeps nothing")


def hold(node: str, since: float, end: float | None, **more: Any) -> SeenHold:
    """A hold, its times in s; not over yet."""
    ends = None if end is None else int(end * S)
    seen = SeenHold(node, int(node[1:]), 7, int(since * S), ends, end is not None, None, None, None)
    return replace(seen, **more)


def request(
    node: str, f: str, sent: float, done: float | None, came_to: str | None, held: bool | None = None
) -> SeenRequest:
    """A request, its times in s."""
    return SeenRequest(node, int(node[1:]), f, int(sent * S), None if done is None else int(done * S), came_to, held)


@dataclass
class Agent:
    """Answers by what the test has written down: op -> an answer, or a list of answers that are given in turn."""

    node: str
    says: dict[str, Any]
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    alive = True

    def call(self, op: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> dict[str, Any]:
        return dict(self._answer(op, arguments))

    def _answer(self, op: str, arguments: dict[str, Any]) -> Any:
        self.asked.append((op, arguments))
        answer = self.says.get(op, {})
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer

    def start(self, op: str, **arguments: Any) -> Any:
        answer = self._answer(op, arguments)

        class Done:
            def result(self, timeout_seconds: float) -> dict[str, Any]:
                if isinstance(answer, Exception):
                    raise answer
                return dict(answer)

        return Done()

    def close(self) -> None:
        return None


@dataclass
class Told(Usual):
    """A trial as a fault sees it (nemesis.base.Environment), that is only told of."""

    servers: Sequence[str] = ("n1", "n2", "n3")
    contenders: Mapping[str, int] = field(default_factory=lambda: {"c0": 0, "c1": 1})
    system: str = "pretend"
    lease: LeaseTerms = TERMS
    led: list[Leadership] = field(default_factory=lambda: [Leadership("n1", {}, 4)])
    """What each question is answered, the last one for ever."""
    held: list[SeenHold] = field(default_factory=list)
    asked: list[SeenRequest] = field(default_factory=list)
    clock: int = 0
    holder: str = "c0"
    guards: bool = False
    adapter: bool = False
    holds_until_told: bool = True
    waits: dict[str, SeenWait] = field(default_factory=dict)
    but: list[Collection[str]] = field(default_factory=list)
    says: dict[str, dict[str, Any]] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)
    agents: dict[str, Agent] = field(default_factory=dict)

    def agent(self, node: str) -> Agent:
        return self.agents.setdefault(node, Agent(node, self.says.get(node, {})))

    def addresses(self, node: str) -> Sequence[str]:
        return (f"10.0.{ord(node[0])}.{node[1:]}",)

    def leader(self) -> str | None:
        return self.led[0].leader

    def leadership(self, but: Collection[str] = ()) -> Leadership:
        self.but.append(but)
        return self.led.pop(0) if len(self.led) > 1 else self.led[0]

    def wait_for_holder(self, timeout_seconds: float) -> str | None:
        return self.holder

    def wait_until_told(self, timeout_seconds: float) -> str | None:
        return self.holder

    def terms(self) -> LeaseTerms:
        return self.lease

    def now(self) -> int:
        return self.clock

    def holds(self, at_ns: int | None = None) -> Sequence[SeenHold]:
        return [each for each in self.held if each.believed(self.clock if at_ns is None else at_ns)]

    def hold_of(self, node: str, at_ns: int | None = None) -> SeenHold | None:
        at_ns = self.clock if at_ns is None else at_ns
        return next((each for each in reversed(self.held) if each.node == node and each.since_ns <= at_ns), None)

    def wait_of(self, node: str, at_ns: int) -> SeenWait | None:
        wait = self.waits.get(node)
        return wait if wait is not None and wait.open(at_ns) else None

    def granted(self, since_ns: int, until_ns: int) -> Sequence[SeenHold]:
        return [each for each in self.held if since_ns <= each.since_ns <= until_ns]

    def requests(self, since_ns: int, until_ns: int) -> Sequence[SeenRequest]:
        return [e for e in self.asked if e.sent_ns <= until_ns and (e.done_ns is None or e.done_ns >= since_ns)]

    def guarded(self, node: str) -> bool:
        return self.guards

    def brought(self, node: str) -> bool:
        return self.adapter

    def client_port(self, node: str, service: str | None = None) -> int | None:
        return 1234

    def contender_pids(self, node: str) -> Sequence[int]:
        return [50]

    def restart_service(self, node: str, *, keep_data: bool, service: str | None = None) -> None:
        self.restarted.append(node)

    def restart_contender(self, node: str) -> None:
        self.restarted.append(node)


def strike(fault: Any, env: Any, began: float, ended: float) -> Bite:
    """Start it, look, stop it, and ask whether it bit from one moment to the other (s)."""
    started = fault.start(env)
    assert started.receipt == "landed", started
    if hasattr(fault, "look"):
        fault.look(env)
    env.clock = int(ended * S)
    assert fault.stop(env).receipt == "undone"
    measured = fault.bite(env, int(began * S), int(ended * S))
    assert isinstance(measured, Bite)
    assert (measured.bit is False) == (measured.remedy is not None), "who missed says what to set"
    return measured


# -- servers ----------------------------------------------------------------------------------------------------------


def borne(env: Told, target: str = "leader", silent: Collection[str] = ("n1",)) -> Bite:
    """A fault on servers from 10 to 14 s."""
    leading = Leading(target)
    leading.before(env, silent)  # type: ignore[arg-type]
    leading.look(env)  # type: ignore[arg-type]
    return leading.bite(env, 10 * S, 14 * S)  # type: ignore[arg-type]


BUSY = [request("c0", "renew", at / 10, at / 10 + 0.01, "ok") for at in range(90, 160, 5)]
"""Nine of them under way from 10 to 14 s."""


def test_a_leader_that_others_replace_was_hit() -> None:
    """By the word of those that it didn't hit: the one that was hit isn't asked while it is silent."""
    env = Told(led=[Leadership("n1", {}, 4), Leadership("n3", {}, 5)], asked=BUSY)
    bite = borne(env)
    assert (bite.bit, bite.reason) == (True, "leadership moved from n1 to n3 (term 4, then 5) while it was on")
    assert env.but == [(), ("n1",), ()]
    assert bite.evidence["before"]["leader"] == "n1"
    assert bite.evidence["during"]["term"] == 5


def test_an_election_that_the_same_server_won_counts() -> None:
    """Its leases start anew all the same. The term tells."""
    env = Told(led=[Leadership("n1", {}, 4), Leadership("n1", {}, 4), Leadership("n1", {}, 6)], asked=BUSY)
    assert borne(env).reason == "there was an election, won by n1 again (term 4, then 6), right after it"


def test_followers_that_can_not_name_a_silent_leader_have_not_lost_it() -> None:
    """Some systems know a leader only by its own word. When it can be asked, it is another thing."""
    quiet = [Leadership("n1", {}, None), Leadership(None, {}, None), Leadership("n1", {}, None)]
    assert borne(Told(led=list(quiet), asked=BUSY)).bit is False
    lost = [Leadership("n1", {}, None), Leadership(None, {}, None)]
    assert borne(Told(led=lost, asked=BUSY)).bit is True
    assert borne(Told(led=list(quiet), asked=BUSY), silent=()).bit is True, "it was asked, and nobody led"


@pytest.mark.parametrize(
    ("asked", "bit", "reason"),
    [
        (BUSY, False, "no leadership moved, and all 9 requests that were under way came to their end in time"),
        ([], False, "no leadership moved, and all 0 requests"),
        ([request("c0", "renew", 10.5, None, None)], True, "the service stood still for 4.00 s"),
        ([request("c0", "renew", 10.5, 11.1, "info")], True, "the service stood still for 4.00 s"),
        ([*BUSY, request("c1", "release", 11.0, 11.5, "info")], True, "1 of 10 requests suffered (of c1)"),
        ([*BUSY, request("c1", "renew", 11.0, 12.0, "ok")], True, "1 of 10 requests suffered"),
        ([*BUSY, request("c1", "renew", 11.0, 11.1, "fail", False)], False, "no leadership moved"),
        ([*BUSY, request("c1", "renew", 11.0, 11.1, "fail")], True, "1 of 10 requests suffered"),
        ([*BUSY, request("c1", "acquire", 9.0, 13.9, "fail")], False, "no leadership moved"),
        ([*BUSY, request("c1", "acquire", 9.0, None, None)], False, "no leadership moved"),
        ([*BUSY, request("c1", "acquire", 9.0, 12.0, "crash")], False, "no leadership moved"),
        ([request("c1", "acquire", 9.0, None, None)], True, "the service stood still for 4.00 s"),
    ],
)
def test_requests_tell_whether_contenders_were_served(asked: list[SeenRequest], bit: bool, reason: str) -> None:
    """An acquire may wait for its turn while others are answered, and a fail may be the service's own word."""
    measured = borne(Told(led=[Leadership("n1", {}, 4)], asked=asked), "follower", ("n2",))
    assert measured.bit is bit
    assert measured.reason.startswith(reason)


@given(
    st.lists(
        st.builds(
            lambda f, at, takes, came_to: request("c0", f, at, None if came_to is None else at + takes, came_to),
            st.sampled_from(["acquire", "renew", "release"]),
            st.floats(5, 20),
            st.floats(0, 6),
            st.sampled_from(["ok", "fail", "info", "crash", None]),
        ),
        max_size=8,
    )
)
def test_a_fault_on_servers_always_has_a_word(asked: list[SeenRequest]) -> None:
    """Whatever was under way: true with what was measured, or false with what to set; never longer than it lasted."""
    bite = borne(Told(asked=asked))
    assert (bite.bit is True and bite.remedy is None) or (bite.bit is False and bite.remedy)
    assert 0 <= bite.evidence["silent_seconds"] <= 4


# -- kill -------------------------------------------------------------------------------------------------------------

NEW = {"pid": 60, "started": 9, "comm": "x", "state": "S", "role": "service"}
KILLED = {"processes": [{"pid": 50, "comm": "x", "started": 1}], "begin_ns": 1, "end_ns": 2}
ALONE = {"n1": {"kill": KILLED, "processes": {"processes": [NEW]}, "probe": {"results": ["connected"]}}}


def test_kills_of_servers_are_long_and_short_in_turn() -> None:
    """The first as long as the schedule says, the second over at once; and as it is set."""
    env: Any = Told()
    stands = {
        down: [Kill("leader", {"down": down}).stands_seconds(env, number, 4.0) for number in (1, 2, 3)]
        for down in ("both", "long", "short", 0.7)
    }
    assert stands == {"both": [4.0, 0.0, 4.0], "long": [4.0] * 3, "short": [0.0] * 3, 0.7: [0.7] * 3}
    assert Kill("leader", {}).down == "both"


def test_a_contender_is_gone_for_longer_than_its_lease() -> None:
    """However short the schedule's window is."""
    env: Any = Told()
    assert Kill("holder", {}).stands_seconds(env, 2, 0.4) == 3.5
    assert Kill("holder", {}).stands_seconds(env, 2, 9.0) == 9.0
    assert Kill("holder", {"down": "short"}).stands_seconds(env, 1, 9.0) == 0.0


@pytest.mark.parametrize("down", ["often", -1, True, 1e9])
def test_what_is_no_time_to_be_down_is_told(down: Any) -> None:
    """With what would be right."""
    with pytest.raises(UsageError, match="'down' must be one of both, long, short, or a number of seconds from 0"):
        faults.make("kill", "leader", {"down": down})


@pytest.mark.parametrize(
    ("back", "keeps", "keep_data", "bit"),
    [(10.4, False, True, True), (12.5, False, True, False), (10.4, True, True, "immune"), (10.4, True, False, True)],
)
def test_a_server_that_is_back_inside_a_lease_could_have_lost_it(
    back: float, keeps: bool, keep_data: bool, bit: bool | str
) -> None:
    """Killed at 10 s, with a lease until 12 s. Not when it is back later, nor when what it grants outlives a kill."""
    env = Told(servers=("n1",), led=[Leadership("n1", {})], held=[hold("c0", 9.5, 12.0)], says=ALONE)
    env.lease = replace(TERMS, survives_kill=keeps)
    measured = strike(Kill("leader", {"keep_data": keep_data}), env, 10.0, back)
    assert measured.bit == bit
    assert env.restarted == ["n1"]
    if bit is True:
        why = "it keeps nothing" if keep_data else "its data were removed"
        assert measured.reason == f"back after 0.40 s, 1.60 s before a lease ended that it could have lost: {why}"


def test_a_lock_that_was_given_back_meanwhile_could_not_be_lost() -> None:
    """Its release was sent, and did not fail, before the server was back: nothing is promised any more."""
    given_back = hold("c0", 9.5, 12.0, ended_ns=int(10.1 * S), ended_by="release", released_ns=int(10.1 * S))
    env = Told(servers=("n1",), led=[Leadership("n1", {})], held=[given_back], says=ALONE)
    assert strike(Kill("leader", {}), env, 10.0, 10.4).bit is False


def killed(held: list[SeenHold], ended: float = 14.0, waits: dict[str, SeenWait] | None = None) -> Bite:
    """c0, killed at 10 s, and back."""
    says = {"c0": {"kill": KILLED, "processes": {"processes": [NEW | {"pid": 50}]}}}
    env = Told(held=held, waits=waits or {}, says=says, clock=10 * S, holder="c1" if waits else "c0")
    fault = Kill("c0", {})
    assert fault.start(env).receipt == "landed"  # type: ignore[arg-type]
    assert fault.stop(env).receipt == "undone"  # type: ignore[arg-type]
    assert env.restarted == ["c0"]
    return fault.bite(env, 10 * S, int(ended * S))  # type: ignore[arg-type]


def test_a_killed_holder_bit_when_its_lease_ran_out_while_it_was_gone() -> None:
    """Else the others had nothing to wait for, or it was back to tell of it."""
    crashed = {"ended_ns": int(10.01 * S), "ended_by": "crash"}
    bite = killed([hold("c0", 9.0, 11.5, **crashed)])
    assert (bite.bit, bite.reason) == (True, "the lease of c0 ran out 2.5 s before the fault ended")
    assert killed([hold("c0", 9.0, 11.5, **crashed)], ended=11.0).bit is False
    assert killed([hold("c0", 9.0, None, **crashed)], ended=12.4).bit is False, "it may have lasted to 12.5"
    assert killed([hold("c0", 9.0, None, **crashed)], ended=12.6).bit is True
    assert killed([]).reason == "c0 neither held the lock nor waited for it when it was killed"
    returned = hold("c0", 9.0, 11.5, **{**crashed, "ended_by": "release", "released_ns": int(10.01 * S)})
    assert killed([returned]).bit is False


class Renewed(Told):
    """Its holder was answered ok, whatever its lease, to a renewal that it sent at 14.001 s."""

    def hold_of(self, node: str, at_ns: int | None = None) -> SeenHold | None:
        end = 12.0 if (self.clock if at_ns is None else at_ns) < 14.001 * S else 16.001
        return hold(node, 9.5, end)


def test_what_a_holder_sends_as_it_wakes_was_promised_after_the_freeze() -> None:
    """A service that renews a lease which has run out must not make the freeze that shows it one that missed: the
    holder goes on with the signal, some milliseconds before it is known that it does.
    """
    env = Renewed(says={"c0": {"freeze": {}, "thaw": {"was_stopped_throughout": True}}})
    fault = Freeze("holder", {})
    assert fault.start(env).receipt == "landed"
    env.clock = 14 * S
    assert fault.stop(env).receipt == "undone"
    bite = fault.bite(env, 10 * S, int(14.002 * S))
    assert (bite.bit, bite.reason) == (True, "the lease of c0 ran out 2.0 s before the fault ended")


def test_a_killed_waiter_bit_when_the_lock_changed_hands_without_it() -> None:
    """The place in the queue that it leaves behind must keep nobody out."""
    waits = {"c0": SeenWait(0, 9 * S, int(10.01 * S), "crash")}
    assert killed([], waits=waits).reason == "the lock did not change hands while c0 was gone"
    bite = killed([hold("c1", 11.0, 13.0)], waits=waits)
    assert (bite.bit, bite.reason) == (True, "the lock changed hands once while c0, that had waited for it, was gone")


def test_a_contender_that_does_not_come_back_is_not_undone() -> None:
    """The error of the trial is the reason."""
    env: Any = Told(says={"c0": {"kill": KILLED}})
    fault = Kill("holder", {})
    assert fault.start(env).receipt == "landed"

    def fail(node: str) -> None:
        raise AgentError(f"{node} is gone for good")

    env.restart_contender = fail
    stopped = fault.stop(env)
    assert (stopped.receipt, stopped.reason) == ("unproven", "c0: c0 is gone for good")


# -- clock ------------------------------------------------------------------------------------------------------------


def moved_clock(
    reads: Any, held: list[SeenHold], target: str = "leader", adapter: bool = False, **parameters: Any
) -> Bite:
    """A clock that was moved from 10 to 14 s."""
    node = {"leader": "n1", "follower": "n2", "holder": "c0"}[target]
    restored = {"processes": [{"pid": 50, "reads": each} for each in reads]}
    says = {name: {"clock_set": {"processes": []}} for name in ("n2", "n3")}
    says[node] = {"clock_set": {"processes": []}, "clock_restore": restored}
    if target == "follower":
        env = Told(servers=("n1", "n2"), held=held, says=says)
    else:
        env = Told(held=held, says=says, adapter=adapter)
    return strike(Clock(target, {"clocks": "monotonic", **parameters}), env, 10.0, 14.0)


LIVE = [hold("c0", 9.0, 11.5)]


def test_a_clock_that_does_not_decide_is_immune_by_design() -> None:
    """With the reason of the system; and both clocks together are not."""
    bite = moved_clock([900], LIVE, clocks="realtime")
    assert (bite.bit, bite.reason) == ("immune", "realtime was moved, and it counts by that")
    assert moved_clock([900], LIVE, clocks="both").bit is True


def test_a_jump_bites_when_it_was_read_and_a_lease_could_run_out_by_it() -> None:
    """All three are measured, and each of them alone decides."""
    bite = moved_clock([900, None, 20], LIVE, offset=30)
    assert bite.bit is True
    assert (
        bite.reason
        == "a lease had 1.50 s to go when the clock jumped ahead, by 30 s; the moved clock was read 900 times"
    )
    assert moved_clock([0], LIVE).reason == "n1 did not read the moved clock once"
    assert moved_clock([900], []).reason == "nobody held a live lease when the clock jumped ahead"
    assert moved_clock([900], [hold("c0", 5.0, 9.9)]).bit is False, "believed in, and over"
    small = moved_clock([900], LIVE, offset=1.4)
    assert small.reason == "the lease that was held had 1.50 s to go when the clock jumped ahead, by 1.4 s"
    assert moved_clock([900], LIVE, offset=1.6).bit is True


def test_a_clock_that_is_set_back_jumps_ahead_at_the_end() -> None:
    """So it is the leases of that moment that can run out early."""
    assert moved_clock([900], LIVE, offset=-30).bit is False
    assert moved_clock([900], [hold("c0", 9.0, 15.0)], offset=-30).bit is True


def test_it_is_the_leaders_clock_that_counts() -> None:
    """A follower's may be read as often as it likes."""
    bite = moved_clock([900], LIVE, "follower")
    assert (bite.bit, bite.reason) == (False, "n2 did not lead, and it counts by that")


def test_readings_that_nobody_counted_are_not_guessed() -> None:
    """The error stands in the place of a word."""
    with pytest.raises(AgentError, match="it isn't known how often n1 read the clock"):
        moved_clock([None], LIVE)


def test_a_contender_counts_by_the_monotonic_clock() -> None:
    """Its wall clock is nothing to it; the other one is, while it holds and reads it."""
    assert moved_clock([900], LIVE, "holder", clocks="realtime").bit == "immune"
    assert moved_clock([900], LIVE, "holder").bit is True
    assert moved_clock([0], LIVE, "holder").bit is False
    assert moved_clock([900], [], "holder").reason == "c0 did not hold the lock when its clock jumped"


def test_a_program_of_the_user_s_own_counts_by_whatever_it_reads() -> None:
    """Nobody knows which clock it goes by, so none is harmless by design: what it read decides."""
    assert moved_clock([900], LIVE, "holder", clocks="realtime", adapter=True).bit is True
    assert moved_clock([0], LIVE, "holder", clocks="realtime", adapter=True).bit is False


# -- reset ------------------------------------------------------------------------------------------------------------

MINE = ["10.0.99.0", 40000, "10.0.110.1", 1234]
THEIRS = ["10.0.110.1", 1234, "10.0.99.0", 40000]


def reset(held: list[SeenHold], waits: Any = None, target: str = "holder", left: Any = ()) -> Any:
    """(fault, env) of a reset at 10 s; `left` is what the contender's node lists afterwards."""
    node = "c0" if target == "holder" else "c1"
    listed = [{"connections": [MINE]}, {"connections": list(left)}]
    here = {"connections": listed, "processes": {"processes": [NEW | {"pid": 50}]}}
    there = {"reset": {"words": ["reset"], "begin_ns": 1, "end_ns": 2}, "connections": {"connections": list(left)}}
    env = Told(held=held, waits=waits or {}, says={node: here, "n1": there}, clock=10 * S)
    return Reset(target, {}), env


def test_a_reset_bit_when_a_live_lease_was_held_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that had run out by then, or none, is nothing that could be lost with a connection."""
    monkeypatch.setattr("nemesis.reset.AGAIN_SECONDS", 0.0)
    bite = strike(*reset([hold("c0", 9.0, 11.0)]), 10.0, 14.0)
    assert (bite.bit, bite.reason) == (True, "c0 held a live lease when a connection of its was reset (once)")
    bite = strike(*reset([hold("c0", 5.0, 9.5)]), 10.0, 14.0)
    assert (bite.bit, bite.reason) == (False, "c0 held no live lease when its connections were reset (once)")
    waits = {"c1": SeenWait(1, 9 * S, None, None)}
    assert strike(*reset([hold("c0", 9.0, 11.0)], waits, "c1"), 10.0, 14.0).bit is True
    assert strike(*reset([hold("c0", 9.0, 11.0)], {}, "c1"), 10.0, 14.0).bit is False


def test_a_reset_asks_the_servers_for_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is unproven while one of the ends still lists the connection."""
    monkeypatch.setattr("nemesis.reset.GONE_SECONDS", 0.0)
    fault, env = reset([])
    assert fault.start(env).receipt == "landed"
    assert env.agents["n1"].asked[0] == ("reset", {"connections": [tuple(THEIRS)]})
    fault, env = reset([], left=[MINE])
    started = fault.start(env)
    assert started.receipt == "unproven"
    assert started.reason == "10.0.99.0:40000 > 10.0.110.1:1234 on c0 is still there"


def test_a_kernel_that_can_not_reset_skips_the_fault() -> None:
    """As everything that can't be done on a machine at all; another error leaves it unproven."""
    fault, env = reset([])
    refused = "reset on n1: the connection can't be reset: this kernel can't (it needs CONFIG_INET_DIAG_DESTROY)"
    env.says["n1"]["reset"] = AgentError(refused)
    started = fault.start(env)
    assert (started.receipt, started.reason) == ("skipped", refused)
    fault, env = reset([])
    env.says["n1"]["reset"] = AgentError("reset on n1: not permitted")
    assert fault.start(env).receipt == "unproven"


def test_a_server_has_no_connections_to_reset() -> None:
    """The fault is one of contenders, also by name."""
    with pytest.raises(UsageError, match="reset: 'n1' is no contender"):
        faults.make("reset", "n1", {})


def test_a_refusal_counts_for_the_one_beside_which_something_was_hit() -> None:
    """Its agent told the servers that it leaves, and they ended the session: that is what came of it."""
    refused = request("c0", "renew", 11, 11.1, "fail", held=False)
    served = [request("c2", "renew", at, at + 0.1, "ok") for at in (10, 11, 12, 13)]
    for hit, bit in (("c0", True), ("c1", False)):
        env = Told(asked=[refused, *served], says={hit: {"stop": {"processes": [], "begin_ns": 1}}})
        fault: Any = faults.make("stop", hit, {"service": "client-agent", "down": 3.0})
        env.services = lambda node: ["client-agent"]  # type: ignore[method-assign]
        fault.start(env)
        assert fault.bite(env, 10 * S, 14 * S).bit is bit
