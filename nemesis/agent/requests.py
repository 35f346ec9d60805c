"""Requests to this node's own server: the harness has no route to it, the agent has."""

from __future__ import annotations

import base64
import socket
import time
from typing import Any, Dict

from nemesis.agent.arguments import take, take_bytes, take_port, take_seconds
from nemesis.agent.base import Refused, why


def http_request(command: Dict[str, Any]) -> Dict[str, Any]:
    """One request to this node's own server. `timeout` bounds the whole of it."""
    import http.client  # 20 ms to import, and only servers' nodes need it

    timeout = take_seconds(command, "timeout", 1.0)
    end = time.monotonic() + timeout
    host, port = take(command, "host", str, "127.0.0.1"), take_port(command, "port")
    body = take_bytes(command, "body")
    headers = take(command, "headers", dict, {})
    where = "%s:%d" % (host, port)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.connect()
        sock = connection.sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.request(take(command, "method", str), take(command, "path", str), body or None, headers)
        sock.settimeout(max(0.001, end - time.monotonic()))
        reply = connection.getresponse()
        parts = []
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise socket.timeout("timed out")
            sock.settimeout(left)
            part = reply.read1(65536) if hasattr(reply, "read1") else reply.read()
            if not part:
                break
            parts.append(part)
        return {
            "status": reply.status,
            "body": base64.b64encode(b"".join(parts)).decode(),
            "date": reply.getheader("Date"),
        }
    except socket.timeout:
        raise Refused("no answer from %s within %g s" % (where, timeout)) from None
    except (OSError, http.client.HTTPException, ValueError, UnicodeError) as error:
        raise Refused("no answer from %s: %s" % (where, why(error))) from error
    finally:
        connection.close()


def tcp_request(command: Dict[str, Any]) -> Dict[str, Any]:
    """Send bytes to this node's own server, read until it closes or `read_bytes` came; 1 = the first chunk."""
    timeout = take_seconds(command, "timeout", 1.0)
    end = time.monotonic() + timeout
    host, port = take(command, "host", str, "127.0.0.1"), take_port(command, "port")
    want = take(command, "read_bytes", int, 65536)
    if want < 1:
        raise Refused("tcp: 'read_bytes' must be at least 1, not %d" % want)
    payload = take_bytes(command, "payload")
    where = "%s:%d" % (host, port)
    got = b""
    try:
        with socket.create_connection((host, port), timeout=timeout) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(payload)
            while len(got) < want:
                left = end - time.monotonic()
                if left <= 0:
                    raise socket.timeout("timed out")
                sock.settimeout(left)
                part = sock.recv(65536)
                if not part:
                    break
                got += part
    except socket.timeout:
        raise Refused("no full answer from %s within %g s (%d bytes came)" % (where, timeout, len(got))) from None
    except OSError as error:
        raise Refused("no answer from %s: %s" % (where, why(error))) from error
    return {"data": base64.b64encode(got).decode()}
