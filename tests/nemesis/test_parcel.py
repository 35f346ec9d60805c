"""The agent's code as one piece: what it consists of, that its hash is stable, and how a node imports it."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import AgentError
from nemesis import link as link_module
from nemesis import parcel
from nemesis.agent.loader import Parcel
from nemesis.link import Link, open_agent
from tests.nemesis.nodes import NamespaceNode

PYTHONS = ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def python(version: str) -> str:
    """The path of a Python of this version; skips the test when there is none."""
    for name in (f"python{version}", *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    pytest.skip(f"needs a Python {version}")


def module_name(path: str) -> str:
    """nemesis/agent/clock/__init__.py -> nemesis.agent.clock"""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(tree: ast.AST) -> Iterator[str]:
    """All modules that a module imports, at whatever place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield str(node.module)


GRAPH = {
    module_name(path): set(imports(ast.parse(source))) - {"__future__"} for path, source in parcel.sources().items()
}
"""Module of the agent -> what it imports."""


# -- what it consists of ------------------------------------------------------------------------------------------


def test_it_imports_the_standard_library_and_itself_only() -> None:
    """A node has nothing but a python3, and gets nothing but the parcel."""
    for module, imported in GRAPH.items():
        foreign = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names} - set(GRAPH)
        assert not foreign, f"{module} imports {foreign}"


def test_its_rooms_import_from_those_before_them_only() -> None:
    """No circle: in the order that the package's docstring tells, each room needs only earlier ones."""
    order = (
        "base",
        "arguments",
        "processes",
        "roles",
        "journal",
        "firewall",
        "signals",
        "requests",
        "probes",
        "connections",
    )
    order = (*order, "clock", "watching", "commands", "stream", "start", "loader")
    clock = (
        "ptrace",
        "image",
        "architecture",
        "x86_64",
        "architectures",
        "tracing",
        "readings",
        "counter",
        "patch",
        "fault",
    )

    def place(module: str) -> tuple[int, int]:
        first, _, second = module.removeprefix("nemesis.agent.").partition(".")
        return order.index(first), clock.index(second) if second else 0

    rooms = {module for module in GRAPH if module.count(".") > 1} - {"nemesis.agent.clock"}
    for module in rooms:
        later = {name for name in GRAPH[module] & rooms if place(name) >= place(module)}
        assert not later, f"{module} imports {later}"


def test_no_room_is_a_hall() -> None:
    """One subject each."""
    assert max(source.count(b"\n") for source in parcel.sources().values()) <= 400


# -- one piece ----------------------------------------------------------------------------------------------------


def test_the_same_sources_make_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the place, nor the dates, nor the order on the disk, nor compiled files beside them matter."""
    for path, source in reversed(parcel.sources().items()):
        copy = tmp_path / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source)
        os.utime(copy, (10**9, 10**9))
    (tmp_path / "nemesis" / "agent" / "__pycache__").mkdir()
    (tmp_path / "nemesis" / "agent" / "__pycache__" / "base.cpython-311.pyc").write_bytes(b"compiled")
    monkeypatch.setattr(parcel, "PACKAGE", tmp_path / "nemesis" / "agent")
    assert parcel.pack(parcel.sources()) == parcel.parcel()


def test_the_bytes_depend_on_the_sources_alone() -> None:
    """This zip has had this hash, whenever and wherever it was made."""
    archive = parcel.pack({"a.py": b"x = 1\n", "b/__init__.py": b""})
    assert hashlib.sha256(archive).hexdigest() == "5c55244f242f8f880cbb8d754cf1d175a0442bf0cad6badc8a9a4cacdd8552a7"


def test_any_reader_of_zips_reads_it_as_the_loader_does() -> None:
    """It is an ordinary zip, and the loader misses nothing in it."""
    with zipfile.ZipFile(io.BytesIO(parcel.parcel())) as archive:
        assert archive.testzip() is None
        theirs = {module_name(name): (name, archive.read(name)) for name in archive.namelist()}
    assert Parcel(parcel.parcel()).modules == theirs


@pytest.mark.parametrize("length", [100, 40000, -20])
def test_a_damaged_parcel_is_no_agent(length: int) -> None:
    """What was cut off while it was sent is not run in part."""
    with pytest.raises(ImportError, match="is damaged"):
        Parcel(parcel.parcel()[:length])


def test_a_packed_parcel_is_no_agent() -> None:
    """The loader unpacks nothing, and says so of a zip that would need it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.py", b"x = 1\n" * 100)
    with pytest.raises(ImportError, match=r"damaged at a\.py"):
        Parcel(out.getvalue())


