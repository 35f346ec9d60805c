"""A cluster that exists: where it is, how to get in, and what a system must know to use one that isn't ours.

A trial at `--endpoints HOST:PORT,…` starts no server. Contenders reach these addresses through relays
(harness/trial/relays.py), the harness asks them from its own host, and neither sees any more of the cluster than its
clients do. How to get in is said by options of their own (`endpoint_options`, by the names in OPTIONS).

A system takes this when it is `Attachable`; one that isn't says why in `attaching`, or the usual sentence is said.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from harness import documents, redaction
from harness.errors import ConfigError, HarnessError, UsageError
from harness.systems.asking import read_as
from harness.systems.base import Settings, System
from workloads.clients.http import Tls

CONNECT_SECONDS = 3.0
MOST_ENDPOINTS = 15
MOST_BYTES = 1 << 20
"""Of a file with certificates."""

Options = Mapping[str, tuple[type, str]]
"""Name of an option -> its type, and what it is."""

LOGIN: Options = {
    "user": (str, "who logs in, with password"),
    "password": (str, "env:NAME"),
}
"""How one gets in where a system says nothing else (`endpoint_options`)."""

OPTIONS: Options = {
    "tls": (bool, "whether they speak TLS; true when any of the next four is given"),
    "ca_file": (str, "whose certificates to trust (PEM); without it those that this machine trusts"),
    "cert_file": (str, "the client's own certificate (PEM), with key_file"),
    "key_file": (str, "its key (PEM, without a passphrase)"),
    "server_name": (str, "the name in the servers' certificates, where it isn't their host"),
}
"""The options that endpoints of every system take, beside their own."""

UNSEEN = (
    "who leads, and when that changes: no server can be asked by its node",
    "the servers' clocks and processes: whether one stood still, was restarted, or had its clock moved",
    "the servers' logs",
    "which of the endpoints' options decide about leases and elections: their usual values are taken for granted",
)
"""What nobody sees of such a cluster, in the words of the report."""


class EndpointError(HarnessError):
    """An endpoint can't be used as it was asked for: what was tried, what came of it, and what would be right."""

    exit_code = 2


@dataclass(frozen=True, order=True)
class Endpoint:
    """Where one server of the cluster takes clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Refused(EndpointError):
    """The system's own refusal; `words` are its own."""

    def __init__(self, endpoint: Endpoint, words: str) -> None:
        self.words = words
        super().__init__(f"{endpoint} refuses: {words}")


@dataclass(frozen=True)
class Access:
    """The cluster, and how to get in; `tls` is None where it isn't spoken. `own`: options of the system's own.

    `further` are places that nobody named and the examination found, to which contenders need a way, too.
    """

    endpoints: tuple[Endpoint, ...]
    tls: Tls | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    own: Mapping[str, Any] = field(default_factory=dict, repr=False)  # there are secrets among them
    further: tuple[Endpoint, ...] = ()

    @property
    def ways(self) -> tuple[Endpoint, ...]:
        """All to which contenders need a way: each gets a relay on a node of its own."""
        return (*self.endpoints, *self.further)

    def client_settings(self, relays: Sequence[str], port: int) -> dict[str, Any]:
        """What a lock client gets: where the relays are (a node for each of `ways`, in order), and how to get in."""
        told: dict[str, Any] = {"endpoints": [[node, port] for node in relays[: len(self.endpoints)]]}
        if self.tls is not None:
            # Through the relay the client speaks with the endpoint itself, whose certificate has the endpoint's name.
            names = {node: self.name_of(each) for node, each in zip(relays, self.ways, strict=True)}
            told["tls"] = {"ca": self.tls.ca, "cert": self.tls.cert, "key": self.tls.key, "names": names}
        if self.password is not None:  # of a default user there is the password alone
            told |= {"user": self.user, "password": self.password}
        return told

    def name_of(self, endpoint: Endpoint) -> str:
        """The name that its certificate must have."""
        if self.tls is None:
            return endpoint.host
        return self.tls.names.get(endpoint.host, self.tls.names.get("*", endpoint.host))


@dataclass(frozen=True)
class Found:
    """What an examination of a cluster came to: the version that it tells of itself (None where it doesn't tell it to
    us), and how to name it in a line.

    `access`: what was asked for, with what was found beside it; None where that is nothing. `unseen`: what nobody sees
    of this system, beside UNSEEN.
    """

    version: str | None
    words: str
    access: Access | None = None
    unseen: tuple[str, ...] = ()


