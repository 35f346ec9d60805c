"""What doesn't run on every runtime stands in the list, with its reason, and nothing else does."""

from __future__ import annotations

import pytest

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
