"""Runs of one cell, put together: k of n, what a violation that stopped them does to it, which runs tell most."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkers import RULES
from harness.errors import ConfigError, UsageError
from harness.runs import book, pooled, spelled
from harness.runs.book import Book, Figures, First, Run, Session
from harness.runs.gathered import gather
from harness.runs.intervals import binomial, inverse
from harness.runs.rule import Rule
from harness.trial import outcome


def run(number: int, word: str = "as-expected", *, rule: Rule | None = None, **more: Any) -> Run:
    """A run of cell 0; a violation has a false lease, seen 7 s after the first of two faults."""
    false = more.pop("false", word == "violation")
    figures = Figures(
        seconds=25.0,
        fault_seconds=20.0,
        faults={"applied": 2, "bit": 1, "missed": 1, "immune": 0},
        first={"lease": First(seconds=12.0, since_fault=7.0, faults=1)} if false else {},
        measures={"unsafe": more.pop("unsafe", 0.0)},
    )
    values: dict[str, Any] = {
        "cell": 0,
        "run": number,
        "trial": f"t.r{number}",
        "same": "s",
        "rule": rule or Rule(runs=20),
        "place": {"system": "redis", "fault": "none"},
        "outcome": {"word": word},
        "verdicts": {"lease": not false, "exclusion": True},
        "required": ["lease", "faults"],
        "rules": RULES,
        "wall": 30.0,
        "figures": figures,
    }
    return Run(**{**values, **more})


def test_each_word_and_verdict_has_its_rate() -> None:
    """Over the runs that were judged; a harness error without verdicts counts for the words alone."""
    runs = [
        run(1),
        run(2, "violation"),
        run(3, "harness-error", verdicts={}),
        run(4, "unknown", verdicts={"lease": "unknown"}),
    ]
    found = pooled.pool(runs)
    assert list(found.words) == ["violation", "harness-error", "unknown", "as-expected"]
    assert (found.words["violation"].k, found.words["violation"].n) == (1, 4)
    lease = found.verdicts["lease"]
    assert (lease.false.k, lease.unknown.k, lease.false.n) == (1, 1, 3)
    assert (lease.false.low, lease.false.high) == binomial(1, 3)
    assert found.faults == {"applied": 8, "bit": 4, "missed": 4, "immune": 0}


def test_words_outrank_each_other_as_in_a_trials_outcome() -> None:
    """The room that says so stands above this one."""
    assert pooled.RANK == outcome.RANK


def test_the_first_violation_has_its_cost() -> None:
    """Trials and faults of the runs before it count too; the medians are of the runs that show it."""
    first = pooled.pool([run(1), run(2), run(3, "violation"), run(4, "violation")]).first["violation"]
    assert (first.trial, first.runs, first.seconds, first.fault_seconds, first.faults) == ("t.r3", 3, 62.0, 47.0, 5)
    assert (first.median_seconds, first.median_faults) == (7.0, 1.0)


def test_a_violation_that_stops_the_runs_leaves_one_interval() -> None:
    """That of the violations, for an n by chance, up to the run that stopped them; one that had begun is told."""
    rule = Rule(violations=1, runs=20)
    runs = [run(1, rule=rule), run(2, rule=rule), run(3, "violation", rule=rule), run(4, rule=rule)]
    found = pooled.pool(runs)
    assert found.violations == pooled.Rate(k=1, n=3, low=inverse(1, 3)[0], high=inverse(1, 3)[1], inverse=True)
    assert found.stopped == "1 violation"
    assert found.surplus == 1
    assert all(rate.low is None for rate in [*found.words.values(), found.verdicts["lease"].false, found.wrongly_red])
    assert spelled.runs(found) == "4, stopped by 1 violation (1 had begun already)"
    assert "n by chance" in spelled.shown(found)[0]
    # Runs that went on to the last are of a fixed n.
    assert pooled.pool(runs[:2]).verdicts["lease"].false.low == 0.0


def test_series_that_were_stopped_add_up_only_among_themselves() -> None:
    """Two that a violation stopped are one longer wait; beside one that was not, no interval is right."""
    rule = Rule(violations=1, runs=3)
    one, two = [run(1, "violation", rule=rule)], [run(1, rule=rule), run(2, "violation", rule=rule)]
    both = pooled.pool(one, two).violations
    assert (both.k, both.n, both.inverse) == (2, 3, True)
    assert (both.low, both.high) == inverse(2, 3)
    mixed = pooled.pool(one, [run(1, rule=rule), run(2, rule=rule), run(3, rule=rule)]).violations
    assert (mixed.k, mixed.n, mixed.low) == (1, 4, None)


def test_what_counts_as_a_violation() -> None:
    """A false verdict that is required, or expected to be anything; not `faults`, nor one that nobody asks for."""
    assert run(1, "violation").violates
    assert run(1, expect={"lease": False}, false=True).violates
    assert not run(1, verdicts={"lease": True, "exclusion": False, "faults": False}).violates
    assert run(1, verdicts={"exclusion": False}, expect={"exclusion": "any"}).violates


def test_wrongly_red_is_a_violation_that_only_did_not_show() -> None:
    """Something else that is false is nobody's flake until somebody has looked."""
    assert run(1, "violation", false=False, expect={"lease": False}).wrongly_red
    assert not run(1, "violation").wrongly_red
    hidden = {"lease": False, "linearizable": False}
    follows = run(
        1, "violation", verdicts=hidden, required=["lease", "linearizable"], expect={"lease": False, "damage": False}
    )
    assert follows.wrongly_red  # linearizable follows the lease that is expected, damage did not show


