"""The arguments of a command: everything that comes over stdin is checked here before it is used."""

from __future__ import annotations

import base64
import binascii
import socket
from typing import Any, Dict

from nemesis.agent.base import Refused


def take(command: Dict[str, Any], name: str, kind: Any, default: Any = ...) -> Any:
    """An argument of a command. Refused when it is missing without a default, or of another type."""
    value = command.get(name)
    if value is None:
        if default is ...:
            raise Refused("%s: argument %r is missing" % (command.get("op"), name))
        return default
    good = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
    if not good:
        raise Refused("%s: argument %r must be %s, not %r" % (command.get("op"), name, _kind_name(kind), value))
    return value


def _kind_name(kind: Any) -> str:
    return " or ".join(k.__name__ for k in kind) if isinstance(kind, tuple) else str(kind.__name__)


def take_seconds(command: Dict[str, Any], name: str, default: float, most: float = 3600.0) -> float:
    """A duration in seconds, above 0 and at most `most`."""
    value = float(take(command, name, (int, float), default))
    if not 0 < value <= most:
        raise Refused("%s: %r must be above 0 and at most %g s, not %r" % (command.get("op"), name, most, value))
    return value


def take_port(command: Dict[str, Any], name: str, default: Any = ...) -> Any:
    """A port number, or the default."""
    value = take(command, name, int, default)
    if value is not None and not 0 < value < 65536:
        raise Refused("%s: %r must be a port from 1 to 65535, not %r" % (command.get("op"), name, value))
    return value


def take_bytes(command: Dict[str, Any], name: str) -> bytes:
    """A byte string sent as base64; empty when it is missing."""
    try:
        return base64.b64decode(take(command, name, str, ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused("%s: %r is not base64: %s" % (command.get("op"), name, error)) from error


def family_of(address: Any) -> int:
    """4 or 6. Refused when it isn't an address."""
    if isinstance(address, str):
        for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
            try:
                socket.inet_pton(family, address)
                return version
            except (OSError, ValueError):
                continue
    raise Refused("%r is not an IPv4 or IPv6 address" % (address,))
