"""The folder of layers: what counts as there, who keeps a layer from going, and what is left of a process that died."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import RuntimeUnavailable
from harness.images.chamber import chambered, search_path
from harness.trees.cache import Cache, Layer, default_folder, disk_bytes, new_layer


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    cache = Cache(tmp_path / "trees")
    cache.prepare()
    return cache


def put(cache: Cache, digest: str, on: Layer | None = None) -> Layer:
    """A layer with one file."""
    with cache.draft() as draft:
        root = draft / "made" / "root"
        root.mkdir(parents=True)
        (root / "file").write_text(digest)
        layer = new_layer(digest, on, root, origin="made", source="a test")
        cache.publish(draft / "made", layer)
    return layer


def test_a_published_layer_is_found_with_all_that_it_stands_on(cache: Cache) -> None:
    """The topmost first, as overlayfs lists them; what was written down of each comes back as it was."""
    low = put(cache, "a")
    high = put(cache, "b", low)
    assert cache.chain(["a", "b"]) == (high, low)
    assert (cache.root(high) / "file").read_text() == "b"
    assert cache.chain(["b"]) is None
    assert cache.chain(["a", "c"]) is None


def test_the_newest_generation_counts_of_which_all_is_there(cache: Cache) -> None:
    """A lower layer that was made anew has no upper ones yet: the old ones go on standing on the old one."""
    low = put(cache, "a")
    high = put(cache, "b", low)
    newer = put(cache, "a")
    assert newer.name != low.name
    assert cache.chain(["a"]) == (newer,)
    assert cache.chain(["a", "b"]) == (high, low)
    highest = put(cache, "b", newer)
    assert cache.chain(["a", "b"]) == (highest, newer)
    assert cache.remove(newer) == "removed"
    assert cache.chain(["a", "b"]) == (high, low)


def test_a_layer_that_somebody_holds_is_kept(cache: Cache) -> None:
    """Until the last process that has the descriptor closes it."""
    layer = put(cache, "a")
    (held,) = cache.hold([layer])
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[held])
    os.close(held)
    try:
        assert cache.remove(layer) == "kept: a process uses it"
        assert cache.chain(["a"]) == (layer,)
    finally:
        child.communicate()
    assert cache.remove(layer) == "removed"
    assert cache.chain(["a"]) is None
    assert list((cache.folder / "drafts").iterdir()) == []
    with pytest.raises(RuntimeUnavailable, match="fencepost images"):
        cache.hold([layer])


def test_a_draft_leaves_nothing_whatever_was_made_in_it(cache: Cache) -> None:
    """overlayfs leaves a folder that nobody may enter."""
    with cache.draft() as draft:
        (draft / "work" / "work" / "inner").mkdir(parents=True)
        (draft / "work" / "work").chmod(0)
    assert list((cache.folder / "drafts").iterdir()) == []


def test_what_a_dead_process_left_is_swept(cache: Cache) -> None:
    """Nobody but the one who holds the lock makes drafts, so that all that lie there are rubbish."""
    (cache.folder / "drafts" / "1-x" / "made" / "root").mkdir(parents=True)
    assert cache.sweep() == 1
    assert cache.sweep() == 0


def test_a_layer_goes_with_the_last_checkout_that_claims_it(cache: Cache) -> None:
    """Claims tell which of those that a checkout replaced nobody uses any more."""
    one, two, three = (put(cache, digest) for digest in "abc")
    assert cache.claim("mine", [one, two]) == set()
    cache.claim_more("theirs", [two])
    cache.claim_more("theirs", [two])
    assert cache.claim("mine", [three]) == {one.name}
    assert cache.claimed() == {two.name, three.name}
    assert cache.claim("theirs", []) == {two.name}


def test_disk_space_counts_each_file_once(tmp_path: Path) -> None:
    """A file of two names takes its place once."""
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    once = disk_bytes(tmp_path)
    assert once >= 100_000
    os.link(tmp_path / "a", tmp_path / "b")
    assert disk_bytes(tmp_path) == once


def test_the_folder_is_in_the_users_own_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """FENCEPOST_TREES, else XDG_CACHE_HOME, else below the home folder."""
    monkeypatch.delenv("FENCEPOST_TREES", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/h")
    assert default_folder() == Path("/h/.cache/fencepost/trees")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_folder() == Path("/x/fencepost/trees")
    monkeypatch.setenv("FENCEPOST_TREES", "/t")
    assert default_folder() == Path("/t")


@pytest.mark.parametrize("name", ["a:b", "a,b", "a b", "a\\b"])
def test_a_path_that_overlayfs_cannot_be_told_is_refused(tmp_path: Path, name: str) -> None:
    """Its list of layers is parted by colons, its options by commas."""
    with pytest.raises(RuntimeUnavailable, match="set FENCEPOST_TREES"):
        Cache(tmp_path / name).prepare()


@pytest.mark.parametrize(
    ("filesystem", "words"),
    [("-t tmpfs -o noexec", "noexec"), ("-t ramfs", "keep no attributes"), ("-t tmpfs -o ro", "Read-only file system")],
)
def test_a_file_system_that_will_not_do_is_named_with_the_remedy(tmp_path: Path, filesystem: str, words: str) -> None:
    """Before anything is made: programs that may not run, no attributes (as on NFS), nothing that can be written."""
    program = (
        f"from pathlib import Path; from harness.trees.cache import Cache; Cache(Path('{tmp_path}/x/trees')).prepare()"
    )
    script = f'mkdir "$1/x" && mount {filesystem} none "$1/x" && exec "$2" -c "$3"'
    done = subprocess.run(
        chambered(["sh", "-c", script, "-", str(tmp_path), sys.executable, program]),
        env={**os.environ, "PATH": search_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert words in last
    assert "set FENCEPOST_TREES" in last
