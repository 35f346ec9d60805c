"""Names, targets, parameters and schedules: the right ones are understood, the wrong told with what would be right."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import registry
from harness.errors import UsageError
from nemesis import faults, targets
from nemesis.bite import SeenWait
from nemesis.schedule import LATE, SPREAD, Schedule, Window
from tests.nemesis.usual import Usual


class Roles(Usual):
    """An environment that only knows who is who."""

    system = "pretend"
    holds_until_told = False

    def __init__(self, servers: int = 3, contenders: int = 3, leader: str | None = "n2", holder: str | None = "c1"):
        self.servers: Sequence[str] = [f"n{number}" for number in range(1, servers + 1)]
        self.contenders: Mapping[str, int] = {f"c{number}": number for number in range(contenders)}
        self._leader, self._holder = leader, holder

    def leader(self) -> str | None:
        return self._leader

    def holder(self) -> str | None:
        return self._holder

    def wait_for_holder(self, timeout_seconds: float) -> str | None:
        return self._holder

    def now(self) -> int:
        return 0

    def wait_of(self, node: str, at_ns: int) -> SeenWait | None:
        return None if node == self._holder else SeenWait(self.contenders[node], 0, None, None)


def resolve(target: str, seed: int = 0, **roles: Any) -> targets.Resolved:
    """Resolve a target among pretended roles."""
    return targets.resolve(Roles(**roles), target, random.Random(seed), patience=0.0)  # type: ignore[arg-type]


def test_every_name_listed_is_understood() -> None:
    """All names that `fencepost list` shows parse to their kind and target, and can be made."""
    names = [name for listed in faults.combinations() for name in listed.names]
    assert {"none", "partition-leader", "partition-holder", "freeze-leader", "kill-leader", "clock-leader"} <= set(
        names
    )
    for listed in faults.combinations():
        for target, name in zip(listed.targets or ("",), listed.names, strict=True):
            assert faults.parse(name) == (listed.kind, target)
            assert faults.make(listed.kind, target, {}).kind == listed.kind


def test_kinds_and_node_names_alone() -> None:
    """A kind alone means its first target; a node's name is a target."""
    assert faults.parse("freeze") == ("freeze", "leader")
    assert faults.parse("clock-n2") == ("clock", "n2")
    assert faults.parse("freeze-c0") == ("freeze", "c0")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("freez-leader", "did you mean freeze-leader"),
        (
            "xyzzy",
            "kinds: clock, failover, freeze, kill, lose, none, partition, reconfigure, reset, restart, restore, stop, "
            "unlock, upgrade",
        ),
        ("freeze-holdr", "did you mean freeze-holder"),
        ("freeze-", "ends where a target should follow"),
        ("freeze-Leader", "did you mean freeze-leader"),
        ("none-leader", "none takes no target"),
        ("reset-leader", "unknown target 'leader' of reset"),
        ("", "unknown fault ''"),
    ],
)
def test_a_wrong_name_is_told_with_the_near_ones(name: str, message: str) -> None:
    """What is wrong about a name, and what may have been meant."""
    with pytest.raises(UsageError, match=message):
        faults.parse(name)


@pytest.mark.parametrize(
    ("kind", "target", "parameters", "message"),
    [
        ("freeze", "leader", {"ofset": 1}, "unknown parameter 'ofset'"),
        ("clock", "leader", {"ofset": 1}, "did you mean 'offset'"),
        ("clock", "leader", {"offset": 0}, "must not be 0"),
        ("clock", "leader", {"offset": "30"}, "'offset' must be a number"),
        ("clock", "leader", {"offset": True}, "'offset' must be a number"),
        ("clock", "leader", {"clocks": "wall"}, "must be one of realtime, monotonic, both"),
        ("kill", "leader", {"keep_data": "no"}, "must be true or false"),
        ("reset", "leader", {}, "reset takes no target 'leader'"),
        ("partition", "leader", {"topology": "rnig"}, "did you mean 'ring'"),
        ("partition", "leader", {"topology": "ring"}, "does not go with target 'leader'"),
        ("partition", "all", {"topology": "isolate"}, "takes halves or ring"),
        ("partition", "holder", {"topology": "bridge"}, "a bridge has one server in its middle"),
        ("partition", "all", {"direction": "in"}, "goes with topology 'isolate' only"),
        ("partition", "leader", {"probe_timeout": 0}, "a number from 0.05 to 10"),
        ("partition", "leader", {"resource_port": 1.5}, "a whole number"),
        ("none", "leader", {}, "takes no target"),
        ("none", "", {"offset": 1}, "unknown parameter 'offset'; it takes none"),
        ("freeze", "leder", {}, "did you mean freeze-leader"),
    ],
)
def test_a_wrong_parameter_is_told(kind: str, target: str, parameters: dict[str, Any], message: str) -> None:
    """Each error names the parameter or the target, and what would be right."""
    with pytest.raises(UsageError, match=message):
        faults.make(kind, target, parameters)


