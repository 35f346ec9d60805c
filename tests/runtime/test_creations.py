"""Owned before it exists: whatever an engine was asked to create goes with its site, however late it comes."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from harness.engine import Engine
from harness.errors import HarnessError
from harness.runtime import removal
from harness.runtime.base import NodeSpec
from harness.runtime.creations import Creations
from harness.runtime.docker import DockerRuntime, DockerSite
from tests.runtime.conftest import eventually

PATIENCE = 120.0
"""Seconds; a start-up waits for its turn, behind whatever else starts on this machine."""


class Late:
    """A call of the engine's that is carried out only when it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: Engine, name: str) -> None:
        self._real = getattr(engine.api, name)
        self.asked, self.go = threading.Event(), threading.Event()
        monkeypatch.setattr(engine.api, name, self)

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        self.asked.set()
        assert self.go.wait(PATIENCE)
        return self._real(*arguments, **more)


class Looks:
    """Counts how often a site was looked for, so that a test can let a creation go after the first look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = removal.find

        def find(*arguments: Any, **more: Any) -> Any:
            found = real(*arguments, **more)
            self.count += 1
            return found

        monkeypatch.setattr(removal, "find", find)


@pytest.fixture
def own_runtime() -> DockerRuntime:
    """One whose engine a test may change."""
    return DockerRuntime()


def new_id() -> str:
    return f"test-{secrets.token_hex(4)}"


@pytest.mark.docker
def test_a_network_that_comes_after_the_first_look_goes_too(
    own_runtime: DockerRuntime, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site itself is being made when everything is to be swept: no object of it is there yet."""
    late, looks, site_id = Late(monkeypatch, own_runtime.engine, "create_network"), Looks(monkeypatch), new_id()
    with ThreadPoolExecutor(2) as pool:
        opening = pool.submit(own_runtime.open_site, site_id)
        assert late.asked.wait(PATIENCE)
        sweeping = pool.submit(own_runtime.sweep, 20.0)
        eventually("a look", lambda: looks.count)
        late.go.set()
        assert sweeping.result(PATIENCE) == []
        # Where the engine has refused the range of addresses, which is drawn by lot, no other one is tried any more.
        assert isinstance(opening.exception(PATIENCE), HarnessError | None)
    assert removal.find(runtime.engine, site_id) == []


@pytest.mark.docker
def test_a_container_that_comes_after_the_first_look_goes_too(
    own_runtime: DockerRuntime, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stay in state Created; and nothing is begun any more."""
    site = own_runtime.open_site(new_id())
    late, looks = Late(monkeypatch, own_runtime.engine, "create_container"), Looks(monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        starting = pool.submit(site.start_nodes, [NodeSpec("n1")])
        assert late.asked.wait(PATIENCE)
        closing = pool.submit(site.close)
        eventually("a look", lambda: looks.count)
        late.go.set()
        closing.result(PATIENCE)
        assert isinstance(starting.exception(PATIENCE), HarnessError)
    assert removal.find(runtime.engine, site.id) == []
    with pytest.raises(HarnessError, match="closed"):
        site.start_nodes([NodeSpec("n2")])


@pytest.mark.docker
@pytest.mark.parametrize("error", [requests.exceptions.ReadTimeout, requests.exceptions.ConnectionError])
def test_a_network_without_an_answer_is_removed_and_told(
    own_runtime: DockerRuntime, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The engine made it and its answer was lost: an error in words, and nothing left of the site."""
    real, site_id = own_runtime.engine.api.create_network, new_id()

    def lost(*arguments: Any, **more: Any) -> Any:
        real(*arguments, **more)
        raise error("the answer was lost")

    monkeypatch.setattr(own_runtime.engine.api, "create_network", lost)
    with pytest.raises(HarnessError, match=rf"fencepost-{site_id}"):
        own_runtime.open_site(site_id)
    assert removal.find(runtime.engine, site_id) == []


@pytest.mark.docker
def test_giving_up_ends_a_start_up_before_its_next_step(
    own_runtime: DockerRuntime, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wants to stop waits for the one call that is under way, not for all that would follow."""
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise HarnessError("stopped")

    site = own_runtime.open_site(new_id(), check=check)
    late = Late(monkeypatch, own_runtime.engine, "create_container")
    started: list[str] = []
    real = own_runtime.engine.api.start
    monkeypatch.setattr(own_runtime.engine.api, "start", lambda name: (started.append(name), real(name)))
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(site.start_nodes, [NodeSpec("n1")])
        assert late.asked.wait(PATIENCE)
        stopped.set()
        late.go.set()
        assert str(starting.exception(PATIENCE)) == "stopped"
    assert started == []
    site.close()
    assert removal.find(runtime.engine, site.id) == []


@pytest.mark.docker
def test_an_engine_that_hangs_holds_up_no_sweep(own_runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is leaving: it says what may stay, and how to remove it."""
    site = own_runtime.open_site(new_id())
    with monkeypatch.context() as patched:
        late = Late(patched, own_runtime.engine, "containers")
        (word,) = own_runtime.sweep(0.5)
        assert word == f"site {site.id} could not be removed in 0.5 s. Try fencepost clean --site {site.id}"
        late.go.set()
    site.close()


@pytest.mark.docker
def test_another_site_of_the_same_id_is_not_swept(open_site: Callable[[], DockerSite], runtime: DockerRuntime) -> None:
    """A site that could not be opened owns nothing of what it met."""
    site, other = open_site(), DockerRuntime()
    with pytest.raises(HarnessError, match="already"):
        other.open_site(site.id)
    assert other.sweep(5.0) == []
    assert len(removal.find(runtime.engine, site.id)) == 1


def test_nothing_is_begun_once_the_site_is_being_removed() -> None:
    """The end comes first, then the waiting for answers: else something could slip in between."""
    creations = Creations()
    with creations.asking("network x"):
        creations.end()
        assert creations.settle(0.0) == ["network x"]
    assert creations.settle(0.0) == []
    with pytest.raises(HarnessError, match="network y is not created any more"), creations.asking("network y"):
        pytest.fail("it was begun")
    assert creations.lost == []
