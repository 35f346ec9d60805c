"""A file that is written thousands of times under one name."""

from __future__ import annotations

from pathlib import Path


def afresh(path: Path, data: bytes) -> Path:
    """The file with this content, and its path again.

    As a new file: ext4 sends one that is cut to nothing and written again to the disk at once, which takes ten times as
    long as all the rest.
    """
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path
