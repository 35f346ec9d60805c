"""Watching a site on the real engine: what somebody does to a container is told once, in order, and with its time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from harness.engine import Engine, Transport, wall_ns
from harness.errors import HarnessError
from harness.runtime.base import NodeSpec, Seen, ServiceSpec
from harness.runtime.docker import DockerSite
from harness.runtime.watch import DockerWatch
from tests.runtime.conftest import eventually, pause

SLEEPER = ServiceSpec("etcd", command=["sleep", "12345"])


@pytest.mark.parametrize(
    ("said", "ns"),
    [
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T01:00:00.000000001+01:00", 1),
        ("1970-01-01T00:00:02Z", 2_000_000_000),
    ],
)
def test_times_of_the_engine_are_read_to_the_nanosecond(said: str, ns: int) -> None:
    """With a fraction of any length or none, in UTC or not."""
    assert wall_ns(said) == ns


def test_a_time_that_is_none_is_an_error() -> None:
    """With what was said instead."""
    with pytest.raises(HarnessError, match="'yesterday'"):
        wall_ns("yesterday")


class Told:
    """What was told so far."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.notes: list[str] = []

    def words(self) -> list[tuple[str, str, str, bool]]:
        """Node, part, what, over; in order."""
        return [(seen.node, seen.part, seen.what, seen.over) for seen in self.seen]


@contextmanager
def watched(site: DockerSite, engine: Engine | None = None) -> Iterator[tuple[Told, DockerWatch]]:
    """A site with what its watch tells, through another way to the engine if one is given."""
    told = Told()
    watch = site.watch(told.seen.append, told.notes.append)
    if engine is not None:
        watch.engine = engine
    with watch:
        yield told, watch


@pytest.fixture
def site(open_site: Callable[[], DockerSite]) -> DockerSite:
    """A node with a service, and one without."""
    site = open_site()
    nodes = site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])
    nodes[0].start_service(SLEEPER)
    return site


def name(site: DockerSite, node: str, part: str = "") -> str:
    return f"fencepost-{site.id}-{node}{part}"


def ends(what: str, node: str = "n1", part: str = "service") -> list[tuple[str, str, str, bool]]:
    """Its beginning and its end."""
    return [(node, part, what, False), (node, part, what, True)]


@pytest.mark.docker
def test_each_act_of_others_is_told_once_in_order_and_with_its_time(site: DockerSite) -> None:
    """Paused, cut off, killed and started again, removed; a look adds nothing to it."""
    api = site.engine.api
    with watched(site) as (told, watch):
        before = time.time_ns()
        pause(api, name(site, "n1", "-service"))
        watch.look()
        after = time.time_ns()
        assert told.words() == ends("paused")[:1]
        assert before <= told.seen[0].wall_ns <= after
        api.unpause(name(site, "n1", "-service"))
        network = site.network.name
        api.disconnect_container_from_network(name(site, "n2"), network)
        api.connect_container_to_network(name(site, "n2"), network)
        api.kill(name(site, "n1", "-service"))
        watch.look()
        api.start(name(site, "n1", "-service"))
        api.remove_container(name(site, "n2"), force=True)
        watch.look()
        watch.look()
    assert told.words() == [
        *ends("paused"),
        *ends("disconnected", "n2", "node"),
        *ends("killed"),
        ("n2", "node", "killed", False),
    ]
    assert "signal 9" in told.seen[4].detail
    assert not told.seen[3].restored, "the engine has given it another address"
    assert [seen.wall_ns for seen in told.seen] == sorted(seen.wall_ns for seen in told.seen)
    assert told.notes == []


@pytest.mark.docker
def test_programs_that_are_run_in_a_node_are_nothing_to_tell(site: DockerSite) -> None:
    """A `docker exec`, and one that fails, are no act on the node."""
    with watched(site) as (told, watch):
        found = site.engine.client.containers.get(name(site, "n1"))
        assert found.exec_run(["true"]).exit_code == 0
        assert found.exec_run(["false"]).exit_code == 1
        watch.look()
    assert told.words() == []