def test_the_runs_that_tell_most() -> None:
    """The first with a violation and the longest unsafe time; their folders stay, the first, and the unexpected."""
    runs = [run(1), run(2, unsafe=3.0), run(3, "violation", unsafe=1.0), run(4), run(5, "unknown", unsafe=2.0)]
    assert pooled.pool(runs).telling == {"first": "t.r3", "worst": "t.r2"}
    assert pooled.kept(runs) == {"t.r1", "t.r2", "t.r3", "t.r5"}
    assert pooled.representative(runs).trial == "t.r3"


@pytest.mark.parametrize(
    ("rule", "runs", "why"),
    [
        (Rule(runs=2), [run(1)], None),
        (Rule(runs=2), [run(1), run(2)], "2 runs"),
        (Rule(runs=9, violations=1), [run(1), run(2, "violation")], "1 violation"),
        (Rule(minutes=1), [run(1)], None),
        (Rule(minutes=1), [run(1), run(2)], "1 minute"),
        (Rule(), [run(number) for number in range(1, 50)], None),
    ],
)
def test_a_rule_says_when_it_is_enough_and_why(rule: Rule, runs: list[Run], why: str | None) -> None:
    """Whichever comes first."""
    assert rule.enough(runs) == why


def test_a_book_holds_what_was_written(tmp_path: Path) -> None:
    """The last line of a run counts; half a line at the end is none, and goes when the book is opened again."""
    book_ = Book(tmp_path)
    book_.append(Session(began="now", jobs=2, budget=60.0))
    for each in (run(2, "violation"), run(1, interrupted=True), run(1, spent=41.5)):
        book_.append(each)
    book_.close()
    path = tmp_path / book.BOOK
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"line": "run", "cell": 0, "ru')
    pages = book.read(tmp_path)
    assert pages is not None
    assert [(each.run, each.interrupted, each.word) for each in pages.runs] == [
        (1, False, "as-expected"),
        (2, False, "violation"),
    ]
    assert (pages.spent, pages.sessions[0].budget) == (41.5, 60.0)
    Book(tmp_path).close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        '{"line": "run", "cell": 0, "run": 1, "trial": "x", "rule": {"runs": "many"}}',
        '{"line": "run"}',
        '{"line": "run", "cell": 0, "run": 1, "trial": "../x"}',
        '{"line": "page"}',
        "[]",
    ],
)
def test_a_spoilt_line_is_named(tmp_path: Path, line: str) -> None:
    """With the file and its number; a folder outside of the matrix's is none."""
    (tmp_path / book.BOOK).write_text(json.dumps({"line": "session", "began": "x"}) + f"\n{line}\n")
    with pytest.raises(ConfigError, match=r"runs\.jsonl: line 2"):
        book.read(tmp_path)


def write(folder: Path, *runs: Run) -> Path:
    folder.mkdir()
    fresh = Book(folder)
    for each in runs:
        fresh.append(each)
    fresh.close()
    return folder


def test_matrices_are_added_up_cell_by_cell(tmp_path: Path) -> None:
    """The same cell in two folders is one, another that only has its name is told apart; interrupted runs are none."""
    one = write(tmp_path / "a", run(1), run(2, "violation"), run(3, interrupted=True))
    two = write(tmp_path / "b", run(1), run(1, cell=1, same="other", trial="x"))
    cells = gather([one, two])
    assert [(cell.name, cell.pooled.runs) for cell in cells] == [("redis × none #s", 3), ("redis × none #othe", 1)]
    with pytest.raises(UsageError, match="given twice"):
        gather([one, tmp_path / "b" / ".." / "a"])


def test_verdicts_of_other_rules_are_never_added_up(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="judged by rules 1"):
        gather([write(tmp_path / "a", run(1, rules=1))])
