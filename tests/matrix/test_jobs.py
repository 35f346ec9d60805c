"""How many trials run side by side, where nobody says how many."""

from __future__ import annotations

import os

import pytest

from harness.commands.many import usual_jobs


@pytest.mark.parametrize(("cores", "docker", "local"), [(1, 2, 4), (2, 4, 8), (4, 8, 16), (64, 8, 16), (None, 2, 4)])
def test_it_follows_from_the_cores_and_from_what_nodes_cost(
    cores: int | None, docker: int, local: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace costs so little to make that twice as many trials get along; the harness itself sets a bound."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert usual_jobs("docker") == docker
    assert usual_jobs("local") == local
    assert usual_jobs("a runtime of somebody's own") == docker
