"""A Redis that exists: what is looked at before anything starts, its lock client through TLS, and tidying up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.systems import attached, redis_attached
from harness.systems.attached import EndpointError
from harness.systems.base import Settings
from harness.systems.redis import Redis as System
from tests.attached import redis
from tests.attached.anybody import answering
from tests.attached.etcd import PASSWORD, ROOT, USER, Etcd
from tests.attached.redis import Redis
from workloads.clients.base import ClientConfig
from workloads.clients.redis import RedisLock
from workloads.clocks import Flag

SETTINGS = Settings(2.0, 1, "redis", attached=True)
PREFIX = "fencepost/0123456789ab"


@pytest.fixture(scope="module")
def guarded_redis(papers: Path) -> Iterator[Redis]:
    """With TLS, and users who must log in."""
    tls = (papers / "server.pem", papers / "server.key")
    with redis.running(papers, tls=tls, ca=papers / "ours.pem", users=True) as running:
        yield running


@pytest.fixture(scope="module")
def plain_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """With neither."""
    with redis.running(tmp_path_factory.mktemp("redis")) as running:
        yield running


def way_in(papers: Path, **others: Any) -> dict[str, Any]:
    return {"ca_file": str(papers / "ours.pem"), "user": USER, "password": PASSWORD, **others}


def refused(endpoints: list[str], options: dict[str, Any] | None = None) -> str:
    with pytest.raises(EndpointError) as caught:
        System().examine(attached.access(endpoints, options or {}), SETTINGS, PREFIX)
    return str(caught.value)


def test_who_is_not_let_in_leaves_no_connection() -> None:
    """Not even while the error is kept. A password is any bytes, as the environment has them."""
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):  # the first only looks whether somebody listens
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                while data := connection.recv(4096):
                    heard.append(data)
                    connection.sendall(b"-WRONGPASS invalid password\r\n")
        heard.append(b"closed")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(EndpointError, match="refuses the password: WRONGPASS") as caught:
            System().examine(attached.access([endpoint], {"password": "a\udcff"}), SETTINGS, PREFIX)
        server.join(60)
        assert heard == [b"*2\r\n$4\r\nAUTH\r\n$2\r\na\xff\r\n", b"closed"], caught.value


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"$40\r\nredis_version:8.0.2\r\n", "Connection closed by server"),  # half of what INFO tells
        (b"hello, this is mail.example\r\n", "Protocol Error: b'hello, this is mail.example'"),
        (b"$many\r\n", "ValueError: invalid literal"),
        (b"*1\r\n" * 200_000, "RecursionError|too long"),
        (b"$99999999999\r\n" + bytes(1 << 20), "too long: more than 1048576 bytes"),
        (b"*999999999\r\n" + b":1\r\n" * 300_000, "too long: more than 1048576 bytes"),
        (b"+" + b"x" * (2 << 20), "too long: more than 1048576 bytes"),
    ],
    ids=["cut", "another protocol", "no number", "a list in a list", "long", "a long list", "a long line"],
)
def test_an_answer_that_is_none_is_told_as_such(answer: bytes, reason: str) -> None:
    """A sentence with its place, whatever came, and never more of it than a megabyte."""
    with answering(lambda _: [answer]) as endpoint:
        access = attached.access([endpoint], {})
        with redis_attached.Server(access, access.endpoints[0]) as server:
            with pytest.raises(EndpointError, match=reason) as caught:
                server.ask("INFO")
            assert str(caught.value).startswith(f"{endpoint} doesn't answer as Redis does: ")
            assert len(str(caught.value)) < 400
            assert not server._connection.is_connected, "what follows is no answer to a later question"


def test_one_that_answers_no_script_is_told_with_what_it_may_have_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error, not that of a second command on a connection that is spoilt."""
    monkeypatch.setattr(redis_attached, "ANSWER_SECONDS", 0.1)

    def serve(listener: socket.socket) -> None:
        listener.accept()[0].close()  # which only looks whether somebody listens
        with listener.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(b"$26\r\nredis_version:8.0.2\r\nx:y\r\n\r\n")
            while connection.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        said = refused([f"127.0.0.1:{listener.getsockname()[1]}"])
    assert "doesn't answer as Redis does: no whole answer within 0.1 s" in said
    assert said.endswith(f"{PREFIX}-look:{{lock}} and {PREFIX}-look:{{lock}}:token may be left there")


