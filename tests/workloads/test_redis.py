"""Redis' lock client against servers that answer badly: one operation, one deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.attached.anybody import answering
from workloads.clients.base import Acquired, Answered, ClientConfig
from workloads.clients.redis import RedisLock
from workloads.clients.redis_sentinel import RedisSentinelLock
from workloads.clocks import Flag


def config(endpoint: str, **settings: object) -> ClientConfig:
    host, _, port = endpoint.rpartition(":")
    return ClientConfig({"endpoints": [[host, int(port)]], **settings}, "lock", 2.0, 0, 0.4, lambda reason: None)


@pytest.mark.parametrize("begins", [b"", b"$1000000\r\n"])
def test_a_server_that_drips_holds_nobody_past_the_deadline(begins: bytes) -> None:
    """Each byte comes in time, the whole answer would take for ever: given up while it still comes, and unknown."""
    over = threading.Event()

    def drip(_: bytes) -> Iterator[bytes]:
        yield begins
        while not over.wait(0.02):
            yield b"+" if not begins else b"1"

    got: list[Acquired | Answered] = []
    with answering(drip) as endpoint:
        lock = RedisLock(config(endpoint))
        asking = threading.Thread(target=lambda: got.extend((lock.acquire(0.1, Flag()), lock.renew())), daemon=True)
        asking.start()
        asking.join(60)
        ended = not asking.is_alive()
        over.set()
    assert ended, "it waits for as long as the server drips"
    for each in got:  # on a machine that stood still for so long, already to connect took all of the time
        kind, _, why = str(each.error).partition(": ")
        assert each.type == ("fail" if kind == "connect" else "info")
        assert kind == "connect" or why == "no whole answer within 0.4 s"
    assert lock.doubtful
    lock.close()


@pytest.mark.parametrize("answer", [b"220 mail.example ESMTP\r\n", b"*1\r\n" * 100_000, b"+taken\r\n", b"$x\r\n"])
def test_garbage_is_unknown(answer: bytes) -> None:
    """Nobody knows what was done by whoever says so."""
    with answering(lambda _: [answer]) as endpoint:
        lock = RedisLock(config(endpoint))
        got = lock.acquire(0.1, Flag())
        assert got.type == "info"
        assert str(got.error).startswith("garbage: ")
        lock.close()


def test_a_primary_to_which_no_way_leads_is_a_certain_failure() -> None:
    """A Sentinel names one that was not there when the trial began: nothing was sent."""
    with answering(lambda _: [b"*2\r\n$9\r\n192.0.2.7\r\n$4\r\n6379\r\n"]) as endpoint:
        lock = RedisSentinelLock(config(endpoint, group="main", ways={"192.0.2.8:6379": ["e4", 26379]}))
        got = lock.acquire(0.01, Flag())
        assert got.type == "fail"
        assert str(got.error).startswith("no way to the primary 192.0.2.7:6379")
        lock.close()
