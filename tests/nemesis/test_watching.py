"""What the agent sees of what others do to its node: with clocks made up, and on nodes made of namespaces."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from nemesis.agent.watching import Gaps, Reading, Stops, read_excuses
from nemesis.link import Link
from tests.nemesis.nodes import NamespaceNode, until

MS = 1_000_000
SLEEP = ["sleep", "777"]


Step = tuple[int, int, "dict[str, int] | None"]
"""By how much boot clock and monotonic clock go on until a tick, and excuses grow, in ms; None = not counted here."""


def gaps(*steps: Step) -> list[tuple[str, float]]:
    """What is told of them, with ticks of 100 ms, and gaps that count from 500 ms on."""
    boot = mono = 1_000_000 * MS
    sums: dict[str, int] | None = {"computed": 5 * MS, "17": 3 * MS}
    told = Gaps(100 * MS, 500 * MS, lambda: None if sums is None else dict(sums))
    found = [told.at(Reading(boot, mono))]
    for by_boot, by_mono, excuses in steps:
        boot, mono = boot + by_boot * MS, mono + by_mono * MS
        if excuses is None:
            sums = None
        elif sums is not None:
            sums |= {name: sums.get(name, 0) + by * MS for name, by in excuses.items()}
        found.append(told.at(Reading(boot, mono)))
    return [(gap["what"], gap["seconds"]) for gap in found if gap is not None]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ((100, 100, {}), []),
        ((590, 590, {}), []),
        ((600, 600, {}), [("stalled", 0.5)]),
        ((3100, 3100, {"computed": 100}), [("stalled", 2.9)]),
        ((3100, 3100, {"17": 2900}), []),  # it waited for a processor: the machine is busy
        ((3100, 3100, {"17": 1000, "23": 1700}), []),  # so did a thread that was not there before
        ((3100, 3100, {"computed": 2900}), []),
        ((3100, 3100, {"stolen": 2900}), []),
        ((3100, 3100, None), []),  # nobody can tell
        ((7100, 100, {}), [("suspended", 7.0)]),
        ((7100, 100, None), [("suspended", 7.0)]),
        ((7100, 3100, {"17": 3000}), [("suspended", 4.0)]),
    ],
)
def test_a_gap_is_time_without_a_processor_that_nobody_waited_for(step: Step, told: list[tuple[str, float]]) -> None:
    """Stopped and suspended are told; late because others computed is not."""
    assert gaps((100, 100, {}), step, (100, 100, {"computed": 5})) == told


def test_excuses_are_not_saved_up() -> None:
    """What was waited for in time excuses no gap a while later, nor a second gap."""
    waits = [(100, 100, {"17": 90})] * 20
    assert gaps(*waits, (2100, 2100, {})) == [("stalled", 2.0)]
    assert gaps((3100, 3100, {"17": 3000}), (3100, 3100, {})) == [("stalled", 3.0)]


def test_what_a_process_waited_and_computed_is_counted_by_this_kernel() -> None:
    """Each thread by itself; and computing adds to it."""
    before = read_excuses()
    assert before is not None
    assert str(os.getpid()) in before
    end = time.process_time_ns() + 20 * MS
    while time.process_time_ns() < end:
        pass
    after = read_excuses()
    assert after is not None
    assert after["computed"] - before["computed"] >= 20 * MS
    assert after["stolen"] >= before["stolen"]


def test_a_gap_lies_between_the_readings_around_it() -> None:
    """Its times are those of the boot clock, which goes on in a suspended machine."""
    told = Gaps(100 * MS, 500 * MS)
    assert told.at(Reading(5 * MS, 5 * MS)) is None
    gap = told.at(Reading(9000 * MS, 105 * MS))
    assert gap is not None
    assert (gap["begin_ns"], gap["end_ns"]) == (5 * MS, 9000 * MS)


def test_a_stop_counts_from_its_second_look_and_began_with_the_first() -> None:
    """One look alone may meet a program that stops its child for a moment, or a thaw that is under way."""
    stops = Stops()
    one, two = (17, 5), (18, 5)
    assert stops.at(100, {one: "redis"}) == []
    assert stops.at(200, {one: "redis", two: "sh"}) == [{"pid": 17, "comm": "redis", "begin_ns": 100, "end_ns": None}]
    assert stops.at(300, {one: "redis"}) == []
    assert stops.at(400, {}) == [{"pid": 17, "comm": "redis", "begin_ns": 100, "end_ns": 400}]
    assert stops.at(500, {one: "redis"}) == [], "a new stop begins anew"


class Asked:
    """Everything that an agent told so far, asked for as the harness does."""

    def __init__(self, agent: Link) -> None:
        self.agent, self.seen = agent, []  # type: Link, list[dict[str, Any]]
        self.after = int(agent.call("watch", least=0.5)["number"])

    def of(self, what: str) -> list[dict[str, Any]]:
        answer = self.agent.call("watch", after=self.after)
        self.after = int(answer["number"])
        self.seen += answer["seen"]
        return [seen for seen in self.seen if seen["what"] == what]


def test_a_process_that_somebody_stops_is_seen_with_its_times(node: NamespaceNode, agent: Link) -> None:
    """SIGSTOP from outside: told once, from about when it was sent to about when it was taken back."""
    node.service(SLEEP)
    until(lambda: services(agent), "the service")
    (pid,) = services(agent)
    asked = Asked(agent)
    outer = node.outer(pid)
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    os.kill(outer, signal.SIGSTOP)
    until(lambda: asked.of("stopped"), "the stop")
    (stop,) = asked.of("stopped")
    assert (stop["pid"], stop["comm"], stop["end_ns"]) == (pid, "sleep", None)
    assert before <= stop["begin_ns"] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    os.kill(outer, signal.SIGCONT)
    until(lambda: len(asked.of("stopped")) == 2, "its end")
    assert asked.of("stopped")[1]["end_ns"] > stop["begin_ns"]


def test_what_a_fault_of_ours_stops_is_nobody_elses_doing(node: NamespaceNode, agent: Link) -> None:
    """A freeze, its thaw, a freeze again: nothing is told of it; of one by others right after it is."""
    node.service(SLEEP)
    until(lambda: services(agent), "the service")
    asked = Asked(agent)
    for number in range(3):
        agent.call("freeze", fault=f"f{number}")
        looks(asked, 3)
        agent.call("thaw", fault=f"f{number}")
    looks(asked, 3)
    assert asked.of("stopped") == []
    (pid,) = services(agent)
    os.kill(node.outer(pid), signal.SIGSTOP)
    until(lambda: asked.of("stopped"), "a stop by somebody else")


def test_an_agent_that_was_stopped_tells_for_how_long(node: NamespaceNode, agent: Link) -> None:
    """It can't say anything meanwhile; afterwards its own clock can."""
    asked = Asked(agent)
    looks(asked, 2)
    outer = node.outer(agent.hello["pid"])
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    os.kill(outer, signal.SIGSTOP)
    handle = agent.start("watch", after=asked.after)
    time.sleep(1.2)
    assert not handle.done
    os.kill(outer, signal.SIGCONT)
    until(lambda: asked.of("stalled"), "the gap")
    (gap,) = asked.of("stalled")
    assert gap["begin_ns"] <= before + 200 * MS
    assert 0.9 < gap["seconds"] < (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - before) / 1e9


def services(agent: Link) -> list[int]:
    """The processes of the service, by their numbers on the node."""
    return [row["pid"] for row in agent.call("processes")["processes"] if row["role"] == "service"]


def looks(asked: Asked, number: int) -> None:
    """Wait for so many looks of the agent at its processes (200 ms each): nothing tells of one without a find."""
    end = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + number * 200 * MS
    until(lambda: int(asked.agent.call("watch", after=asked.after)["boottime_ns"]) > end, "time to pass on the node")
