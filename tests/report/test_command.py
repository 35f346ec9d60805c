"""`fencepost report` from the outside."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

from harness.cli import main
from tests.report.scenes import Scene, write_trial_folder

CASES = Path(__file__).parents[2] / "cases"


def fencepost(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command as its process runs it, from its words to its exit code, but in this one."""
    words = ["fencepost", *map(str, arguments)]
    out, err = StringIO(), StringIO()
    with patch.object(sys, "argv", words), redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return subprocess.CompletedProcess(words, end.value.code, out.getvalue(), err.getvalue())


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


def test_one_bad_path_does_not_keep_the_others_from_their_pages(tmp_path: Path) -> None:
    """Each is told, and the exit code says at the end that not all went well."""
    for name in ("a", "b"):
        write_trial_folder(tmp_path / name, Scene(seconds=4, freezes=()).run())
    (tmp_path / "a" / "history.jsonl").write_text("nonsense\n")
    run = fencepost("report", tmp_path / "a", tmp_path / "nowhere", tmp_path / "b")
    assert run.returncode == 2
    assert run.stdout.split() == [str(tmp_path / "b" / "report.html")]
    assert "a/history.jsonl:1: " in run.stderr
    assert "nowhere: no such file or folder" in run.stderr
    assert "2 of 3 paths have no page" in run.stderr


def test_several_histories_need_a_folder_for_their_pages(tmp_path: Path) -> None:
    """They may lie where nobody wants pages, such as among the recorded cases; those of the same name are numbered."""
    histories = [
        shutil.copy(CASES / "clean-handover.jsonl", tmp_path / "one.jsonl"),
        shutil.copy(CASES / "clean-handover.jsonl", tmp_path / "two.jsonl"),
    ]
    run = fencepost("report", *histories)
    assert run.returncode == 2
    assert "--out DIR" in run.stderr
    assert not list(tmp_path.glob("*.html"))
    write_trial_folder(tmp_path / "trial", Scene(seconds=4, freezes=()).run())
    pages = tmp_path / "pages"
    run = fencepost("report", *histories, histories[0], tmp_path / "trial" / "history.jsonl", "--out", pages)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [str(pages / f"{name}.html") for name in ("one", "two", "one-2", "trial")]
    assert sorted(page.name for page in pages.iterdir()) == ["one-2.html", "one.html", "trial.html", "two.html"]


def test_again_judges_anew(tmp_path: Path) -> None:
    """Also what is up to date; without it the stored verdicts stand."""
    folder = write_trial_folder(tmp_path / "trial", Scene(seconds=4, freezes=()).run())
    text = (folder / "verdict.json").read_text().replace('"grants"', '"stored words": 7, "grants"')
    (folder / "verdict.json").write_text(text)
    assert fencepost("report", folder).returncode == 0
    assert "stored words" in (folder / "report.html").read_text()
    assert fencepost("report", folder, "--again").returncode == 0
    page = (folder / "report.html").read_text()
    assert "stored words" not in page
    assert "Judged anew for this page: as was asked" in page


def test_usage_errors_are_one_sentence(tmp_path: Path) -> None:
    """Exit code 2, what is wrong and where, no traceback."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "a file").touch()
    for arguments, said in (
        ((tmp_path / "nowhere",), "nowhere: no such file or folder"),
        ((tmp_path / "empty",), "neither a trial (history.jsonl) nor a matrix (matrix.json) is in this folder"),
        (
            (CASES / "clean-handover.jsonl", CASES / "two-locks.jsonl", "--out", tmp_path / "a file"),
            "must name a folder for several PATHs",
        ),
        ((CASES / "clean-handover.jsonl", "--out", tmp_path / "no" / "x.html"), "can't be written: No such file"),
    ):
        run = fencepost("report", *arguments)
        assert run.returncode == 2, arguments
        assert said in run.stderr
        assert "Traceback" not in run.stderr
