"""How many trials run side by side, where nobody says how many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.commands.many import usual_jobs


@pytest.mark.parametrize(("cores", "docker", "local"), [(1, 2, 3), (2, 4, 6), (4, 8, 12), (64, 8, 16), (None, 2, 3)])
def test_it_follows_from_the_cores_and_from_what_nodes_cost(
    cores: int | None, docker: int, local: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace costs so little to make that more trials get along; the harness itself sets a bound."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert usual_jobs("docker") == docker
    assert usual_jobs("local") == local
    assert usual_jobs("a runtime of somebody's own") == docker


LOADED = """
import sys
from pathlib import Path
from types import SimpleNamespace
from tests.matrix.fake import FakeTrial, matrix, plan_of

class Watching(FakeTrial):
    def run(self, *given, **more):
        print(sorted({"pandas", "jinja2", "scipy.special"} - set(sys.modules)))
        return super().run(*given, **more)

folder = Path(sys.argv[1])
text = "[[cells]]\\nsystem = 'redis'\\nfault = 'none'\\n"
matrix(plan_of(folder, text), folder / "m", trial=Watching).run(SimpleNamespace(name="fake"))
"""


def test_large_libraries_are_there_before_the_first_trial(tmp_path: Path) -> None:
    """Loaded at the end of the first, they would keep the threads of those beside it from running for a second."""
    done = subprocess.run([sys.executable, "-c", LOADED, tmp_path], capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "[]", done.stderr
