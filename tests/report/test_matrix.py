"""A matrix's page: every cell with its verdicts, what was found in words, and the systems compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from checkers import RULES
from harness.errors import ConfigError
from harness.report import write_matrix, write_trial
from tests.report.pages import Page, page_of
from tests.report.scenes import Scene, write_trial_folder

SCENES = {
    ("etcd", "none"): Scene(seconds=12, freezes=()),
    ("etcd", "freeze-holder"): Scene(seconds=20, freezes=((6.0, 11.0),)),
    ("redis", "none"): Scene(seconds=12, freezes=(), seed=3),
    ("redis", "clock-leader"): Scene(seconds=12, freezes=(), seed=4, early=0.3),
    ("consul", "kill-leader"): Scene(seconds=12, freezes=(), seed=5, early=0.3),
}


def write_matrix_folder(folder: Path) -> Path:
    """Two systems that keep their promises, one that is expected not to, one that surprises; one cell left out."""
    cells = []
    for (system, fault), scene in SCENES.items():
        name = f"{system}-{fault}-naive"
        write_trial_folder(folder / name, scene.run(), system=system, fault=fault)
        write_trial(folder / name)
        trial = json.loads((folder / name / "trial.json").read_text())
        verdicts = json.loads((folder / name / "verdict.json").read_text())["verdicts"]
        outcome = dict(trial["outcome"])
        if system == "consul":
            outcome |= {"word": "violation", "exit_code": 1, "reasons": ["lease is false: not what was expected"]}
        cells.append(
            {
                "trial": name,
                "cell": trial["cell"],
                "outcome": outcome,
                "verdicts": {verdict: entry["valid"] for verdict, entry in verdicts.items()},
                "expect": {"lease": False} if system == "redis" and fault != "none" else {},
                "expect_reason": "it expires by the wall clock" if system == "redis" and fault != "none" else None,
            }
        )
    matrix = {
        "format": 1,
        "rules": RULES,
        "id": "nightly",
        "file": "default.toml",
        "cells": cells,
        "left_out": [{"cell": {"system": "redis", "fault": "kill-leader"}, "rule": "a lone server has no heirs"}],
        "seconds": 61.5,
        "jobs": 2,
    }
    (folder / "matrix.json").write_text(json.dumps(matrix))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_matrix_folder(tmp_path_factory.mktemp("matrix"))


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    assert write_matrix(folder) == folder / "index.html"
    return page_of(folder / "index.html")


def test_each_cell_is_linked_to_its_report(folder: Path, page: Page) -> None:
    """By links relative to the page, so that the folder can be moved."""
    links = [a["href"] for tag, a in page.tags if tag == "a" and "cell" in str(a.get("class"))]
    assert len(links) == len(SCENES)
    assert all((folder / str(link)).is_file() for link in links)


def test_each_report_leads_back_to_the_matrix(folder: Path) -> None:
    """A trial that lies in a matrix says so, once the matrix is there."""
    report = write_trial(folder / "etcd-none-naive")
    links = [str(a["href"]) for tag, a in page_of(report).tags if tag == "a" and "index.html" in str(a.get("href"))]
    assert [(report.parent / link).resolve() for link in links] == [(folder / "index.html").resolve()]


def test_what_was_found_is_told_in_words(page: Page) -> None:
    """Which system broke what under which fault, whether that was expected, and whose fault it was."""
    assert "redis under clock-leader (as expected" in page.text
    assert "consul under kill-leader (" in page.text
    assert "etcd under freeze-holder" in page.text
    assert "a pause of the earlier holder" in page.text
    assert "Not as expected" in page.text
    assert "lease is false: not what was expected" in page.text


def test_a_cell_says_what_its_word_leaves_out(page: Page) -> None:
    """As expected, and yet two believed at once: in the cell, not in its colour alone; nothing where nothing is."""
    told = "true of what was required; exclusion and damage are false, and not required"
    assert page.text.count(told) == 1


def test_cells_of_one_place_say_in_what_they_differ(folder: Path, tmp_path: Path) -> None:
    """Options, images and clients by their name; the seed where it is all that tells them apart."""
    folder = shutil.copytree(folder, tmp_path / "matrix")
    matrix = json.loads((folder / "matrix.json").read_text())
    first = matrix["cells"][0]
    several = []
    for number, (more, client) in enumerate(
        [
            ({"fault_options.offset": 30}, "redis 8.1.0"), ({"fault_options.offset": 60}, "redis 8.1.0"),
            ({"images.redis": "redis:7.2"}, "redis 5.0"), ({"images.redis": "redis:7.2"}, "redis 5.0"),
        ]
    ):  # fmt: skip
        name = f"cell-{number}"
        write_trial_folder(folder / name, Scene(seconds=2, freezes=()).run(), contenders={
            "0": {"hello": {"client": {"name": "redis", "library": client}}}
        })  # fmt: skip
        parameters = {**first["cell"]["parameters"], "seed": 100 + number, **more}
        several.append({**first, "trial": name, "cell": {**first["cell"], "parameters": parameters}})
    (folder / "matrix.json").write_text(json.dumps(matrix | {"cells": several, "planned": None}))
    text = page_of(write_matrix(folder)).text
    for told in (
        "offset 30, client redis 8.1.0, seed 100", "offset 60, client redis 8.1.0, seed 101",
        "client redis 5.0, redis redis:7.2, seed 102", "client redis 5.0, redis redis:7.2, seed 103",
    ):  # fmt: skip
        assert told in text, text[:3000]
    (folder / "matrix.json").write_text(json.dumps(matrix | {"cells": several[:2], "planned": None}))
    text = page_of(write_matrix(folder)).text
    assert "offset 60" in text
    assert "seed" not in text


def test_only_the_surprise_is_flagged(page: Page) -> None:
    """A lease that broke as expected stands out less than one that should have held."""
    flagged = [
        str(a["title"])
        for _, a in page.tags
        if "badge" in str(a.get("class")) and "flag" in str(a.get("class")) and a.get("title")
    ]
    assert sum(title.startswith("lease:") for title in flagged) == 1
    assert not [title for title in flagged if title.startswith("exclusion:")]


def test_a_cell_that_was_left_out_says_why(page: Page) -> None:
    """In its place in the grid, and in the list."""
    assert page.text.count("a lone server has no heirs") == 2
    # Nobody planned redis x freeze-holder: that isn't a cell that failed to run.
    assert "not in this matrix" in page.text
    assert "not run" not in page.text


def test_a_cell_that_was_planned_and_cut_short_is_not_run(folder: Path, tmp_path: Path) -> None:
    """Told apart from one that was never planned; where the plan isn't recorded, the page doesn't pretend to know."""
    matrix = json.loads((folder / "matrix.json").read_text()) | {"not_run": 2}
    (tmp_path / "matrix.json").write_text(json.dumps(matrix))
    assert "not run, or not in this matrix" in page_of(write_matrix(tmp_path)).text
    twice = {"system": "zookeeper", "workload": "lock", "fault": "none", "parameters": {"guarded": True}}
    planned = [*(cell["cell"] for cell in matrix["cells"]), twice, twice | {"parameters": {"guarded": False}}]
    (tmp_path / "matrix.json").write_text(json.dumps(matrix | {"planned": planned}))
    page = page_of(write_matrix(tmp_path))
    assert "2 cells not run" in page.text
    assert "not in this matrix" in page.text
    assert "not run, or" not in page.text


def test_badges_are_called_what_the_verdicts_are_called(page: Page) -> None:
    """In full: the style cuts what is too long, and pointing at it tells the rest."""
    badges = [words.strip() for words in page.words]
    for name in ("exclusion", "fencing", "damage", "linearizable", "progress"):
        assert name in badges
    assert not {"token", "harm", "excl", "linear"} & set(badges)


def test_why_something_is_expected_is_told(page: Page) -> None:
    """In the summary, and when pointing at the cell or the badge."""
    assert "redis under clock-leader (as expected: it expires by the wall clock;" in page.text
    titles = [str(a.get("title")) for _, a in page.tags if a.get("title")]
    assert "expected: lease false (it expires by the wall clock)" in titles
    assert [title for title in titles if title.endswith("\nexpected: false (it expires by the wall clock)")]


def test_cells_of_one_fault_are_called_by_what_they_differ_in_and_explained_once(folder: Path, tmp_path: Path) -> None:
    """A summary in which "none" stands twice says nothing, and one that explains each cell in each line isn't read."""
    matrix = json.loads((folder / "matrix.json").read_text())
    first = next(each for each in matrix["cells"] if each["cell"]["system"] == "redis")
    wrong = {**first["verdicts"], "exclusion": False, "damage": False}
    cells = []
    for client in ("zoo-late", "noop"):
        cell = {**first["cell"], "fault": "none", "parameters": {"client": client}}
        expect = {"exclusion": False, "damage": False}
        reason = {"expect": expect, "expect_reason": f"because of {client}"}
        cells.append({**first, "cell": cell, "verdicts": wrong, "trial": client, **reason})
    (tmp_path / "matrix.json").write_text(json.dumps({**matrix, "cells": cells, "planned": None}))
    text = page_of(write_matrix(tmp_path)).text
    assert "redis under none, client zoo-late (as expected: because of zoo-late) and none, client noop (as exp" in text
    assert "redis under none, client zoo-late (as expected) and none, client noop (as expected)." in text
    assert text.count("(as expected: because of noop") == 1


