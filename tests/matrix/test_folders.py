"""Who writes into a folder of results: one process alone, however many start at once; readers may always read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

STUB = '''
"""A place without nodes. Processes that come here meet first, so that all of them are past the same point at once."""
import os, time
from pathlib import Path
from harness.errors import HarnessError

here = Path(os.environ["HERE"])

def meet(where, many):
    (here / where).mkdir(exist_ok=True)
    (here / where / str(os.getpid())).touch()
    end = time.monotonic() + 60
    while len(list((here / where).iterdir())) < many:
        assert time.monotonic() < end, "nobody else came"
        time.sleep(0.01)

class Stub:
    name = 'stub'
    met = False

    def image_versions(self, names, *, images=None):
        if not Stub.met:
            Stub.met = True
            meet("begun", int(os.environ["MANY"]))
        return {}

    def describe(self):
        return {}

    def open_site(self, site_id, *, images=None, check=lambda: None):
        if "STAY" in os.environ:
            (here / "stays").touch()
            time.sleep(600)
        raise HarnessError("there are no nodes here")

    def sweep(self, within_seconds):
        return []
'''

MATRIX = '[axes]\nsystem = ["redis"]\nfault = ["none", "freeze-holder"]\n'


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A process in this environment knows the runtime `stub`, and it is always the same second."""
    site = tmp_path / "site"
    (site / "stubs-1.0.dist-info").mkdir(parents=True)
    (site / "stubs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: stubs\nVersion: 1.0\n")
    (site / "stubs-1.0.dist-info" / "entry_points.txt").write_text("[fencepost.runtimes]\nstub = stub_runtime:Stub\n")
    (site / "stub_runtime.py").write_text(STUB)
    (site / "sitecustomize.py").write_text(
        "import time\nreal = time.strftime\n"
        "time.strftime = lambda *given: real(*given) if len(given) > 1 else '20261129T212513'\n"
    )
    (tmp_path / "m.toml").write_text(MATRIX)
    return {**os.environ, "PYTHONPATH": str(site), "HERE": str(tmp_path), "MANY": "1"}


def start(env: dict[str, str], *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *map(str, words)],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, error = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, out, error


def test_two_matrices_of_one_second_have_a_folder_each(env: dict[str, str], tmp_path: Path) -> None:
    """The second takes the next free name; neither writes into the other's."""
    results = tmp_path / "results"
    words = ("matrix", tmp_path / "m.toml", "--results", results, "--runtime", "stub", "-j", "1")
    done = [ended(process) for process in [start(env | {"MANY": "2"}, *words) for _ in range(2)]]
    assert [code for code, _, _ in done] == [4, 4], done
    names = ["20261129T212513-matrix-m", "20261129T212513-matrix-m-2"]
    assert sorted(path.name for path in results.iterdir()) == names
    for name, (_, out, _) in zip(names, sorted(done, key=lambda each: "-m-2" in each[1]), strict=True):
        matrix = json.loads((results / name / "matrix.json").read_text())
        assert matrix["id"] == name
        assert [cell["trial"] for cell in matrix["cells"]] == ["redis-none-guarded", "redis-freeze-holder-guarded"]
        assert str(results / name / "index.html") in out.replace("\n", "")
        assert not (results / name / ".lock").exists()


def test_two_trials_of_one_second_have_a_folder_each(env: dict[str, str], tmp_path: Path) -> None:
    """The same for single trials."""
    results = tmp_path / "results"
    words = ("run", "redis", "--results", results, "--runtime", "stub")
    done = [ended(process) for process in [start(env | {"MANY": "2"}, *words) for _ in range(2)]]
    assert [code for code, _, _ in done] == [4, 4], done
    assert sorted(path.name for path in results.iterdir()) == [
        "20261129T212513-redis-none-guarded",
        "20261129T212513-redis-none-guarded-2",
    ]


@pytest.mark.parametrize("words", [("run", "redis"), ("matrix", "m.toml")])
def test_a_name_that_was_given_is_had_by_one_alone(words: tuple[str, str], env: dict[str, str], tmp_path: Path) -> None:
    """Who asked for a name gets that or an error (2), never another's folder."""
    given = [tmp_path / word if word == "m.toml" else word for word in words]
    results = tmp_path / "results"
    arguments = (*given, "--results", results, "--runtime", "stub", "--name", "mine")
    done = [ended(process) for process in [start(env | {"MANY": "2"}, *arguments) for _ in range(2)]]
    assert sorted(code for code, _, _ in done) == [2, 4], done
    assert [path.name for path in results.iterdir()] == ["mine"]
    assert "mine exists already; give another --name" in "".join(error for _, _, error in done)


def test_a_folder_that_is_written_is_read_but_not_written(env: dict[str, str], tmp_path: Path) -> None:
    """`report` says who has it and leaves it alone; once its writer is killed it is anybody's."""
    folder = tmp_path / "results" / "mine"
    words = ("--results", folder.parent, "--runtime", "stub", "--name", "mine")
    process = start(env | {"STAY": "1"}, "matrix", tmp_path / "m.toml", *words, "-j", "1")
    try:
        until(lambda: (tmp_path / "stays").exists(), "the first cell has begun")
        for target in (folder, folder / "redis-none-guarded"):
            code, _, error = ended(start(env, "report", target))
            assert code == 2, target
            assert f"{target} is being written by process {process.pid} " in error
        assert not (folder / "index.html").exists()
        elsewhere = tmp_path / "page.html"
        assert ended(start(env, "report", folder, "--out", elsewhere))[0] == 0
        assert elsewhere.exists()
        code, _, error = ended(start(env, "matrix", tmp_path / "m.toml", *words))
        assert code == 2
        assert f"exists already; give another --name (it is being written by process {process.pid} " in error
        assert json.loads((folder / "matrix.json").read_text())["not_run"] == 2
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert (folder / ".lock").exists()
    assert ended(start(env, "report", folder))[0] == 0
