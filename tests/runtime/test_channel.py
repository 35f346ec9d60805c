"""The thread that hears the pid 1s of a site."""

from __future__ import annotations

import socket
from typing import Any

from harness.runtime.local.channel import Channel, Switchboard
from harness.runtime.local.inside import wire
from tests.runtime.conftest import eventually


def test_a_socket_that_gets_the_number_of_one_that_has_ended_is_heard() -> None:
    """Sockets are made by other threads while the end of one is dealt with, and the kernel gives out the lowest number
    that is free.
    """
    heard: list[dict[str, Any]] = []
    theirs: list[socket.socket] = []
    numbers: list[int] = []
    switchboard = Switchboard("s")

    def connect(ended: Any) -> None:
        ours, other = wire.pair()
        theirs.append(other)
        numbers.append(ours.fileno())
        switchboard.add(Channel(ours, f"node {len(theirs)}", lambda event, _: heard.append(event), ended))

    connect(lambda: None)  # the site's own
    connect(lambda: connect(lambda: None))  # where another one begins at its end
    theirs[1].close()
    eventually("the next one", lambda: len(theirs) == 3)
    assert numbers[2] == numbers[1]
    wire.send(theirs[2], {"event": "here"})
    eventually("what the next one says", lambda: heard == [{"event": "here"}])
    for sock in (theirs[2], theirs[0]):
        sock.close()
    switchboard._thread.join(60)
    assert not switchboard._thread.is_alive()
