"""What is made of what was seen: whose doing it was, what becomes one thing, and what the history says of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.errors import HarnessError
from harness.runtime.base import Node, Site
from harness.trial.acts import ActingLink, OwnActs
from harness.trial.beats import HARNESS, Beats, Gap, overlapping
from harness.trial.clock import HistoryClock
from harness.trial.lookout import Lookout
from harness.trial.outside import Outsiders
from harness.trial.recorder import Recorder

S = 1_000_000_000


class Clock:
    """A time of the history that a test sets, in s."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> int:
        return int(self.seconds * S)


class Scene:
    """Contenders 0 and 1 on c0 and c1, a server n1, and an empty history."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.said = folder, Clock(), []  # type: Path, Clock, list[str]
        self.recorder = Recorder(folder, {})
        self.outsiders = Outsiders(
            self.recorder, self.clock.now, {"c0": 0, "c1": 1}, lambda node, part: f"{part} of {node}", self.said.append
        )

    def faults(self) -> list[dict[str, Any]]:
        """What stands in the history."""
        lines = (self.folder / "history.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event.get("f") == "fault"]

    def told(self) -> list[tuple[str, str, str, float, Any]]:
        """Id, what, phase, time in s, and targets with contenders, or the receipt of a stop."""
        return [
            (
                event["id"],
                event["what"],
                event["phase"],
                event["time"] / S,
                (event["targets"], event["processes"]) if event["phase"] == "start" else event["receipt"],
            )
            for event in self.faults()
        ]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_pause_by_others_stands_in_the_history_from_start_to_stop(scene: Scene) -> None:
    """As a fault of kind outside that has landed and was undone, with the contender that it froze."""
    scene.outsiders.begin("c1", "node", "paused", 7 * S, "seen so")
    scene.outsiders.finish("c1", "node", "paused", 9 * S, "seen otherwise")
    assert scene.told() == [("o1", "paused", "start", 7.0, (["c1"], [1])), ("o1", "paused", "stop", 9.0, "undone")]
    start, stop = scene.faults()
    assert (start["kind"], start["receipt"], start["process"], start["type"]) == (
        "outside",
        "landed",
        "nemesis",
        "info",
    )
    assert stop["reason"] == "seen otherwise"
    (outside,) = scene.outsiders.all
    assert outside.sentence() == (
        "node of c1 was paused, and no fault did that (from 7.00 s to 9.00 s of the trial: seen so; seen otherwise)"
    )


def test_what_ends_in_several_parts_at_once_is_one_thing(scene: Scene) -> None:
    """A node takes its service and its agent along; whichever is seen first, it is the node that is named."""
    scene.outsiders.begin("n1", "agent", "killed", 5 * S, "it does not answer")
    scene.outsiders.begin("n1", "node", "killed", 5 * S, "exited")
    scene.outsiders.begin("n1", "service", "oom", 5 * S, "exited too")
    scene.outsiders.finish("n1", "service", "killed", 6 * S, "started again")
    assert scene.told() == [("o1", "killed", "start", 5.0, (["n1"], []))]
    (outside,) = scene.outsiders.standing()
    assert outside.parts == {"agent", "node"}
    assert outside.sentence().startswith("node of n1 ended, and no fault did that (from 5.00 s of the trial on")


def test_what_comes_back_otherwise_is_not_undone(scene: Scene) -> None:
    """A node that has another address than before isn't what the others knew."""
    scene.outsiders.begin("c0", "node", "disconnected", 5 * S, "gone")
    scene.outsiders.finish("c0", "node", "disconnected", 6 * S, "other addresses", restored=False)
    assert scene.told()[1] == ("o1", "disconnected", "stop", 6.0, "unproven")


def test_times_lie_within_the_trial_whatever_a_clock_says(scene: Scene) -> None:
    """Not before its time 0, not after now, and no end before its beginning."""
    scene.outsiders.begin("c0", "node", "paused", -5 * S, "early")
    scene.outsiders.finish("c0", "node", "paused", -6 * S, "earlier")
    scene.outsiders.begin("c1", "node", "paused", 1000 * S, "late")
    assert [time for _, _, _, time, _ in scene.told()] == [0.0, 0.0, 100.0]


