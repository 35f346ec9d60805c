"""Where tests run, and which may run side by side: `make test` gives them four processes (pytest-xdist); docs/tests.md
tells how to run a part.

Tests on an engine mostly wait for it. They come in groups, each of which one process runs in its order: `images`, for
what makes and removes images and looks after sites (image builds and removals beside each other make an engine lose
sight of an image for a moment), and, for what only uses nodes, `runtime`, `trials`, `outside` (trials that others
disturb) and `systems` (the real systems, and faults on them). As one group these took longer than all else together.
On `local` nothing is lost sight of: there a group is a file, so that its tests share what they share, and whole trials,
which share nothing, have none. Everything else runs wherever a process has time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.nodes import Node
from _pytest.terminal import TerminalReporter
from hypothesis import settings

from tests import place
from tests.places import listed

os.environ.pop("COLUMNS", None)
"""Set by pytest-xdist, and by some shells; what is printed would be as wide as somebody's terminal."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Some environments set it. Hundreds of processes are started here, and each would compile all of it anew: a third of
what its start takes, and every worker all the tests."""

settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
"""The same examples in every run, so that a run that fails fails again; HYPOTHESIS_PROFILE=search looks for others. No
example has a time of its own: what is slow on a busy machine is not wrong. Each test has its time as a whole.
"""

GROUPS = {
    "tests/trial/test_outside.py": "outside",
    "tests/trial/": "trials",
    "tests/runtime/": "runtime",
    **dict.fromkeys(
        ("tests/attached/", "tests/systems/", "tests/matrix/", "tests/nemesis/", "tests/workloads/"), "systems"
    ),
}
"""The group, on an engine, of what lies there, the first that fits; `images` everywhere else."""
ALONE = "tests/trial/test_trial.py"
"""Whole trials, each for itself."""
MARKS = ("docker", "nodes", "local")


ITEMS = pytest.StashKey[list[pytest.Item]]()
"""All that was collected, before `-m` and `-k` leave out a part."""
_unlisted: list[str] = []
"""Tests that were skipped, and stand in no list."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--listed-skips`, for runs in which nothing may be left out without a word."""
    parser.addoption(
        "--listed-skips",
        action="store_true",
        help="a test on nodes that is skipped, and that docs/tests.md doesn't list, fails the run",
    )


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


def marks(item: pytest.Item) -> set[str]:
    """Which of those that say where a test runs it has."""
    return {name for name in MARKS if item.get_closest_marker(name) is not None}


def group(item: pytest.Item) -> str | None:
    """Which tests it must not run beside, by name."""
    found = marks(item)
    if "docker" in found or ("nodes" in found and place.chosen().name == "docker"):
        return next((name for where, name in GROUPS.items() if item.nodeid.startswith(where)), "images")
    if "nodes" in found and not item.nodeid.startswith(ALONE):
        return item.nodeid.partition("::")[0]
    return None


def pytest_report_header() -> str:
    """Where tests marked `nodes` run, and why there."""
    return "nodes on {0.name}, {0.why}".format(place.chosen())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what was collected. Give each test the group that it needs, and put those that mostly wait first: what
    takes long begins early, and the rest, which keeps the processors busy, fills the time.
    """
    if items:
        items[0].config.stash[ITEMS] = list(items)
    for item in items:
        if (name := group(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=lambda item: not marks(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Each test, with what it sets up and tears down, in the surroundings of its runtime."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.surroundings(marks(item)).items():
            patch.setenv(name, value)
        return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what was skipped of what needs nodes, and isn't listed as something for root alone; with pytest-xdist the
    master hears it.
    """
    if report.skipped and {"nodes", "local"} & set(report.keywords) and not listed(report.nodeid, "root"):
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
