"""Files of ours where everybody may write: nobody can lead them elsewhere."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.images.maker import one_at_a_time
from harness.private import keep_private, private_folder
from harness.runtime.turn import turn


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's folder for temporary files."""
    folder = tmp_path / "shared"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_folder_is_made_for_this_user_alone(shared: Path) -> None:
    """And is the same one the next time."""
    folder = private_folder("things")
    assert folder == shared / f"fencepost-things-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder("things") == folder


@pytest.mark.parametrize("purpose", ["images", "turns"])
def test_a_link_in_its_place_is_refused(shared: Path, purpose: str) -> None:
    """Whoever can guess the name could have us write into a folder of his choice."""
    elsewhere = shared / "elsewhere"
    elsewhere.mkdir()
    (shared / f"fencepost-{purpose}-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(HarnessError, match="is no folder but a link"):
        private_folder(purpose)
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_the_images_lock_is_not_followed(shared: Path) -> None:
    """What it names was emptied, and overwritten with a process id: with root's rights."""
    precious = shared / "precious"
    precious.write_text("evidence")
    (shared / f"fencepost-images-{os.getuid()}.lock").symlink_to(precious)
    (private_folder("images") / "lock").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic link"), one_at_a_time(lambda line: None):
        pytest.fail("it was followed")
    (private_folder("images") / "lock").unlink()
    with one_at_a_time(lambda line: None):
        assert (private_folder("images") / "lock").read_text() == f"{os.getpid()}\n"
    assert precious.read_text() == "evidence"


def test_a_link_in_place_of_the_turns_door_is_not_followed(shared: Path) -> None:
    """As above: the last number would be written into it."""
    precious = shared / "precious"
    precious.write_text("evidence")
    (private_folder("turns") / "door").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic link"), turn("work"):
        pytest.fail("it was followed")
    assert precious.read_text() == "evidence"


def test_a_folder_that_others_may_write_to_is_refused(shared: Path) -> None:
    """It belongs to us, and yet a link may stand in it any moment."""
    folder = private_folder("things")
    folder.chmod(0o777)
    with pytest.raises(HarnessError, match="others may write"):
        keep_private(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(shared: Path) -> None:
    """He could read and change what we keep there."""
    folder = private_folder("things")
    os.chown(folder, 65534, 65534)
    with pytest.raises(HarnessError, match="belongs to user 65534"):
        keep_private(folder)
