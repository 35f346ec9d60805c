"""The demo as a newcomer runs it: on a real Redis, with a real pause, to its page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.pages import page_of

SHORT = {"warmup": 1.0, "duration": 3.5, "fault_on": 3.5, "recovery": 0.5}
"""The same, in less time: a lease of two seconds runs out in it all the same."""


def demo(tmp_path: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    source = f"from harness.commands import demo; demo.CELL.update({SHORT}); from harness.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", source, "demo", "--no-open", "--results", str(tmp_path), "--name", "t", *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, **(env or {})},
    )


@pytest.mark.docker
def test_customers_get_two_statements_unfenced_and_only_there(tmp_path: Path) -> None:
    """Told as it happens, in eighty columns; counted by the mail rooms; on a page. Exit code 0: as the story goes."""
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert "\x1b" not in done.stdout
    for words in ("PAUSE: c", "has run out, and c", "WAKES", "which it had rendered", "now have two", "swallows"):
        assert words in " ".join(done.stdout.split()), words

    record = json.loads((tmp_path / "t" / "trial.json").read_text())
    counted = record["tally"]["counted"]
    assert counted["unfenced"]["twice"] == len(counted["unfenced"]["doubled"]) > 0
    assert counted["fenced"]["twice"] == counted["idempotent"]["twice"] == 0
    assert counted["fenced"]["refused"] > 0
    assert counted["idempotent"]["swallowed"] > 0
    verdicts = json.loads((tmp_path / "t" / "verdict.json").read_text())["verdicts"]
    truth = {name: verdicts[name]["valid"] for name in ("exclusion", "damage", "fenced", "lease", "conduct")}
    assert truth == {"exclusion": False, "damage": False, "fenced": True, "lease": True, "conduct": True}
    page = page_of(tmp_path / "t" / "demo.html")
    assert f"{counted['unfenced']['twice']} customers got two statements" in page.text
    assert "WAKES" in page.text
    assert "What the job came to" in page_of(tmp_path / "t" / "report.html").text


@pytest.mark.docker
def test_an_image_that_is_missing_is_told_with_what_gets_it_and_how_long_that_takes(tmp_path: Path) -> None:
    """Before anything is started or written."""
    done = demo(tmp_path, env={"FENCEPOST_IMAGE_REDIS": "fencepost/no-such-image:0"})
    assert done.returncode != 0
    assert "redis" in done.stderr
    assert "takes a few minutes" in done.stderr
    assert list(tmp_path.iterdir()) == []
