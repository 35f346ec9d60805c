"""docs/verdicts.md tells the truth: its example works, its flags exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from checkers.intervals import build
from harness.commands.check import command
from tests.checkers.make import grant, make

PAGE = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text()


def test_the_verdict_of_your_own() -> None:
    """The example is a verdict that finds what it says."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    long = names["check"](build(make(*grant(0, 1, 0, 7), (12, 0, "info lost"))))
    assert long.valid is False
    assert long.findings[0].events == (3, 4)
    assert long.findings[0].text == "Contender 0 held lock 'lock' for 11.000 s."
    assert names["check"](build(make(*grant(0, 1, 0, 7), (11, 0, "info lost")))).valid is True


def test_every_flag_is_there_and_every_one_there_is_told() -> None:
    """The page and the command have the same flags."""
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}
    assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*", PAGE)) == flags
