"""Cuts and what follows from them, by example and by property; no nodes are touched."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from nemesis import topology

names = st.integers(2, 9).map(lambda count: [f"n{number}" for number in range(1, count + 1)])


@given(names, st.data(), st.sampled_from(topology.DIRECTIONS))
def test_isolate_cuts_just_between_the_group_and_the_rest(
    nodes: list[str], data: st.DataObject, direction: str
) -> None:
    """Every edge that is cut joins group and rest, in the asked direction, and all such edges are cut."""
    group = data.draw(st.sets(st.sampled_from(nodes), min_size=1))
    cut = topology.isolate(group, nodes, direction)
    for a, b in topology.full(nodes).edges:
        crosses_out, crosses_in = a in group and b not in group, a not in group and b in group
        expected = (crosses_out and direction in ("both", "out")) or (crosses_in and direction in ("both", "in"))
        assert ((a, b) in cut) == expected


@given(names, st.integers())
def test_halves_leave_two_components_that_differ_by_at_most_one(nodes: list[str], seed: int) -> None:
    """Two halves are all that is left, and within each everybody talks to everybody."""
    left = topology.after(topology.full(nodes), topology.halves(nodes, random.Random(seed)))
    parts = topology.components(left, nodes)
    assert len(parts) == 2
    assert abs(len(parts[0]) - len(parts[1])) <= 1
    for part in parts:
        assert all(topology.talks(left, a, b) for a in part for b in part)


@given(st.integers(1, 15))
def test_a_ring_gives_everybody_a_majority_and_no_two_the_same(count: int) -> None:
    """Every node sees a majority but not all, and no two nodes see the same; below five it is refused."""
    nodes = [f"n{number}" for number in range(count)]
    try:
        cut = topology.majorities_ring(nodes)
    except UsageError:
        assert count < 5
        return
    left = topology.after(topology.full(nodes), cut)
    seen = {frozenset(b for b in nodes if topology.talks(left, a, b)) for a in nodes}
    assert len(seen) == count
    assert all(count // 2 < len(each) < count for each in seen)


@pytest.mark.parametrize("count", [3, 4, 5, 7])
def test_a_bridge_sees_both_halves(count: int) -> None:
    """The node in the middle talks to all; the others fall into two parts without it."""
    nodes = [f"n{number}" for number in range(count)]
    left = topology.after(topology.full(nodes), topology.bridge(nodes, "n1"))
    assert all(topology.talks(left, "n1", other) for other in nodes)
    assert len(topology.components(left, [node for node in nodes if node != "n1"])) == 2


def test_a_bridge_needs_three_and_its_middle() -> None:
    """Two nodes, or a middle that isn't one of them, are refused."""
    for nodes, middle in ((["n1", "n2"], "n1"), (["n1", "n2", "n3"], "n9")):
        with pytest.raises(UsageError, match="a bridge needs three"):
            topology.bridge(nodes, middle)


def test_direction_is_checked() -> None:
    """A direction that isn't one is an error of the caller."""
    with pytest.raises(ValueError, match="direction must be one of"):
        topology.between({"a"}, {"b"}, "up")


SERVERS, CONTENDERS = ["n1", "n2", "n3"], ["c0", "c1"]


@pytest.mark.parametrize(
    ("cut", "leaders", "served", "why"),
    [
        (frozenset(), ("n1", "n2", "n3"), ("c0", "c1"), "2 of 2 contenders are served"),
        (topology.isolate(["n1"], SERVERS), ("n2", "n3"), ("c0", "c1"), "n2, n3 can lead"),
        (topology.isolate(["c0"], SERVERS), ("n1", "n2", "n3"), ("c1",), "1 of 2"),
        (topology.isolate(CONTENDERS, SERVERS), ("n1", "n2", "n3"), (), "no contender reaches"),
        (
            topology.isolate(["n1"], SERVERS) | topology.isolate(["n2"], SERVERS),
            (),
            (),
            "no server talks to a majority of the 3",
        ),
        # One way is not enough for a conversation: nobody leads over a link that is deaf on one side.
        (topology.isolate(["n1"], SERVERS, "in"), ("n2", "n3"), ("c0", "c1"), "n2, n3 can lead"),
        (
            topology.isolate(["n1"], SERVERS) | topology.between(["c0", "c1"], ["n2", "n3"]),
            ("n2", "n3"),
            (),
            "no contender reaches",
        ),
    ],
)
def test_expectations(cut: topology.Cut, leaders: tuple[str, ...], served: tuple[str, ...], why: str) -> None:
    """Who can lead, who is served, and the sentence that says so."""
    expected = topology.expect(topology.after(topology.full([*SERVERS, *CONTENDERS]), cut), SERVERS, CONTENDERS)
    assert (expected.leaders, expected.served) == (leaders, served)
    assert expected.progress == bool(leaders and served)
    assert why in expected.why


def test_where_nobody_is_a_candidate_nobody_leads() -> None:
    """Voters alone don't."""
    whole = topology.full([*SERVERS, *CONTENDERS])
    expected = topology.expect(whole, SERVERS, CONTENDERS, topology.Electorate(SERVERS, []))
    assert (expected.leaders, expected.progress) == ((), False)


@given(names, st.data())
def test_no_two_separate_parts_can_both_lead(nodes: list[str], data: st.DataObject) -> None:
    """However links are cut, only one of the parts that can't talk to each other has servers that can lead."""
    edges = sorted(topology.full(nodes).edges)
    cut = frozenset(data.draw(st.sets(st.sampled_from(edges))))
    left = topology.after(topology.full(nodes), cut)
    able = topology.leaders(left, nodes)
    parts = topology.components(left, nodes)
    assert sum(any(leader in part for leader in able) for part in parts) <= 1
