"""What the tests of trees share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import trees
from harness.images import recipes
from tests.trees.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    folder = tmp_path / "docker"
    folder.mkdir()
    monkeypatch.setattr(recipes, "docker_folder", lambda: folder)
    monkeypatch.setenv("FENCEPOST_TREES", str(tmp_path / "trees"))
    yield Workshop(folder, tmp_path / "trees")
    for descriptor in trees._held.values():
        os.close(descriptor)
    trees._held.clear()
