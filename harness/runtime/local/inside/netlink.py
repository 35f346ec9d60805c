"""Links and addresses, asked of the kernel over rtnetlink: what `ip link` and `ip address` do, without a program.

Everything happens in the network namespace of the calling process. Errors are OSError that say what was tried.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

_NEWLINK, _GETLINK, _NEWADDR, _GETADDR = 16, 18, 20, 22
_REQUEST, _ACK, _EXCL, _CREATE, _DUMP = 1, 4, 0x200, 0x400, 0x300
_ERROR, _DONE = 2, 3
_IFNAME, _MASTER, _LINKINFO, _NET_NS_PID = 3, 10, 18, 19
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_BRIDGE_SNOOPING = 23
_ADDRESS, _LOCAL, _FLAGS = 1, 2, 8
_NODAD = 0x02
IFF_UP, _RUNNING = 1, 0x40
_NESTED = 0x8000

_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ADDR = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")


class Link(NamedTuple):
    """An interface: its number and name, that of the bridge it is on (0: none), and whether it is up and connected."""

    number: int
    name: str
    master: int
    running: bool


def add_bridge(name: str) -> int:
    """Make a bridge and set it up; returns its number.

    It floods what goes to a group: nobody here asks who wants to hear it, and IPv6 finds its neighbours by groups.
    """
    data = _attribute(_BRIDGE_SNOOPING, b"\0")
    info = _attribute(_INFO_KIND, b"bridge") + _attribute(_INFO_DATA | _NESTED, data)
    body = _LINK.pack(0, 0, 0, IFF_UP, IFF_UP) + _name(name) + _attribute(_LINKINFO | _NESTED, info)
    _change(_NEWLINK, _CREATE | _EXCL, body, f"making the bridge {name}")
    return socket.if_nametoindex(name)


def add_veth(name: str, bridge: int, peer: str, process: int) -> None:
    """Make a pair of interfaces: one on a bridge here, set up; the other in the network namespace of a process."""
    other = _LINK.pack(0, 0, 0, 0, 0) + _name(peer) + _attribute(_NET_NS_PID, struct.pack("=I", process))
    data = _attribute(_VETH_PEER | _NESTED, other)
    info = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA | _NESTED, data)
    body = _LINK.pack(0, 0, 0, IFF_UP, IFF_UP) + _name(name) + _attribute(_MASTER, struct.pack("=I", bridge))
    body += _attribute(_LINKINFO | _NESTED, info)
    _change(_NEWLINK, _CREATE | _EXCL, body, f"making the interface {name}")


def set_up(name: str) -> None:
    """Set an interface up."""
    body = _LINK.pack(0, 0, socket.if_nametoindex(name), IFF_UP, IFF_UP)
    _change(_NEWLINK, 0, body, f"setting {name} up")


def add_address(name: str, address: str) -> None:
    """Give an interface an address with its prefix ("10.183.0.11/24"); usable at once, without asking who has it."""
    host, _, prefix = address.partition("/")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    body = _ADDR.pack(family, int(prefix), 0, 0, socket.if_nametoindex(name))
    for kind in (_LOCAL, _ADDRESS):
        body += _attribute(kind, socket.inet_pton(family, host))
    body += _attribute(_FLAGS, struct.pack("=I", _NODAD))
    _change(_NEWADDR, _CREATE | _EXCL, body, f"giving {name} the address {address}")


def links() -> list[Link]:
    """All interfaces of this namespace."""
    found = []
    for body in _ask(_GETLINK, _LINK.pack(0, 0, 0, 0, 0), "listing interfaces"):
        _, _, index, flags, _ = _LINK.unpack_from(body)
        attributes = dict(_attributes(body[_LINK.size :]))
        name = attributes[_IFNAME].rstrip(b"\0").decode()
        master = int(struct.unpack("=I", attributes[_MASTER])[0]) if _MASTER in attributes else 0
        found.append(Link(index, name, master, bool(flags & IFF_UP and flags & _RUNNING)))
    return found


def addresses(name: str) -> list[str]:
    """The addresses of an interface, those of the link itself (fe80::…) left out; none when it isn't there."""
    try:
        wanted = socket.if_nametoindex(name)
    except OSError:
        return []
    found = []
    for body in _ask(_GETADDR, _ADDR.pack(0, 0, 0, 0, 0), "listing addresses"):
        family, _, _, scope, index = _ADDR.unpack_from(body)
        if index == wanted and scope == 0 and family in (socket.AF_INET, socket.AF_INET6):
            attributes = dict(_attributes(body[_ADDR.size :]))
            found.append(socket.inet_ntop(family, attributes.get(_LOCAL) or attributes[_ADDRESS]))
    return found


def _attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + b"\0" * (-length % 4)


def _name(name: str) -> bytes:
    return _attribute(_IFNAME, name.encode() + b"\0")


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind & ~_NESTED, data[_ATTRIBUTE.size : length]
        data = data[length + (-length % 4) :]


def _change(kind: int, flags: int, body: bytes, what: str) -> None:
    for _ in _exchange(kind, _REQUEST | _ACK | flags, body, what):
        pass


def _ask(kind: int, body: bytes, what: str) -> Iterator[bytes]:
    return _exchange(kind, _REQUEST | _DUMP, body, what)


def _exchange(kind: int, flags: int, body: bytes, what: str) -> Iterator[bytes]:
    """The bodies of all answers to one message, until the kernel says that it is done."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.bind((0, 0))
        sock.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body)
        while True:
            data = sock.recv(1 << 18)
            while len(data) >= _HEADER.size:
                length, answer, _, _, _ = _HEADER.unpack_from(data)
                content, data = data[_HEADER.size : length], data[length + (-length % 4) :]
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    number = -int(struct.unpack_from("=i", content)[0])
                    if number:
                        raise OSError(number, f"{what}: {os.strerror(number)}")
                    return
                yield content