def test_an_end_of_what_never_began_is_nothing(scene: Scene) -> None:
    """The start of a service that the trial itself had killed, say."""
    scene.outsiders.finish("n1", "service", "killed", 5 * S, "started")
    assert scene.told() == []


@pytest.mark.parametrize("node", [True, False])
def test_an_agent_that_ends_may_be_the_first_sign_of_the_end_of_its_node(tmp_path: Path, node: bool) -> None:
    """On a busy machine the engine tells of it later: then the node is named, and an agent alone a moment later."""
    clock, resource = Clock(), cast(Node, SimpleNamespace(name="resource"))
    told_at = cast(HistoryClock, SimpleNamespace(now=clock.now, epoch_ns=0))
    recorder = Recorder(tmp_path, {})
    lookout = Lookout(cast(Site, None), {}, [], resource, recorder, told_at, system="redis", ttl=1.0, said=print)
    lookout.outsiders.begin("resource", "agent", "killed", clock.now(), "its stream has ended")
    lookout.check()
    clock.seconds += 1.0
    lookout.check()
    if node:
        lookout.outsiders.begin("resource", "service", "killed", clock.now(), "exited with code 137")
    else:
        clock.seconds += 1.1
    with pytest.raises(HarnessError, match="^the resource ended" if node else "^the agent on resource ended"):
        lookout.check()
    lookout.check()  # it is told once


def test_a_disk_that_is_full_is_kept_as_the_failure(scene: Scene) -> None:
    """What was seen and can't be written must not be lost in a thread."""
    scene.recorder.close()
    scene.outsiders.begin("n1", "node", "killed", 5 * S, "exited")
    assert scene.outsiders.failure is not None
    assert "history.jsonl" in scene.outsiders.failure


# -- the trial's own acts ---------------------------------------------------------------------------------------------


def test_what_happens_between_our_kill_and_our_restart_is_ours() -> None:
    """On that node alone, from before the order to kill until it runs again; and no longer."""
    clock = Clock()
    acts = OwnActs(clock.now)
    acts.begin("n1")
    clock.seconds = 101
    acts.begin("n1")  # the restart, which is an act too
    assert acts.opened() == [("n1", "service")]
    assert acts.covers("n1", 200 * S), "it is open"
    acts.end("n1")
    acts.end("n1")
    assert [acts.covers("n1", int(at * S)) for at in (99.9, 100, 101, 101.1)] == [False, True, True, False]
    assert not acts.covers("n2", 100 * S + 1)