@pytest.mark.docker
def test_out_of_memory_is_told_and_whether_the_main_process_survived(site: DockerSite) -> None:
    """A program run in the node is killed, the node lives: that is over at the second look after it."""
    api = site.engine.api
    api.update_container(name(site, "n2"), mem_limit="32m", memswap_limit="32m")
    with watched(site) as (told, watch):
        hog = site.engine.client.containers.get(name(site, "n2"))
        hog.exec_run(["python3", "-c", "x = bytearray(200_000_000)"])
        eventually("its end", lambda: (watch.look(), len(told.seen) >= 2)[1])
    assert told.words()[-2:] == ends("oom", "n2", "node")
    assert all(seen.what == "oom" for seen in told.seen)


class Deaf(Engine):
    """A way to the engine on which its events can't be heard, for as long as it is `deaf`."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.client)
        self.deaf = True
        self.streams: list[Transport] = []
        self.opened = threading.Event()

    def listen(self, path: str, doing: str) -> Transport:
        if self.deaf:
            raise HarnessError("nothing can be heard")
        stream = super().listen(path, doing)
        if "until" not in path:
            self.streams.append(stream)
            self.opened.set()
        return stream


class Blind(Deaf):
    """Like that, and past events can't be asked for either: an engine that was restarted has forgotten them."""

    def listen(self, path: str, doing: str) -> Transport:
        if "until" in path:
            until = path.rpartition("until=")[2]
            return super(Deaf, self).listen(re.sub(r"since=[0-9.]+", f"since={until}", path), doing)
        raise HarnessError("nothing can be heard")


@pytest.mark.docker
def test_what_no_event_tells_of_is_found_by_looking(site: DockerSite) -> None:
    """With the stream of events broken all the time, states tell the same, at the latest a second later."""
    api = site.engine.api
    pause(api, name(site, "n2"))
    blind = Blind(site.engine)
    with watched(site, blind) as (told, watch):
        assert told.words() == ends("paused", "n2", "node")[:1], "as it was when the watch began"
        api.unpause(name(site, "n2"))
        eventually("the end of the pause", lambda: len(told.seen) == 2)
        api.disconnect_container_from_network(name(site, "n2"), site.network.name)
        eventually("the disconnection", lambda: len(told.seen) == 3)
        before = time.time_ns()
        api.restart(name(site, "n1", "-service"), timeout=0)
        after = time.time_ns()
        watch.look()
    assert told.words() == [*ends("paused", "n2", "node"), ("n2", "node", "disconnected", False), *ends("killed")]
    killed, started = told.seen[3:]
    assert before <= killed.wall_ns <= started.wall_ns <= after, "the engine knows when a container ended and began"
    assert len([note for note in told.notes if "events can't be heard" in note]) == 1


@pytest.mark.docker
def test_a_stream_that_breaks_is_opened_again_and_nothing_is_lost(site: DockerSite) -> None:
    """What happened while nothing could be heard comes with its own time, and the break is noted."""
    api, engine = site.engine.api, Deaf(site.engine)
    engine.deaf = False
    with watched(site, engine) as (told, watch):
        assert engine.opened.wait(60)
        pause(api, name(site, "n2"))
        eventually("the pause", lambda: len(told.seen) == 1)
        engine.deaf = True
        engine.streams[-1].shut()
        eventually("the note of it", lambda: told.notes)
        before = time.time_ns()
        api.unpause(name(site, "n2"))
        after = time.time_ns()
        engine.opened.clear()
        engine.deaf = False
        assert engine.opened.wait(60)
        eventually("the end of the pause", lambda: len(told.seen) == 2)
        watch.look()
    assert told.words() == ends("paused", "n2", "node")
    assert before <= told.seen[1].wall_ns <= after or "looking" in told.seen[1].detail
    assert "can't be heard" in told.notes[0]
    eventually("the note that it is over", lambda: any("asked for again" in note for note in told.notes))
