"""The imports go one way: no circle between modules, no import from a room above; and no file is too long to read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("harness", "nemesis", "workloads", "checkers")
LONGEST = 700

ROOMS = (
    "harness.__main__",
    "harness.cli",
    "harness.commands",
    "harness.matrix",
    "harness.doctor",
    "harness.trial",
    "harness.report",
    "harness.runs",
    "harness.results",
    "harness.expectations",
    "harness.frames",
    "checkers",
    "nemesis",
    "harness.systems",
    "harness.client",
    "harness.runtime",
    "harness.trees",
    "harness.images",
    "harness.engine",
    "harness.history",
    "harness.registry",
    "harness.secrets",
    "harness.private",
    "harness.documents",
    "harness.redaction",
    "harness.plain",
    "harness.errors",
    "harness.signals",
    "workloads",
    "nemesis.agent",
    "harness",
)
"""From the top down: each may import from those after it, and from itself."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, module: str, known: dict[str, Path]) -> set[str]:
    """The modules among the known ones that a source names in any import of it, wherever that stands.

    `from a import b` is the module a.b where there is one, and else a.
    """
    package = module if known.get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]

    def named(node: ast.AST) -> Iterator[tuple[str, ...]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", base) for alias in node.names)

    return {
        next(name for name in names if name in known)
        for node in ast.walk(ast.parse(source))
        for names in named(node)
        if any(name in known for name in names)
    } - {module}


@cache
def imports() -> dict[str, set[str]]:
    """Module -> the modules of the product that it imports."""
    return {name: imported(path.read_text(), name, modules()) for name, path in modules().items()}


def room(module: str) -> str:
    """The room that a module is in: the longest one that its name begins with; `harness` holds nothing but itself."""
    fitting = [room for room in ROOMS if f"{module}.".startswith(f"{room}.") and (room != "harness" or module == room)]
    assert fitting, f"{module} is in no room; give it one in ROOMS and in docs/architecture.md"
    return max(fitting, key=len)


def test_every_kind_of_import_is_read() -> None:
    """At the top, in a function, for types alone, relative, and of a module by way of its package."""
    known = {name: Path(name) for name in ("p.a", "p.b", "p.c", "p.d", "p.e", "p")}
    source = (
        "import os\nimport p.a\nfrom p import b\nfrom p.c import thing\n"
        "if TYPE_CHECKING:\n    from . import d\ndef f():\n    from .e import other\n"
    )
    assert imported(source, "p.x", known) == {"p.a", "p.b", "p.c", "p.d", "p.e"}
    assert imported("from p import something", "p.x", known) == {"p"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Functions' imports count: a circle that is only hidden is one."""
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        pytest.fail("a circle: " + " -> ".join(reversed(error.args[1])))


def test_no_room_imports_from_one_above_it() -> None:
    """From the commands down, and never back up."""
    up = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in sorted(others)
        if ROOMS.index(room(other)) < ROOMS.index(room(module))
    ]
    assert up == []


def test_every_room_is_there() -> None:
    """A room that was renamed or emptied leaves the list too."""
    assert {room(module) for module in modules()} == set(ROOMS)


def test_no_file_is_too_long_to_be_read() -> None:
    """What is longer than this holds more than one subject."""
    lines = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}


def test_the_page_shows_the_same_rooms() -> None:
    """docs/architecture.md lists the rooms in the order that is checked here."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("## Rooms, from the top down")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)) == ROOMS


def test_the_page_names_files_that_exist() -> None:
    """Every path that the page gives is there."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    paths = set(re.findall(r"`((?:harness|nemesis|workloads|checkers|tests)/[\w./]*)`", page))
    assert len(paths) > 10
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