class Sent:
    """An agent's link that notes what was known when a command was sent."""

    node, alive = "n1", True

    def __init__(self, acts: OwnActs) -> None:
        self.acts, self.seen = acts, []  # type: OwnActs, list[tuple[str, list[tuple[str, str]]]]

    def call(self, op: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> dict[str, Any]:
        self.seen.append((op, self.acts.opened()))
        return {}

    def start(self, op: str, **arguments: Any) -> None:
        self.call(op)

    def close(self) -> None:
        return None


def test_an_order_to_kill_is_noted_before_it_is_sent() -> None:
    """Whatever fault gives it, and however; other orders end nothing."""
    acts = OwnActs(Clock().now)
    sent = Sent(acts)
    link = ActingLink(sent, acts)
    link.call("freeze")
    link.start("kill")
    assert sent.seen == [("freeze", []), ("kill", [("n1", "service")])]


def test_an_order_to_end_one_service_is_noted_for_that_one() -> None:
    """The one beside it is nobody's to end; a contender is told where its processes are meant."""
    acts, doomed = OwnActs(Clock().now), OwnActs(Clock().now)
    ActingLink(Sent(acts), acts, ["redis", "sentinel"], doomed).start("kill", services=["sentinel"])
    assert acts.opened() == [("n1", "sentinel")]
    ActingLink(Sent(acts), acts, ["redis", "sentinel"], doomed).start("kill", services=["redis"])
    assert acts.opened() == [("n1", "sentinel"), ("n1", "service")]
    assert doomed.opened() == []
    ActingLink(Sent(acts), acts, [], doomed).call("kill", pids=[17])
    assert doomed.opened() == [("n1", "service")]


# -- gaps -------------------------------------------------------------------------------------------------------------


def gap(node: str, begin: float, end: float, *, suspended: bool = False) -> Gap:
    """A gap, its times in s."""
    return Gap(node, int(begin * S), int(end * S), suspended, end - begin)


def sorted_out(scene: Scene, *gaps: Gap) -> list[tuple[str, list[str], list[int]]]:
    """What is made of these gaps of three agents: what, targets, contenders."""
    agents: dict[str, Any] = dict.fromkeys(("n1", "c0", "c1"))
    resource: Any = None
    beats = Beats(agents, resource, scene.outsiders, 2.0, 0, scene.said.append, lambda: None)
    beats.gaps += gaps
    beats.sort_gaps(at_once=True)
    return [(event["what"], event["targets"], event["processes"]) for event in scene.faults() if "targets" in event]


def test_gaps_that_share_time_form_a_group() -> None:
    """Also through a third one that shares time with both."""
    one, two, three, four = gap("a", 1, 3), gap("b", 2, 5), gap("c", 4, 6), gap("d", 7, 8)
    assert overlapping([four, three, two, one]) == [[one, two, three], [four]]


@pytest.mark.parametrize("suspended", [True, False])
def test_a_gap_of_most_agents_is_one_of_their_machine(scene: Scene, suspended: bool) -> None:
    """It froze all that ran there, so no contender is blamed for what it did too late."""
    gaps = [gap(node, 10, 15, suspended=suspended) for node in ("n1", "c1", HARNESS)]
    assert sorted_out(scene, *gaps) == [("paused", ["c1", "n1"], [1])]
    assert "the machine under the nodes was paused" in scene.outsiders.all[0].sentence()


def test_a_gap_of_one_agent_is_its_own(scene: Scene) -> None:
    """Whether its contender stood still with it nobody knows."""
    assert sorted_out(scene, gap("c1", 10, 15)) == [("stalled", ["c1"], [])]


def test_a_gap_that_a_known_pause_explains_is_no_second_thing(scene: Scene) -> None:
    """The agent of a node that others had paused; a gap at another time is one."""
    scene.outsiders.begin("c1", "node", "paused", 10 * S, "seen")
    scene.outsiders.finish("c1", "node", "paused", 14 * S, "over")
    assert sorted_out(scene, gap("c1", 9.9, 14.1)) == [("paused", ["c1"], [1])]
    assert sorted_out(scene, gap("c1", 20, 21)) == [("paused", ["c1"], [1]), ("stalled", ["c1"], [])]


def test_a_short_gap_of_one_agent_alone_is_nothing(scene: Scene) -> None:
    """A quarter of the ttl matters when most agents miss it; one alone must miss half a ttl."""
    assert sorted_out(scene, gap("c1", 10, 10.9)) == []
    assert sorted_out(scene, gap("c1", 20, 20.9), gap("n1", 20, 20.9)) == [("paused", ["c1", "n1"], [1])]


def test_a_network_that_is_gone_explains_no_gap(scene: Scene) -> None:
    """An agent is spoken to through the engine: it goes on without a network."""
    scene.outsiders.begin("c1", "node", "disconnected", 10 * S, "seen")
    assert len(sorted_out(scene, gap("c1", 11, 12))) == 2


def test_the_harness_itself_may_stand_still(scene: Scene) -> None:
    """That is no node's fault, and it is told all the same: what contenders print waits for it."""
    assert sorted_out(scene, gap(HARNESS, 10, 15)) == [("stalled", [], [])]
    assert "the harness itself stood still" in scene.outsiders.all[0].sentence()
