"""A lane on real nodes: which nodes it hands on to the next trial."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.trial import resource
from harness.trial.lane import Lane
from tests import place
from tests.runtime.conftest import eventually

pytestmark = pytest.mark.nodes


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane(place.runtime(), f"test-{secrets.token_hex(4)}")
    yield made
    made.close()


def prepare(lane: Lane, logs: Path) -> None:
    """Prepare it, and wait until its resource takes connections: one that doesn't is replaced too."""
    lane.prepare(2, logs)
    eventually("the resource", lambda: resource.ready(lane.resource)[0], 60)


def addresses(lane: Lane) -> dict[str, tuple[str, ...]]:
    """Node -> its addresses, which no two nodes of a site have one after the other."""
    return {node.name: tuple(node.addresses) for node in (*lane.contender_nodes, lane.resource)}


def test_a_node_to_which_others_did_something_is_not_handed_on(lane: Lane, tmp_path: Path) -> None:
    """Its agent, which is spoken to through the engine, would call a node clean that has no network any more."""
    prepare(lane, tmp_path)
    first = addresses(lane)
    prepare(lane, tmp_path)
    assert addresses(lane) == first, "what is clean is handed on"
    lane.replace({"c1", "resource"})
    prepare(lane, tmp_path)
    second = addresses(lane)
    assert second["c0"] == first["c0"]
    assert second["c1"] != first["c1"]
    assert second["resource"] != first["resource"]
    prepare(lane, tmp_path)
    assert addresses(lane) == second, "once is enough"
