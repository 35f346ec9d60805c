"""Images: what goes into a tag, which reference stands for a name, and that the built ones behave as the official."""

from __future__ import annotations

import base64
import io
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import certifi
import docker
import pytest
from click.testing import CliRunner

import workloads
from harness import images, redaction
from harness.commands.images import command, parse_overrides
from harness.errors import RuntimeUnavailable, UsageError
from harness.images import authorities, build, chamber, claims, debian, recipes
from harness.images.build import LABEL, inspect, tags_of_ours, version_of
from harness.images.catalogue import Catalogue
from harness.images.registry import registry_of, split_reference
from tests.runtime.conftest import eventually

# -- tags ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A docker folder with an image `low` on Debian's own, and an image `high` on that."""
    for name, base in (("low", "debian:x"), ("high", "fencepost/low")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Dockerfile").write_text(f"# official: example/{name}:1\nARG BASE={base}\nFROM ${{BASE}}\n")
    (tmp_path / "low" / "start.sh").write_text("#!/bin/sh\n")
    return tmp_path


def digests(folder: Path) -> dict[str, str]:
    return {name: recipe.digest for name, recipe in recipes.load_all(folder).items()}


def test_a_recipe_says_what_it_builds_on_and_what_serves_as_well(folder: Path) -> None:
    """The Dockerfile alone tells the image below, and the official one."""
    found = recipes.load_all(folder)
    assert found["low"].parent is None
    assert found["high"].parent is found["low"]
    assert found["high"].official == "example/high:1"
    assert found["high"].tag == f"fencepost/high:{found['high'].digest}"
    assert list(found) == ["low", "high"]


def test_an_unchanged_source_keeps_its_tag_whatever_its_modes_and_caches(folder: Path) -> None:
    """What another checkout has differently by accident (umask, caches, hidden files) doesn't count."""
    before = digests(folder)
    (folder / "low" / "start.sh").chmod(0o664)
    (folder / "low" / "__pycache__").mkdir()
    (folder / "low" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (folder / "low" / ".swp").write_text("x")
    assert digests(folder) == before


def test_a_change_below_changes_all_images_above(folder: Path) -> None:
    """Content, name and being executable count, for the image and for those that build on it."""
    seen = [digests(folder)]
    script = folder / "low" / "start.sh"
    script.chmod(0o755)
    seen.append(digests(folder))
    script.write_text("#!/bin/sh\nexit 0\n")
    seen.append(digests(folder))
    script.rename(script.with_name("begin.sh"))
    seen.append(digests(folder))
    for name in ("low", "high"):
        assert len({each[name] for each in seen}) == len(seen)


def test_a_change_above_leaves_those_below(folder: Path) -> None:
    """Only what builds on a changed image is built again."""
    before = digests(folder)
    (folder / "high" / "new").write_text("x")
    after = digests(folder)
    assert after["low"] == before["low"]
    assert after["high"] != before["high"]


def test_contents_that_could_run_together_have_different_tags(folder: Path) -> None:
    """A file's end and the next one's name can't be confused."""
    (folder / "high" / "a").write_text("1")
    (folder / "high" / "b").write_text("2")
    one = digests(folder)["high"]
    (folder / "high" / "b").unlink()
    (folder / "high" / "a").write_text("1\0b\0-\x001\x002")
    assert digests(folder)["high"] != one


def test_the_contender_is_tagged_by_its_code_and_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed source of the contender is a new image; nothing else changes by it."""
    before = digests(recipes.docker_folder())
    code = tmp_path / "workloads"
    code.mkdir()
    (code / "__init__.py").write_text("# changed\n")
    monkeypatch.setattr(workloads, "__file__", str(code / "__init__.py"))
    after = digests(recipes.docker_folder())
    assert {name for name in after if after[name] != before[name]} == {"contender"}
    files = recipes.load_all()["contender"].files
    assert b"kazoo" in files["requirements.txt"][0]
    assert files["workloads/__init__.py"] == (b"# changed\n", False)


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "registry", "repository", "tag"),
    [
        ("redis", "", "redis", "latest"),
        ("redis:8", "", "redis", "8"),
        ("hashicorp/consul:1.20", "", "hashicorp/consul", "1.20"),
        ("reg.example/a/b:1", "reg.example", "reg.example/a/b", "1"),
        ("localhost:5000/a", "localhost:5000", "localhost:5000/a", "latest"),
        ("a@sha256:00", "", "a", "sha256:00"),
        ("reg.example:1/a:2@sha256:00", "reg.example:1", "reg.example:1/a", "sha256:00"),
    ],
)
def test_references_are_read_as_docker_does(reference: str, registry: str, repository: str, tag: str) -> None:
    """Which part is the registry decides whom to ask; which part is the tag, what to pull."""
    assert registry_of(reference) == registry
    assert split_reference(reference) == (repository, tag)


@pytest.mark.parametrize("pair", ["redis", "=x", "redis=", ""])
def test_a_malformed_image_flag_is_refused_with_an_example(pair: str) -> None:
    """It must not be taken for something else."""
    with pytest.raises(UsageError, match="NAME=REFERENCE"):
        parse_overrides((pair,))


def test_a_reference_may_contain_an_equals_sign() -> None:
    """Only the first one separates."""
    assert parse_overrides(("a=b=c",)) == {"a": "b=c"}


# -- certificates ----------------------------------------------------------------------------------------------------


def pem(der: bytes) -> str:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"


def test_only_authorities_beyond_the_public_ones_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle usually holds all public authorities too; the image gets just what the host adds, each once."""
    public = certifi.contents()
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(
        public
        + pem(b"mine")
        + "# a comment\n"
        + pem(b"mine")
        + "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n"
    )
    monkeypatch.setattr(authorities, "_ADDED_BY_ADMIN", ())
    for name in authorities._BUNDLES:
        monkeypatch.setenv(name, str(bundle))
    found = authorities.extra_authorities()
    assert list(found.values()) == [pem(b"mine").encode()]
    assert all(name.endswith(".crt") for name in found)
    bundle.write_text(public)
    assert authorities.extra_authorities() == {}
    assert authorities.fingerprint({}) != authorities.fingerprint(found)


def test_pips_settings_are_passed_on_from_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A company's package index is as often in pip.conf as in a variable; the variable wins, as for pip."""
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://one.invalid/simple\ntimeout = 9\n"
        "extra-index-url =\n    https://two.invalid/a=b\n    https://three.invalid/\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_TRUSTED_HOST", "one.invalid")
    expected = {
        "PIP_INDEX_URL": "https://one.invalid/simple",
        "PIP_EXTRA_INDEX_URL": "https://two.invalid/a=b https://three.invalid/",
        "PIP_TRUSTED_HOST": "one.invalid",
    }
    assert build._pip_settings() == expected
    monkeypatch.setenv("PIP_INDEX_URL", "https://four.invalid/simple")
    assert build._pip_settings()["PIP_INDEX_URL"] == "https://four.invalid/simple"
    assert "PIP_INDEX_URL" in build._arguments(recipes.load_all()["contender"])
    assert "PIP_INDEX_URL" not in build._arguments(recipes.load_all()["etcd"])


def test_a_pip_that_never_answers_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that did sixty things at once pip was too late, and what the user saw of it was a traceback."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(build, "PIP_SECONDS", 0.1)
    with pytest.raises(RuntimeUnavailable, match=r"pip config list`, .* within 0\.1 s: the machine is too busy"):
        build.settings(pip=True)


def test_a_password_of_the_proxy_is_not_in_what_a_failed_build_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's proxies go into a build, which may print them; its output is the error's text."""
    monkeypatch.setenv("HTTPS_PROXY", "http://me:Ab3-of-the-proxy@proxy:3128")
    arguments = build._arguments(recipes.load_all()["etcd"])
    assert "Ab3-of-the-proxy" in arguments["HTTPS_PROXY"]
    assert redaction.text(f"no route to {arguments['HTTPS_PROXY']}") == "no route to http://me:***@proxy:3128"


# -- which image, on a real engine -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    return images.connect()


@pytest.mark.docker
@pytest.mark.timeout(900)
def test_all_images_resolve_to_ones_that_the_engine_has(client: docker.DockerClient) -> None:
    """After `fencepost images` every name has a reference, an id and, for the services, a version."""
    found = images.ensure(client, images.names(), report=print)
    assert set(found) >= {"node", "contender", "etcd", "zookeeper", "consul", "redis", "postgres"}
    for name, image in found.items():
        assert image.name == name
        assert client.images.get(image.reference).id == image.id
    for name in ("etcd", "zookeeper", "consul", "redis", "postgres"):
        assert found[name].version


@pytest.mark.docker
def test_a_missing_image_is_named_with_the_command_that_gets_it(client: docker.DockerClient) -> None:
    """resolve never builds; the error is what a user pastes."""
    with pytest.raises(RuntimeUnavailable, match="fencepost images redis --image redis=no/such:1"):
        images.resolve(client, ["redis", "node"], {"redis": "no/such:1"})


@pytest.mark.docker
def test_flags_come_before_the_environment(client: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """FENCEPOST_IMAGE_<NAME> names an image, a flag another, and `built` the one built here."""
    node = images.resolve(client, ["node"], {"node": images.BUILT})["node"]
    redis = images.resolve(client, ["redis"], {"redis": images.BUILT})["redis"]
    monkeypatch.setenv("FENCEPOST_IMAGE_REDIS", node.reference)
    given = images.resolve(client, ["redis"])["redis"]
    assert (given.reference, given.id, given.origin) == (node.reference, node.id, "given")
    assert images.resolve(client, ["redis"], {"redis": images.BUILT})["redis"] == redis
    assert images.resolve(client, ["mine"], {"mine": node.reference})["mine"].id == node.id


@pytest.mark.docker
def test_an_unknown_image_is_a_usage_error_with_the_near_name(client: docker.DockerClient) -> None:
    """So is the hidden base image: it is nobody's business."""
    with pytest.raises(UsageError, match="did you mean 'redis'"):
        images.resolve(client, ["rediss"])
    with pytest.raises(UsageError, match="unknown image 'base'"):
        images.resolve(client, ["base"])


@pytest.mark.docker
def test_an_official_image_that_is_present_is_preferred(client: docker.DockerClient) -> None:
    """Whoever pulled it gets it; `built` still means ours."""
    catalogue = Catalogue(client)
    official, built = catalogue.recipes["redis"].official, images.resolve(client, ["redis"], {"redis": images.BUILT})
    assert official
    if inspect(client, official):
        pytest.skip(f"{official} is really here; this test makes a stand-in of that name")
    client.api.tag(built["redis"].reference, *split_reference(official))
    try:
        assert images.resolve(client, ["redis"])["redis"].origin == "pulled"
        assert images.resolve(client, ["redis"])["redis"].reference == official
        assert images.resolve(client, ["redis"], {"redis": images.BUILT}) == built
    finally:
        client.api.remove_image(official)


@pytest.mark.docker
def test_everything_present_costs_less_than_a_second(client: docker.DockerClient) -> None:
    """`fencepost images` again: one line for each image, nothing made. On a busy machine one in ten shows it."""
    took: list[float] = []
    while not took or (min(took) >= 1.0 and len(took) < 10):
        began = time.monotonic()
        done = CliRunner().invoke(command, ["--only", "images", "node", "etcd"], catch_exceptions=False)
        took.append(time.monotonic() - began)
        assert done.exit_code == 0
        present = [line.partition(":")[0] for line in done.output.splitlines() if ": present" in line]
        assert present == ["node", "etcd"]
    assert min(took) < 1.0, took


# -- building, on a real engine ----------------------------------------------------------------------------------------


class Workshop:
    """A docker folder of the tests' own with two images, on top of the node image instead of Debian's."""

    def __init__(self, client: docker.DockerClient, folder: Path) -> None:
        mark = secrets.token_hex(4)
        self.client, self.folder, self.low, self.high = client, folder, f"test-low-{mark}", f"test-high-{mark}"
        self.lines: list[str] = []
        self.overrides = {"debian": images.resolve(client, ["node"])["node"].reference}
        self.write(self.low, "debian:x", "COPY version /etc/fencepost-version\n")
        (folder / self.low / "version").write_text("1.2.3\n")
        self.write(self.high, f"fencepost/{self.low}", "COPY file /file\n")
        self.change()

    def write(self, name: str, base: str, rest: str) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "Dockerfile").write_text(f"ARG BASE={base}\nFROM ${{BASE}}\n{rest}")

    def change(self) -> None:
        """Gives the upper image a new source."""
        self.write(self.high, f"fencepost/{self.low}", "COPY file /file\n")
        (self.folder / self.high / "file").write_text(secrets.token_hex(8))

    def ensure(self) -> images.ImageRef:
        self.lines.clear()
        report = self.lines.append
        made = images.ensure(self.client, [self.high], report=report, pull="never", overrides=self.overrides)
        self.lines[:] = [line for line in self.lines if not line.startswith("waiting for process")]
        return made[self.high]

    def tags(self) -> list[str]:
        return sorted(tag for name, tag in tags_of_ours(self.client) if name in (self.low, self.high))


