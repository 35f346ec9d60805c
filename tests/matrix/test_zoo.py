"""The matrix of the zoo: it leaves no bug out and expects the whole of every cell, and a bug shows on real nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from harness import matrix, registry
from harness.errors import ConfigError
from harness.expectations import Verdict
from harness.matrix.plan import Plan, same
from harness.trial import Trial
from harness.trial.config import TrialConfig, from_mapping, resolve
from tests import place
from workloads.zoo.rules import BUGS

ADAPTERS = Path(matrix.DEFAULT).parents[2] / "workloads" / "adapters" / "zoo"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return matrix.load(matrix.named(Path("zoo")))


def wrong(cell: TrialConfig) -> tuple[str, ...]:
    """All that is wrong on purpose in a cell."""
    client = None if cell.client is None else Path(cell.client).stem
    found = (cell.system_options.get("bug"), cell.workload, client)
    return tuple(each for each in found if each not in (None, "lock", "right"))


def is_control(cell: TrialConfig) -> bool:
    """Whether nothing is wrong in it; or a server that one of its right clients never notices."""
    return not wrong(cell) or (cell.client is not None and wrong(cell) == ("renew-unowned",))


def surroundings(cell: TrialConfig) -> str:
    """What a cell is without what is wrong in it: the same fault, job and times."""
    client = None if cell.client is None else "right"
    right = msgspec.structs.replace(cell, client=client, client_digest=None, workload="lock", system_options={})
    return same(msgspec.structs.replace(right, min_grants=0, min_handovers=0, expect={}, expect_reason=None))


def false(expect: Mapping[str, Verdict]) -> set[str]:
    return {name for name, value in expect.items() if value is False}


def test_everything_that_can_be_wrong_is_in_it(plan: Plan) -> None:
    """Each bug of the server, each wrong resource, each wrong adapter that there is."""
    adapters = {path.stem for path in ADAPTERS.glob("*.py")} - {"right"}
    resources = {name for name in registry.names("workloads") if name.startswith("zoo-")}
    assert {each for cell in plan.cells for each in wrong(cell)} == {*BUGS, *adapters, *resources}
    assert len(adapters) == 4
    assert len(resources) == 2


def test_all_nine_verdicts_are_expected_of_every_cell(plan: Plan) -> None:
    """What is expected is exactly what may come, with one "any" for what a fault may do to any lock: a waiter who gets
    it in the moment in which he is frozen is a holder who sleeps.
    """
    for cell in plan.cells:
        assert set(cell.expect) == set(registry.names("verdicts")), cell.describe()
        loose = {name for name, value in cell.expect.items() if value == "any"}
        assert loose == ({"exclusion", "damage"} if cell.fault == "freeze-waiter" and not wrong(cell) else set())
        assert (cell.expect["lease"] and cell.expect["fencing"]) == cell.expect["linearizable"]


def test_beside_every_wrong_cell_stands_the_right_one(plan: Plan) -> None:
    """Under the same fault, of which less is false; and nothing but what that fault does to any naive holder."""
    controls = {surroundings(cell): cell for cell in plan.cells if is_control(cell)}
    for cell in plan.cells:
        if is_control(cell):
            assert false(cell.expect) == ({"exclusion", "damage"} if cell.kind == "naive" else set())
        else:
            assert false(controls[surroundings(cell)].expect) < false(cell.expect), cell.describe()
            assert cell.expect_reason


def test_a_bug_is_named_and_one_that_there_is_not_is_refused() -> None:
    """With the nearest; and it is part of the cell's name."""
    cell = resolve(from_mapping({"system": "zoo", "system_options": {"bug": "wall-clock"}}))
    assert cell.slug() == "zoo-none-bug-wall-clock-guarded"
    assert cell.terms().lease_clock == "realtime"
    assert resolve(from_mapping({"system": "zoo"})).terms().lease_clock == "monotonic"
    with pytest.raises(ConfigError, match="'bug' can't be 'wallclock'; did you mean 'wall-clock'"):
        resolve(from_mapping({"system": "zoo", "system_options": {"bug": "wallclock"}}))


@pytest.mark.nodes
def test_a_wrong_lock_on_a_wrong_resource_is_told_by_what_is_wrong_with_each(tmp_path: Path) -> None:
    """On real nodes, in one short trial: two are granted the lock at once, and the fence lets the older token by."""
    config = {
        "system": "zoo",
        "system_options": {"bug": "grants-in-a-race"},
        "workload": "zoo-fence-off-by-one",
        "workload_options": {"long_share": 0.0, "rest_max": 0.02},
        "contenders": 3,
        "warmup": 0.5,
        "duration": 1.5,
        "recovery": 0.0,
        "min_grants": 2,
        "min_handovers": 1,
        "expect": dict.fromkeys(("exclusion", "lease", "fenced", "damage"), "any"),
    }
    result = Trial(resolve(from_mapping(config)), tmp_path / "t", place.runtime()).run()
    assert result.outcome.word == "as-expected", result.outcome.reasons
    verdicts = json.loads((tmp_path / "t" / "verdict.json").read_text())["verdicts"]
    told = {name for name, verdict in verdicts.items() if verdict["valid"] is False}
    assert told == {"exclusion", "lease", "linearizable", "fenced", "damage"}
    assert {name for name, verdict in verdicts.items() if verdict["valid"] == "unknown"} <= {"progress"}
