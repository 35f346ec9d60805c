"""Adapters that are compiled: what says how they are built, where that ends, and what of them is kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.client import brought, compiled
from harness.errors import UsageError
from harness.matrix.plan import load, named

MAKES = '#!/bin/sh\n# about: one of a test\nset -eu\nprintf "#!/bin/sh\\necho hi\\n" > "$1/mine"\nchmod +x "$1/mine"\n'


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script `build` of the adapter `mine`, the only one there is; and caches of the test's own."""
    script = tmp_path / "libraries" / "mine" / "build"
    script.parent.mkdir(parents=True)
    script.write_text(MAKES)
    monkeypatch.setattr(compiled, "LIBRARIES", tmp_path / "libraries")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return script


def test_one_that_is_not_built_says_how_it_is(source: Path) -> None:
    """To whoever runs it or looks for it; and it is known by its name."""
    with pytest.raises(UsageError, match=r"not built yet: `.* -m harness\.client\.compiled mine` builds it, once"):
        brought.read("mine")
    assert "not built yet" in CliRunner().invoke(cli, ["list", "clients"]).output
    with pytest.raises(UsageError, match="did you mean 'mine'"):
        brought.read("mime")


def test_what_was_built_is_run_until_its_source_changes(source: Path) -> None:
    """It is a folder with a command in it, which is sent whole; another source is another program."""
    assert compiled.main([]) == 0
    client = brought.read("mine")
    assert client.command == ("./mine",)
    assert [*client.files] == ["mine"]
    source.write_text(MAKES.replace("hi", "ho"))
    with pytest.raises(UsageError, match="not built yet"):
        brought.read("mine")
    assert compiled.main(["mine"]) == 0
    assert brought.read("mine").digest != client.digest


@pytest.mark.parametrize(
    ("script", "words"),
    [("exit 3\n", "mine can't be built: one of a test"), ("true\n", "made no program mine")],
)
def test_one_that_can_t_be_built_leaves_nothing(
    source: Path, script: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The exit code says so, and half of a build is nobody's program."""
    source.write_text(f"# about: one of a test\n{script}")
    assert compiled.main(["mine"]) == 1
    assert words in capfd.readouterr().err
    assert not [*compiled.place("mine").parent.iterdir()]


def test_a_name_that_none_has_is_a_bad_command(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With those that there are."""
    assert compiled.main(["yours"]) == 2
    assert "(known: mine)" in capfd.readouterr().err


def test_each_that_is_here_is_short_and_says_where_its_errors_come_from() -> None:
    """As those in Python: under sixty lines beside the protocol, and each line of the error table has its source."""
    mains = {"redsync": "main.go", "curator-mutex": "CuratorMutex.java"}
    assert mains.keys() == compiled.sources().keys()
    for name, file in mains.items():
        assert compiled.headline(name) != "no word on it"
        lines = (compiled.sources()[name] / file).read_text().splitlines()
        assert len(lines) < 60
        entries = [
            number
            for number, line in enumerate(lines)
            if re.fullmatch(r'"[^"]*"[:,] "(fail|info)",?', line.strip().removesuffix(");"))
        ]
        assert len(entries) >= 3
        for number in entries:
            assert lines[number - 1].strip().startswith("//"), f"{file}: {lines[number]}"


def test_the_matrix_of_compiled_ones_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who has no Go has to do without the other matrix; this one names the first that isn't built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="redsync is compiled, and not built yet"):
        load(named(Path("libraries-compiled")))
    for name in compiled.sources():
        where = compiled.place(name)
        where.mkdir(parents=True)
        (where / name).write_text("#!/bin/sh\n")
        (where / name).chmod(0o755)
    plan = load(named(Path("libraries-compiled")))
    assert {(cell.client_words(), cell.system) for cell in plan.cells} == {
        ("redsync", "redis"),
        ("curator-mutex", "zookeeper"),
    }
