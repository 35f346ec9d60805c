"""Which tests may run side by side: `make test` gives them two processes (pytest-xdist).

Tests that need an engine mostly wait for it, and share it: all of them run in one process, in their order, as they do
without xdist. Everything else runs in the other one meanwhile.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests that need an engine one group, which one process runs."""
    for item in items:
        if item.get_closest_marker("docker") is not None:
            item.add_marker(pytest.mark.xdist_group("engine"))
