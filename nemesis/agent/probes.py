"""Probes of links: listeners that wait to be reached, and attempts to reach those of other nodes."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import threading
import time
from typing import Any, Dict, List, Optional, Sequence

from nemesis.agent.arguments import family_of
from nemesis.agent.base import Refused, log, now_ns, why


class Listeners(object):
    """What a probe connects to: one TCP listener and one UDP socket for both families, on ports the kernel chose.

    A probe so depends on no port of the system under test, and works while that is frozen. UDP tells the two
    directions of a link apart: a datagram that was heard came through, whatever happens to an answer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: Dict[str, Dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._ports: Optional[Dict[str, int]] = None

    def open(self) -> Dict[str, int]:
        """The ports, {"tcp": …, "udp": …}; opened at the first call and kept until the agent leaves."""
        with self._lock:
            if self._ports is None:
                tcp, udp = self._socket(socket.SOCK_STREAM), self._socket(socket.SOCK_DGRAM)
                tcp.listen(64)
                self._ports = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
                threading.Thread(target=self._accept, args=(tcp,), daemon=True).start()
                threading.Thread(target=self._receive, args=(udp,), daemon=True).start()
            return self._ports

    @staticmethod
    def _socket(kind: int) -> socket.socket:
        try:
            sock = socket.socket(socket.AF_INET6, kind)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(("::", 0))
        except OSError:  # a node without IPv6
            sock = socket.socket(socket.AF_INET, kind)
            sock.bind(("0.0.0.0", 0))
        return sock

    @staticmethod
    def _accept(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
                connection.close()
            except OSError as error:
                log("probe listener: %s" % error)
                if error.errno not in (errno.ECONNABORTED, errno.EMFILE, errno.EINTR):
                    return

    def _receive(self, sock: socket.socket) -> None:
        while True:
            data, sender = sock.recvfrom(256)
            with self._changed:
                if len(self._heard) > 10000:
                    self._heard.clear()
                self._heard[data.decode("ascii", "replace")] = {"from": sender[0], "boottime_ns": now_ns()}
                self._changed.notify_all()

    def heard(self, words: Sequence[str], timeout: float) -> List[str]:
        """Which of these words arrived by UDP; waits until all have, at most for the timeout."""
        end = time.monotonic() + timeout
        with self._changed:
            while True:
                got = [word for word in words if word in self._heard]
                left = end - time.monotonic()
                if len(got) == len(words) or left <= 0:
                    return got
                self._changed.wait(left)


def probe(targets: Sequence[Any], timeout: float) -> List[str]:
    """Try to connect to each [address, port] at once. A word for each, in order.

    "connected", or "refused" (an answer came, nobody listens): the link works, both ways. "timeout": nothing came
    back. Else the kernel's own word, such as "No route to host".
    """
    results = ["timeout"] * len(targets)
    selector = selectors.DefaultSelector()
    for index, target in enumerate(targets):
        if not isinstance(target, list) or len(target) != 2:
            raise Refused("probe: a target must be [address, port], not %r" % (target,))
        address, port = target
        family = socket.AF_INET if family_of(address) == 4 else socket.AF_INET6
        if not isinstance(port, int) or not 0 < port < 65536:
            raise Refused("probe: %r is not a port" % (port,))
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        status = sock.connect_ex((address, port))
        if status == errno.EINPROGRESS:
            selector.register(sock, selectors.EVENT_WRITE, index)
        else:
            results[index] = _probe_word(status)
            sock.close()
    end = time.monotonic() + timeout
    while selector.get_map():
        left = end - time.monotonic()
        if left <= 0:
            break
        for key, _ in selector.select(left):
            sock = key.fileobj  # type: ignore[assignment]
            results[key.data] = _probe_word(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            selector.unregister(sock)
            sock.close()
    for key in list(selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    selector.close()
    return results


def _probe_word(status: int) -> str:
    return {0: "connected", errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "timeout"}.get(status, os.strerror(status))


def shout(targets: Sequence[Any]) -> List[Optional[str]]:
    """Send a UDP datagram to each [address, port, word], three times; for each None, or why it could not be sent."""
    results: List[Optional[str]] = []
    for target in targets:
        if not isinstance(target, list) or len(target) != 3 or not isinstance(target[2], str):
            raise Refused("shout: a target must be [address, port, word], not %r" % (target,))
        family = socket.AF_INET if family_of(target[0]) == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            try:
                for _ in range(3):
                    sock.sendto(target[2].encode("ascii", "replace"), (target[0], int(target[1])))
                results.append(None)
            except OSError as error:
                results.append(why(error))
    return results
