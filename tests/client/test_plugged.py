"""Clients and workloads of other packages: their code goes to the nodes, which need no image with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness import registry
from harness.cli import cli
from harness.client import plugged
from harness.errors import UsageError

CLIENT = """
from borrowed.words import LIBRARY
from workloads.clients.base import NoLock


class Borrowed(NoLock):
    name, library = "borrowed", LIBRARY
"""


@pytest.fixture
def borrowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package beside `fencepost` that registers a client, and one that is registered and isn't there."""
    site = tmp_path / "site"
    (site / "borrowed").mkdir(parents=True)
    (site / "borrowed" / "__init__.py").write_text("")
    (site / "borrowed" / "words.py").write_text('LIBRARY = "borrowed 7"\n')
    (site / "borrowed" / "lock.py").write_text(CLIENT)
    (site / "borrowed-1.dist-info").mkdir()
    (site / "borrowed-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: borrowed\nVersion: 1\n")
    (site / "borrowed-1.dist-info" / "entry_points.txt").write_text(
        "[fencepost.clients]\nborrowed = borrowed.lock:Borrowed\ngone = not_there.lock:Lock\n"
    )
    monkeypatch.syspath_prepend(str(site))
    registry._group.cache_clear()
    yield site
    registry._group.cache_clear()


def test_only_what_is_not_ours_is_sent(borrowed: Path) -> None:
    """Whole, once, and with another digest when it has changed; one that isn't there is told by its name."""
    assert plugged.read([("clients", "redis"), ("workloads", "lock")]) == []
    [found] = plugged.read([("clients", "borrowed"), ("clients", "borrowed")])
    assert set(found.files) == {"borrowed/__init__.py", "borrowed/words.py", "borrowed/lock.py"}
    (borrowed / "borrowed" / "words.py").write_text('LIBRARY = "borrowed 8"\n')
    assert plugged.read([("clients", "borrowed")])[0].digest != found.digest
    with pytest.raises(UsageError, match="the package 'not_there' can't be found"):
        plugged.read([("clients", "gone")])


@pytest.mark.nodes
@pytest.mark.slow
def test_a_client_of_another_package_runs_where_only_its_name_was_known(borrowed: Path, tmp_path: Path) -> None:
    """On the usual image, with what it is recorded."""
    words = ["run", "redis", "--client", "borrowed", "--results", str(tmp_path), "--name", "one", "--contenders", "2"]
    short = ["--duration", "0.5", "--warmup", "0.5", "--recovery", "0.5", "--min-grants", "0", "--min-handovers", "0"]
    CliRunner().invoke(cli, [*words, *short])
    trial = json.loads((tmp_path / "one" / "trial.json").read_text())
    assert trial["error"] is None
    assert trial["contenders"]["1"]["hello"]["client"]["library"] == "borrowed 7"
    assert list(trial["plugged"]) == ["borrowed"]
