"""docs/verdicts.md and docs/writing-a-verdict.md tell the truth: their examples work, their flags and names exist."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from checkers import Finding, Model, Verdict, judge
from checkers.intervals import build
from harness import registry
from harness.commands.check import command
from tests.checkers.make import grant, make

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "verdicts.md").read_text()
WRITING = (DOCS / "writing-a-verdict.md").read_text()


@pytest.fixture
def names() -> dict[str, Any]:
    """What the examples define, run one after the other."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", WRITING, re.DOTALL):
        exec(code, names)
    return names


def test_the_verdict_of_your_own(names: dict[str, Any]) -> None:
    """The example is a verdict that finds what it says, and its own test passes."""
    long = names["check"](build(make(*grant(0, 1, 0, 7), (12, 0, "info lost"))))
    assert long.valid is False
    assert long.findings[0].events == (3, 4)
    assert long.findings[0].text == "Contender 0 held lock 'lock' for 11.000 s."
    assert names["check"](build(make(*grant(0, 1, 0, 7), (11, 0, "info lost")))).valid is True
    assert names["check"](build(make())).valid == "unknown"
    names["test_long_hold"]()


def test_acquires_that_got_nothing(names: dict[str, Any]) -> None:
    """The second example finds who was refused each time, and clears whoever may have got it."""
    refused = [(0, 0, "invoke acquire"), (1, 0, "fail acquire"), (2, 0, "invoke acquire"), (3, 0, "fail acquire")]
    verdict = names["everybody"](build(make(*refused)))
    assert (verdict.valid, verdict.findings[0].events) == (False, (2, 5))
    assert verdict.findings[0].text == "Contender 0 asked 2 times, and was refused each time."
    for more in ([(4, 0, "invoke acquire")], [(4, 0, "invoke acquire"), (5, 0, "info acquire")], grant(4, 5, 0)):
        assert names["everybody"](build(make(*refused, *more))).valid is True
    assert names["everybody"](build(make())).valid == "unknown"


@pytest.mark.parametrize("which", ["check", "everybody"])
def test_the_examples_are_accepted(
    names: dict[str, Any], which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they return passes for a verdict, whatever they answer, when they are asked as any plug-in is."""
    (tmp_path / "the_examples.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", WRITING, re.DOTALL)))
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = EntryPoint(which, f"the_examples:{which}", "fencepost.verdicts")
    group = {**registry._group("verdicts"), which: entry}
    monkeypatch.setattr(registry, "_group", lambda kind: group)
    long = [*grant(0, 1, 0, 7), (2, 1, "invoke acquire"), (3, 1, "fail acquire"), (20, 0, "info lost")]
    for events, valid in ((long, False), (grant(0, 1, 0, 7), True), ([], "unknown")):
        assert judge(make(*events), require=[which]).verdicts[which].valid == valid


def test_the_package_registers_what_it_has() -> None:
    """The entry point of the example leads to the function in the file that goes into the wheel."""
    (project,) = re.findall(r"```toml\n(.*?)```", WRITING, re.DOTALL)
    data = tomllib.loads(project)
    assert data["project"]["entry-points"] == {"fencepost.verdicts": {"long-hold": "long_hold:check"}}
    assert data["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"] == ["long_hold.py"]
    assert "```python\n# long_hold.py\n" in WRITING


def test_the_names_of_the_tables_exist() -> None:
    """All that the page says a model, a verdict and a finding have; of the latter two it leaves nothing out."""
    rows = re.findall(r"^\| (`.*?) \|", WRITING, re.MULTILINE)
    told = [re.findall(r"`(\w+)(?:\(.*?\))?`", row) for row in rows]
    model = {name for row in told for name in row} - {"Verdict", "Finding"}
    known = {field.name for field in dataclasses.fields(Model)} | set(dir(Model))
    for kind in (Verdict, Finding):
        fields = {field.name for field in dataclasses.fields(kind)}
        assert fields <= model
        known |= fields
    assert model <= known
    assert len(model) > 30


def test_every_flag_is_there_and_every_one_there_is_told() -> None:
    """The page and the command have the same flags."""
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}
    assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*", PAGE)) == flags
