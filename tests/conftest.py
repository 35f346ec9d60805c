"""Which tests may run side by side: `make test` gives them three processes (pytest-xdist); docs/tests.md tells how to
run a part.

Tests that need an engine mostly wait for it. They come in two groups, each of which one process runs in its order:
`images`, for what makes and removes images and looks after sites (image builds and removals beside each other make an
engine lose sight of an image for a moment), and `trials`, for what only uses nodes: whole trials, the real systems,
faults on them. Everything else runs beside them, wherever a process has time.
"""

from __future__ import annotations

import os

import pytest
from _pytest.nodes import Node

os.environ.pop("COLUMNS", None)
"""Set by pytest-xdist, and by some shells; what is printed would be as wide as somebody's terminal."""

TRIALS = ("tests/trial/", "tests/systems/", "tests/matrix/", "tests/nemesis/", "tests/workloads/")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to group tests where that would have no effect.

    pytest-xdist tells a test's group to its master by `_nodeid`. A pytest that makes ids in another way takes no notice
    of it: nothing is grouped, nobody is told, and tests that can't run beside each other fail by chance.
    """
    if config.getoption("dist", "no") == "loadgroup" and "_nodeid" not in Node.__slots__:
        raise pytest.UsageError(
            f"pytest {pytest.__version__} takes no notice of pytest-xdist's groups; "
            "pip install -e '.[dev]' gets one that does"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests that need an engine one of two groups."""
    for item in items:
        if item.get_closest_marker("docker") is not None:
            item.add_marker(pytest.mark.xdist_group("trials" if item.nodeid.startswith(TRIALS) else "images"))
