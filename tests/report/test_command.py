"""`fencepost report` from the outside."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.report.scenes import Scene, write_trial_folder

CASES = Path(__file__).parents[2] / "cases"


def fencepost(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    code = "from harness.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_bare_history_gets_its_page_beside_it(tmp_path: Path) -> None:
    """Or where --out says; the command prints where."""
    history = shutil.copy(CASES / "redisson-failover.jsonl", tmp_path / "failover.jsonl")
    run = fencepost("report", history)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.strip() == str(tmp_path / "failover.html")
    assert "early-grant" in (tmp_path / "failover.html").read_text()
    elsewhere = tmp_path / "story.html"
    assert fencepost("report", history, "--out", elsewhere).stdout.strip() == str(elsewhere)
    assert elsewhere.is_file()


def test_several_folders_at_once(tmp_path: Path) -> None:
    """Each gets its own report."""
    for name in ("a", "b"):
        write_trial_folder(tmp_path / name, Scene(seconds=4, freezes=()).run())
    run = fencepost("report", tmp_path / "a", tmp_path / "b")
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "a" / "report.html").is_file()
    assert (tmp_path / "b" / "report.html").is_file()


def test_usage_errors_are_one_sentence(tmp_path: Path) -> None:
    """Exit code 2, what is wrong and where, no traceback."""
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        ((tmp_path / "nowhere",), "nowhere: no such file or folder"),
        ((tmp_path / "empty",), "neither a trial (history.jsonl) nor a matrix (matrix.json) is in this folder"),
        (
            (CASES / "clean-handover.jsonl", CASES / "two-locks.jsonl", "--out", tmp_path / "x.html"),
            "--out takes one PATH",
        ),
        ((CASES / "clean-handover.jsonl", "--out", tmp_path / "no" / "x.html"), "can't be written: No such file"),
    ):
        run = fencepost("report", *arguments)
        assert run.returncode == 2, arguments
        assert said in run.stderr
        assert "Traceback" not in run.stderr
