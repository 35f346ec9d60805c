"""`fencepost check --explain`: whatever the width, what is shown is true."""

from __future__ import annotations

import re
from typing import Any

import pytest

from checkers import Finding
from checkers.explain import explain
from harness.history.events import History
from tests.checkers.make import grant, make

TOKEN = 4294967324


def wide(contenders: int = 2, first: int = 0) -> History:
    """Contenders with large ids, tokens and versions, and a fault."""
    events: list[tuple[Any, ...]] = [
        (0, "nemesis", "info fault", {"phase": "start", "id": "f1", "kind": "freeze", "receipt": "landed"})
    ]
    for n in range(contenders):
        process, token, write = first + n, TOKEN + n, {"resource": "unfenced", "token": TOKEN + n}
        events += [
            *grant(n + 1, n + 1.1, process, token, ttl=1234.5),
            (n + 1.2, process, "invoke write", {**write, "read": 7001 + n, "version": 7002 + n}),
            (n + 1.3, process, "ok write", {**write, "read": 7001 + n, "version": 7002 + n, "seq": 88 + n}),
            (n + 1.4, process, "invoke release"),
            (n + 1.5, process, "fail release", {"held": False}),
        ]
    events.append((contenders + 9, "nemesis", "info fault", {"phase": "stop", "id": "f1", "receipt": "undone"}))
    return make(*events)


def shown(history: History, width: int, *events: int) -> list[str]:
    """The rows of the table (its head is the first)."""
    finding = Finding("odd", "lock", events or (4, 10), "It is odd.", 0)
    return explain(history, finding, width).partition("\n\n")[2].splitlines()


@pytest.mark.parametrize("width", range(20, 240))
def test_no_number_is_cut(width: int) -> None:
    """Every number shown is one of the history's, at any width; what is left out is marked."""
    for row, whole in zip(shown(wide(), width), shown(wide(), 1000), strict=True):
        numbers, all_numbers = (re.findall(r"\d+(?:\.\d+)?", text[23:]) for text in (row, whole))
        assert set(numbers) <= set(all_numbers), row
        assert numbers == all_numbers or row.endswith("…"), row
        if width >= 23 + 3 * 14 + 2:
            assert len(row) <= width, row


def test_words_go_before_figures() -> None:
    """Narrower and narrower: first the words, then whole figures, last first."""
    row = {
        width: next(row for row in shown(wide(), width) if "write ok" in row)[23:].strip()
        for width in (160, 110, 90, 70)
    }
    assert row[160] == f"write ok unfenced t{TOKEN} r7001 v7002 s88"
    assert row[110] == f"write ok t{TOKEN} r7001…"
    assert row[90] == f"write ok t{TOKEN}…"
    assert row[70] == "write ok…"


def test_as_many_columns_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the finding always; of the others what the width allows; an id is never cut."""
    history = wide(6, first=1_000_000_000_000)
    for width, columns in ((40, 2), (80, 3), (100, 3), (200, 3)):
        head = shown(history, width, 16, 22)[0]
        assert len(re.findall(r"\b(?:contender |c)10000000000\d\d\b", head)) == columns, head
    monkeypatch.setenv("COLUMNS", "100")
    assert max(map(len, explain(wide(), Finding("odd", "lock", (4, 10), "It is odd.", 0)).splitlines())) <= 100
