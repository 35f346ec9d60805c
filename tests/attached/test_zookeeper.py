"""A ZooKeeper that exists: what is looked at before anything starts, its lock client through TLS, and tidying up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.systems import attached, zookeeper_attached
from harness.systems.attached import EndpointError
from harness.systems.base import Settings
from harness.systems.zookeeper import ZooKeeper as System
from tests.attached import zookeeper
from tests.attached.anybody import answering
from tests.attached.etcd import PASSWORD, USER, Etcd
from tests.attached.zookeeper import ZooKeeper
from workloads.clients.base import ClientConfig
from workloads.clients.zookeeper import ZooKeeperLock
from workloads.clocks import Flag

pytestmark = pytest.mark.xdist_group("tests/attached/test_zookeeper.py")  # its servers are started once

SETTINGS = Settings(4.0, 1, "zookeeper", attached=True)
PREFIX = "fencepost/0123456789ab"


@pytest.fixture(scope="module")
def guarded_zookeeper(papers: Path) -> Iterator[ZooKeeper]:
    """With TLS, and a /fencepost that one user may use."""
    tls = (papers / "server.pem", papers / "server.key")
    with zookeeper.running(papers, tls=tls, ca=papers / "ours.pem", users=True) as running:
        yield running


@pytest.fixture(scope="module")
def plain_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """With neither, and without /fencepost."""
    with zookeeper.running(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def way_in(papers: Path, **others: Any) -> dict[str, Any]:
    return {"ca_file": str(papers / "ours.pem"), "user": USER, "password": PASSWORD, **others}


def refused(endpoints: list[str], options: dict[str, Any] | None = None, settings: Settings = SETTINGS) -> str:
    with pytest.raises(EndpointError) as caught:
        System().examine(attached.access(endpoints, options or {}), settings, PREFIX)
    return str(caught.value)


def lock_of(server: ZooKeeper, options: dict[str, Any]) -> ZooKeeperLock:
    """Reaches it itself, where a contender goes through a relay; `localhost` in its place has another name."""
    access = attached.access([server.endpoint], options)
    settings = {
        **System().attached_config(access, SETTINGS, ["localhost"], PREFIX),
        "endpoints": [["localhost", server.port]],
    }
    return ZooKeeperLock(ClientConfig(settings, "lock", 4.0, 0, 2.0, on_lost=lambda reason: None))


def end(lock: ZooKeeperLock) -> None:
    """With its session, which a contender's process leaves to expire."""
    lock._client.stop()
    lock._client.close()


def test_it_is_found_and_left_as_it_was(guarded_zookeeper: ZooKeeper, plain_zookeeper: ZooKeeper, papers: Path) -> None:
    """With TLS and a user who may use /fencepost alone; and where there is no /fencepost, and none is left."""
    before = guarded_zookeeper.contents()
    access = attached.access([guarded_zookeeper.endpoint], way_in(papers))
    assert System().examine(access, SETTINGS, PREFIX).words.startswith("zookeeper 3.")
    assert guarded_zookeeper.contents() == before
    before = plain_zookeeper.contents()
    assert System().examine(attached.access([plain_zookeeper.endpoint], {}), SETTINGS, PREFIX).version
    assert plain_zookeeper.contents() == before


