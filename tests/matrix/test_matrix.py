"""A matrix file: its cells, those left out, and the words for what is wrong in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import matrix
from harness.errors import ConfigError


def load(tmp_path: Path, text: str) -> matrix.Plan:
    path = tmp_path / "m.toml"
    path.write_text(text)
    return matrix.load(path)


def test_the_default_matrix_has_all_cells_but_the_senseless_one() -> None:
    """Four systems by seven faults, and the other clock; a single Redis has nobody to be cut from, by a rule."""
    plan = matrix.load(matrix.DEFAULT)
    assert len(plan.cells) == 30
    assert len({cell.slug() for cell in plan.cells}) == 30, "each is told by its name"
    assert "etcd-clock-leader-clocks-monotonic-naive" in {cell.slug() for cell in plan.cells}
    assert [(left.cell, "single server" in left.rule) for left in plan.left_out] == [
        ({"system": "redis", "fault": "partition-leader"}, True)
    ]
    redis_clock = next(cell for cell in plan.cells if (cell.system, cell.fault) == ("redis", "clock-leader"))
    assert redis_clock.expect == {"lease": False}
    assert [(cell.system, cell.fault) for cell in plan.cells if cell.expect] == [
        ("etcd", "freeze-leader"),
        ("redis", "clock-leader"),
        ("etcd", "clock-leader"),
        ("zookeeper", "clock-leader"),
        ("consul", "clock-leader"),
    ]
    monotonic = [cell for cell in plan.cells if cell.fault_options]
    assert [cell.fault_options for cell in monotonic] == [{"clocks": "monotonic"}] * 3
    assert monotonic[0].fault_words() == "clock-leader clocks=monotonic"
    assert all(cell.expect_reason for cell in plan.cells if cell.expect)
    assert all(cell.kind == "naive" for cell in plan.cells)


def test_axes_cells_overrides_and_expectations(tmp_path: Path) -> None:
    """Everything that the file can say, at once."""
    plan = load(
        tmp_path,
        """
        [defaults]
        ttl = 3.0
        [axes]
        system = ["etcd", "redis"]
        guarded = [true, false]
        [[cells]]
        system = "etcd"
        servers = 5
        fault = "kill-leader"
        [[leave_out]]
        when = { system = "redis", guarded = true }
        rule = "known"
        [[override]]
        when = { system = ["redis", "consul"] }
        set = { duration = 40.0 }
        [[expect]]
        when = { fault = "kill-leader" }
        verdicts = { progress = "any" }
        """,
    )
    assert [(c.system, c.kind, c.servers, c.fault, c.ttl, c.duration) for c in plan.cells] == [
        ("etcd", "guarded", 3, "none", 3.0, 20.0),
        ("etcd", "naive", 3, "none", 3.0, 20.0),
        ("redis", "naive", 1, "none", 3.0, 40.0),
        ("etcd", "guarded", 5, "kill-leader", 3.0, 20.0),
    ]
    assert [left.rule for left in plan.left_out] == ["known"]
    assert plan.cells[-1].expect == {"progress": "any"}


def test_a_cell_that_is_left_out_is_told_with_its_system(tmp_path: Path) -> None:
    """Wherever the file says it: the page of a matrix puts it in the table of that system."""
    plan = load(
        tmp_path,
        """
        [defaults]
        system = "etcd"
        [axes]
        client = ["redis", "etcd"]
        fault = ["none", "kill-leader"]
        [[override]]
        when = { client = "redis" }
        set = { system = "redis" }
        [[leave_out]]
        when = { client = "etcd", fault = "kill-leader" }
        rule = "known"
        [[leave_out]]
        when = { client = "redis", fault = "kill-leader" }
        rule = "known, too"
        """,
    )
    assert [(left.cell["system"], left.rule) for left in plan.left_out] == [("redis", "known, too"), ("etcd", "known")]


def test_flags_go_over_the_defaults(tmp_path: Path) -> None:
    """`--ttl 4` means all cells that don't say otherwise themselves."""
    path = tmp_path / "m.toml"
    path.write_text('[defaults]\nttl = 3.0\n[axes]\nsystem = ["etcd"]')
    assert [cell.ttl for cell in matrix.load(path, {"ttl": 4.0}).cells] == [4.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[axes\n", r"m\.toml: not TOML: .*line 1"),
        ("", "axes: no cell is left to run"),
        ("[axis]\nsystem = ['etcd']", "axis: unknown table; known: defaults, axes"),
        ("axes = 3", r"axes: must be written as \[axes\]"),
        ("[axes]\nsystem = 'etcd'", r"axes\.system: must be a list"),
        ("[axes]\nsystem = []", r"axes\.system: must be a list with at least one value"),
        ("[axes]\nsystem = ['etdc']", r"axes\.system: unknown system 'etdc'; did you mean 'etcd'"),
        ("[axes]\nsystem = ['etcd']\nfalt = ['none']", r"axes\.falt: unknown key; did you mean 'fault'"),
        ("[[cells]]\nsystem = 'redis'\nfault = 'partition-leader'", r"cells\[1\]\.fault: .* makes no sense"),
        ("[[cells]]\nsystem = 'etcd'\nttl = '2'", r"cells\[1\]\.ttl: Expected `float`"),
        ("cells = [3]", r"cells\[1\]: must be a table"),
        ("[axes]\nsystem=['etcd']\n[[expect]]\nwhen={system='redis'}\nverdicts={}", r"expect\[1\]\.when: fits no cell"),
        (
            "[axes]\nsystem=['etcd']\n[[expect]]\nwhen={sytem='etcd'}\nverdicts={}",
            r"expect\[1\]\.when\.sytem: unknown key",
        ),
        ("[axes]\nsystem=['etcd']\n[[expect]]\nverdicts={}", r"expect\[1\]\.when: is missing"),
        ("[axes]\nsystem=['etcd']\n[[expect]]\nwhen={}\nverdict={}", r"expect\[1\]\.verdict: unknown key"),
        (
            "[axes]\nsystem=['etcd']\n[[expect]]\nwhen={}\nverdicts={leese=true}",
            r"expect\[1\]\.verdicts\.leese: unknown verdict; did you mean",
        ),
    ],
)
def test_a_bad_file_is_an_error_with_file_key_and_reason(tmp_path: Path, text: str, words: str) -> None:
    """Before anything is started."""
    with pytest.raises(ConfigError, match=words) as caught:
        load(tmp_path, text)
    assert "m.toml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """No traceback for a wrong path."""
    with pytest.raises(ConfigError, match=r"gone\.toml: no such file"):
        matrix.load(tmp_path / "gone.toml")
