"""A client of the user's own in a config and in a matrix: what it is called, what is recorded, what is refused."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.client import brought
from harness.errors import ConfigError
from harness.images.brought import name_of
from harness.matrix import load
from harness.matrix.plan import named, same
from harness.trial.config import TrialConfig, from_mapping, resolve


def _asked(**keys: Any) -> TrialConfig:
    return resolve(from_mapping({"system": "redis", "seed": 1, **keys}))


def test_a_client_of_one_s_own_is_named_after_its_file_wherever_it_is_shown(tmp_path: Path) -> None:
    """And `again` names its file wherever one is, and its state: what is run is the same, or is refused."""
    lock = tmp_path / "mylock.py"
    lock.write_text("print()\n")
    config = _asked(client=str(lock), client_options={"mode": "fast"}, fault="freeze-holder")
    assert config.describe() == "redis by mylock x freeze-holder, trusting"
    assert config.slug() == "redis-freeze-holder-mylock-trusting"
    assert config.cell()["parameters"]["client"] == "mylock"
    again = shlex.split(config.repeat_command())
    assert again[again.index("--client") + 1] == str(lock)
    assert again[again.index("--client-digest") + 1] == config.client_digest
    assert again[again.index("--client-option") + 1] == "mode=fast"
    assert _asked(client=str(lock), client_digest=config.client_digest).client_digest == config.client_digest
    lock.write_text("print(2)\n")
    with pytest.raises(
        ConfigError, match=f"client_digest: the client's files.*not what they were .{config.client_digest}"
    ):
        _asked(client=str(lock), client_digest=config.client_digest)


def test_what_a_client_needs_stands_in_the_place_of_the_contenders_image(tmp_path: Path) -> None:
    """And can't be installed upon an image that the user gives."""
    (tmp_path / "lock.py").write_text("print()\n")
    (tmp_path / "requirements.txt").write_text("redis==5.0.1\n")
    config = _asked(client=f"{tmp_path}/lock.py")
    assert config.images_needed() == ["redis", "node", name_of(["redis==5.0.1"]), "postgres"]
    with pytest.raises(ConfigError, match="client: needs packages of Python, which are installed upon"):
        _asked(client=f"{tmp_path}/lock.py", images={"contender": "mine:1"})


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"client_dir": "/"}, "client_dir: is for a client of your own"),
        ({"client": "redis", "client_options": {"a": 1}}, "client_options: is for a client of your own"),
        ({"client": "mylock --fast", "fault": "unlock-holder"}, "fault: unlock takes away the lock"),
        ({"client": "adapter"}, "client: 'adapter' is no client by itself"),
        ({"client": "mylock --fast", "client_name": "x" * 61}, "client_name: must be up to 60 characters"),
        (
            {"client": "mylock --fast", "endpoints": ["localhost:1"]},
            "client: is one of your own, and those can't be used at endpoints",
        ),
        ({"client": "mylock --fast", "client_options": {"key": "short"}}, "client_options.key: can't be kept secret"),
    ],
)
def test_what_makes_no_sense_with_a_client_is_told_by_its_key(keys: dict[str, Any], words: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=words):
        _asked(**keys)


def test_a_matrix_names_clients_from_its_own_folder_and_tells_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files of one name are called by their folders; the same client is the same cell, wherever its files are."""
    for place in ("m/a", "m/b", "elsewhere"):
        (tmp_path / place).mkdir(parents=True)
    for place in ("m/a", "m/b", "elsewhere"):
        (tmp_path / place / "lock.py").write_text(f"print({place != 'm/b'})\n")
    file = tmp_path / "m" / "matrix.toml"
    file.write_text(
        '[defaults]\nsystem = "redis"\nseed = 1\n[axes]\nclient = ["a/lock.py", "./b/lock.py", "redis"]\n'
        '[[override]]\nwhen = { client = "redis" }\nset = { holder = "naive" }\n'
    )
    monkeypatch.chdir(tmp_path)
    plan = load(file)
    assert [cell.client_words() for cell in plan.cells] == ["a/lock", "b/lock", "redis"]
    assert [cell.kind for cell in plan.cells] == ["trusting", "trusting", "naive"]
    assert [cell.client for cell in plan.cells[:2]] == [f"{tmp_path}/m/a/lock.py", f"{tmp_path}/m/b/lock.py"]
    assert len({cell.slug() for cell in plan.cells}) == 3
    moved = _asked(client=f"{tmp_path}/elsewhere/lock.py")
    assert same(moved) == same(plan.cells[0]) != same(plan.cells[1])


def test_clients_are_listed_with_what_they_stand_on() -> None:
    """Those of ours by name; what runs programs of the user's own is none of them."""
    listed = CliRunner().invoke(cli, ["list", "clients"])
    assert listed.exit_code == 0
    lines = {line.split()[0]: line for line in listed.output.splitlines() if line.startswith("  ")}
    assert "tokens; renewals seen" in lines["redis"]
    assert "no tokens" in lines["noop"]
    assert "adapter" not in lines


def test_each_library_that_is_here_says_what_it_needs_and_where_its_errors_come_from() -> None:
    """Under sixty lines, with the version that it was written against; each line of its error table has its source."""
    found = brought.adapters()
    ours = {"redis-py", "python-redis-lock", "kazoo-lock", "etcd3gw-lock", "sherlock-redis", "tooz-redis"}
    assert ours <= found.keys()
    for name, path in found.items():
        client = brought.read(name)
        assert client.packages
        assert all("==" in package for package in client.packages)
        lines = path.read_text().splitlines()
        assert len(lines) < 60
        table = lines[lines.index("    errors = {") + 1 :]
        table = table[: table.index("    }")]
        for before, line in zip(["", *table], table, strict=False):
            assert line.strip().startswith(('"', "#"))
            assert line.strip().startswith("#") or before.strip().startswith("#"), f"{name}: {line}"
    plan = load(named(Path("libraries")))
    assert {cell.client_words() for cell in plan.cells} == ours
    assert {cell.system for cell in plan.cells} == {"redis", "etcd", "zookeeper"}