@runtime_checkable
class Attachable(Protocol):
    """A system that can be used where it runs already.

    It may have `endpoint_options` (`Options`; LOGIN without it), how one gets in, and `client_options`: the names of
    its system options that are its lock client's and not its servers', and make sense there too.
    """

    def examine(self, access: Access, settings: Settings, prefix: str) -> Found:
        """Ask each endpoint, from here: is it this system, are all one cluster, may we do what a lock client does, and
        is the lease granted that is asked for? Leaves nothing behind, and writes below `prefix` alone.

        Raises EndpointError that names the endpoint.
        """

    def attached_config(self, access: Access, settings: Settings, relays: Sequence[str], prefix: str) -> dict[str, Any]:
        """What the lock client is told, all its keys below `prefix`. `relays`: a node for each of `access.ways`."""

    def tidy(self, access: Access, prefix: str) -> int:
        """Remove every key below `prefix`, and nothing else; how many there were. EndpointError when that is not sure.

        Called when no client of the trial is left.
        """


def why_not(system: System) -> str | None:
    """None when a system can be used where it runs already, else why it can't, as a sentence."""
    if isinstance(system, Attachable):
        return None
    reason = getattr(system, "attaching", None) or "its client and its checks know only clusters that the trial starts"
    return f"{system.name} can't be used by endpoints yet: {reason}"


def parse(texts: Sequence[str]) -> tuple[Endpoint, ...]:
    """`HOST:PORT` each, `[::1]:2379` for IPv6. UsageError for anything else, and for one that is given twice."""
    found: list[Endpoint] = []
    for text in texts:
        host, colon, port = text.strip().rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if "@" in text:
            raise UsageError("an endpoint is HOST:PORT, without a user: that goes into endpoint_options")
        if "/" in text:
            raise UsageError(
                f"{text!r:.80} is no endpoint: HOST:PORT is one, without https:// (that is the endpoint option tls)"
            )
        if not colon or not bare or (":" in bare) != (bare != host) or not port.isascii() or not port.isdigit():
            raise UsageError(f"{text!r:.80} is no endpoint: HOST:PORT is one, [::1]:2379 for IPv6")
        if not _is_host(bare):
            raise UsageError(f"{text!r:.80} is no endpoint: its host is neither a name nor an address")
        if len(port) > 5 or not 1 <= int(port) <= 65535:
            raise UsageError(f"{text!r:.80} is no endpoint: a port lies between 1 and 65535")
        endpoint = Endpoint(bare, int(port))
        if any(each.port == endpoint.port and each.host.lower() == bare.lower() for each in found):
            raise UsageError(f"the endpoint {endpoint} is given twice")
        found.append(endpoint)
    if len(found) > MOST_ENDPOINTS:
        raise UsageError(f"{len(found)} endpoints are more than the {MOST_ENDPOINTS} that a trial takes")
    return tuple(found)


def _is_host(text: str) -> bool:
    """Whether one can look it up: Python's own look-up raises what is no OSError for what is no name at all."""
    if not text.isprintable() or " " in text:
        return False
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def own_options(system: object) -> Options:
    """How one gets into this system, beside TLS."""
    found: Options = getattr(system, "endpoint_options", LOGIN)
    return found


def access(endpoints: Sequence[str], options: Mapping[str, Any], own: Options = LOGIN) -> Access:
    """The cluster, from a trial's `endpoints` and its `endpoint_options` with their secrets. Reads the files.

    `own` as `own_options` has them. Raises UsageError that names the option.
    """
    found = parse(endpoints)
    known = {**OPTIONS, **own}
    for name, value in options.items():
        if name not in known:
            raise UsageError(f"unknown endpoint option {name!r} (known: {', '.join(known)})")
        if not isinstance(value, known[name][0]):
            if known[name][0] is bool:
                raise UsageError(f"endpoint option {name!r} must be true or false, not {value!r:.80}")
            raise UsageError(f"endpoint option {name!r} must be a text: {read_as(name, value)}")
        if value == "":
            raise UsageError(f"endpoint option {name!r} is empty; leave it out")
    for one, other in (
        ("cert_file", "key_file"),
        ("key_file", "cert_file"),
        *((name, name.replace("user", "password")) for name in own if name.endswith("user")),
    ):
        if one in options and other not in options:
            raise UsageError(f"the endpoint option {one} needs {other} beside it")
    of_tls = [name for name in ("ca_file", "cert_file", "key_file", "server_name") if name in options]
    if options.get("tls") is False and of_tls:
        raise UsageError(f"the endpoint option {of_tls[0]} is for TLS, and tls is false")
    return Access(
        endpoints=found,
        tls=_tls(found, options) if options.get("tls") or of_tls else None,
        user=options.get("user"),
        password=options.get("password"),
        own={name: options[name] for name in own if name in options and name not in LOGIN},
    )


