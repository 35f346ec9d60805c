"""`fencepost images` where no engine answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.commands.images import command
from harness.errors import RuntimeUnavailable, UsageError
from tests.trees.workshop import Workshop

Run = Callable[..., Result]


@pytest.fixture
def run(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    return lambda *words: CliRunner().invoke(command, words, catch_exceptions=False)


def test_without_an_engine_trees_are_made_alone_and_that_is_said(workshop: Workshop, run: Run) -> None:
    """What is there is listed with what it takes, the lower layers counted once; and removed when asked to."""
    lines = run().output.splitlines()
    assert lines[0].startswith("file trees only, for Docker can't be reached: ")
    assert lines[-1].startswith("2 trees ready in ")
    rows = run("--list", "--only", "trees").output.splitlines()
    assert rows[0].split() == ["image", "kind", "version", "origin", "reference", "id", "size"]
    assert rows[1].split()[:4] == ["high", "tree", "1.2", "made"]
    assert rows[2].split()[:3] == ["low", "tree", "made"]
    sizes = [int(row.split()[-2]) for row in rows[1:3]]
    assert rows[3] == f"trees: {max(sizes)} MB in {workshop.cache.folder}"
    workshop.write("high", "low", "true")
    assert "tree" in run("--prune", "--only", "trees").output
    assert run("--prune", "--only", "trees").output == "nothing to remove\n"
    assert run("--remove", "--only", "trees").output.count(": removed") == 2
    assert "missing" in run("--list", "--only", "trees").output
    with pytest.raises(RuntimeUnavailable, match="Docker can't be reached"):
        run("--only", "images")


def test_a_dockerfile_is_printed_as_its_table_says(workshop: Workshop, run: Run) -> None:
    """It needs no engine, and names what it is written from."""
    assert "ARG BASE=fencepost/low\nFROM ${BASE}\n" in run("--dockerfile", "high").output
    with pytest.raises(UsageError, match="name the images"):
        run("--dockerfile")
    with pytest.raises(UsageError, match="unknown image 'hi'"):
        run("--dockerfile", "hi")
    (workshop.folder / "low" / "image.toml").unlink()
    with pytest.raises(UsageError, match="was written by hand"):
        run("--dockerfile", "low")


@pytest.mark.docker
def test_with_an_engine_trees_that_cannot_be_had_are_said_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images are enough for trials. Whoever asks for trees alone is refused with the same words."""
    monkeypatch.setenv("FENCEPOST_TREES", str(tmp_path / "not:here"))
    done = CliRunner().invoke(command, ["node", "--pull", "never"], catch_exceptions=False)
    first, *_, last = done.output.splitlines()
    assert first.startswith("no file trees: ")
    assert last.startswith("1 image ready in ")
    with pytest.raises(RuntimeUnavailable) as caught:
        CliRunner().invoke(command, ["node", "--only", "trees"], catch_exceptions=False)
    assert str(caught.value) == first.removeprefix("no file trees: ")