def test_it_is_found_and_left_as_it_was(guarded_redis: Redis, plain_redis: Redis, papers: Path) -> None:
    """By a user who may use fencepost/ alone, by the password of the default user, and where nothing is asked for."""
    before = guarded_redis.contents()
    access = attached.access([guarded_redis.endpoint], way_in(papers))
    assert System().examine(access, SETTINGS, PREFIX).words.startswith("redis ")
    default = {"ca_file": str(papers / "ours.pem"), "password": ROOT}
    System().examine(attached.access([guarded_redis.endpoint], default), SETTINGS, PREFIX)
    assert guarded_redis.contents() == before
    System().examine(attached.access([plain_redis.endpoint], {}), SETTINGS, PREFIX)


def test_what_is_not_as_it_was_said(guarded_redis: Redis, plain_redis: Redis, plain: Etcd, papers: Path) -> None:
    """Each is told from the others, with what to do; no password is repeated."""
    at = guarded_redis.endpoint
    assert f"{at} wants TLS" in refused([at])
    assert "doesn't answer in TLS" in refused([plain_redis.endpoint], {"tls": True})
    assert "doesn't verify" in refused([at], way_in(papers, ca_file=str(papers / "other.pem")))
    assert "wants a password" in refused([at], {"ca_file": str(papers / "ours.pem")})
    said = refused([at], way_in(papers, password="wrong-Donkey-8"))
    assert f"refuses the password of '{USER}'" in said
    assert "wrong-Donkey-8" not in said
    assert "asks for no password" in refused([plain_redis.endpoint], {"password": PASSWORD})
    assert "the user may not do what a lock does" in refused([at], way_in(papers, user="guest", password="x-1y-2z"))
    assert "doesn't answer as Redis does" in refused([plain.endpoint])
    assert "there are 2 endpoints" in refused([at, plain_redis.endpoint])
    plain_redis.ask("REPLICAOF", "127.0.0.1", "1")
    assert "is a replica" in refused([plain_redis.endpoint])
    plain_redis.ask("REPLICAOF", "NO", "ONE")


def test_its_lock_by_the_password_of_the_default_user(guarded_redis: Redis, papers: Path) -> None:
    """Which has no user beside it; the contender is told it all the same."""
    access = attached.access([guarded_redis.endpoint], {"ca_file": str(papers / "ours.pem"), "password": ROOT})
    settings = {
        **System().attached_config(access, SETTINGS, ["localhost"], f"{PREFIX}/default"),
        "endpoints": [["localhost", guarded_redis.port]],
    }
    lock = RedisLock(ClientConfig(settings, "lock", 5.0, 0, 2.0, on_lost=lambda reason: None))
    held = lock.acquire(5, Flag())
    assert held.type == "ok", held
    lock.close()
    assert System().tidy(access, f"{PREFIX}/default") == 2


def test_its_lock_through_tls_and_what_it_leaves(guarded_redis: Redis, papers: Path) -> None:
    """Taken, renewed and released by that user; the counter of tokens stays until it is tidied up, alone of all."""
    before = guarded_redis.contents()
    access = attached.access([guarded_redis.endpoint], way_in(papers))
    settings = {
        **System().attached_config(access, SETTINGS, ["localhost"], PREFIX),
        "endpoints": [["localhost", guarded_redis.port]],
    }
    lock = RedisLock(ClientConfig(settings, "lock", 5.0, 0, 2.0, on_lost=lambda reason: None))
    for token in (1, 2):
        held = lock.acquire(5, Flag())
        assert (held.type, held.token) == ("ok", token), held
        assert lock.renew().type == "ok"
        assert lock.release().type == "ok"
    lock.close()
    assert guarded_redis.ask("GET", f"{PREFIX}:{{lock}}:token") == "2"
    assert System().tidy(access, PREFIX) == 1
    assert guarded_redis.contents() == before
