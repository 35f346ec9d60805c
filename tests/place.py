"""Where tests have real nodes: on the runtime that FENCEPOST_RUNTIME names, else on the one that a command would take.

Tests that are marked `nodes` run on any runtime, once a run: commands that they start read the same variable, and what
they do by themselves they ask of this module. What only one runtime has is marked with its name.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from harness.runtime.base import Runtime, Site
from harness.runtime.choice import AUTO, VARIABLE, choose


@functools.cache
def runtime() -> Runtime:
    """The place. A test that needs it fails with the reason where there is none."""
    return choose(os.environ.get(VARIABLE, AUTO)).runtime


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
