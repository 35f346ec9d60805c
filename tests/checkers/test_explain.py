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


def test_columns_stand_in_order() -> None:
    """Whoever the finding is about first: contenders by their id, the faults last."""
    head = shown(wide(4), 200, 16, 22, 27)[0]
    assert re.findall(r"contender (\d)", head) == ["1", "2", "3"]
    assert head.endswith("faults, harness")


def test_every_reason_of_a_loss_is_shown() -> None:
    """Those that the contract names, none, and one of somebody's own, from the file."""
    reasons = ["expired", "deadline", "disconnected", "renew-failed", "moon", None]
    losses = [(3 + n, 0, "info lost", {"reason": reason} if reason else {}) for n, reason in enumerate(reasons)]
    history = make(*grant(0, 1, 0), *losses)
    table = "\n".join(shown(history, 120, 3, 9))
    for reason in reasons[:4]:
        assert f" lost ({reason})" in table
    assert " lost (other)" in table
    finding = Finding("odd", "lock", (3, 9), "It is odd.", 0)
    told = explain(history, finding, 120, lines=lambda wanted: {line: {"reason": "moon"} for line in wanted})
    assert " lost (other): moon" in told
    assert told.splitlines()[-1].endswith(" lost")


def test_what_only_its_user_knows_is_shown() -> None:
    """Events of another `f` between those of the finding, with the keys that the file gives; and what errors say."""
    events = [
        *grant(0, 1, 0), (2, 0, "info promoted", {"to": "primary"}), (2, "harness", "info note"),
        (3, 1, "invoke acquire"), (4, 1, "fail acquire", {"error": "busy"}), (9, 0, "info far-away"),
    ]  # fmt: skip
    history = make(*events)
    finding = Finding("odd", "lock", (3, 7), "It is odd.", 0)
    keys = {line: event[3] for line, event in enumerate(events, 2) if len(event) > 3}
    told = explain(history, finding, 120, lines=lambda wanted: {line: keys[line] for line in wanted if line in keys})
    assert "promoted info: to=primary" in told
    assert "note info" in told
    assert "acquire fail: busy" in told
    assert "far-away" not in told
    narrow = explain(history, finding, 60, lines=lambda wanted: {line: keys[line] for line in wanted if line in keys})
    assert "promoted info…" in narrow


def renews(first: float, count: int, process: int = 0, *, became: str = "ok", **keys: Any) -> list[tuple[Any, ...]]:
    """Renewals, one a second, each answered 0.1 s later."""
    pairs = [(first + n, process, "invoke renew") for n in range(count)]
    return [half for at, *rest in pairs for half in ((at, *rest), (at + 0.1, process, f"{became} renew", keys))]


def test_renewals_in_a_row_are_one_row() -> None:
    """From four on, all ok and one contender's; what stands between, failed or is the finding's own breaks the run."""
    history = make(*grant(0, 1, 0), *renews(2, 12), (20, 0, "invoke release"), (20, 0, "ok release"))
    table = shown(history, 120, 3, 28)
    assert [row.split()[2:] for row in table if "renew" in row] == [
        ["4", "12", "renews,", "all", "ok,", "to", "+12.100", "s"]
    ]
    assert len(shown(make(*grant(0, 1, 0), *renews(2, 3), (20, 0, "info crash")), 120, 3, 10)) == 1 + 2 + 6 + 1
    marked = [row for row in shown(history, 120, 3, 14, 28) if "renew" in row]
    assert [row.split(maxsplit=3)[3] for row in marked] == [
        "5 renews, all ok, to +5.100 s", "renew…", "renew ok", "6 renews, all ok, to +12.100 s",
    ]  # fmt: skip
    failed = make(*grant(0, 1, 0), *renews(2, 4, became="fail"), *renews(7, 4, proves=False), (20, 0, "info crash"))
    rows = [row.split(maxsplit=3)[3] for row in shown(failed, 120, 3, 20) if "renew" in row]
    assert rows == ["renew…", "renew fail"] * 4 + ["4 renews, all ok, which proves nothing, to +9.100 s"]


def test_the_clock_on_the_wall_is_shown_where_it_is_known() -> None:
    """Beside the seconds, by the offset that the meta gives; a `started` that is no moment gives no column."""
    events = [*grant(0, 1.5, 0), (3600.25, 0, "info crash")]
    finding = Finding("odd", "lock", (3, 4), "It is odd.", 0)
    told = explain(make(*events, started="2026-11-29T23:30:00+02:00"), finding, 120)
    assert "The wall clock is that of UTC+0200, from 2026-11-29 on" in told
    head, *rows = told.partition("\n\n")[2].splitlines()
    assert head.split()[:4] == ["time", "wall", "clock", "line"]
    assert [row.split()[2:4] for row in rows[1:]] == [["23:30:01.500", "3▶"], ["00:30:00.250", "4▶"]]
    for started in (None, "yesterday", "2026-11-29T23:30:00", "9999-12-31T23:59:00+00:00"):
        meta = {} if started is None else {"started": started}
        assert "wall clock" not in explain(make(*events, **meta), finding, 120)


def test_as_many_columns_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the finding always; of the others what the width allows; an id is never cut."""
    history = wide(6, first=1_000_000_000_000)
    for width, columns in ((40, 2), (80, 3), (100, 3), (200, 3)):
        head = shown(history, width, 16, 22)[0]
        assert len(re.findall(r"\b(?:contender |c)10000000000\d\d\b", head)) == columns, head
    monkeypatch.setenv("COLUMNS", "100")
    assert max(map(len, explain(wide(), Finding("odd", "lock", (4, 10), "It is odd.", 0)).splitlines())) <= 100
