"""The benchmark measures what it says: valid histories of the length asked for, judged by the real command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench import histories
from checkers import judge
from harness.history import read

ROOT = Path(__file__).parents[2]


def test_its_histories_are_valid_and_have_everything(tmp_path: Path) -> None:
    """All verdicts are true but for nothing; there are renews, writes, unknown outcomes; the seed decides."""
    path = tmp_path / "history.jsonl"
    histories.write(path, 20_000, contenders=20, info=0.05, seed=4)
    judgement = judge(read(path))
    assert judgement.events == 20_000
    assert judgement.grants > 1000
    assert {name: verdict.valid for name, verdict in judgement.verdicts.items() if verdict.valid is not True} == {}
    text = path.read_text()
    for word in ('"renew"', '"write"', '"release"', '"info"', '"lease_from"'):
        assert word in text
    histories.write(path, 20_000, contenders=20, info=0.05, seed=4)
    assert path.read_text() == text


def test_it_prints_a_table() -> None:
    """One row for each length, with the exit code of the command."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "500", "1500", "--runs", "1", "--contenders", "5"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    rows = re.findall(r"^ *([\d,]+) +\d+ MB +[\d.]+ s +[\d.]+ s +\d+ MiB +[\d,]+  (\d)$", done.stdout, re.MULTILINE)
    assert rows == [("500", "0"), ("1,500", "0")], done.stdout + done.stderr
