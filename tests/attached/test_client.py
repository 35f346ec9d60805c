"""etcd's lock client at an etcd with TLS and users, without a site: it logs in, waits, and logs in again."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from harness.systems import attached
from tests.attached.etcd import PASSWORD, USER, Etcd
from workloads.clients.base import Acquired, ClientConfig
from workloads.clients.etcd import EtcdLock
from workloads.clocks import Flag


def client(etcd: Etcd, papers: Path, process: int = 0, password: str = PASSWORD, ttl: float = 5.0) -> EtcdLock:
    """Reaches it itself, where a contender goes through a relay; `localhost` in its place has another name."""
    options = {"ca_file": str(papers / "ours.pem"), "user": USER, "password": password}
    settings = attached.access([etcd.endpoint], options).client_settings(["localhost"], etcd.port)
    config = ClientConfig(
        {**settings, "prefix": "fencepost/client"}, "lock", ttl, process, ttl / 3, lambda reason: None
    )
    return EtcdLock(config)


def test_a_waiter_is_told_through_tls_that_its_turn_has_come(guarded: Etcd, papers: Path) -> None:
    """By its watch, long before it would look by itself; with the keys below the prefix, which go with the release."""
    first, second = client(guarded, papers), client(guarded, papers, 1)
    assert first.connect(10) is None
    assert second.connect(10) is None
    held = first.acquire(5, Flag())
    assert held.type == "ok", held
    assert [key for key in guarded.contents() if key.startswith("fencepost/client/lock/")]
    got: list[tuple[Acquired, float]] = []
    waiter = threading.Thread(target=lambda: got.append((second.acquire(20, Flag()), time.monotonic())))
    waiter.start()
    end = time.monotonic() + 60
    while not second.counters["watches"]:
        assert time.monotonic() < end, "the second began to wait"
        time.sleep(0.01)
    released = time.monotonic()
    assert first.release().type == "ok"
    waiter.join(60)
    ((acquired, at),) = got
    assert acquired.type == "ok"
    assert at - released < second.renew_every_seconds / 2
    assert second.release().type == "ok"
    for each in (first, second):
        each.close()
    assert not [key for key in guarded.contents() if key.startswith("fencepost/client/")]


def test_a_token_that_is_not_known_any_more_is_replaced_and_counted(guarded: Etcd, papers: Path) -> None:
    """As after a restart of the servers: what was refused had done nothing, and is asked once more. So is what went out
    without a token, because a login while the endpoint was cut off had no answer.
    """
    lock = client(guarded, papers)
    assert lock.connect(10) is None
    lock._http.headers["Authorization"] = "forgotten.1"
    assert lock.acquire(5, Flag()).type == "ok"
    assert lock.counters["logins"] == 2
    assert lock.release().type == "ok"
    assert lock._log_in(0.0001) is not None
    assert lock.acquire(5, Flag()).type == "ok"
    assert lock.counters["logins"] == 4
    assert lock.release().type == "ok"
    lock.close()


def test_a_password_that_is_refused_ends_the_start(guarded: Etcd, papers: Path) -> None:
    """At once: it will not be taken the next time either."""
    began = time.monotonic()
    why = client(guarded, papers, password="wrong-Donkey-8").connect(60)
    assert why is not None
    assert why.startswith(f"no login as '{USER}': etcdserver: authentication failed")
    assert time.monotonic() - began < 30
