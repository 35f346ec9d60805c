"""Which layers a tree consists of, and what each is made from: read off the tables, without making any."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from harness.images.debian import RECIPE
from harness.images.recipes import Recipe
from harness.images.table import Step, Table, script

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What engines give a program whose image says nothing of it."""

AUTHORITIES = "ca/"
"""The folder of certificate authorities in a step's files: the host's, that no digest covers."""

_FORMAT = "2"
"""Goes into every digest: another number where layers are made in another way."""


@dataclass(frozen=True)
class Part:
    """What one layer is made from. `step` is None for the lowest, which is Debian itself.

    `image` and `number` name it for people; `files` are those of the image's folder; `env` is what the step runs with.
    """

    image: str
    number: int
    below: Part | None
    step: Step | None = None
    files: Mapping[str, tuple[bytes, bool]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits over what it is made from, and what those below it are."""
        if self.below is None or self.step is None:
            return hashlib.sha256(f"{_FORMAT}\0{RECIPE}".encode()).hexdigest()[:12]
        total = hashlib.sha256(f"{_FORMAT}\0{self.below.digest}\0".encode())
        total.update(json.dumps([script(self.step), self.step.files, self.env], sort_keys=True).encode())
        for path, (content, executable) in sorted(self.taken().items()):
            total.update(f"\0{path}\0{'x' if executable else '-'}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()[:12]

    def taken(self) -> dict[str, tuple[bytes, bool]]:
        """Those of the files that the step copies."""
        wanted = self.step.files if self.step else {}
        return {
            path: content
            for path, content in self.files.items()
            if any(path == source or (source.endswith("/") and path.startswith(source)) for source in wanted)
        }

    @property
    def has_authorities(self) -> bool:
        """Whether the host's certificate authorities go into it."""
        return self.step is not None and AUTHORITIES in self.step.files

    def chain(self) -> list[Part]:
        """This one and all below it, the lowest first."""
        return [*(self.below.chain() if self.below else ()), self]


@dataclass(frozen=True)
class Running:
    """How the program of an image is run: what its table says, on top of those below it."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})
    workdir: str = "/"
    user: str = ""
    volumes: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"


def parts(recipe: Recipe) -> Part | None:
    """The topmost part of an image's tree; None when it, or one below it, has no table to make a tree from."""
    if recipe.table is None:
        return None
    if recipe.parent is None:
        below: Part | None = Part("debian", 1, None)
    else:
        below = parts(recipe.parent)
    if below is None:
        return None
    env = running(recipe.parent).env if recipe.parent else Running().env
    for number, step in enumerate(recipe.table.steps, 1):
        below = Part(recipe.name, number, below, step, recipe.files, env)
    return below


def running(recipe: Recipe) -> Running:
    """How the program of an image with a table is run."""
    below = running(recipe.parent) if recipe.parent else Running(command=("bash",))
    return _on(below, recipe.table) if recipe.table else below


def _on(below: Running, table: Table) -> Running:
    config = table.config
    # As engines have it: who sets the entrypoint does away with the command that was meant for another.
    command = () if config.entrypoint else below.command
    return Running(
        entrypoint=config.entrypoint or below.entrypoint,
        command=config.command or command,
        env={**below.env, **config.env},
        workdir=config.workdir or below.workdir,
        user=config.user or below.user,
        volumes=tuple(dict.fromkeys((*below.volumes, *config.volumes))),
        stop_signal=config.stop_signal or below.stop_signal,
    )
