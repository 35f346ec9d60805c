"""Trees that are taken from an engine's images: what is in them, how they are run, and when they are taken anew."""

from __future__ import annotations

import io
import secrets
import tarfile
from collections.abc import Callable, Iterator

import docker
import pytest

from harness import images, trees
from harness.errors import RuntimeUnavailable
from harness.images import recipes
from harness.images.build import LABEL
from tests.trees.workshop import Workshop, read

pytestmark = pytest.mark.docker

CHANGES = (
    'ENV A="b c"',
    "USER 7",
    "WORKDIR /w",
    'VOLUME ["/v"]',
    'ENTRYPOINT ["x", "y"]',
    'CMD ["z"]',
    f"LABEL {LABEL}=1 {LABEL}.version=4.5",
)


@pytest.fixture
def put() -> Iterator[Callable[[str, str], docker.DockerClient]]:
    """Puts an image with one file onto the engine, under this reference; removes it at the end."""
    client = images.connect()
    made: set[str] = set()

    def put(reference: str, content: str) -> docker.DockerClient:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, kind, mode in (("etc", tarfile.DIRTYPE, 0o555), ("dev/null", tarfile.CHRTYPE, 0o666)):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode, entry.uid = kind, mode, 1234
                tar.addfile(entry)
            entry = tarfile.TarInfo("etc/thing")
            entry.size, entry.mode, entry.uid = len(content), 0o4755, 1234
            tar.addfile(entry, io.BytesIO(content.encode()))
        repository, _, tag = reference.partition(":")
        client.api.import_image_from_data(archive.getvalue(), repository=repository, tag=tag, changes=list(CHANGES))
        made.add(str(client.images.get(reference).id))
        return client

    yield put
    for identity in made:
        client.api.remove_image(identity, force=True)


def test_a_named_image_is_exported_and_again_when_its_name_means_another(
    workshop: Workshop, put: Callable[[str, str], docker.DockerClient]
) -> None:
    """With all that it says of its program; what it was before is kept for whoever runs it, and then goes."""
    reference = f"test-tree-{secrets.token_hex(4)}:1"
    client = put(reference, "one")

    def ensure() -> trees.Tree:
        workshop.lines.clear()
        given = {"low": reference}
        return trees.ensure(["low"], report=workshop.lines.append, client=client, overrides=given)["low"]

    tree = ensure()
    assert workshop.lines[0].startswith(f"tree low: exported {reference} (4.5), 0 MB, in ")
    assert (tree.reference, tree.origin, tree.version) == (reference, "exported", "4.5")
    assert (tree.entrypoint, tree.command, tree.env["A"], tree.user) == (("x", "y"), ("z",), "b c", "7")
    assert (tree.workdir, tree.volumes, tree.stop_signal) == ("/w", ("/v",), "SIGTERM")
    (root,) = tree.layers
    assert read(tree, "etc/thing") == "one"
    assert (root / "etc" / "thing").stat().st_mode & 0o7777 == 0o4755
    assert {path.name for path in root.iterdir()} >= {"dev", "etc", "proc", "sys"}
    assert not (root / ".dockerenv").exists()
    assert list((root / "dev").iterdir()) == []
    assert ensure() == tree
    assert workshop.lines == [f"tree low: present, {reference} (4.5), exported"]
    assert trees.need(["low"], {"low": reference}) == {"low": tree}
    assert client.api.containers(all=True, filters={"ancestor": reference}) == []
    put(reference, "two")
    again = ensure()
    assert read(again, "etc/thing") == "two"
    assert again.id != tree.id
    assert workshop.lines[-1] == f"tree's layer {root.parent.name} ({reference}): superseded, kept: a process uses it"
    assert trees.kept().layers == 3
    assert workshop.drafts() == []


def test_an_image_of_ours_is_exported_where_that_is_asked_for(
    workshop: Workshop, put: Callable[[str, str], docker.DockerClient]
) -> None:
    """`--export`: the image of the same sources stands for the tree, by its name; what the engine lacks is made."""
    recipe = recipes.load_all()["low"]
    client = put(recipe.tag, "one")
    low = trees.ensure(["low"], report=workshop.lines.append, client=client, exporting=True)["low"]
    assert (low.origin, low.reference) == ("exported", recipe.tag)
    assert trees.need(["low"]) == {"low": low}
    high = trees.ensure(["high"], report=workshop.lines.append, client=client, exporting=True)["high"]
    assert (high.origin, read(high, "etc/high")) == ("made", "1.2\n")


def test_an_image_that_cannot_be_unpacked_leaves_nothing(
    workshop: Workshop, put: Callable[[str, str], docker.DockerClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the image and what tar says."""
    reference = f"test-tree-{secrets.token_hex(4)}:1"
    client = put(reference, "x" * 1_000_000)
    (workshop.folder / "tar").write_text("#!/bin/sh\necho tar: no room >&2; exit 2\n")
    (workshop.folder / "tar").chmod(0o755)
    monkeypatch.setenv("PATH", f"{workshop.folder}:/usr/bin:/bin")
    with pytest.raises(RuntimeUnavailable, match=f"{reference} can't be unpacked as a tree: tar: no room"):
        trees.ensure(["low"], report=print, client=client, overrides={"low": reference})
    assert workshop.drafts() == []
    assert client.api.containers(all=True, filters={"ancestor": reference}) == []