@pytest.fixture(scope="module")
def shop(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    shop = Workshop(client, tmp_path_factory.mktemp("docker"))
    yield shop
    for tag in shop.tags():
        client.api.remove_image(tag, force=True)


@pytest.fixture
def workshop(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """The upper image always has a new source; the lower one is there from the second test on."""
    monkeypatch.setattr(recipes, "docker_folder", lambda: shop.folder)
    shop.change()
    return shop


@pytest.mark.docker
def test_a_changed_source_rebuilds_and_an_unchanged_one_does_not(workshop: Workshop) -> None:
    """What is below is made first, what is there stays, what was replaced goes."""
    first = workshop.ensure()
    assert [line.split()[:2] for line in workshop.lines] == [
        [f"{workshop.low}:", "built"],
        [f"{workshop.high}:", "built"],
    ]
    assert first.origin == "built"
    again = workshop.ensure()
    assert again == first
    assert workshop.lines == [f"{workshop.high}: present, {first.reference}, built"]
    workshop.change()
    second = workshop.ensure()
    assert second.reference != first.reference
    assert [line.split()[0] for line in workshop.lines] == [f"{workshop.high}:", f"{first.reference}:"]
    assert "superseded, removed" in workshop.lines[-1]
    assert second.reference in workshop.tags()
    assert first.reference not in workshop.tags()
    # One that lost its tag some other way is found by its label.
    workshop.client.api.tag(second.reference, "test", workshop.high)
    workshop.client.api.remove_image(second.reference)
    workshop.client.api.remove_image(f"test:{workshop.high}", noprune=True)
    third = workshop.ensure()
    assert third.reference == second.reference
    assert workshop.tags().count(third.reference) == 1
    assert all(tag.startswith("fencepost/") for tag in workshop.tags())


@pytest.mark.docker
def test_what_was_built_says_what_it_is(workshop: Workshop) -> None:
    """Labels of ours, the version that the Dockerfile wrote down and no other image's, and no draft left."""
    assert workshop.ensure().version is None
    low = recipes.load_all()[workshop.low]
    image = inspect(workshop.client, low.tag)
    assert image is not None
    assert version_of(image) == "1.2.3"
    assert image["Config"]["Labels"][LABEL] == "1"
    assert image["Config"]["Labels"][f"{LABEL}.image"] == workshop.low
    assert image["Config"]["Labels"][f"{LABEL}.authorities"] == authorities.fingerprint(authorities.extra_authorities())
    assert not [tag for tag in workshop.tags() if "-draft" in tag]
    assert workshop.client.api.containers(all=True, filters={"ancestor": low.tag}) == []


@pytest.mark.docker
def test_an_image_in_use_is_kept_when_superseded(workshop: Workshop) -> None:
    """Nobody's container loses its image; the report says why it stayed."""
    first = workshop.ensure()
    container = workshop.client.api.create_container(first.reference, labels={LABEL: "1"})
    try:
        workshop.change()
        workshop.ensure()
        assert "superseded, kept" in workshop.lines[-1]
        assert first.reference in workshop.tags()
    finally:
        workshop.client.api.remove_container(container)
    workshop.ensure()
    assert workshop.lines[-1] == f"{first.reference}: superseded, removed"


@pytest.fixture
def move(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Goes on in another checkout, whose folder of Dockerfiles this is."""
    return lambda folder: monkeypatch.setattr(recipes, "docker_folder", lambda: folder)


@pytest.mark.docker
def test_no_checkout_loses_the_image_that_another_replaces(
    workshop: Workshop, move: Callable[[Path], None], tmp_path: Path
) -> None:
    """Two checkouts with the same sources share an image; it goes with the last of them that has other sources."""
    shared = workshop.ensure().reference
    theirs = tmp_path / "theirs"
    shutil.copytree(workshop.folder, theirs)
    move(theirs)
    # They never built it, nor asked for images: a trial alone looked it up.
    assert images.resolve(workshop.client, [workshop.high])[workshop.high].reference == shared
    move(workshop.folder)
    workshop.change()
    mine = workshop.ensure().reference
    assert workshop.lines[-1] == f"{shared}: superseded, left to another checkout that uses it"
    move(theirs)
    assert images.resolve(workshop.client, [workshop.high])[workshop.high].reference == shared
    (theirs / workshop.high / "file").write_text(secrets.token_hex(8))
    their_own = workshop.ensure().reference
    assert workshop.lines[-1] == f"{shared}: superseded, removed"
    assert {mine, their_own} <= set(workshop.tags())
    assert not [tag for tag in workshop.tags() if tag.startswith(shared)]


@pytest.mark.docker
def test_what_nobody_claims_stays_until_it_is_pruned(workshop: Workshop) -> None:
    """Images of a Fencepost without claims, or of a checkout that is gone; never one that this checkout uses."""
    kept = workshop.ensure().reference
    old, gone = f"fencepost/{workshop.high}:{'a' * 12}", f"fencepost/{workshop.high}:{'b' * 12}.{'c' * 12}"
    for tag in (old, gone):
        workshop.client.api.tag(kept, *tag.split(":"))
    workshop.ensure()
    assert {old, gone, kept} <= set(workshop.tags())
    # Of all that is on this engine, only the tests' own images may go.
    others = {tag for name, tag in tags_of_ours(workshop.client) if name not in (workshop.low, workshop.high)}
    low = recipes.load_all()[workshop.low].tag
    outcome = claims.prune(workshop.client, {*(claims.split(tag)[0] for tag in others), kept, low})
    assert (outcome[old], outcome[gone]) == ("removed", "removed")
    assert {claims.split(tag)[0] for tag in workshop.tags()} == {kept, low}


@pytest.mark.docker
def test_a_failing_step_is_told_with_its_output(workshop: Workshop) -> None:
    """The error names the image and ends with what the step said; no container stays."""
    workshop.write(workshop.high, f"fencepost/{workshop.low}", "RUN echo the reason why; exit 7\n")
    with pytest.raises(RuntimeUnavailable, match=f"{workshop.high} failed") as caught:
        workshop.ensure()
    assert "the reason why" in str(caught.value)
    assert not [tag for tag in workshop.tags() if recipes.load_all()[workshop.high].digest in tag]


@pytest.mark.docker
def test_new_authorities_make_the_lowest_image_anew(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image from before the host had its TLS proxy can't be built upon; one that is there needs nothing."""
    workshop.ensure()
    for module in ("build", "maker"):
        monkeypatch.setattr(f"harness.images.{module}.extra_authorities", lambda: {"new.crt": b"x"})
    workshop.ensure()
    assert [line.split()[1] for line in workshop.lines] == ["present,"]
    workshop.change()
    workshop.ensure()
    assert [line.split()[:2] for line in workshop.lines[:2]] == [
        [f"{workshop.low}:", "built"],
        [f"{workshop.high}:", "built"],
    ]


@pytest.mark.docker
def test_a_given_image_that_cannot_be_had_is_an_error(client: docker.DockerClient) -> None:
    """It is never replaced by another one silently."""
    with pytest.raises(RuntimeUnavailable, match=r"image redis: no\.such\.registry\.invalid/redis:1 isn't on this"):
        images.ensure(
            client, ["redis"], report=lambda line: None, overrides={"redis": "no.such.registry.invalid/redis:1"}
        )


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born deaf to it
from pathlib import Path
from harness import images
from harness.images import recipes
folder = Path(sys.argv[1])
recipes.docker_folder = lambda: folder
images.ensure(images.connect(), [sys.argv[2]], report=print, pull="never", overrides={"debian": sys.argv[3]})
"""


@pytest.mark.docker
def test_an_interrupted_build_ends_at_once_and_leaves_no_container(workshop: Workshop) -> None:
    """Ctrl-C during a long step: the process leaves, and the engine gives the step up."""
    marker = f"sleep 98{secrets.randbelow(10**6)}"
    workshop.write(workshop.high, f"fencepost/{workshop.low}", f"RUN {marker}\n")
    arguments = [str(workshop.folder), workshop.high, workshop.overrides["debian"]]
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, *arguments], stderr=subprocess.PIPE)

    def steps() -> list[dict[str, Any]]:
        return [each for each in workshop.client.api.containers() if marker in each["Command"]]

    try:
        eventually("the step's container", steps, 60)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode != 0
    finally:
        process.kill()
        process.communicate()
    eventually("the end of the step's container", lambda: not steps(), 20)


def test_a_command_that_is_stopped_ends_its_processes(tmp_path: Path) -> None:
    """mmdebstrap runs programs of its own; all of them go with it."""
    stop = threading.Event()
    child = tmp_path / "child"

    def stop_once_it_runs() -> None:
        eventually("a process of its own", lambda: child.exists() and child.read_text().strip())
        stop.set()

    stopper = threading.Thread(target=stop_once_it_runs)
    stopper.start()
    script = f"sleep 600 & echo $! > {child}; wait"
    with pytest.raises(RuntimeUnavailable, match="making it was interrupted"):
        chamber.run(["sh", "-c", script], os.environ, stop, "making it")
    stopper.join()
    # A process that has ended has no command line, whether or not it was reaped yet.
    line = Path(f"/proc/{int(child.read_text())}/cmdline")
    eventually("its end", lambda: not line.exists() or line.read_bytes() == b"")


def test_a_failed_command_is_told_with_the_end_of_its_output() -> None:
    """The exit code says only that it failed."""
    script = "echo the reason why; exit 3"
    with pytest.raises(RuntimeUnavailable, match="making it failed with exit code 3") as caught:
        chamber.run(["sh", "-c", script], os.environ, threading.Event(), "making it")
    assert "the reason why" in str(caught.value)


@pytest.mark.docker
@pytest.mark.parametrize(("all_roots", "owner"), [(True, 0), (False, 7)])
def test_what_a_user_made_belongs_to_root_in_the_image(
    client: docker.DockerClient, tmp_path: Path, all_roots: bool, owner: int
) -> None:
    """Without root all files belong to the user; an image of those would have nobody for root. With root they stay."""
    (tmp_path / "file").write_text("x")
    if not all_roots:
        if os.getuid() != 0:
            pytest.skip("only root can give a file to somebody else")
        os.chown(tmp_path / "file", owner, owner)
    repository = f"fencepost/test-owner-{secrets.token_hex(4)}"
    debian.put(client, tmp_path, repository, "1", {LABEL: "1"}, all_roots=all_roots)
    container = client.api.create_container(f"{repository}:1", "x", labels={LABEL: "1"})
    try:
        chunks, _ = client.api.get_archive(container, "/file")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            (member,) = archive.getmembers()
        assert (member.uid, member.gid) == (owner, owner)
    finally:
        client.api.remove_container(container, force=True)
        client.api.remove_image(f"{repository}:1")


# -- the built services behave as the official ones --------------------------------------------------------------------


class Service:
    """A running container of a service, spoken to by programs inside it."""

    def __init__(self, client: docker.DockerClient, container: str) -> None:
        self.client, self.container = client, container

    def run(self, *argv: str, user: str = "") -> tuple[int, str]:
        call = self.client.api.exec_create(self.container, list(argv), user=user)
        output = self.client.api.exec_start(call["Id"]).decode(errors="replace")
        return self.client.api.exec_inspect(call["Id"])["ExitCode"], output

    def says(self, expected: str, *argv: str) -> str:
        """Runs a program until its output contains a text."""
        seen = ["", ""]

        def look() -> bool:
            seen[:] = [str(part) for part in self.run(*argv)]
            return seen[0] == "0" and expected in seen[1]

        try:
            eventually(f"{expected!r} from {argv}", look)
        except AssertionError as error:
            logs = self.client.api.logs(self.container).decode(errors="replace")
            raise AssertionError(f"{error}; it said {seen}; logs:\n{logs[-3000:]}") from None
        return seen[1]

    def told(self, *argv: str) -> str:
        """What a program says, asked until it has said something: a busy engine can lose a short answer."""
        told: str = eventually(f"a word of {argv}", lambda: self.run(*argv)[1].strip())
        return told

    def user(self) -> str:
        """The user that the service runs as, seen from process 1."""
        return self.told("stat", "-c", "%U", "/proc/1")


@pytest.fixture
def serve(client: docker.DockerClient) -> Iterator[Callable[..., Service]]:
    """Starts built services with neither capabilities beyond Docker's own nor privileges; removes them at the end."""
    containers: list[Any] = []

    def start(name: str, *argv: str, **environment: str) -> Service:
        image = images.resolve(client, [name], {name: images.BUILT})[name]
        container = client.api.create_container(
            image.reference, list(argv) or None, environment=environment, labels={LABEL: "1"}
        )
        containers.append(container)
        client.api.start(container)
        return Service(client, container["Id"])

    yield start
    for container in containers:
        client.api.remove_container(container, v=True, force=True)


@pytest.mark.docker
def test_zookeeper_takes_the_official_images_variables(serve: Callable[..., Service]) -> None:
    """Each variable ends up in zoo.cfg or myid, and the server that reads them answers, from the archive of classes."""
    service = serve(
        "zookeeper",
        ZOO_MY_ID="3",
        ZOO_SERVERS="server.3=localhost:2888:3888;2181",
        ZOO_TICK_TIME="500",
        ZOO_INIT_LIMIT="20",
        ZOO_SYNC_LIMIT="4",
        ZOO_MAX_CLIENT_CNXNS="0",
        ZOO_STANDALONE_ENABLED="true",
        ZOO_ADMINSERVER_ENABLED="false",
        ZOO_4LW_COMMANDS_WHITELIST="srvr,ruok",
        ZOO_CFG_EXTRA="maxSessionTimeout=9000 minSessionTimeout=1000",
        JVMFLAGS="-Xmx200m -Xlog:class+load",
    )
    service.says("Mode: standalone", "zkServer.sh", "status")
    settings = service.told("cat", "/conf/zoo.cfg").split()
    assert {
        "tickTime=500",
        "initLimit=20",
        "syncLimit=4",
        "maxClientCnxns=0",
        "standaloneEnabled=true",
        "admin.enableServer=false",
        "4lw.commands.whitelist=srvr,ruok",
        "maxSessionTimeout=9000",
        "minSessionTimeout=1000",
        "dataDir=/data",
        "dataLogDir=/datalog",
    } <= set(settings)
    assert service.told("cat", "/data/myid") == "3"
    assert service.user() == "zookeeper"
    flags = service.told("cat", "/proc/1/cmdline").split("\0")
    assert [flag for flag in flags if flag.startswith("-Xmx")][-1] == "-Xmx200m"
    assert "3.9" in service.told("zkServer.sh", "version")
    loaded = [line for line in service.client.api.logs(service.container).decode().splitlines() if " source: " in line]
    parsed = [line for line in loaded if "/usr/share/java/" in line]
    assert len(loaded) > 1000
    assert len(parsed) < len(loaded) / 50, parsed


@pytest.mark.docker
def test_zookeepers_admin_server_works(serve: Callable[..., Service]) -> None:
    """The jars that were unpacked without their packages' dependencies suffice for it, also where flags of the user's
    make the archive of classes unfit."""
    service = serve("zookeeper", JVMFLAGS="-XX:-UseCompressedOops -Xlog:cds")
    service.says("Mode: standalone", "zkServer.sh", "status")
    assert "Initialize dynamic archive failed" in service.client.api.logs(service.container).decode()
    request = "exec 3<>/dev/tcp/localhost/8080; printf 'GET /commands/ruok HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    service.says('"command" : "ruok"', "bash", "-c", request)
    assert "Exception" not in service.client.api.logs(service.container).decode()


@pytest.mark.docker
def test_redis_takes_options_as_the_official_image_does(serve: Callable[..., Service]) -> None:
    """Options alone mean redis-server, other hosts may connect, and a setting of the user's stands."""
    service = serve("redis", "--appendonly", "yes", "--save", "")
    service.says("PONG", "redis-cli", "ping")
    assert service.told("redis-cli", "config", "get", "appendonly").split() == ["appendonly", "yes"]
    assert service.told("redis-cli", "config", "get", "protected-mode").split() == ["protected-mode", "no"]
    assert service.told("redis-cli", "config", "get", "dir").split() == ["dir", "/data"]
    assert service.user() == "redis"
    strict = serve("redis", "redis-server", "--protected-mode", "yes")
    strict.says("PONG", "redis-cli", "ping")
    assert strict.told("redis-cli", "config", "get", "protected-mode").split() == ["protected-mode", "yes"]


@pytest.mark.docker
def test_postgres_takes_the_official_images_variables(serve: Callable[..., Service]) -> None:
    """User, password, database and initdb's arguments; others connect with the password only."""
    service = serve(
        "postgres",
        "-c",
        "max_connections=17",
        POSTGRES_USER="keeper",
        POSTGRES_PASSWORD="it's",
        POSTGRES_DB="fence post",
        POSTGRES_INITDB_ARGS="--data-checksums --locale='C'",
        PGDATA="/var/lib/postgresql/elsewhere",
    )
    psql = ["env", "PGPASSWORD=it's", "psql", "-h", "127.0.0.1", "-U", "keeper", "-d", "fence post", "-Atc"]
    service.says("17", *psql, "show max_connections")
    assert service.told(*psql, "show data_checksums") == "on"
    assert service.told(*psql, "show data_directory") == "/var/lib/postgresql/elsewhere"
    assert service.told(*psql, "select usesuper from pg_user where usename = 'keeper'") == "t"
    assert "*" in service.told(*psql, "show listen_addresses")
    # A host other than the container's own is let in by password only; 127.0.0.1 is trusted, as in the official image.
    address = service.told("hostname", "-I").split()[0]
    psql[1], psql[4] = "PGPASSWORD=wrong", address
    assert "password authentication failed" in service.told(*psql, "select 1")
    psql[1] = "PGPASSWORD=it's"
    assert service.told(*psql, "select 1") == "1"
    assert service.user() == "postgres"


@pytest.mark.docker
def test_postgres_runs_scripts_and_keeps_its_data_over_a_restart(
    serve: Callable[..., Service], client: docker.DockerClient
) -> None:
    """The first start makes the cluster; a later one finds it, without its variables too."""
    service = serve("postgres", POSTGRES_HOST_AUTH_METHOD="trust")
    psql = ["psql", "-h", "127.0.0.1", "-U", "postgres", "-Atc"]
    service.says("1", *psql, "select 1")
    assert service.run(*psql, "create table kept as select 42 as x")[0] == 0
    client.api.restart(service.container, timeout=20)
    service.says("42", *psql, "select x from kept")
    logs = client.api.logs(service.container).decode()
    assert logs.count("selecting default time zone") == 1
    assert logs.count("database system was shut down") >= 2


@pytest.mark.docker
def test_postgres_refuses_to_start_open_by_accident(serve: Callable[..., Service], client: docker.DockerClient) -> None:
    """Without a password or the word trust it says what to set."""
    service = serve("postgres")
    assert client.api.wait(service.container, timeout=30)["StatusCode"] == 1
    assert "POSTGRES_PASSWORD" in client.api.logs(service.container).decode()


@pytest.mark.docker
def test_consul_takes_agent_arguments_and_local_configuration(serve: Callable[..., Service]) -> None:
    """`agent …` gets the data and config directories; CONSUL_LOCAL_CONFIG is read."""
    service = serve(
        "consul",
        "agent",
        "-server",
        "-bootstrap-expect=1",
        "-node=n7",
        CONSUL_LOCAL_CONFIG='{"session_ttl_min": "1s"}',
        CONSUL_BIND_INTERFACE="eth0",
        CONSUL_CLIENT_INTERFACE="lo",
    )
    service.says("n7", "consul", "members")
    service.says("leader", "consul", "operator", "raft", "list-peers")
    settings = service.told("cat", "/consul/config/local.json")
    assert settings.strip() == '{"session_ttl_min": "1s"}'
    words = service.told("cat", "/proc/1/cmdline").split("\0")
    assert {"-data-dir=/consul/data", "-config-dir=/consul/config", "-client=127.0.0.1"} <= set(words)
    assert service.user() == "consul"


@pytest.mark.docker
@pytest.mark.parametrize("argv", [["etcd", "--data-dir", "/new/place"], ["/usr/local/bin/etcd"], ["--name=n"]])
def test_etcd_runs_unprivileged_wherever_its_data_goes(serve: Callable[..., Service], argv: list[str]) -> None:
    """The published image runs as root and writes anywhere; the same command lines work here."""
    service = serve(
        "etcd", *argv, ETCD_LISTEN_CLIENT_URLS="http://0.0.0.0:2379", ETCD_ADVERTISE_CLIENT_URLS="http://e:1"
    )
    service.says("is healthy", "etcdctl", "endpoint", "health")
    assert service.told("etcdctl", "put", "a", "b") == "OK"
    assert service.user() == "etcd"


@pytest.mark.docker
def test_the_contender_image_can_import_all_that_a_contender_needs(client: docker.DockerClient) -> None:
    """The libraries and the code are on its path, compiled, and nothing of the harness is."""
    # Not just resolve: the code that it holds is under work next to this test.
    reference = images.ensure(client, ["contender"], report=print)["contender"].reference
    program = (
        "import kazoo.client, psycopg2, redis, requests, workloads; print(psycopg2.apilevel, workloads.__path__[0])"
    )
    output = client.containers.run(reference, ["python3", "-c", program], remove=True, labels={LABEL: "1"})
    assert output.decode().split() == ["2.0", "/opt/fencepost/workloads"]
    stale = "test -z \"$(find /opt/fencepost/workloads -name '*.py' | while read f; do "
    stale += '[ -e "$(dirname $f)/__pycache__/$(basename $f .py).cpython-313.pyc" ] || echo $f; done)"'
    client.containers.run(reference, ["sh", "-c", stale], remove=True, labels={LABEL: "1"})


@pytest.mark.docker
def test_a_node_has_what_the_agent_uses(client: docker.DockerClient) -> None:
    """python3, both iptables, tc and ip."""
    reference = images.resolve(client, ["node"])["node"].reference
    tools = "python3 -V && iptables -V && ip6tables -V && tc -V && ip -V"
    client.containers.run(reference, ["sh", "-c", tools], remove=True, labels={LABEL: "1"})
