"""Sites on real runtimes that are gone after each test, whatever happened in it; and looked for, not believed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from docker import APIClient
from docker.errors import APIError

from harness import registry
from harness.runtime import removal
from harness.runtime.base import Node, NodeSpec, Runtime, ServiceSpec
from harness.runtime.docker import DockerRuntime
from harness.runtime.local import left
from harness.runtime.local.runtime import LocalRuntime

DOCKER = pytest.param("docker", marks=pytest.mark.docker)
LOCAL = pytest.param("local", marks=pytest.mark.local)


def runtime_named(name: str) -> Runtime:
    """A runtime of this machine; a test that needs it fails with the reason where there is none."""
    runtime: Runtime = registry.load("runtimes", name)()
    return runtime


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    """The engine of this machine. A module that is about others has a fixture of this name of its own."""
    return runtime_named("docker")


def left_of(runtime: Runtime, site_id: str) -> list[Any]:
    """Whatever there is of a site, by its labels."""
    if isinstance(runtime, DockerRuntime):
        return removal.find(runtime.engine, site_id)
    assert isinstance(runtime, LocalRuntime)
    return left.find(site_id)


SLEEPER = ServiceSpec("etcd", command=["sleep", "12345"])
"""A service that does nothing, in an image of ours."""

FIND = """
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")
    except FileNotFoundError:
        continue
    if words[:-1] == [word.encode() for word in sys.argv[1:]]:
        print(pid)
"""


def pids(node: Node, *argv: str) -> list[int]:
    """The processes on a node that were started with exactly these words."""
    return [int(line) for line in node.run(["python3", "-c", FIND, *argv]).stdout.split()]


def kill_service(node: Node) -> None:
    """SIGKILL from the node, as the agent does it."""
    (pid,) = eventually("the service", lambda: pids(node, "sleep", "12345"))  # it may just have been started
    assert node.run(["sh", "-c", f"kill -KILL {pid}"]).exit_code == 0


@pytest.fixture
def open_site(runtime: Runtime) -> Iterator[Callable[[], Any]]:
    """Opens sites of their own for a test, closes them after it, and checks that nothing of them is left."""
    sites: list[Any] = []

    def opener() -> Any:
        site = runtime.open_site(f"test-{secrets.token_hex(4)}")
        sites.append(site)
        return site

    yield opener
    for site in sites:
        site.close()
        assert left_of(runtime, site.id) == []


@pytest.fixture(scope="module")
def lasting_site(runtime: Runtime) -> Iterator[Any]:
    """One site for the tests of a module that leave no mark on it."""
    site = runtime.open_site(f"test-{secrets.token_hex(4)}")
    yield site
    site.close()
    assert left_of(runtime, site.id) == []


@pytest.fixture(scope="module")
def pair(lasting_site: Any) -> list[Node]:
    """Two nodes, the first with a service."""
    nodes = lasting_site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])
    nodes[0].start_service(SLEEPER)
    return nodes


@pytest.fixture
def guests(lasting_site: Any) -> Iterator[Callable[[NodeSpec], Node]]:
    """Starts nodes of a test's own on the site of all, which has a network already; they are gone after the test."""
    nodes: list[Node] = []

    def start(spec: NodeSpec) -> Node:
        nodes.extend(lasting_site.start_nodes([spec]))
        return nodes[-1]

    yield start
    lasting_site.remove_nodes(nodes)


LAST_WORDS = """
import pathlib, sys
print("ready", flush=True)
sys.stdin.read()
pathlib.Path(sys.argv[1]).write_text("the end of stdin was seen")
"""
"""A program that can still act when its input has ended."""


def eventually(what: str, look: Callable[[], Any], seconds: float = 60.0) -> Any:
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