def test_a_matrix_without_faults_does_not_speak_of_their_effect(page: Page) -> None:
    """The verdict on faults is true where there was none, and says just that."""
    titles = {str(a.get("title")).partition("\n")[0] for _, a in page.tags if a.get("title")}
    assert "faults: No fault was applied." in titles
    assert "faults: Every fault took effect, and every one was undone." in titles


def test_systems_are_compared(page: Page) -> None:
    """By what they cost and what they broke."""
    for words in ("Systems compared", "median hand-over, undisturbed", "availability", "broken leases", "Unsafe time"):
        assert words in page.text


def test_the_page_loads_nothing(page: Page) -> None:
    """Links lead into the folder; nothing is fetched."""
    assert not [tag for tag, a in page.tags if tag in ("link", "img", "iframe") or "src" in a]


def test_a_matrix_that_was_cut_short_still_has_its_page(tmp_path: Path) -> None:
    """Not even one cell ran; the page says so."""
    (tmp_path / "matrix.json").write_text(
        json.dumps({"format": 1, "cells": [], "not_run": 27, "errors": ["lane 0: no disk"]})
    )
    page = page_of(write_matrix(tmp_path))
    assert "27 cells of the matrix did not run" in page.text
    assert "lane 0: no disk" in page.text


def test_a_trial_without_a_report_is_shown_without_a_link(tmp_path: Path) -> None:
    """And without its verdict.json the badges still come from matrix.json."""
    cell = {
        "trial": "gone",
        "cell": {"system": "etcd", "fault": "none"},
        "outcome": {"word": "harness-error", "reasons": ["disk full"]},
        "verdicts": {"lease": "unknown", "of a third party": False},
    }
    (tmp_path / "matrix.json").write_text(json.dumps({"rules": RULES, "cells": [cell]}))
    page = page_of(write_matrix(tmp_path))
    assert "disk full" in page.text
    assert not [a for tag, a in page.tags if tag == "a"]
    assert [a for _, a in page.tags if str(a.get("title")).startswith("of a third party:")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"cells": [{"trial": "x", "cell": {"system": "etcd"}}]}, ["cells[0]", "outcome"]),
        ({"cells": [{"trial": "x", "cell": {}, "outcome": {"word": "unknown"}}]}, ["cells[0].cell", "system"]),
        ({"cells": 3}, ["cells", "array"]),
    ],
)
def test_a_malformed_matrix_is_an_error_that_names_file_and_key(tmp_path: Path, content: Any, said: list[str]) -> None:
    """And no page is written."""
    (tmp_path / "matrix.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError) as caught:
        write_matrix(tmp_path)
    for part in ["matrix.json", *said]:
        assert part in str(caught.value)
    assert not (tmp_path / "index.html").exists()


def test_no_matrix_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"matrix\.json: no such file"):
        write_matrix(tmp_path)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """In every string of matrix.json."""
    evil = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
    cell = {"system": evil, "fault": evil, "workload": evil, "parameters": {evil: evil}}
    matrix = {
        "rules": RULES,
        "id": evil,
        "file": evil,
        "cells": [
            {"trial": evil, "cell": cell, "outcome": {"word": evil, "reasons": [evil]}, "verdicts": {evil: evil}},
            {"trial": "javascript:alert(3)", "cell": cell | {"parameters": {evil: 2}}, "outcome": {"word": evil}},
        ],
        "left_out": [{"cell": cell, "rule": evil}],
        "errors": [evil],
    }
    (tmp_path / "matrix.json").write_text(json.dumps(matrix))
    page = page_of(write_matrix(tmp_path))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not [tag for tag, a in page.tags if tag == "img" or any(key.startswith("on") for key in a)]
    assert not [a for _, a in page.tags if str(a.get("href")).startswith("javascript:")]
