"""What doesn't run on every runtime stands in the list, with its reason, and nothing else does; and what has nodes runs
where it should.
"""

from __future__ import annotations

import pytest

from harness.errors import RuntimeUnavailable
from harness.runtime.choice import VARIABLE
from tests import place
from tests.conftest import ITEMS
from tests.places import DOCUMENT, bare, entries, listed

RUNTIMES = ("docker", "local")


def only(items: list[pytest.Item]) -> set[tuple[str, str]]:
    """Each test that is marked for one runtime and not for another: its name, the runtime."""
    marked = {
        (bare(item.nodeid), runtime)
        for item in items
        for runtime in RUNTIMES
        if item.get_closest_marker(runtime) is not None
    }
    return {
        (name, runtime)
        for name, runtime in marked
        if not any((name, each) in marked - {(name, runtime)} for each in RUNTIMES)
    }


def test_what_runs_on_one_runtime_alone_is_listed(request: pytest.FixtureRequest) -> None:
    """As many as were collected, for that runtime."""
    found = only(request.config.stash[ITEMS])
    assert [name for name, runtime in sorted(found) if not listed(name, runtime)] == []


def test_what_is_listed_is_there_and_says_why() -> None:
    """A list that is longer than it need be hides what comes to be skipped later."""
    root = DOCUMENT.parent.parent
    assert entries()
    for entry in entries():
        file, _, name = entry.tests.partition("::")
        source = (root / file).read_text()
        assert f"def {name}(" in source if name else f"mark.{entry.only}" in source, entry
        assert len(entry.reason) > 20, entry
        assert entry.only in (*RUNTIMES, "root"), entry


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        (set(), {}),
        ({"docker"}, {}),
        ({"local"}, {VARIABLE: "local", "DOCKER_HOST": place.NOWHERE}),
        ({"nodes"}, {VARIABLE: "local", "DOCKER_HOST": place.NOWHERE}),
        ({"nodes", "docker"}, {VARIABLE: "docker"}),
    ],
)
def test_what_runs_on_local_is_told_so_and_finds_no_engine(
    monkeypatch: pytest.MonkeyPatch, marks: set[str], told: dict[str, str]
) -> None:
    """What is about an engine finds the one that there is, also among tests that have nodes."""
    monkeypatch.setattr(place, "chosen", lambda: place.Place("local", "as this test says"))
    assert place.surroundings(marks) == told


def test_nodes_are_on_local_save_where_it_cant_be_had_or_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its reason, which the first lines of a run tell."""
    choose = place.chosen.__wrapped__
    refusals: list[str] = []

    def refuse(name: str) -> None:
        if refusals:
            raise RuntimeUnavailable(f"{name} can't be had: {refusals[0]}")

    monkeypatch.setattr(place, "choose", refuse)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert choose() == ("local", "where a node costs the least")
    refusals.append("no namespaces")
    assert choose() == ("docker", "since local can't be had: no namespaces")
    monkeypatch.setenv(VARIABLE, "elsewhere")
    assert choose() == ("elsewhere", f"as {VARIABLE} says")
