"""`fencepost clean`: what it removes, what it spares, and what it says, on sites that other processes really left."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from click.testing import CliRunner, Result

from harness.commands.clean import command
from harness.errors import HarnessError, UsageError
from harness.runtime import labels, removal
from harness.runtime.docker import DockerRuntime
from tests.runtime.conftest import pause

pytestmark = pytest.mark.docker

OPEN = """
import sys
from harness.runtime.base import NodeSpec, ServiceSpec
from harness.runtime.docker import DockerRuntime
site = DockerRuntime().open_site(sys.argv[1])
nodes = site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])
nodes[0].start_service(ServiceSpec("etcd", command=["sleep", "12345"]))
print("open", flush=True)
sys.stdin.read()
"""


@dataclass
class Other:
    """Another process with a site of its own."""

    site_id: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """As `kill -9` of the harness."""
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def other(runtime: DockerRuntime) -> Iterator[Other]:
    """A process that holds a site; killed after the test, its site removed and looked for."""
    site_id = f"test-{secrets.token_hex(4)}"
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN, site_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield Other(site_id, process)
    process.kill()
    process.communicate(timeout=60)
    runtime.clean(site_id=site_id, include_running=True)
    assert removal.find(runtime.engine, site_id) == []


def fencepost_clean(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def test_a_killed_harness_leaves_what_clean_removes(other: Other, runtime: DockerRuntime) -> None:
    """While it runs its site is spared; after kill -9 it goes, the frozen and the paused too, and nothing else does."""
    site = ("--site", other.site_id)
    spared = fencepost_clean(*site)
    assert spared.exit_code == 0
    assert spared.output == (
        f"site {other.site_id} stays (3 containers, 1 network): process {other.process.pid} on "
        f"{subprocess.run(['uname', '-n'], capture_output=True, text=True, check=True).stdout.strip()} still runs; "
        "--all removes it all the same\n"
    )
    (found,) = removal.find(runtime.engine, other.site_id)
    assert len(found.things) == 4
    other.kill()
    pause(runtime.engine.api, f"fencepost-{other.site_id}-n1-service")
    pause(runtime.engine.api, f"fencepost-{other.site_id}-n2")

    dry = fencepost_clean(*site, "--dry-run")
    assert dry.output.count("would remove ") == 4
    assert len(removal.find(runtime.engine, other.site_id)[0].things) == 4

    bystander = runtime.open_site(f"{other.site_id}-bystander")
    try:
        everything = fencepost_clean("--dry-run")  # only told: the left-overs of others are theirs to look at
        assert f"would remove network fencepost-{other.site_id}, of site {other.site_id}\n" in everything.output
        assert f"site {bystander.id} stays" in everything.output
        done = fencepost_clean(*site)
        assert done.exit_code == 0
        for name in ("n1", "n1-service", "n2"):
            assert f"removed container fencepost-{other.site_id}-{name} (" in done.output
        assert f"removed network fencepost-{other.site_id}, of site {other.site_id}\n" in done.output
        assert removal.find(runtime.engine, other.site_id) == []
        assert len(removal.find(runtime.engine, bystander.id)) == 1
    finally:
        bystander.close()


def test_all_takes_running_sites_too(other: Other, runtime: DockerRuntime) -> None:
    """With --all the owner doesn't matter; here for one site only."""
    done = fencepost_clean("--site", other.site_id, "--all")
    assert done.output.count("removed ") == 4
    assert removal.find(runtime.engine, other.site_id) == []


def test_an_unknown_site_is_told(runtime: DockerRuntime) -> None:
    """A mistyped id is an error of usage, not a silent success."""
    with pytest.raises(UsageError, match="nothing of a site 'nonesuch'"):
        fencepost_clean("--site", "nonesuch")


def test_volumes_with_our_labels_go_last(runtime: DockerRuntime) -> None:
    """A labelled volume is removed with its site, after the container that uses it."""
    site = runtime.open_site(f"test-{secrets.token_hex(4)}")
    try:
        volume = runtime.engine.api.create_volume(f"fencepost-{site.id}-data", labels=site.labels)["Name"]
        runtime.engine.api.create_container(
            site.reference("node"),
            name=f"fencepost-{site.id}-user",
            labels=site.labels,
            host_config=runtime.engine.api.create_host_config(binds=[f"{volume}:/data"], network_mode="none"),
        )
        lines = runtime.clean(site_id=site.id, include_running=True)
        assert [line.split()[0] for line in lines] == ["container", "network", "volume"]
        assert removal.find(runtime.engine, site.id) == []
    finally:
        site.close()


def test_what_will_not_go_is_told(runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that somebody else's container uses stays: the rest goes, it is named with the reason, and exit is 4."""
    monkeypatch.setattr(removal, "DEADLINE_SECONDS", 0.5)
    site = runtime.open_site(f"test-{secrets.token_hex(4)}")
    volume = runtime.engine.api.create_volume(f"fencepost-{site.id}-data", labels=site.labels)["Name"]
    user = runtime.engine.api.create_container(
        site.reference("node"),
        name=f"{site.id}-stranger",
        host_config=runtime.engine.api.create_host_config(binds=[f"{volume}:/data"], network_mode="none"),
    )
    try:
        with pytest.raises(
            HarnessError, match=rf"not removed: volume {volume}: .*in use.*, of site {site.id}"
        ) as error:
            fencepost_clean("--site", site.id, "--all")
        assert error.value.exit_code == 4
        assert [str(thing) for thing in removal.find(runtime.engine, site.id)[0].things] == [f"volume {volume}"]
        with pytest.raises(HarnessError, match=f"left of site {site.id}: volume {volume}"):
            site.close(within_seconds=0.5)
    finally:
        runtime.engine.api.remove_container(user["Id"], force=True)
        site.close()
    assert removal.find(runtime.engine, site.id) == []


def test_a_container_run_by_hand_from_our_image_is_not_ours(runtime: DockerRuntime) -> None:
    """Containers inherit fencepost=1 from our images; without a site or an owner they are nobody's left-overs."""
    reference = runtime.image_versions(["node"])["node"]["reference"]
    name = f"test-{secrets.token_hex(4)}"
    made = runtime.engine.api.create_container(reference, name=name, labels={labels.PROJECT: "1"})
    try:
        assert all(thing.name != name for site in removal.find(runtime.engine) for thing in site.things)
    finally:
        runtime.engine.api.remove_container(made["Id"], force=True)
