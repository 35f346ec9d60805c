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
from typing import Any

import pytest
from _pytest.nodes import Node
from _pytest.terminal import TerminalReporter
from hypothesis import settings

from tests.places import listed

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


ITEMS = pytest.StashKey[list[pytest.Item]]()
"""All that was collected, before `-m` and `-k` leave out a part."""
_unlisted: list[str] = []
"""Tests that were skipped, and stand in no list."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--listed-skips`, for runs in which nothing may be left out without a word."""
    parser.addoption("--listed-skips", action="store_true", help="a skipped test that docs/tests.md doesn't list fails")


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
    """Keep what was collected. Give each test that needs an engine, or nodes of any runtime, its group."""
    if items:
        items[0].config.stash[ITEMS] = list(items)
    for item in items:
        if any(item.get_closest_marker(name) is not None for name in ("docker", "nodes")):
            group = next((name for place, name in GROUPS.items() if item.nodeid.startswith(place)), "images")
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what was skipped, and isn't listed as something for root alone; with pytest-xdist the master hears it."""
    if report.skipped and not listed(report.nodeid, "root"):
        _unlisted.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: Any) -> None:
    """With `--listed-skips` such a run isn't a good one."""
    if session.config.getoption("listed_skips") and _unlisted and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Say which."""
    if config.getoption("listed_skips"):
        for name in _unlisted:
            terminalreporter.write_line(f"skipped, and not listed in docs/tests.md: {name}", red=True)
