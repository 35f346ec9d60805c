"""Folders of this user's own: for caches, and below the machine's shared one for temporary files, where anybody may put
anything.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from harness.errors import HarnessError


def caches(purpose: str) -> Path | None:
    """`fencepost/PURPOSE` below XDG_CACHE_HOME, else below `.cache` in this user's home; None without either."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return folder.absolute() / "fencepost" / purpose


def private_folder(purpose: str) -> Path:
    """`fencepost-PURPOSE-UID` in the folder for temporary files: one for all processes of this user; `keep_private`."""
    folder = Path(tempfile.gettempdir()) / f"fencepost-{purpose}-{os.getuid()}"
    keep_private(folder)
    return folder


def keep_private(folder: Path, variable: str = "TMPDIR") -> None:
    """Make the folder, for this user alone, or see that it is such a one.

    Its name can be guessed. Somebody else may have put a folder of his own there, or a link to one of ours; what we
    then wrote would go, or could be read, where he wants. Raises HarnessError naming what is wrong, and the
    variable that names another place.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise HarnessError(f"can't keep files in {folder}: {error}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise HarnessError(f"{folder} is no folder but a link or a file; remove it or set {variable}")
    if found.st_uid != os.getuid():
        raise HarnessError(f"{folder} belongs to user {found.st_uid}; remove it or set {variable}")
    if found.st_mode & 0o022:
        raise HarnessError(f"others may write to {folder}; `chmod 700 {folder}`, or set {variable}")
