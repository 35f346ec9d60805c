"""Several versions of a system side by side: how they are asked for, and where the one that ran is told."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from harness import matrix
from harness.commands.many import pooled_table
from harness.commands.view import results_table
from harness.errors import ConfigError, HarnessError
from harness.images import recipes
from harness.matrix import MatrixRun
from harness.report import write_matrix
from harness.trial.bringup import BringUp
from harness.trial.config import TrialConfig, from_mapping, resolve
from tests.matrix.fake import NOWHERE, FakeTrial
from tests.report.pages import page_of

USUAL = recipes.versions("etcd")[0]


def load(tmp_path: Path, text: str) -> matrix.Plan:
    path = tmp_path / "m.toml"
    path.write_text(text)
    return matrix.load(path)


def test_a_version_is_asked_for_by_the_systems_name_or_by_its_own_key() -> None:
    """Both are one; its image is that version's, and the usual one's is the image that trials have anyway."""
    config = resolve(from_mapping({"system": "etcd@3.4.23", "seed": 1}))
    assert config == resolve(from_mapping({"system": "etcd", "version": "3.4.23", "seed": 1}))
    assert (config.system, config.version) == ("etcd", "3.4.23")
    assert config.images_needed()[0] == "etcd-3.4.23"
    assert config.repeat_command() == "fencepost run etcd@3.4.23 --seed 1"
    assert config.describe() == "etcd@3.4.23 x none, guarded"
    assert config.slug() == "etcd-3.4.23-none-guarded"
    assert config.cell()["system"] == "etcd@3.4.23"
    assert "version" not in config.cell()["parameters"]
    assert resolve(from_mapping({"system": f"etcd@{USUAL}"})).images_needed()[0] == "etcd"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"system": "etcd@2.0"}, f"etcd has no recipe for version '2.0' .it has: {USUAL}, 3.4.23."),
        ({"system": "etcd@"}, "has no recipe for version ''"),
        ({"system": "redis@7.0"}, "redis has no recipe for version '7.0' .it has but the one"),
        ({"system": "etcd@3.4.23", "version": "3.5.16"}, "is '3.5.16', and system says 'etcd@3.4.23'"),
        ({"system": "etcd@3.4.23", "images": {"etcd": "etcd:3"}}, "beside an image that is given"),
        ({"system": "etcd@3.4.23", "endpoints": ["127.0.0.1:2379"]}, "at endpoints it is measured"),
    ],
)
def test_a_version_that_cannot_be_had(keys: dict[str, object], reason: str) -> None:
    """It is said which there are, before anything starts."""
    with pytest.raises(ConfigError, match=reason) as caught:
        resolve(from_mapping(keys))
    assert caught.value.key == "version"


def test_an_image_that_the_environment_names_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands for the usual one alone."""
    monkeypatch.setenv("FENCEPOST_IMAGE_ETCD", "example/etcd:1")
    assert "etcd" not in resolve(from_mapping({"system": "etcd@3.4.23"})).images
    assert resolve(from_mapping({"system": "etcd"})).images["etcd"] == "example/etcd:1"


def test_versions_are_an_axis(tmp_path: Path) -> None:
    """Either way; and a rule for the system holds for all of them, one for a version for that one."""
    plan = load(
        tmp_path,
        """
        [axes]
        system = ["etcd@3.4.23", "etcd@3.5.16", "redis"]
        fault = ["none", "kill-leader"]
        [[leave_out]]
        when = { system = ["etcd@3.5.16"], fault = "kill-leader" }
        [[override]]
        when = { system = "etcd" }
        set = { contenders = 3 }
        [[expect]]
        when = { system = "etcd@3.4.23", fault = "none" }
        verdicts = { lease = "any" }
        """,
    )
    assert [(cell.system, cell.version, cell.fault, cell.contenders, dict(cell.expect)) for cell in plan.cells] == [
        ("etcd", "3.4.23", "none", 3, {"lease": "any"}),
        ("etcd", "3.4.23", "kill-leader", 3, {}),
        ("etcd", "3.5.16", "none", 3, {}),
        ("redis", None, "none", 5, {}),
        ("redis", None, "kill-leader", 5, {}),
    ]
    other = load(tmp_path, "axes = { system = ['etcd'], version = ['3.4.23', '3.5.16'] }")
    assert [cell.system_words() for cell in other.cells] == ["etcd@3.4.23", "etcd@3.5.16"]


def test_the_version_that_ran_stands_in_every_table(tmp_path: Path) -> None:
    """On the terminal, in matrix.json and on the page: measured, and said once where the name says it already."""
    plan = load(
        tmp_path, "defaults = { seed = 2, repeat = 2 }\naxes = { system = ['etcd', 'etcd@3.4.23'], fault = ['none'] }"
    )
    versions = {None: "3.5.99", "3.4.23": "3.4.23"}
    (tmp_path / "m").mkdir()
    run = MatrixRun(plan, tmp_path / "m", 1)
    run.trial = lambda config, folder, runtime, **more: Told(config, folder, runtime, versions[config.version])  # type: ignore[assignment]
    found = run.run(NOWHERE)
    assert [result.version for result in found] == ["3.5.99", "3.4.23"]
    cells = json.loads((tmp_path / "m" / "matrix.json").read_text())["cells"]
    assert [(each["cell"]["system"], each["version"]) for each in cells] == [
        ("etcd", "3.5.99"),
        ("etcd@3.4.23", "3.4.23"),
    ]
    for table in (results_table(found), pooled_table(run)):
        console = Console(width=300, record=True, file=io.StringIO())
        console.print(table)
        text = console.export_text()
        assert "etcd 3.5.99 " in text
        assert "etcd@3.4.23 " in text
        assert "etcd@3.4.23 3.4.23" not in text
    page = page_of(write_matrix(tmp_path / "m"))
    assert "etcd 3.5.99" in page.text
    assert "etcd@3.4.23 3.4.23" not in page.text


class Told(FakeTrial):
    """One whose servers tell their version."""

    def __init__(self, config: TrialConfig, folder: Path, runtime: object, version: str) -> None:
        super().__init__(config, folder, runtime)
        self.version = version

    def run(self) -> matrix.TrialResult:  # type: ignore[name-defined]
        return dataclasses.replace(super().run(), version=self.version)


def test_another_version_than_was_asked_for_is_an_error() -> None:
    """Packages move on; what is told of the trial would be of another one."""
    bring_up = BringUp.__new__(BringUp)
    bring_up._config = resolve(from_mapping({"system": "etcd@3.4.23"}))
    bring_up._check_version("3.4.23")
    bring_up._check_version(None)
    with pytest.raises(HarnessError, match=r"etcd@3.4.23 was asked for, and its servers say that they are 3.4.30"):
        bring_up._check_version("3.4.30")
