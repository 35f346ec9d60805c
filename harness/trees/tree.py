"""What an image is where no engine keeps it: directories, and how the program in them is meant to be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Tree:
    """One image as a file tree on this machine, read only for whoever runs it.

    `name` is a name as for images ("node", "contender", "etcd"). `layers` are directories that together are the root
    file system, the topmost first, as overlayfs lists its lower ones; several trees share their lowest layers. None of
    them holds anything in /proc, /sys or /dev, and all of it belongs to the user who made the tree, whatever it said
    before. `reference` names the tree as an image reference names an image; `id` changes whenever its content does.
    `origin` is "made" (from Debian's packages) or "exported" (from an image that an engine holds). `version` is that of
    the system in it, where it has one.

    The rest is what an image's configuration says: `entrypoint` and `command` (as words), `env`, `workdir`, `user` (""
    for root), `volumes` (paths where its data are) and `stop_signal`.
    """

    name: str
    layers: tuple[Path, ...]
    reference: str
    id: str
    origin: str
    version: str | None = None
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""
    volumes: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"
