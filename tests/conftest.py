"""Which tests may run side by side: `make test` gives them three processes (pytest-xdist); docs/tests.md tells how to
run a part.

Tests that need an engine mostly wait for it. They come in groups, each of which one process runs in its order:
`images`, for what makes and removes images and looks after sites (image builds and removals beside each other make an
engine lose sight of an image for a moment), and, for what only uses nodes, `trials`, `outside` (trials that others
disturb) and `systems` (the real systems, and faults on them). As one group these took longer than all else together.
Everything else runs beside them, wherever a process has time.
"""

from __future__ import annotations

import os

import pytest
from _pytest.nodes import Node
from hypothesis import settings

os.environ.pop("COLUMNS", None)
"""Set by pytest-xdist, and by some shells; what is printed would be as wide as somebody's terminal."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Some environments set it. Hundreds of processes are started here, and each would compile all of it anew: a third of
what its start takes, and every worker all the tests."""

settings.register_profile("fencepost", deadline=None)
settings.load_profile("fencepost")
"""No example has a time of its own: what is slow on a busy machine is not wrong. Each test has its time as a whole."""

GROUPS = {
    "tests/trial/test_outside.py": "outside",
    "tests/trial/": "trials",
    **dict.fromkeys(("tests/systems/", "tests/matrix/", "tests/nemesis/", "tests/workloads/"), "systems"),
}
"""The group of what lies there, the first that fits; `images` everywhere else."""


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
    """Give each test that needs an engine, or nodes of any runtime, its group."""
    for item in items:
        if any(item.get_closest_marker(name) is not None for name in ("docker", "nodes")):
            group = next((name for place, name in GROUPS.items() if item.nodeid.startswith(place)), "images")
            item.add_marker(pytest.mark.xdist_group(group))
