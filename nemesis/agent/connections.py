"""TCP connections: read from /proc/net, ended by the kernel's own socket diagnosis (as `ss -K` does)."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Union

from nemesis.agent.arguments import family_of, take
from nemesis.agent.base import Refused, read_all
from nemesis.agent.processes import Stat

Connection = Tuple[str, int, str, int]
"""Local address and port, remote address and port. IPv4 addresses are written as such, also those of IPv6 sockets."""
ESTABLISHED = "01"
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, SOCK_DESTROY, NLMSG_ERROR = 4, 20, 21, 2
REQUEST, REQUEST_AND_ACK = 1, 1 | 4
NO_COOKIE = b"\xff" * 8
REFUSALS = {
    errno.EOPNOTSUPP: "this kernel can't (it needs CONFIG_INET_DIAG_DESTROY)",
    errno.EPERM: "not permitted (the node needs the capability NET_ADMIN)",
}


def connections(peers: Sequence[Any], only: Optional[Dict[int, Stat]] = None) -> List[Connection]:
    """The established connections of this node with these addresses, in order; with `only`, of these processes."""
    wanted = set()
    for peer in peers:
        family_of(peer)
        wanted.add(_plain(socket.AF_INET6 if ":" in peer else socket.AF_INET, _packed(peer)))
    inodes = None if only is None else _sockets(only)
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            lines = read_all("/proc/self/net/" + table).decode("ascii").splitlines()[1:]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        for line in lines:
            words = line.split()
            if words[3] != ESTABLISHED or (inodes is not None and words[9] not in inodes):
                continue
            (local, local_port), (remote, remote_port) = (_end(family, word) for word in words[1:3])
            if remote in wanted:
                found.append((local, local_port, remote, remote_port))
    return sorted(found)


def _sockets(processes: Dict[int, Stat]) -> Set[str]:
    """The inodes of all sockets that these processes have open."""
    found = set()
    for pid in processes:
        folder = "/proc/%d/fd" % pid
        try:
            names = os.listdir(folder)
        except PermissionError:
            raise Refused("the sockets of process %d can't be read (the node needs SYS_PTRACE)" % pid) from None
        except OSError:
            continue  # it has ended
        for name in names:
            try:
                target = os.readlink(os.path.join(folder, name))
            except OSError:
                continue  # closed meanwhile
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _end(family: int, text: str) -> Tuple[str, int]:
    """One end as /proc/net has it: the address in words of the machine's own byte order, the port in hex."""
    words, _, port = text.partition(":")
    raw = bytes.fromhex(words)
    packed = b"".join(struct.pack(">I", struct.unpack("=I", raw[at : at + 4])[0]) for at in range(0, len(raw), 4))
    return _plain(family, packed), int(port, 16)


def _plain(family: int, packed: bytes) -> str:
    """An address as text; one of IPv4 that an IPv6 socket has is written as IPv4."""
    if family == socket.AF_INET6 and packed.startswith(b"\0" * 10 + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return socket.inet_ntop(family, packed)


def reset_connections(command: Dict[str, Any]) -> List[str]:
    """End this node's end of each of `connections`: the kernel sends its peer an RST, and its program gets an error.

    A word for each, in order: "reset", or "gone" when there was no such connection any more.
    """
    wanted = [_connection(each) for each in take(command, "connections", list)]
    words = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as diagnosis:
        diagnosis.settimeout(2.0)
        for connection in wanted:
            number = _destroy(diagnosis, connection)
            if number and number != errno.ENOENT:
                raise Refused(
                    "the connection %s:%d to %s:%d can't be reset: %s"
                    % (*connection, REFUSALS.get(number, os.strerror(number)))
                )
            words.append("gone" if number else "reset")
    return words


def _connection(value: Any) -> Connection:
    if not isinstance(value, list) or len(value) != 4 or family_of(value[0]) != family_of(value[2]):
        raise Refused("reset: a connection must be [local, port, remote, port], not %r" % (value,))
    for port in (value[1], value[3]):
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
            raise Refused("reset: %r is not a port" % (port,))
    return (value[0], value[1], value[2], value[3])


def _destroy(diagnosis: socket.socket, connection: Connection) -> int:
    """One order to the kernel; 0, or the number of its error (ENOENT: there is no such connection).

    The kernel looks a connection up like a packet that arrives, and so falls back on the socket that *listens* there.
    That one must live, so the connection is asked for first, and ended by its cookie.
    """
    found = _ask(diagnosis, SOCK_DIAG_BY_FAMILY, connection, NO_COOKIE)
    if isinstance(found, int):
        return found
    state, port, cookie = found[1], int.from_bytes(found[6:8], "big"), found[44:52]
    if state != int(ESTABLISHED, 16) or port != connection[3]:
        return errno.ENOENT
    ended = _ask(diagnosis, SOCK_DESTROY, connection, cookie)
    if not isinstance(ended, int):
        raise Refused("reset: the kernel gave another answer than to the order: %r" % ended[:32])
    return errno.ENOENT if ended == errno.ESTALE else ended


def _ask(diagnosis: socket.socket, kind: int, connection: Connection, cookie: bytes) -> Union[int, bytes]:
    """One message (struct inet_diag_req_v2), and what the kernel says of it: an error's number, or what it found."""
    local, local_port, remote, remote_port = connection
    family = socket.AF_INET6 if ":" in local else socket.AF_INET
    ends = struct.pack("!HH", local_port, remote_port)
    ends += _packed(local).ljust(16, b"\0") + _packed(remote).ljust(16, b"\0")
    # family, protocol, no extensions, every state; the ends, any interface, the cookie
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends + struct.pack("=I", 0) + cookie
    flags = REQUEST_AND_ACK if kind == SOCK_DESTROY else REQUEST
    diagnosis.send(struct.pack("=IHHII", 16 + len(request), kind, flags, 1, 0) + request)
    answer = diagnosis.recv(65536)
    if struct.unpack_from("=H", answer, 4)[0] == NLMSG_ERROR:
        return -int(struct.unpack_from("=i", answer, 16)[0])
    return answer[16:]
