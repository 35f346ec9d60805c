"""A checkout of its own, in which an image of its own takes some seconds to build, whatever this machine has."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import harness
from harness import images
from harness.engine import Engine
from harness.images.build import tags_of_ours
from harness.images.recipes import load_all
from harness.trees.cache import Cache
from tests.trees.lowest import lowest

PARTS = ("harness", "workloads", "nemesis", "checkers", "docker", "pyproject.toml")
STEPS = """ARG BASE=fencepost/base
FROM $BASE
RUN echo {mark} > /mark && sleep 1
RUN sleep 1 && echo 1 > /etc/fencepost-version
"""
TABLE = """on = "debian:x"
[[step]]
run = "sleep {mark}; echo {mark} > /mark"
[[step]]
run = "sleep {mark}; echo {mark} > /mark"
"""


def node_tags(engine: Engine) -> list[str]:
    """The tags of the node's image on this engine."""
    return [tag for name, tag in tags_of_ours(engine.client) if name == "node"]


def copy(folder: Path) -> None:
    """A copy of this checkout."""
    source = Path(harness.__file__).parent.parent
    for part in PARTS:
        if (source / part).is_dir():
            shutil.copytree(source / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source / part, folder / part)


class Grove:
    """A copy of this checkout with another tree `redis`: two short steps on a root of a few programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        copy(self.folder)
        self._mark = f"0.3{secrets.randbelow(10**6)}"
        (self.folder / "docker/redis/image.toml").write_text(TABLE.format(mark=self._mark))
        self._cache = Cache(folder / "trees")
        self._cache.prepare()
        lowest(self._cache)
        self.env = {"PYTHONPATH": str(self.folder), "FENCEPOST_TREES": str(self._cache.folder)}

    def left(self) -> list[str]:
        """What is left of an interrupted making: drafts, half a layer, processes."""
        found = [f"the draft {each.name} is left" for each in (self._cache.folder / "drafts").iterdir()]
        for layer in self._cache.all().values():
            marks = (self._cache.root(layer) / "mark").read_text() if layer.on else self._mark
            found += [] if self._mark in marks else [f"the layer {layer.name} is not whole"]
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                found += [f"{file.parent} is left"] if self._mark in file.read_bytes().decode().split("\0") else []
        return found


class Checkout:
    """A copy of this checkout with another image `redis`: two short steps on the base that is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._client = images.connect()
        self._mark = f"mark-{secrets.token_hex(6)}"
        copy(folder)
        (folder / "docker/redis/Dockerfile").write_text(STEPS.format(mark=self._mark))
        self._tag = load_all(folder / "docker")["redis"].tag

    def left(self) -> list[str]:
        """What is left of an interrupted build; what a finished one made, and its claims, are removed here."""
        api = self._client.api
        found = [
            f"a step's container is left ({each['Status']})"
            for each in api.containers(all=True)
            if self._mark in each["Command"] or each["Image"].startswith(f"{self._tag}-draft")
        ]
        tags = [tag for _, tag in tags_of_ours(self._client)]
        found += [f"{tag} is left" for tag in tags if tag.startswith(f"{self._tag}-draft")]
        whole = self._tag in tags
        where = f"{platform.node()}\0{os.getuid()}\0{(self.folder / 'docker').resolve()}"
        mine = hashlib.sha256(where.encode()).hexdigest()[:12]
        for tag in tags:
            if tag.endswith(f".{mine}") or tag == self._tag:
                api.remove_image(tag)
        for image in api.images(all=True):
            step = next(iter(api.history(image["Id"])), {}).get("CreatedBy", "") if image["RepoTags"] is None else ""
            if self._mark in step:
                found += [] if whole else [f"the half made image {image['Id'][7:19]} is left"]
                api.remove_image(image["Id"])
        return found