# -- on a node ----------------------------------------------------------------------------------------------------


def run_parcel(start: str, interpreter: str = sys.executable, **options: object) -> str:
    """Run an agent that consists of this start, as a node runs the real one; what it printed."""
    sources = {"nemesis/__init__.py": b"", "nemesis/agent/__init__.py": b"", "nemesis/agent/start.py": start.encode()}
    done = subprocess.run(
        [interpreter, *link_module.ARGV[1:]],
        input=parcel.framed(parcel.pack(sources)),
        capture_output=True,
        timeout=30,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout.decode())


FAILING = """import linecache, traceback
def main(code):
    linecache.checkcache()
    try:
        raise ValueError(code)  # this very line
    except ValueError:
        print(traceback.format_exc())
"""


@pytest.mark.parametrize("version", PYTHONS)
def test_a_traceback_names_file_and_line(version: str) -> None:
    """An error on a node can be found in the sources, and shows the line, though no file is there."""
    said = run_parcel(FAILING, python(version))
    assert (
        'File "agent.zip/nemesis/agent/start.py", line 5, in main\n    raise ValueError(code)  # this very line' in said
    )


@pytest.mark.parametrize("version", PYTHONS)
def test_the_agent_starts_on_every_python(version: str, node: NamespaceNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the oldest to the newest it says hello, knows its code, and leaves nothing."""
    monkeypatch.setattr(link_module, "ARGV", (python(version), *link_module.ARGV[1:]))
    agent = open_agent(node)
    assert agent.hello["python"].startswith(f"{version}.")
    assert agent.hello["code"] == parcel.code()
    assert agent.call("verify_clean") == {"clean": True, "left": []}
    agent.close()


def test_the_hello_says_the_hash_of_what_was_sent(agent: Link) -> None:
    """It is that of the bytes as they arrived, which another program computes from what was written."""
    header, _, rest = parcel.sent().partition(b"\n")
    loader, archive = map(int, header.split())
    assert len(rest) == loader + archive
    assert agent.hello["code"] == hashlib.sha256(rest[loader:]).hexdigest()


def test_an_agent_of_other_code_is_not_spoken_to(node: NamespaceNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one comment differs, the link is refused with both hashes, and the agent ends."""
    changed = {**parcel.sources(), "nemesis/agent/__init__.py": b"# changed on the way\n"}
    other = parcel.pack(changed)
    monkeypatch.setattr(parcel, "sent", lambda: parcel.framed(other))
    with pytest.raises(AgentError, match=rf"on n1 runs other code \({hashlib.sha256(other).hexdigest()}\)"):
        open_agent(node)
    monkeypatch.undo()
    after = open_agent(node)  # only one agent acts on a node at a time
    assert after.hello["recovered"] == []
    after.close()


def test_nothing_of_the_node_is_imported_or_written(tmp_path: Path) -> None:
    """Modules in the working directory or in PYTHONPATH are not looked at; no file is made, not even a compiled one."""
    (tmp_path / "nemesis").mkdir()
    for path in ("json.py", "nemesis/__init__.py"):
        (tmp_path / path).write_text("raise SystemExit('the wrong one')")
    before = sorted(tmp_path.rglob("*"))
    start = "import json, sys\ndef main(code):\n    import nemesis\n    print(json.dumps([nemesis.__file__, code]))\n"
    file, code = json.loads(run_parcel(start, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}))
    assert file == "agent.zip/nemesis/__init__.py"
    assert re.fullmatch("[0-9a-f]{64}", code)
    assert sorted(tmp_path.rglob("*")) == before
