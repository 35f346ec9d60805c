"""Sentinels that exist: what is looked at before anything starts, their lock client through TLS, and tidying up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.systems import attached, redis_sentinel_attached
from harness.systems.attached import Access, EndpointError
from harness.systems.base import Settings
from harness.systems.redis_sentinel import RedisSentinel as System
from harness.trial.attachment import Attachment
from tests.attached import redis, sentinel
from tests.attached.anybody import answering
from tests.attached.etcd import PASSWORD, USER, Etcd
from tests.attached.sentinel import SENTINELS_OWN, Sentinels
from tests.waiting import until
from workloads.clients.base import ClientConfig
from workloads.clients.redis_sentinel import RedisSentinelLock
from workloads.clocks import Flag

pytestmark = pytest.mark.xdist_group("tests/attached/test_sentinel.py")  # its servers are started once

SETTINGS = Settings(2.0, 2, "redis", {"wait": 1}, attached=True)
PREFIX = "fencepost/0123456789ab"


@pytest.fixture(scope="module")
def guarded_sentinels(papers: Path) -> Iterator[Sentinels]:
    """With TLS, and passwords: one of the Sentinels, others of the Redis."""
    tls = (papers / "server.pem", papers / "server.key")
    with sentinel.running(papers, tls=tls, ca=papers / "ours.pem", passwords=True) as running:
        yield running


def way_in(papers: Path, **others: Any) -> dict[str, Any]:
    ours = {"ca_file": str(papers / "ours.pem"), "user": USER, "password": PASSWORD}
    return {**ours, "sentinel_password": SENTINELS_OWN, **others}


def access(endpoints: list[str], options: dict[str, Any]) -> Access:
    return attached.access(endpoints, options, attached.own_options(System()))


def refused(endpoints: list[str], options: dict[str, Any] | None = None, settings: Settings = SETTINGS) -> str:
    with pytest.raises(EndpointError) as caught:
        System().examine(access(endpoints, options or {}), settings, PREFIX)
    return str(caught.value)


def test_what_is_not_as_it_was_said(guarded_sentinels: Sentinels, plain: Etcd, papers: Path, tmp_path: Path) -> None:
    """Each is told from the others, with what to do; no password is repeated."""
    at, ca = guarded_sentinels.endpoints, {"ca_file": str(papers / "ours.pem")}
    until(guarded_sentinels.knows_all, "the Sentinels agree")
    assert f"{at[0]} wants TLS" in refused(at)
    assert "doesn't verify" in refused(at, {"ca_file": str(papers / "other.pem")})
    assert f"{at[0]} wants a password (endpoint options sentinel_password" in refused(at, ca)
    said = refused(at, way_in(papers, sentinel_password="wrong-Donkey-8"))
    assert f"{at[0]} refuses the password" in said
    assert "wrong-Donkey-8" not in said
    said = refused(at, way_in(papers, password="wrong-Donkey-8"))
    assert "the primary of 'main', as the Sentinels say: " in said
    assert f"refuses the password of {USER!r}" in said
    assert "wrong-Donkey-8" not in said
    no_login = {**ca, "sentinel_password": SENTINELS_OWN}
    assert "wants a password (endpoint options password, user)" in refused(at, no_login)
    guest = way_in(papers, user="guest", password="x-1y-2z")
    assert "+del +info +wait" in refused(at, guest)
    assert "watches no primary 'other' (it watches main)" in refused(at, way_in(papers, group="other"))
    more = Settings(2.0, 2, "redis", {"wait": 2}, attached=True)
    assert "wait=2, and the primary" in refused(at, way_in(papers), more)
    assert "doesn't answer as a Sentinel does" in refused([plain.endpoint])
    with redis.running(tmp_path) as single:
        assert f"{single.endpoint} is a Redis and no Sentinel" in refused([single.endpoint])


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (b"*0\r\n", "watches no primaries; say which by the endpoint option group"),
        (b"*1\r\n:7\r\n", "doesn't answer as a Sentinel does: [7]"),
        (b"+OK\r\n", "doesn't answer as a Sentinel does: 'OK'"),
        (b"*2\r\n*2\r\n+name\r\n+a\r\n*2\r\n+name\r\n+b\r\n", "watches 2 primaries (['a', 'b']); say which"),
    ],
)
def test_whoever_answers_badly_is_told(rows: bytes, reason: str) -> None:
    """A sentence with its place, and no traceback."""
    with answering(lambda _: [rows]) as endpoint:
        assert (said := refused([endpoint])).startswith(endpoint)
        assert reason in said


def test_what_cannot_be_removed_is_named() -> None:
    """Where no Sentinel answers."""
    with pytest.raises(EndpointError, match=r"fencepost/0123456789ab:{lock} and .* may be left: 127.0.0.1:1 can't be"):
        redis_sentinel_attached.tidy(access(["127.0.0.1:1"], {}), PREFIX)


def test_a_lock_follows_the_primary_and_what_it_leaves_goes(guarded_sentinels: Sentinels, papers: Path) -> None:
    """Each Redis that the Sentinels know has a way of its own, by which the client gets at the primary, also after
    another one has become it; there the keys are removed, and nothing else is another than before.
    """
    before = guarded_sentinels.primary.contents()
    asked = access(guarded_sentinels.endpoints, way_in(papers))
    found = System().examine(asked, SETTINGS, PREFIX)
    assert f"the primary {guarded_sentinels.primary.endpoint} of 'main' with 1 replicas" in found.words
    assert [line[:22] for line in found.unseen] == ["replicas that join dur"]
    assert found.access is not None
    assert [str(each) for each in found.access.further] == [
        guarded_sentinels.primary.endpoint,
        guarded_sentinels.replica.endpoint,
    ]
    assert guarded_sentinels.primary.contents() == before
    attachment = Attachment(System(), found.access, SETTINGS, found, PREFIX)
    assert list(attachment.recorded()["at"]) == attachment.nodes == ["e1", "e2", "e3", "e4"]

    told = System().attached_config(found.access, SETTINGS, attachment.nodes, PREFIX)
    assert told["ways"] == {
        guarded_sentinels.primary.endpoint: ["e3", 26379],
        guarded_sentinels.replica.endpoint: ["e4", 26379],
    }
    # Reaches them itself, where a contender goes through relays.
    there = {place: ["127.0.0.1", int(place.rpartition(":")[2])] for place in told["ways"]}
    own = [["127.0.0.1", each.port] for each in asked.endpoints]
    settings = {**told, "ways": there, "endpoints": own}
    lock = RedisSentinelLock(ClientConfig(settings, "lock", 5.0, 0, 4.0, on_lost=lambda reason: None))
    until(lambda: lock.acquire(10, Flag()).type == "ok", "the lock is taken, and the replica has it")
    assert lock.renew().type == "ok"
    assert lock.release().type == "ok"
    assert guarded_sentinels.ask(0, "SENTINEL", "FAILOVER", "main") == "OK"

    def follows() -> bool:
        acquired = lock.acquire(1, Flag()).type
        lock.release()
        return acquired == "ok" and lock.counters["primary_changes"] >= 1

    until(follows, "the client has found the new primary")
    lock.close()
    assert guarded_sentinels.replica.ask("GET", f"{PREFIX}:{{lock}}:token") is not None
    assert System().tidy(found.access, PREFIX) == 1
    assert guarded_sentinels.replica.contents() == before
