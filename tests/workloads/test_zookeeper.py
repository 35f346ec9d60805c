"""ZooKeeper's lock client, on a kazoo that has been told that its session is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from workloads.clients.base import ClientConfig
from workloads.clients.zookeeper import ZooKeeperLock
from workloads.clocks import Flag


class Kazoo:
    """The answers of a healthy ensemble that has one node, made by the session 7; ours is another from a moment on."""

    connected = True

    def __init__(self, session: int, later: int | None = None) -> None:
        self._session_id, self._later, self._name = session, later, ""
        self.deleted = False

    def _done(self, value: Any) -> Any:
        result = SequentialThreadingHandler().async_result()
        result.set(value)
        return result

    def create_async(self, path: str, data: bytes, **_: Any) -> Any:
        self._name = f"{path.rpartition('/')[2]}0000000011"
        return self._done((f"{path}0000000011", SimpleNamespace(czxid=99, ephemeralOwner=7)))

    def get_children_async(self, path: str) -> Any:
        self._session_id = self._later or self._session_id
        return self._done([self._name])

    def transaction(self) -> Any:
        return SimpleNamespace(check=lambda path, version: None, commit_async=lambda: self._done([True]))


def lock(kazoo: Kazoo) -> ZooKeeperLock:
    settings = {"endpoints": [["127.0.0.1", 2181]]}
    made = ZooKeeperLock(
        ClientConfig(
            settings=settings, lock="lock", ttl_seconds=2.0, process=0, operation_seconds=0.6, on_lost=lambda _: None
        )
    )
    made._client = kazoo
    return made


def test_a_node_of_the_own_session_is_a_grant() -> None:
    """And as long as the session lasts, a renewal is one."""
    made = lock(kazoo := Kazoo(7))
    assert (answer := made.acquire(1.0, Flag())).type == "ok", answer
    assert answer.token == 99
    assert made.renew().type == "ok"
    kazoo._session_id = 8
    assert (told := made.renew()).held is False, told


def test_a_node_of_a_session_before_is_no_grant() -> None:
    """A leader that wakes without a quorum says "expired"; kazoo has a new session, and the old one's node is there."""
    answer = lock(Kazoo(7, later=8)).acquire(1.0, Flag())
    assert answer.type == "fail"
    assert str(answer.error).startswith("expired while waiting")