def _tls(endpoints: Sequence[Endpoint], options: Mapping[str, Any]) -> Tls:
    name = options.get("server_name")
    made = Tls(
        ca=_read(options, "ca_file"),
        cert=_read(options, "cert_file"),
        key=_read(options, "key_file"),
        names={} if name is None else {"*": name, **{endpoint.host: name for endpoint in endpoints}},
    )
    if made.key is not None:
        redaction.know(made.key)
    for names, of_it in (("ca_file", Tls(ca=made.ca)), ("cert_file, key_file", Tls(cert=made.cert, key=made.key))):
        try:
            of_it.context()
        except (ValueError, OSError) as error:  # ssl's errors are OSErrors
            raise UsageError(f"endpoint option {names}: no certificate that can be used: {error}") from error
    return made


def _read(options: Mapping[str, Any], name: str) -> str | None:
    if name not in options:
        return None
    path = Path(options[name])
    try:
        return documents.read_bytes(path.expanduser(), MOST_BYTES).decode("ascii")
    except ConfigError as error:  # names the path already
        raise UsageError(f"endpoint option {name}: {error}") from error
    except (OSError, ValueError, RuntimeError) as error:  # no text, a name with a NUL, ~ of nobody's
        raise UsageError(
            f"endpoint option {name}: {path} can't be read: {getattr(error, 'strerror', error)}"
        ) from error


def reach(access: Access, endpoint: Endpoint) -> None:
    """See that somebody listens there, and speaks TLS as it was said. EndpointError with what is the case instead."""
    sock = _connected(endpoint)
    if access.tls is None:
        sock.close()
        return
    try:
        with access.tls.context().wrap_socket(sock, server_hostname=access.name_of(endpoint)):
            pass
    except ssl.SSLCertVerificationError as error:
        raise EndpointError(
            f"the certificate of {endpoint} doesn't verify: {error.verify_message}; "
            "ca_file says whom to trust, server_name under which name"
        ) from error
    except (OSError, ValueError) as error:
        raise EndpointError(
            f"{endpoint} doesn't answer in TLS ({_words(error)}); if it speaks none, leave out tls and its files"
        ) from error
    finally:
        sock.close()


def speaks_tls(endpoint: Endpoint) -> bool:
    """Whether a handshake succeeds, whoever it is: for the error of a conversation without TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with _connected(endpoint) as sock, context.wrap_socket(sock):
            return True
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason)  # it took the hello for one, and wants something of us
    except (OSError, EndpointError):
        return False


class CameBack(EndpointError):
    """What was removed is there again: somebody else writes there, and to ask elsewhere would be no better."""


def at_any(access: Access, tidy: Callable[[Endpoint], int], left: str) -> int:
    """What tidying up came to at the first endpoint that answers.

    EndpointError where none does: what may be `left`, and what the first one said.
    """
    why: EndpointError | None = None
    for endpoint in access.endpoints:
        try:
            return tidy(endpoint)
        except CameBack:
            raise
        except EndpointError as error:
            why = why or error
    raise EndpointError(f"{left}: {why}")


def wants_tls(access: Access, endpoint: Endpoint) -> EndpointError | None:
    """The error of a conversation without TLS with somebody who speaks nothing else; None where it isn't that."""
    if access.tls is not None or not speaks_tls(endpoint):
        return None
    return EndpointError(f"{endpoint} wants TLS: give the endpoint option tls, or ca_file")


def unanswered(access: Access, endpoint: Endpoint, system: str, error: Exception) -> EndpointError:
    """The error of a request that got no answer as `system` gives one: with what would be right, where that is seen."""
    if (wanted := wants_tls(access, endpoint)) is not None:
        return wanted
    if "CERTIFICATE_REQUIRED" in str(error) or "BAD_CERTIFICATE" in str(error):
        return EndpointError(
            f"{endpoint} wants a client's certificate that it trusts: endpoint options cert_file, key_file"
        )
    return EndpointError(f"{endpoint} doesn't answer as {system} does: {error}")


def _connected(endpoint: Endpoint) -> socket.socket:
    try:
        return socket.create_connection((endpoint.host, endpoint.port), timeout=CONNECT_SECONDS)
    except OSError as error:
        raise EndpointError(f"{endpoint} can't be reached from this machine: {_words(error)}") from error


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
