"""Writing a page or an export never costs the record that it is made from, nor anybody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness import cli, results
from harness.errors import ConfigError, FencepostError, UsageError
from tests.report.scenes import Scene, write_trial_folder
from tests.report.test_command import CASES, fencepost


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial's folder."""
    return write_trial_folder(tmp_path_factory.mktemp("made") / "trial", Scene(seconds=4, freezes=()).run())


@pytest.fixture
def trial(short: Path, tmp_path: Path) -> Path:
    """A trial's folder of the test's own, and a bare history with links to it beside."""
    folder = shutil.copytree(short, tmp_path / "trial")
    (folder / "ledger.jsonl").write_text('{"lock": "lock"}\n')
    (folder / "logs" / "n1").mkdir(parents=True, exist_ok=True)
    (folder / "logs" / "n1" / "service.log").write_text("ready\n")
    shutil.copy(CASES / "clean-handover.jsonl", tmp_path / "bare.jsonl")
    (tmp_path / "soft.html").symlink_to("bare.jsonl")
    os.link(tmp_path / "bare.jsonl", tmp_path / "hard.html")
    (tmp_path / "into").symlink_to("trial")
    return folder


def here(*arguments: object) -> tuple[int, str]:
    """The command in this process: its exit code, and what it said on stderr."""
    done = CliRunner().invoke(cli.cli, [str(argument) for argument in arguments])
    if isinstance(done.exception, FencepostError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stderr


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


TRIAL_OUTS = [
    "trial/history.jsonl", "trial/trial.json", "trial/faults.jsonl", "trial/verdict.json", "trial/ledger.jsonl",
    "trial/harness.log", "trial/matrix.json", "trial/logs/n1/service.log", "trial/logs/n1/page.html",
    "into/history.jsonl", "trial/../into/verdict.json", "bare.jsonl",
]  # fmt: skip
BARE_OUTS = ["bare.jsonl", "soft.html", "hard.html", "trial/../bare.jsonl", "trial/history.jsonl", "trial/verdict.json"]


@pytest.mark.parametrize(
    ("source", "out"), [*(("trial", out) for out in TRIAL_OUTS), *(("bare.jsonl", out) for out in BARE_OUTS)]
)
def test_a_report_is_never_written_over_evidence(trial: Path, tmp_path: Path, source: str, out: str) -> None:
    """Whatever way --out leads to it: a sentence, exit code 2, and every file as it was."""
    before = contents(tmp_path)
    code, said = here("report", tmp_path / source, "--out", tmp_path / out)
    assert code == 2
    assert "name another file" in said
    assert contents(tmp_path) == before


@pytest.mark.parametrize("out", [*BARE_OUTS, "other.jsonl", "trial/logs/n1/service.log"])
@pytest.mark.parametrize("notation", ["edn", "porcupine"])
def test_an_export_is_never_written_over_evidence(trial: Path, tmp_path: Path, notation: str, out: str) -> None:
    """The same for exports, and for another history that lies about."""
    shutil.copy(CASES / "clean-handover.jsonl", tmp_path / "other.jsonl")
    before = contents(tmp_path)
    code, said = here("export", notation, tmp_path / "bare.jsonl", tmp_path / out)
    assert code == 2
    assert "name another file" in said
    assert contents(tmp_path) == before


def test_a_usual_name_that_leads_to_evidence_is_refused_too(trial: Path, tmp_path: Path) -> None:
    """A page has a usual place; what is there may be a link to the record, or the record itself."""
    (trial / "report.html").unlink(missing_ok=True)
    (trial / "report.html").symlink_to("history.jsonl")
    named = Path(shutil.copy(tmp_path / "bare.jsonl", tmp_path / "history.html"))
    before = contents(tmp_path)
    for source in (trial, named):
        code, said = here("report", source)
        assert code == 2
        assert "name another file" in said
    assert contents(tmp_path) == before


def test_a_page_may_be_written_again(trial: Path, tmp_path: Path) -> None:
    """An older page gives way; a link to one stays a link; a pipe is written as it is."""
    page = tmp_path / "page.html"
    for _ in range(2):
        assert fencepost("report", trial, "--out", page).returncode == 0
    link = tmp_path / "link.html"
    link.symlink_to("page.html")
    page.write_text("<!DOCTYPE html>old")
    assert fencepost("report", trial, "--out", link).returncode == 0
    assert link.is_symlink()
    assert "Timeline" in page.read_text()
    command = [sys.executable, "-m", "harness", "report", trial, "--out", "/dev/stdout"]
    assert subprocess.run(command, capture_output=True, check=True).stdout.startswith(b"<!doctype html>")
    assert not list(tmp_path.rglob(".fencepost*"))


def test_an_export_that_fails_leaves_the_older_one(tmp_path: Path) -> None:
    """Two locks and no --lock: an error, after which last week's file is still there."""
    out = tmp_path / "out.log"
    out.write_text("{:process 0, :type :invoke}\n")
    run = fencepost("export", "porcupine", CASES / "two-locks.jsonl", out)
    assert run.returncode == 2
    assert out.read_text() == "{:process 0, :type :invoke}\n"
    assert list(tmp_path.iterdir()) == [out]
    run = fencepost("export", "edn", CASES / "two-locks.jsonl", tmp_path / "no" / "out.edn")
    assert (run.returncode, "can't be written: No such file" in run.stderr, "Traceback" in run.stderr) == (
        2,
        True,
        False,
    )
    assert fencepost("export", "edn", CASES / "two-locks.jsonl", out).returncode == 0
    assert out.read_text().startswith(";; fencepost ")


def test_half_a_page_never_replaces_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full, or an error on the way: the older file stands, and nothing lies beside it."""
    page = tmp_path / "page.html"
    page.write_text("old")

    def half(error: Exception) -> None:
        with results.replaced(page) as file:
            file.write("half")
            file.flush()
            raise error

    with pytest.raises(ZeroDivisionError):
        half(ZeroDivisionError())
    with pytest.raises(ConfigError, match=r"page\.html: can't be written: No space left"):
        half(OSError(28, "No space left on device"))
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


def test_a_lock_ends_with_its_block(tmp_path: Path) -> None:
    """One writer at a time, who is told to others; what stands in a lock's file binds nobody."""
    (tmp_path / ".lock").write_text("not JSON")
    assert results.writer(tmp_path) is None
    with results.held(tmp_path):
        assert f"process {os.getpid()} on " in str(results.writer(tmp_path))
        with pytest.raises(UsageError, match=f"is being written by process {os.getpid()} "), results.held(tmp_path):
            pass
    assert results.writer(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="No such file"), results.held(tmp_path / "gone"):
        pass
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="can't be written"), results.held(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()
