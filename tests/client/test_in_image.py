"""A real trial whose contenders have their lock in an image with one static binary and nothing else."""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from harness import images
from harness.errors import AgentError, UsageError
from harness.runtime.base import NodeSpec
from harness.trial import arriving
from harness.trial.config import TrialConfig, resolve
from harness.trial.trial import Trial
from nemesis.agent.roles import IDLE
from nemesis.link import open_agent
from tests import place
from tests.adapters.test_examples import EXAMPLES

pytestmark = [pytest.mark.nodes, pytest.mark.docker, pytest.mark.slow]
USER = 1234
NOBODY = "no-such-user"
"""A user that an image names and doesn't have, and the tag of that image."""


@pytest.fixture
def engine() -> docker.DockerClient:
    return images.connect()


@pytest.fixture
def image(engine: docker.DockerClient, tmp_path: Path) -> Iterator[str]:
    """The example in Go, which its image starts as another user than root, in a folder of its own."""
    if shutil.which("go") is None:
        pytest.skip("this machine has no go")
    folder = shutil.copytree(EXAMPLES / "go", tmp_path / "go")
    cached = {"GOCACHE": str(Path.home() / ".cache" / "go-build"), "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", "lock", "."], cwd=folder, env={**os.environ, **cached}, check=True)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(folder / "lock", "lock")
    name = f"fencepost-test-{secrets.token_hex(4)}"
    for tag, user in (("1", str(USER)), (NOBODY, NOBODY)):
        changes = ['ENTRYPOINT ["/lock"]', f"USER {user}", "WORKDIR /srv", "ENV KIND=scratch"]
        engine.api.import_image_from_data(layer.getvalue(), repository=name, tag=tag, changes=changes)
    yield f"{name}:1"
    for tag in ("1", NOBODY):
        engine.images.remove(f"{name}:{tag}")


def test_an_adapter_in_an_image_is_killed_and_started_again_with_its_contender(image: str, tmp_path: Path) -> None:
    """Its image holds no shell and no Python. The kill's receipt has both processes, each life has an adapter of its
    own, it is recorded with its image, and of all containers none is left. A command that isn't in there is told,
    and so is a user.
    """
    asked = {"contenders": 2, "warmup": 0.5, "duration": 4.0, "recovery": 0.5, "min_grants": 1, "min_handovers": 0}
    config = resolve(TrialConfig(system="redis", client_image=image, fault="kill-holder", ttl=1.0, **asked))
    Trial(config, tmp_path / "t", place.runtime()).run()
    record = json.loads((tmp_path / "t" / "trial.json").read_text())
    assert record["error"] is None
    told = record["client"]
    assert (told["name"], told["command"], told["image"]) == (image.split(":")[0], ["/lock"], image)
    assert told["image_id"] == record["images"]["client"]["id"] == images.connect().images.get(image).id
    assert record["contenders"]["0"]["hello"]["client"]["library"].startswith("redis by hand 1 (go")
    lines = [json.loads(line) for line in (tmp_path / "t" / "faults.jsonl").read_text().splitlines()]
    start, stop = [each for each in lines if each["kind"] == "kill"][:2]
    [killed] = start["evidence"]["killed"].values()
    assert sorted(each["comm"] for each in killed["processes"]) == ["lock", "python3"]
    assert (start["receipt"], stop["receipt"], stop["bit"]) == ("landed", "undone", True)
    hit = str(start["processes"][0])
    assert record["contenders"][hit]["lives"] > 1
    assert not [each for each in lines if each.get("what") == "killed"]  # it was our doing, all of it
    assert place.left_of(record["site"]) == []
    other = image.replace(":1", f":{NOBODY}")
    for named, command, words in (
        (image, "sh -c x", "client: .*there is no program 'sh' in the image"),
        (other, None, f"client_image: {other}: .*unable to find user {NOBODY}"),
    ):
        bad = resolve(TrialConfig(system="redis", client_image=named, client=command))
        with pytest.raises(UsageError, match=words):
            arriving.look_first(bad, place.runtime())


def test_no_fault_is_meant_for_what_only_holds_an_image(image: str) -> None:
    """A kill of all services of a node finds none; who goes in finds the image's user, folder and variables."""
    with place.site() as site:
        [node] = site.start_nodes([NodeSpec("c0", "contender", "contender", enters=True)])
        config = resolve(TrialConfig(system="redis", client_image=image))
        comes = arriving.arriving(config, place.runtime(), print, images.Halt())
        arriving.send(comes, (), [node])
        agent = open_agent(node)
        try:
            roles = {each["comm"]: each["role"] for each in agent.call("processes")["processes"]}
            assert roles[IDLE] == "idle"
            with pytest.raises(AgentError, match="no process of the service runs on this node"):
                agent.call("kill")
        finally:
            agent.close()
        found = node.run(["python3", "-c", "from workloads.adapters import inside; print(inside.find())"])
        said = found.stdout.decode()
        assert "folder='/srv', variables={'PATH': " in said
        assert "'KIND': 'scratch'" in said
        assert f"user={USER}, group=0" in said
