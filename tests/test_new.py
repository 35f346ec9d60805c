"""`fencepost new system`, `fault`, `verdict`: the packages that it writes work, and are what the pages show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness import registry
from harness.cli import cli
from harness.errors import UsageError

DOCS = Path(__file__).parent.parent / "docs"
PARTS = {"system": "mylock", "fault": "hiccup", "verdict": "long-hold"}


def written(folder: Path, kind: str, name: str) -> Path:
    done = CliRunner().invoke(cli, ["new", kind, name, "--dir", str(folder)])
    assert done.exit_code == 0, done.output
    return folder / name


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One of each, as `pip install -e` would have them; also for programs that are started here."""
    site = tmp_path / "site"
    paths = [site]
    for kind, name in PARTS.items():
        folder = written(tmp_path, kind, name)
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        info = site / f"{project['name'].replace('-', '_')}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n")
        groups = project["entry-points"].items()
        lines = [f"[{group}]\n" + "".join(f"{name} = {to}\n" for name, to in each.items()) for group, each in groups]
        (info / "entry_points.txt").write_text("".join(lines))
        paths.append(folder)
    for path in paths:
        monkeypatch.syspath_prepend(str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")]))
    registry._group.cache_clear()
    yield tmp_path
    registry._group.cache_clear()
    for module in ("mylock", "mylock.system", "hiccup", "long_hold"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("system", "etcd", "there is a system 'etcd' already"),
        ("system", "noop", "there is a lock client 'noop' already"),
        ("fault", "kill", "there is a fault 'kill' already"),
        ("fault", "kill-twice", "'kill-twice' would be read as a target of the fault 'kill'"),
        ("verdict", "lease", "there is a verdict 'lease' already"),
        ("verdict", "json", "'json' is a module that is here already"),
        ("system", "redis-lock", "can't be written to"),
        ("fault", "my_fault", "can't be the name of a fault"),
        ("verdict", "Long", "can't be the name of a verdict"),
        ("verdict", "x" * 41, "at most 40 characters"),
        ("fault", "class", "'class' is a module"),
        ("system", "there", "is there already"),
    ],
)
def test_a_name_that_can_t_be_had_is_told(kind: str, name: str, words: str, tmp_path: Path) -> None:
    """And nothing that is there is touched."""
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" if words == "can't be written to" else tmp_path
    done = CliRunner().invoke(cli, ["new", kind, name, "--dir", str(folder)])
    assert isinstance(done.exception, UsageError)
    assert words in str(done.exception)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "there"]


def test_the_pages_show_what_is_written(tmp_path: Path) -> None:
    """Whoever reads a page walks through the files that he has."""
    shown = {
        "writing-a-verdict.md": [("verdict", "pyproject.toml", "toml", ""), ("verdict", "long_hold.py", "python", "#")],
        "writing-a-fault.md": [("fault", "hiccup.py", "python", "")],
        "writing-a-system.md": [("system", "pyproject.toml", "toml", "")],
    }
    for page, files in shown.items():
        text = (DOCS / page).read_text()
        assert f"fencepost new {files[0][0]} {PARTS[files[0][0]]}" in text
        for kind, file, language, head in files:
            folder = tmp_path / PARTS[kind]
            content = (folder if folder.exists() else written(tmp_path, kind, PARTS[kind])) / file
            first = f"# {file}\n" if head else ""
            assert f"```{language}\n{first}{content.read_text()}```" in text, f"{page}: {file}"


def test_each_is_registered_and_passes_what_its_own_test_asks_without_a_trial(packages: Path) -> None:
    """`fencepost list` has them, and their tests run where they lie."""
    for kind, name in PARTS.items():
        assert registry.load(f"{kind}s", name)
        assert registry.headline(f"{kind}s", name)
        text = "".join(path.read_text() for path in (packages / name).rglob("*.*") if path.suffix in (".py", ".md"))
        assert not re.search("@[A-Z]+@", text)
    folders = [str(packages / name) for name in PARTS.values()]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not in_a_trial", *folders]
    done = subprocess.run(command, cwd=packages, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed, 2 deselected" in done.stdout


@pytest.mark.nodes
@pytest.mark.slow
def test_all_three_in_one_trial(packages: Path) -> None:
    """The system's lock is right, the fault lands, bites and is undone, and the verdict is asked."""
    words = [
        "run",
        "mylock",
        "--fault",
        "hiccup-holder",
        "--expect",
        "long-hold=true",
        "--results",
        str(packages / "r"),
    ]
    few = ["--name", "one", "--contenders", "2", "--duration", "4", "--min-grants", "1", "--min-handovers", "0"]
    done = CliRunner().invoke(cli, [*words, *few])
    assert done.exit_code in (0, 3), f"{done.output}{done.exception}"  # 3: too little happened, on a busy machine
    trial = json.loads((packages / "r" / "one" / "trial.json").read_text())
    assert trial["contenders"]["0"]["hello"]["client"]["name"] == "mylock"
    lines = [json.loads(line) for line in (packages / "r" / "one" / "faults.jsonl").read_text().splitlines()]
    assert [(each["kind"], each["receipt"]) for each in lines[:2]] == [("hiccup", "landed"), ("hiccup", "undone")]
    assert lines[1]["bit"] is True
    verdicts = json.loads((packages / "r" / "one" / "verdict.json").read_text())["verdicts"]
    assert [verdicts[name]["valid"] for name in ("long-hold", "lease", "fencing")] == [True, True, True]
