"""A Consul that exists: what is looked at before anything starts, its lock client through TLS, and tidying up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.systems import attached, consul_attached
from harness.systems.attached import Access, EndpointError
from harness.systems.base import Settings
from harness.systems.consul import Consul as System
from tests.attached import consul
from tests.attached.anybody import answering
from tests.attached.consul import Consul
from tests.attached.etcd import Etcd
from workloads.clients.base import ClientConfig
from workloads.clients.consul import ConsulLock
from workloads.clocks import Flag

pytestmark = pytest.mark.xdist_group("tests/attached/test_consul.py")  # its servers are started once

SETTINGS = Settings(2.0, 1, "consul", attached=True)
PREFIX = "fencepost/0123456789ab"
NOBODYS = "00000000-1111-4222-8333-444444444444"


@pytest.fixture(scope="module")
def guarded_consul(papers: Path) -> Iterator[Consul]:
    """With TLS, and tokens."""
    tls = (papers / "server.pem", papers / "server.key")
    with consul.running(papers, tls=tls, ca=papers / "ours.pem", tokens=True) as running:
        yield running


@pytest.fixture(scope="module")
def plain_consul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consul]:
    """With neither."""
    with consul.running(tmp_path_factory.mktemp("consul")) as running:
        yield running


def access(endpoints: list[str], options: dict[str, Any]) -> Access:
    return attached.access(endpoints, options, attached.own_options(System()))


def way_in(papers: Path, consul: Consul, **others: Any) -> dict[str, Any]:
    return {"ca_file": str(papers / "ours.pem"), "token": consul.token, **others}


def refused(endpoints: list[str], options: dict[str, Any] | None = None, settings: Settings = SETTINGS) -> str:
    with pytest.raises(EndpointError) as caught:
        System().examine(access(endpoints, options or {}), settings, PREFIX)
    return str(caught.value)


def test_it_is_found_and_left_as_it_was(guarded_consul: Consul, plain_consul: Consul, papers: Path) -> None:
    """With TLS and a token for fencepost/ alone, which tells no version; and where nothing is asked for."""
    before = guarded_consul.contents()
    found = System().examine(access([guarded_consul.endpoint], way_in(papers, guarded_consul)), SETTINGS, PREFIX)
    assert found.words == "consul of a version that it does not tell to us"
    assert guarded_consul.contents() == before
    before = plain_consul.contents()
    assert System().examine(access([plain_consul.endpoint], {}), SETTINGS, PREFIX).words.startswith("consul 1.")
    assert plain_consul.contents() == before


def test_what_is_not_as_it_was_said(
    guarded_consul: Consul, plain_consul: Consul, plain: Etcd, papers: Path, tmp_path: Path
) -> None:
    """Each is told from the others, with what to do; no token is repeated."""
    at, ca = guarded_consul.endpoint, {"ca_file": str(papers / "ours.pem")}
    assert f"{at} wants TLS" in refused([at])
    assert "doesn't answer in TLS" in refused([plain_consul.endpoint], {"tls": True})
    assert "doesn't verify" in refused([at], {"ca_file": str(papers / "other.pem")})
    assert f"{at} wants a token" in refused([at], ca)
    said = refused([at], {**ca, "token": NOBODYS})
    assert f"{at} refuses the token" in said
    assert NOBODYS not in said
    assert "asks for no token; leave it out" in refused([plain_consul.endpoint], {"token": NOBODYS})
    assert f"{plain.endpoint} isn't Consul: it answers" in refused([plain.endpoint])
    poor = guarded_consul.ask("PUT", "/v1/acl/token", {})["SecretID"]
    assert "the token doesn't allow what a trial does" in refused([at], {**ca, "token": poor})
    assert "doesn't answer as Consul does" in refused([plain_consul.endpoint], {"token": "two\nlines of it"})
    with consul.running(tmp_path, ttl_min="10s") as other:
        assert "grants no session of 2 s, so give another ttl" in refused([other.endpoint])
        longer = Settings(10.0, 2, "consul", attached=True)
        before = other.contents()
        assert "of different clusters" in refused([other.endpoint, plain_consul.endpoint], settings=longer)
        assert other.contents() == before


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        ({}, "doesn't answer as Consul does: KeyError"),
        ({"session/create": b'{"ID": "7"}', "acquire": b"false"}, "doesn't let a fresh session take the key"),
        ({"session/create": b"[]"}, "doesn't answer as Consul does: TypeError"),
    ],
)
def test_what_only_tells_a_leader_as_consul_does(documents: dict[str, bytes], reason: str) -> None:
    """A gateway, say: a sentence with its place, and not a traceback."""

    def answer(request: bytes) -> list[bytes]:
        head = request.split(b"\r\n", 1)[0].decode()
        body = next((body for word, body in documents.items() if word in head), b"{}")
        body = b'"10.0.0.1:8300"' if "status/leader" in head else body
        return [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)]

    with answering(answer) as endpoint:
        assert (said := refused([endpoint])).startswith(endpoint)
        assert reason in said


def test_its_lock_through_tls_and_what_it_leaves(guarded_consul: Consul, papers: Path) -> None:
    """Taken, renewed and released with that token; what is left of keys and sessions goes, and nothing beside it."""
    before = guarded_consul.contents()
    there = access([guarded_consul.endpoint], way_in(papers, guarded_consul))
    settings = {
        **System().attached_config(there, SETTINGS, ["localhost"], PREFIX),
        "endpoints": [["localhost", guarded_consul.port]],
    }
    lock = ConsulLock(ClientConfig(settings, "lock", 5.0, 0, 2.0, on_lost=lambda reason: None))
    held = lock.acquire(5, Flag())
    assert held.type == "ok", held
    assert lock.renew().type == "ok"
    assert lock.release().type == "ok"
    assert lock.acquire(5, Flag()).type == "ok"
    keys, sessions = guarded_consul.contents()
    assert [key for key, _ in keys if key.startswith(PREFIX)] == [f"{PREFIX}/lock"]
    assert [name for name in sessions if name.startswith(PREFIX)] == [f"{PREFIX} contender 0"]
    lock.close()
    assert System().tidy(there, PREFIX) == 1
    assert guarded_consul.contents() == before


def test_what_cannot_be_removed_is_named(papers: Path) -> None:
    """Where no endpoint answers."""
    with pytest.raises(EndpointError, match=f"keys below {PREFIX}/ may be left .*: 127.0.0.1:1 can't be reached"):
        System().tidy(access(["127.0.0.1:1"], {}), PREFIX)


def test_the_names_of_permissions_are_those_that_work() -> None:
    """What an error tells to grant is what the tests' own token has."""
    assert consul_attached.PERMISSIONS.replace(" and ", " ") == consul.RULES
