"""What the systems share: asking all servers at once, and checking options."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from harness.errors import AgentError, UsageError
from harness.systems.base import HttpReply, Server, Settings

T = TypeVar("T")


class Asked(Protocol):
    """Somebody to ask: a server, or one of several services on it."""

    @property
    def name(self) -> str:
        """Which one, among all that are asked at once."""


A = TypeVar("A", bound=Asked)

LOOK_SECONDS = 0.7
"""The deadline of one request to one server; with the agent's own time below the second that a look may take."""

GRACE_SECONDS = 0.3


def ask_all(servers: Sequence[A], question: Callable[[A], T]) -> dict[str, T | str]:
    """Ask every server at once; server name -> its answer, or why there is none.

    A server that is frozen or cut off costs the others nothing: whoever hasn't answered after LOOK_SECONDS and a bit is
    reported as silent. An answer that makes no sense (`ValueError`, `KeyError`) is a reason too: servers that start say
    strange things.
    """

    def ask(server: A) -> T | str:
        try:
            return question(server)
        except AgentError as error:
            return str(error)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            return f"answer not understood: {type(error).__name__}: {error}"

    pool = ThreadPoolExecutor(max_workers=max(1, len(servers)), thread_name_prefix="ask")
    asked = {server.name: pool.submit(ask, server) for server in servers}
    done, _ = wait(asked.values(), timeout=LOOK_SECONDS + GRACE_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return {name: future.result() if future in done else "silent" for name, future in asked.items()}


def ask_json(
    server: Server,
    method: str,
    path: str,
    *,
    port: int,
    document: Any = None,
    timeout_seconds: float = LOOK_SECONDS,
) -> Any:
    """One request with a JSON answer. AgentError, as for no answer, when the status isn't 200 or it is no JSON."""
    body = b"" if document is None else json.dumps(document).encode()
    reply = server.http(method, path, port=port, body=body, timeout_seconds=timeout_seconds)
    data = body_of(reply)
    try:
        return json.loads(data)
    except ValueError:
        raise AgentError(f"not JSON: {data[:120]!r}") from None


def body_of(reply: HttpReply) -> bytes:
    """What a server answered. AgentError, as for no answer, when the status isn't 200."""
    if reply.status != 200:
        raise AgentError(f"status {reply.status}: {reply.body[:120].decode(errors='replace').strip()}")
    return reply.body


def b64(text: str) -> str:
    """Base64, as etcd's JSON takes keys and values."""
    return base64.b64encode(text.encode()).decode()


def options(settings: Settings, known: Mapping[str, tuple[type, Any]]) -> dict[str, Any]:
    """The system's options, given ones over defaults. UsageError names one that is unknown or of the wrong type."""
    for name in settings.options:
        if name not in known:
            raise UsageError(f"unknown system option {name!r} (known: {', '.join(known) or 'none'})")
    values = {}
    for name, (kind, default) in known.items():
        value = settings.options.get(name, default)
        whole = kind is float and isinstance(value, int) and not isinstance(value, bool)
        if not whole and (not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))):
            hint = f": {read_as(name, value)}" if kind is str else ""
            raise UsageError(f"system option {name!r} must be of type {kind.__name__}, not {value!r}{hint}")
        values[name] = kind(value)
    return values


KINDS: Mapping[type, str] = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}


def read_as(name: str, value: Any) -> str:
    """What an option that should be a text was taken for, since it wasn't quoted, and how it is quoted."""
    kind = "nothing at all" if value is None else KINDS.get(type(value), type(value).__name__)
    text = json.dumps(value) if not isinstance(value, (list, dict)) else "…"
    return (
        f"it was read as {kind}; a text that looks like one stands in quotes, {name}='\"{text}\"' on a command line "
        f'and {name} = "{text}" in a file'
    )


def in_range(name: str, value: float, low: float, high: float, unit: str) -> None:
    """UsageError unless the option lies in its range."""
    if not low <= value <= high:
        raise UsageError(f"system option {name!r} must lie between {low:.10g} and {high:.10g} {unit}, not {value:.10g}")


def says(answers: Mapping[str, object]) -> str:
    """What each server said, in one line."""
    return "; ".join(f"{name}: {answer}" for name, answer in answers.items())
