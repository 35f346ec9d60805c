"""Which tests may run side by side: `make test` gives them four processes (pytest-xdist).

Tests that need an engine mostly wait for it: those of one file run in one process, in their order, as they share nodes
and images; those of another file may run beside them, and so may all that needs none.
"""

from __future__ import annotations

import os

import pytest

os.environ.pop("COLUMNS", None)
"""Set by pytest-xdist, and by some shells; what is printed would be as wide as somebody's terminal."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of a file that need an engine one group, which one process runs."""
    for item in items:
        if item.get_closest_marker("docker") is not None:
            item.add_marker(pytest.mark.xdist_group(f"engine: {item.path.name}"))
