"""Plug-ins that lack something are told by their name and by what they lack, before anything is made of them."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from harness import registry
from harness.errors import HarnessError
from harness.systems.base import Settings, System, terms_of
from nemesis.base import Fault

SETTINGS = Settings(2.0, 1, "image", {})


@pytest.mark.parametrize(("kind", "protocol"), [("systems", System), ("faults", Fault)])
def test_what_is_asked_for_is_what_the_protocol_says(kind: str, protocol: type) -> None:
    """Neither more, which would refuse a good plug-in, nor less."""
    said = {*protocol.__annotations__, *(name for name in vars(protocol) if not name.startswith("_"))}
    assert set(registry.MEMBERS[kind]) == said


def test_an_unfinished_system_is_told_with_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not when `server_counts` of it is looked at by a command that lists all of them."""
    (tmp_path / "unfinished_system.py").write_text("class Mine:\n    name = summary = image = client = 'mine'\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("mine", "unfinished_system:Mine", "fencepost.systems")
    monkeypatch.setattr(registry, "_group", lambda kind: {"mine": entry})
    with pytest.raises(
        HarnessError, match=r"system 'mine' is registered .* has no server_counts, no port, .*plan"
    ) as told:
        registry.load("systems", "mine")
    assert "docs/writing-a-system.md" in str(told.value)


class Told:
    """A system of somebody else's, as far as its terms."""

    name = "theirs"

    def __init__(self, terms: Any) -> None:
        self._terms = terms

    def terms(self, settings: Settings) -> Any:
        return self._terms() if callable(self._terms) else self._terms


def test_terms_that_fail_or_are_none_name_the_system() -> None:
    """A slip in the code of others is no bug of Fencepost."""
    for terms, words in ((lambda: {}["ttl"], "KeyError: 'ttl'"), ({"ttl_seconds": 2}, "must be LeaseTerms")):
        system: Any = Told(terms)
        with pytest.raises(HarnessError, match=r"terms\(\) of system 'theirs'") as told:
            terms_of(system, SETTINGS)
        assert words in str(told.value)


def test_a_clock_that_there_is_not_is_told() -> None:
    """Else a fault on the clock would be taken for immune."""
    system: Any = object.__new__(type("Untold", (), {"name": "untold"}))
    theirs: Any = Told(replace(terms_of(system, SETTINGS), lease_clock="wall"))
    with pytest.raises(HarnessError, match=r"lease_clock='wall'; it is \"monotonic\", \"realtime\", or None"):
        terms_of(theirs, SETTINGS)