@pytest.mark.parametrize(
    ("name", "servers", "rule"),
    [
        ("partition-leader", 1, "no other server"),
        ("partition-holder", 1, None),
        ("freeze-leader", 1, None),
        ("freeze-follower", 1, "a single server has no follower"),
        ("freeze-majority", 1, "the same as 'leader'"),
        ("kill-all", 1, "the same as 'leader'"),
        ("kill-all", 3, None),
        ("clock-minority", 1, "a single server has no minority"),
        ("clock-leader", 1, None),
        ("none", 1, None),
        ("partition-leader", 3, None),
    ],
)
def test_cells_that_make_no_sense_are_left_out_by_a_rule(name: str, servers: int, rule: str | None) -> None:
    """A single server is its own leader, has no followers, and can't be cut from others."""
    said = faults.why_not(*faults.parse(name), system="redis", servers=servers)
    assert (said is None) if rule is None else (rule in str(said))


@given(st.integers(1, 9), st.integers(0, 5), st.integers(), st.sampled_from(sorted(targets.WORDS)))
def test_targets_are_whom_they_say(servers: int, contenders: int, seed: int, target: str) -> None:
    """Every word resolves to nodes that fit it, the same for the same seed, or says that there is none."""
    roles: dict[str, Any] = {
        "servers": servers,
        "contenders": contenders,
        "leader": "n1",
        "holder": "c0" if contenders else None,
    }
    try:
        found = resolve(target, seed, **roles)
    except targets.NoTarget:
        assert (
            (servers == 1 and target in ("follower", "minority"))
            or (servers == 2 and target == "minority")
            or ((contenders == 0 and target in targets.CONTENDERS) or (contenders == 1 and target == "waiter"))
        )
        return
    assert found == resolve(target, seed, **roles)
    assert len(set(found.nodes)) == len(found.nodes) > 0
    assert set(found.nodes) <= {*Roles(servers, contenders).servers, *Roles(servers, contenders).contenders}
    assert found.processes == tuple(int(node[1:]) for node in found.nodes if node.startswith("c"))
    size = {"leader": 1, "follower": 1, "one": 1, "holder": 1, "waiter": 1, "all": servers}
    size |= {"majority": servers // 2 + 1, "minority": servers - servers // 2 - 1}
    assert len(found.nodes) == size[target]
    assert ("n1" in found.nodes) or target not in ("leader", "all")
    assert ("n1" not in found.nodes) or target != "follower"
    assert ("c0" in found.nodes) == (target == "holder")


def test_a_node_by_name() -> None:
    """A name means that node; one that isn't there is told, with those that are."""
    assert resolve("n3") == targets.Resolved(("n3",), ())
    assert resolve("c2") == targets.Resolved(("c2",), (2,))
    with pytest.raises(UsageError, match=r"no node 'n9' in this trial \(nodes: n1, n2, n3, c0, c1, c2\)"):
        resolve("n9")


def test_faults_are_found_by_the_road_of_third_parties() -> None:
    """Every built-in fault is an entry point, with a line that says what it does."""
    for kind in registry.names("faults"):
        assert registry.load("faults", kind).kind == kind
        assert registry.load("faults", kind).summary


# -- schedules ----------------------------------------------------------------------------------------------------


def windows(schedule: Schedule, undo_seconds: float = 0.0) -> list[Window]:
    """All windows, when each undo takes so long."""
    cycle, ended, found = schedule.cycle(), 0.0, []
    while (window := cycle.next(ended)) is not None:
        found.append(window)
        ended = window.begin + window.on + undo_seconds
        assert len(found) < 10000
    return found


def test_timed_windows() -> None:
    """On and off in turn, from the warm-up on, as long as a whole window fits."""
    found = windows(Schedule(on=5, off=3, duration=20, warmup=1))
    assert [window.begin for window in found] == [1, 9]
    assert windows(Schedule(on=5, off=3, duration=20)) == [Window(0, 5), Window(8, 5)]


def test_a_slow_undo_shortens_no_pause() -> None:
    """The pause counts from the end of the undo."""
    assert [window.begin for window in windows(Schedule(on=2, off=1, duration=10), 0.5)] == [0, 3.5, 7]


times = st.floats(0.1, 5)


def test_a_slow_machine_does_not_take_the_last_planned_fault_away() -> None:
    """It may end a quarter of the time late; no more than that, and no fault that was not planned."""
    plan = Schedule(on=5, off=3, duration=20)
    assert plan.planned == 2
    assert [window.begin for window in windows(plan, 10.0)] == [0, 18]
    assert [window.begin for window in windows(plan, 13.0)] == [0]
    assert [window.begin for window in windows(plan, 2.0)] == [0, 10]


@given(
    times, st.floats(0, 5), st.floats(0, 60), st.floats(0, 5), st.integers(0, 99), st.sampled_from(("timed", "random"))
)
def test_windows_never_overlap_and_fit(
    on: float, off: float, duration: float, warmup: float, seed: int, kind: str
) -> None:
    """Windows come in order, with their pauses, and the same for the same seed. They end inside the duration, save that
    one that was planned may end late where those before it were drawn long.
    """
    schedule = Schedule(on=on, off=off, duration=duration, warmup=warmup, seed=seed, kind=kind)
    found = windows(schedule)
    assert found == windows(schedule)
    low, high = SPREAD if kind == "random" else (1, 1)
    slack = 1e-9
    for before, after in itertools.pairwise(found):
        pause = after.begin - before.begin - before.on
        assert low * off - slack <= pause <= high * off + slack
    for number, window in enumerate(found):
        assert warmup <= window.begin
        late = duration * LATE if kind == "random" and number < schedule.planned else 0.0
        assert window.begin + window.on <= duration + late + schedule.grace + slack
        assert low * on - slack <= window.on <= high * on + slack


def test_random_windows_differ_by_seed() -> None:
    """Another seed gives other times."""
    one, two = (windows(Schedule(on=2, off=1, duration=60, kind="random", seed=seed)) for seed in (1, 2))
    assert one != two


def test_a_triggered_window_names_its_event() -> None:
    """A triggered schedule says what to wait for."""
    assert windows(Schedule(on=2, off=1, duration=3, kind="triggered"))[0].trigger == "grant"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"on": 0}, "'on' must be a number"),
        ({"kind": "sometimes"}, "must be one of timed, random, triggered"),
        ({"kind": "triggered", "trigger": "grnt"}, "did you mean 'grant'"),
        ({"of": 1}, "unknown parameter 'of'"),
        ({"seed": -1}, "'seed' must be a whole number"),
    ],
)
def test_a_wrong_schedule_is_told(values: dict[str, Any], message: str) -> None:
    """Each error names the key and what would be right."""
    with pytest.raises(UsageError, match=message):
        Schedule.from_mapping(values, on=5, off=3, duration=20, seed=0)


def test_a_schedule_that_can_not_be_is_refused() -> None:
    """Also when it is made without a table."""
    for bad in ({"on": 0.0}, {"off": -1.0}, {"kind": "x"}, {"trigger": "x"}):
        with pytest.raises(UsageError, match="schedule: "):
            Schedule(**{"on": 1.0, "off": 1.0, "duration": 1.0, **bad})  # type: ignore[arg-type]
