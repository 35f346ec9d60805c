"""Text that wants to be obeyed: no name, reason or note moves a cursor, forges a line, or turns a page around."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.table import Table
from rich.text import Text

from harness import cli, plain
from harness.commands import view
from harness.errors import FencepostError
from harness.report import write_matrix, write_trial
from tests.report.pages import page_of
from tests.report.scenes import Scene, write_trial_folder

EVIL = "\x1b[2J\x1b]0;t\x07\x9b31m\u202eeslaf\u2066\u200b\ufeff\r\nlease  true [bold]x[/]\u2028\U000e0041"
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)
OURS = re.compile(r"\x1b\[[0-9;]*m")


def say(*arguments: object) -> str:
    """All that a command prints, colours and all, without our own colours."""
    done = CliRunner().invoke(cli.cli, [str(argument) for argument in arguments], color=True)
    said = done.output
    if isinstance(done.exception, FencepostError):
        said += f"fencepost: {plain.block(done.exception, indent='  ')}"
    elif done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return OURS.sub("", said)


def history(path: Path, *, lock: str = EVIL) -> Path:
    """Two overlapping grants on one lock, a fault of evil names between them."""
    fault = {
        "process": "nemesis",
        "type": "info",
        "f": "fault",
        "phase": "start",
        "id": EVIL,
        "kind": EVIL,
        "targets": [EVIL],
    }
    events: list[dict[str, Any]] = [
        {"time": 0, "process": 0, "type": "invoke", "f": "acquire", "lock": lock},
        {"time": 1, "process": 0, "type": "ok", "f": "acquire", "lock": lock, "token": 2, "error": EVIL},
        {"time": 2, **fault},
        {"time": 3, "process": 1, "type": "invoke", "f": "acquire", "lock": lock},
        {"time": 4, "process": 1, "type": "ok", "f": "acquire", "lock": lock, "token": 1},
        {"time": 5, "process": 1, "type": "info", "f": EVIL, "lock": lock},
    ]
    meta = {"type": "meta", "format": 1, "ttl": 5.0, "system": EVIL}
    path.write_text("\n".join(json.dumps(line) for line in [meta, *events]) + "\n")
    return path


def test_each_character_becomes_visible() -> None:
    """What is shown has no character left that anything obeys, and says which it was; the rest is as it was."""
    shown = plain.line(EVIL)
    assert not OBEYED.search(shown)
    assert "\n" not in shown
    assert shown.startswith(
        "\\x1b[2J\\x1b]0;t\\x07\\x9b31m\\u202eeslaf\\u2066\\u200b\\ufeff\\r\\nlease  true [bold]x[/]\\u2028"
    )
    assert plain.line("Grüße, 世界 ✓ é \\x1b") == "Grüße, 世界 ✓ é \\x1b"
    assert plain.line("\ud800\t") == "\\ud800\\t"
    assert plain.block("a\nb\x1bc", indent="  ") == "a\n  b\\x1bc"
    for code in range(0x110000):
        character = chr(code)
        if OBEYED.match(character):
            assert plain.line(character) != character
            assert plain.block(character) != character
    text = json.dumps({EVIL: ["\u202e", "\U000e0041"]}, ensure_ascii=False)
    assert not OBEYED.search(plain.json_text(text))
    assert json.loads(plain.json_text(text)) == json.loads(text)


def test_check_says_what_it_means(tmp_path: Path) -> None:
    """The table, the findings, an explanation, JSON: foreign names are there, as text."""
    path = history(tmp_path / "a\u202e\x1b[2Jb.jsonl")
    table = say("check", path, "--require", "exclusion")
    assert "\\x1b[2J" in table
    assert table.count("\nlease") == 0
    for said in (table, say("check", path, "--explain", 1, "--verdict", "exclusion"), say("check", path, "--json")):
        assert "202e" in said
        assert not OBEYED.search(said)
    assert json.loads(say("check", path, "--json"))[0]["verdicts"]["exclusion"]["findings"][0]["lock"] == EVIL
    missing = say("check", tmp_path / EVIL.replace("/", ""))
    assert "can't be read" in missing
    assert not OBEYED.search(missing)


def test_a_malformed_line_is_told_as_text(tmp_path: Path) -> None:
    """The complaint quotes what stood there."""
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"time": 0, "process": EVIL, "type": EVIL, "f": "acquire"}) + "\n")
    for command in ("check", "report"):
        said = say(command, path)
        assert "x.jsonl" in said
        assert not OBEYED.search(said)
        assert "\nlease" not in said


def test_pages_say_what_they_mean(tmp_path: Path) -> None:
    """Of a bare history, of a trial and of a matrix: nothing turns it around, names are there as escapes."""
    bare = history(tmp_path / "bare.jsonl")
    folder = write_trial_folder(tmp_path / "m" / "t", Scene(seconds=4).run())
    history(folder / "history.jsonl")
    (folder / "verdict.json").unlink()
    trial = json.loads((folder / "trial.json").read_text())
    trial |= {"id": EVIL, "error": EVIL, "repeat": EVIL, "expect_reason": EVIL, "versions": {EVIL: EVIL}}
    trial["config"] = {EVIL: EVIL}
    trial["cell"]["system"] = EVIL
    trial["nodes"] = {EVIL: {"role": EVIL, "addresses": [EVIL]}}
    trial["outcome"]["reasons"] = [EVIL]
    (folder / "trial.json").write_text(json.dumps(trial))
    (folder / "logs" / "n\udcff\x1b").mkdir(parents=True)
    (folder / "logs" / "n\udcff\x1b" / "a\u202e.log").write_text("x")
    cell = {"trial": "t", "cell": {"system": EVIL, "fault": EVIL}, "outcome": trial["outcome"], "expect_reason": EVIL}
    matrix = {
        "format": 1,
        "id": EVIL,
        "cells": [cell],
        "errors": [EVIL],
        "left_out": [{"cell": cell["cell"], "rule": EVIL}],
    }
    (tmp_path / "m" / "matrix.json").write_text(json.dumps(matrix))
    for page in (write_trial(bare), write_trial(folder), write_matrix(tmp_path / "m")):
        text = page.read_text(encoding="utf-8")
        assert not OBEYED.search(text)
        assert "\\u202eeslaf" in page_of(page).text


def test_what_trials_print_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The live table, lines, reasons and results: no escape, no markup, no line of its own."""
    out = io.StringIO()
    screen = view.Screen(file=out, force_terminal=True, width=500, highlight=False, markup=False, emoji=False)
    table = Table(box=None)
    table.add_column(EVIL)
    table.add_row(EVIL)
    table.add_row(Text(EVIL))
    for thing in (table, EVIL, Text(EVIL), view.reason_lines([EVIL, EVIL])):
        screen.print(thing)
    with view.Watcher(screen, lambda: {EVIL: view.Progress(EVIL)}, title=EVIL) as watcher:
        watcher.line(EVIL)
    said = re.sub(r"\x1b\[(\?25[lh]|\d*[AKJG]|[0-9;]*m)|\r", "", out.getvalue())
    assert "\\x1b[2J" in said
    assert "[bold]x[/]" in said
    assert not OBEYED.search(said)
    monkeypatch.setattr(sys, "stdout", out)
    assert view.console()._markup is False


def test_a_matrix_file_is_listed_as_text(tmp_path: Path) -> None:
    """Rules and reasons of a TOML file."""
    evil = json.dumps(EVIL.replace("\U000e0041", ""))
    path = tmp_path / "m.toml"
    path.write_text(
        f'[axes]\nsystem = ["etcd", "redis"]\n[[leave_out]]\nwhen = {{ system = "redis" }}\nrule = {evil}\n'
        f"[[expect]]\nwhen = {{}}\nverdicts = {{}}\nreason = {evil}\n"
    )
    said = say("matrix", path, "--list")
    assert "left out: system=redis: \\x1b[2J" in said
    assert not OBEYED.search(said)
    path.write_text(f"[axes]\n{evil} = [1]\n")
    said = say("matrix", path, "--list")
    assert "unknown key" in said
    assert not OBEYED.search(said)
