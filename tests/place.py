"""Where tests have real nodes: on the runtime that FENCEPOST_RUNTIME names, else where a node costs the least.

Tests that are marked `nodes` run on any runtime, once a run: commands that they start read the same variable, which
`surroundings` gives them, and what they do by themselves they ask of this module. What only one runtime has is marked
with its name.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from harness.errors import RuntimeUnavailable
from harness.plain import line
from harness.runtime.base import Runtime, Site
from harness.runtime.choice import AUTO, VARIABLE, choose

NOWHERE = "unix:///nonexistent"
"""Where no engine answers, as DOCKER_HOST."""


class Place(NamedTuple):
    """The name of a runtime, and why that one."""

    name: str
    why: str


@functools.cache
def chosen() -> Place:
    """Where tests marked `nodes` run: as FENCEPOST_RUNTIME says, else on `local` where it can be had, else on Docker.

    It is the other way round than for a command: on Docker a node costs a second and a half, on `local` milliseconds.
    """
    if (name := os.environ.get(VARIABLE, AUTO)) != AUTO:
        return Place(name, f"as {VARIABLE} says")
    try:
        choose("local")
    except RuntimeUnavailable as error:
        return Place("docker", f"since {line(str(error))}")
    return Place("local", "where a node costs the least")


def surroundings(marks: Collection[str]) -> dict[str, str]:
    """Environment variables for a test with these markers, if it has nodes on one runtime.

    What runs on `local` finds no engine, whether there is one or not: nothing of it may need one.
    """
    if "nodes" in marks:
        name = "docker" if "docker" in marks else chosen().name
    elif "local" in marks:
        name = "local"
    else:
        return {}
    return {VARIABLE: name} | ({"DOCKER_HOST": NOWHERE} if name == "local" else {})


def runtime() -> Runtime:
    """The place of the test that runs. It fails with the reason where there is none."""
    return _made(os.environ.get(VARIABLE, AUTO))


@functools.cache
def _made(name: str) -> Runtime:
    return choose(name).runtime


def left_of(site_id: str) -> list[str]:
    """Whatever there is of a site, a sentence each; looked for, not believed."""
    return runtime().clean(site_id=site_id, include_running=True, dry_run=True)


def reference(image: str) -> str:
    """What an image name stands for here, as `--image` takes it."""
    return runtime().image_versions([image])[image]["reference"]


@contextmanager
def site() -> Iterator[Site]:
    """A site of a test's own; nothing of it is left afterwards."""
    made = runtime().open_site(f"test-{secrets.token_hex(4)}")
    try:
        yield made
    finally:
        made.close()
        assert left_of(made.id) == []
