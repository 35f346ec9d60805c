"""Which tests may run side by side: `make test` gives them two processes (pytest-xdist).

Tests that need an engine mostly wait for it, and share it: all of them run in one process, in their order, as they do
without xdist. (Image builds and removals beside each other make an engine lose sight of an image for a moment.)
Everything else runs in the other one meanwhile.
"""

from __future__ import annotations

import os

import pytest

os.environ.pop("COLUMNS", None)
"""Set by pytest-xdist, and by some shells; what is printed would be as wide as somebody's terminal."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests that need an engine one group, which one process runs."""
    for item in items:
        if item.get_closest_marker("docker") is not None:
            item.add_marker(pytest.mark.xdist_group("engine"))
