"""`.ci/run` where an engine runs already: what it is given runs as given. (That it brings an engine of its own is
tried by hand on a fresh machine: it needs one.)
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "run"


@pytest.mark.docker
@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_that_of_the_command(code: int) -> None:
    """A failed test run must not look like a good one."""
    done = subprocess.run([SCRIPT, "sh", "-c", f"exit {code}"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert "runs already" in done.stderr


@pytest.mark.docker
def test_the_command_runs_in_the_checkout_without_standard_input(tmp_path: Path) -> None:
    """Wherever it is called from; a command that reads its input finds its end at once."""
    done = subprocess.run(
        ["bash", SCRIPT, "sh", "-c", "cat; echo $CI; pwd"],
        cwd=tmp_path,
        input="not for the command",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["true", str(SCRIPT.parent.parent)]
