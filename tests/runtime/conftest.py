"""Sites on the real engine that are gone after each test, whatever happened in it; and looked for, not believed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from docker import APIClient
from docker.errors import APIError

from harness.runtime import removal
from harness.runtime.docker import DockerRuntime, DockerSite


@pytest.fixture(scope="session")
def runtime() -> DockerRuntime:
    """The engine of this machine; a test that needs it fails with the reason where there is none."""
    return DockerRuntime()


@pytest.fixture
def open_site(runtime: DockerRuntime) -> Iterator[Callable[[], DockerSite]]:
    """Opens sites of their own for a test, closes them after it, and checks that nothing of them is left."""
    sites: list[DockerSite] = []

    def opener() -> DockerSite:
        site = runtime.open_site(f"test-{secrets.token_hex(4)}")
        sites.append(site)
        return site

    yield opener
    for site in sites:
        site.close()
        assert removal.find(runtime.engine, site.id) == []


@pytest.fixture(scope="module")
def lasting_site(runtime: DockerRuntime) -> Iterator[DockerSite]:
    """One site for the tests of a module that leave no mark on it."""
    site = runtime.open_site(f"test-{secrets.token_hex(4)}")
    yield site
    site.close()
    assert removal.find(runtime.engine, site.id) == []


def eventually(what: str, look: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true thing that `look` returns; fails at the deadline with what was awaited and seen last."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"{what} was awaited for {seconds:g} s; seen last: {seen!r}"
        time.sleep(0.02)


def pause(api: APIClient, container: str) -> None:
    """`docker pause`, asked again while the kernel can't: runc gives up early ("unable to freeze") when it is busy."""

    def paused() -> bool:
        try:
            api.pause(container)
        except APIError as error:
            if "unable to freeze" not in str(error):
                raise
            return False
        return True

    eventually(f"{container} to be paused", paused)
