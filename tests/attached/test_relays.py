"""The way from a site to an endpoint: bytes, both ends' closing, an endpoint that is down, and a relay that ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from harness.errors import HarnessError
from harness.runtime.base import Node, NodeSpec
from harness.systems.attached import Endpoint
from harness.trial.relays import Relays
from tests import place
from tests.attached.etcd import free_ports
from tests.waiting import until

pytestmark = pytest.mark.nodes

TALK = """
import socket, sys
sock = socket.create_connection((sys.argv[1], 2379), timeout=10)
sock.sendall(sys.argv[2].encode() * int(sys.argv[3]))
got = b""
while len(got) < len(sys.argv[2]) * int(sys.argv[3]) and (data := sock.recv(65536)):
    got += data
print(len(got), got[:5].decode())
sock.close()
"""

KILL = """
import os
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid() and b"workloads.relay" in open(f"/proc/{pid}/cmdline", "rb").read():
        os.kill(int(pid), 9)
        print("killed")
"""


class Echo:
    """Says back what it hears. `ended` counts the connections whose other end has closed."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.ended = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.socket.getsockname()[1])

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)
        self.ended += 1


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    with place.site() as site:
        yield site.start_nodes([NodeSpec("e1", "contender"), NodeSpec("e2", "contender"), NodeSpec("c0", "contender")])


def talk(node: Node, host: str, text: str, times: int = 1) -> str:
    """What a program on that node hears back: how many bytes, and the first of them."""
    done = node.run(["python3", "-c", TALK, host, text, str(times)], timeout_seconds=60)
    return (done.stdout or done.stderr).decode().strip()


def test_a_node_without_a_way_out_reaches_the_endpoint_alone(nodes: list[Node]) -> None:
    """By both families, a megabyte at once; who closes is closed there; an endpoint that is down closes unheard; and
    when the relays are closed nothing gets there any more."""
    echo, (nobody,) = Echo(), free_ports(1)
    e1, e2, c0 = nodes
    relays = Relays([e1, e2], [echo.endpoint, Endpoint("127.0.0.1", nobody)], 2379)
    relays.start()
    try:
        for address in e1.addresses:
            assert talk(c0, address, "hello") == "5 hello"
        assert talk(c0, "e1", "abcde", 200_000) == "1000000 abcde"
        until(lambda: echo.ended == len(e1.addresses) + 1, "the endpoint hears that they have closed")
        heard = talk(c0, "e2", "hello")
        assert heard == "0" or "reset by peer" in heard, "closed in order, or with what was sent still unread"
        told = relays.all[1].told()
        assert (told["connections"], told["refused"]) == (1, 1)
        assert "refused" in str(told["last_error"]) or "Connect call failed" in str(told["last_error"])
        assert "unreachable" in talk(c0, "192.0.2.1", "hello")
        relays.check()
    finally:
        relays.close()
    relays.close()
    assert "refused" in talk(c0, "e1", "hello")
    echo.socket.close()


def test_a_relay_that_ends_is_told(nodes: list[Node]) -> None:
    """Nobody gets on without it, and no fault did that."""
    relays = Relays([nodes[0]], [Endpoint("127.0.0.1", 1)], 2380)
    relays.start()
    try:
        relays.check()
        assert nodes[0].run(["python3", "-c", KILL]).stdout == b"killed\n"

        def told() -> bool:
            try:
                relays.check()
            except HarnessError as error:
                return "the relay to 127.0.0.1:1 on e1 has ended" in str(error)
            return False

        until(told, "the end is told")
    finally:
        relays.close()