def test_what_is_not_as_it_was_said(
    guarded_zookeeper: ZooKeeper,
    plain_zookeeper: ZooKeeper,
    plain: Etcd,
    papers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is told from the others, with what to do; no password is repeated."""
    at, ca = guarded_zookeeper.endpoint, {"ca_file": str(papers / "ours.pem")}
    assert f"{at} wants TLS" in refused([at])
    assert "doesn't answer in TLS" in refused([plain_zookeeper.endpoint], {"tls": True})
    assert "doesn't verify" in refused([at], way_in(papers, ca_file=str(papers / "other.pem")))
    assert f"{at} wants a user and a password" in refused([at], ca)
    said = refused([at], way_in(papers, password="wrong-Donkey-8"))
    assert f"{USER!r} with this password may not use /fencepost" in said
    assert "wrong-Donkey-8" not in said
    with monkeypatch.context() as patch:
        patch.setattr(zookeeper_attached, "SESSION_SECONDS", 1.0)
        assert f"{plain.endpoint} doesn't answer as ZooKeeper does: no session within 1 s" in refused([plain.endpoint])
    long = Settings(99.0, 1, "zookeeper", attached=True)  # 20 ticks are the most
    assert "grants a session of 10 s where 99 s is asked for" in refused([plain_zookeeper.endpoint], settings=long)
    with zookeeper.running(tmp_path) as other:
        before = other.contents()
        assert "of different clusters" in refused([other.endpoint, plain_zookeeper.endpoint])
        assert other.contents() == before


@pytest.mark.parametrize(
    "answer",
    [b"", b"-ERR unknown command\r\n", b"\0\0\0\x04abcd", b"\0\0\0\x25" + bytes(37), b"\0\0\0\x10", b"\xff" * 64],
    ids=["nothing", "Redis", "no session", "a session of nothing", "a cut one", "a negative length"],
)
def test_whoever_answers_badly_is_told_in_time(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence with its place, and no traceback."""
    monkeypatch.setattr(zookeeper_attached, "SESSION_SECONDS", 1.0)
    with answering(lambda _: [answer]) as endpoint:
        said = refused([endpoint])
        assert said.startswith(f"{endpoint} doesn't answer as ZooKeeper does: no session")
        if answer.startswith(b"-ERR"):
            assert "it says b'-ERR' (it announces an answer of 759517778 bytes)" in said


def test_an_answer_that_comes_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is in time; nobody listens to the whole of it, then or later."""
    monkeypatch.setattr(zookeeper_attached, "SESSION_SECONDS", 0.5)
    over, left = threading.Event(), threading.Event()

    def slowly(_: bytes) -> Iterator[bytes]:
        try:
            yield b"\0\0\xff\xff"
            while not over.wait(0.02):
                yield b"x"
        finally:
            left.set()

    with answering(slowly) as endpoint:
        assert "no session within 0.5 s" in refused([endpoint])
        assert left.wait(60), "the connection is closed, while it still sends"
        over.set()


def test_its_lock_through_tls_and_what_it_leaves(guarded_zookeeper: ZooKeeper, papers: Path) -> None:
    """Taken, renewed and released by that user, whose nodes are his alone; what is left goes, and nothing beside it."""
    before = guarded_zookeeper.contents()
    lock = lock_of(guarded_zookeeper, way_in(papers))
    assert lock.connect(20) is None
    held = lock.acquire(10, Flag())
    assert (held.type, held.ttl_seconds) == ("ok", 4.0), held
    assert lock.renew().type == "ok"
    assert lock.release().type == "ok"
    assert lock.acquire(10, Flag()).type == "ok"
    with pytest.raises(EndpointError, match="NoAuthError"):
        guarded_zookeeper.contents()
    access = attached.access([guarded_zookeeper.endpoint], way_in(papers))
    assert System().tidy(access, PREFIX) == 3
    end(lock)
    assert guarded_zookeeper.contents() == before


def test_the_folder_of_all_trials_goes_with_the_last_of_them(plain_zookeeper: ZooKeeper) -> None:
    """Where a trial has made it; while another trial is there, it stays."""
    before = plain_zookeeper.contents()
    lock = lock_of(plain_zookeeper, {})
    assert lock.connect(20) is None
    assert lock.acquire(10, Flag()).type == "ok"
    plain_zookeeper.make("/fencepost/another", b"")
    access = attached.access([plain_zookeeper.endpoint], {})
    assert System().tidy(access, PREFIX) == 3
    assert set(plain_zookeeper.contents()) - set(before) == {"/fencepost", "/fencepost/another"}
    plain_zookeeper.remove("/fencepost/another")
    assert System().tidy(access, PREFIX) == 0
    end(lock)
    assert plain_zookeeper.contents() == before


def test_what_cannot_be_removed_is_named() -> None:
    """Where no endpoint answers."""
    with pytest.raises(EndpointError, match=f"/{PREFIX} may be left .*: 127.0.0.1:1 can't be reached"):
        System().tidy(attached.access(["127.0.0.1:1"], {}), PREFIX)
