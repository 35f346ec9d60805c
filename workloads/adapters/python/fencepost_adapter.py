"""Write an adapter in Python: one class, and `run`. Standard library only, Python 3.8 or later, a single file.

    from fencepost_adapter import Adapter, Fail, ok, run

    class MyLock(Adapter):
        library, version = "mylib", mylib.__version__
        errors = {"ConnectionError": "info", "held by another": "fail", "*": "info"}

        def open(self, config):             # once, before the hello; config.lock, .ttl, .endpoints, …
            self.lock = mylib.Lock(config.endpoints[0], config.lock, config.ttl)

        def acquire(self, wait):            # seconds; returns ok(…), or raises
            if not self.lock.acquire(timeout=wait):
                raise Fail("held by another")
            return ok()

        def renew(self):
            self.lock.extend()
            return ok(proves=True)          # only if the service's ok says that it was held

        def release(self):
            self.lock.release()
            return ok(proves=True)

    run(MyLock)

An exception is an answer: its text is "Name: message", and the error table says what it means, by its beginning.
`Fail(text, held=False)` is one whose text you choose; `held=False` only when the *service* said that you don't hold it.

What a library does by itself is told with `self.renewed(sent)` and `self.lost(reason)`, from any thread; `sent` is a
`now()` that was taken before the request was sent. What it prints on stdout goes to stderr: stdout is the protocol's.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

__all__ = ["Adapter", "Fail", "now", "ok", "run"]


def now() -> float:
    """Seconds of CLOCK_BOOTTIME: the clock of all stamps, which no fault moves."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Fail(Exception):
    """An answer that is not ok, with the text that the error table judges. `held` False: the service said so."""

    def __init__(self, text: str, held: bool | None = None) -> None:
        super().__init__(text)
        self.held = held


def ok(
    token: int | None = None,
    ttl: float | None = None,
    since: float | None = None,
    proves: bool | None = None,
    **notes: Any,
) -> dict[str, Any]:
    """It took effect. Of an acquire: its token, the ttl that was granted, a `now()` from just before the request was
    sent from which the lease counts, and notes for the history. Of a renew or release: whether the service's ok proves
    that the lock was held until then.
    """
    said: dict[str, Any] = {"type": "ok", "token": token, "ttl": ttl, "proves": proves, "notes": notes or None}
    if since is not None:
        said["since"] = {"at": since}
    return {key: value for key, value in said.items() if value is not None}


class Adapter:
    """One lock of one contender. Override what is below."""

    library, version = "", ""
    renewals = "asked"
    """How the lease is kept. asked: by `renew`. told: by itself, and `renewed` is called. unseen: by itself, untold.
    none: not at all.
    """
    tokens = False
    expires = True
    renew_every: float | None = None
    """Seconds between two renewals that are asked for; None for ttl/3."""
    errors: Mapping[str, str] = {"*": "info"}

    def __init__(self) -> None:
        self._grant = 0
        self._say: Any = None

    def open(self, config: SimpleNamespace) -> None:
        """Get ready, before the hello; an exception here ends the adapter. `config` has lock, ttl, process, system,
        endpoints ([host, port], one's own first), settings, options and operation_seconds.
        """

    def acquire(self, wait: float) -> dict[str, Any]:
        """Try to get the lock, for at most so many seconds."""
        raise NotImplementedError

    def renew(self) -> dict[str, Any]:
        """Lengthen the lease."""
        raise NotImplementedError

    def release(self) -> dict[str, Any]:
        """Give the lock up."""
        raise NotImplementedError

    def close(self) -> None:
        """The end of it all; there is a second for that."""

    def renewed(self, sent: float, proves: bool = False, of: int | None = None) -> None:
        """The library has renewed the lease by itself, by a request that was not sent before `sent`."""
        self._say({"renewed": True, "of": of or self._grant, "at": sent, "proves": proves})

    def lost(self, reason: str = "expired", at: float | None = None, of: int | None = None) -> None:
        """The library says that the lock is lost. Reasons: expired (the service said so), deadline, disconnected,
        renew-failed.
        """
        self._say({"lost": reason, "of": of or self._grant, "at": now() if at is None else at})

    @property
    def grant(self) -> int:
        """The number of the acquire that is, or was last, under way: what `of` means."""
        return self._grant


def _answer(adapter: Adapter, command: dict[str, Any]) -> dict[str, Any]:
    word = command["do"]
    try:
        if word == "acquire":
            adapter._grant = command["id"]
            said = adapter.acquire(command["wait"])
        else:
            said = adapter.renew() if word == "renew" else adapter.release()
        return {**said, "id": command["id"]}
    except NotImplementedError:
        raise
    except Exception as error:  # noqa: BLE001 - what it means is the error table's to say
        text = str(error) if isinstance(error, Fail) else f"{type(error).__name__}: {error}"
        keys = [key for key in adapter.errors if key != "*" and text.startswith(key)]
        type_ = adapter.errors[max(keys, key=len) if keys else "*"]
        said = {"id": command["id"], "type": type_, "error": text[:400]}
        if getattr(error, "held", None) is False:
            said["held"] = False
        return said


def run(kind: type[Adapter]) -> None:
    """Speak the protocol until stdin ends. Does not return."""
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between our lines
    turn = threading.Lock()

    def say(line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        with turn:
            while data:
                data = data[os.write(out, data) :]

    config = SimpleNamespace(**json.loads(sys.stdin.readline()))
    adapter = kind()
    adapter._say = say
    adapter.open(config)
    hello: dict[str, Any] = {"protocol": 1, "library": adapter.library, "version": adapter.version}
    hello.update(language=f"Python {platform.python_version()}", renewals=adapter.renewals, tokens=adapter.tokens)
    hello.update(expires=adapter.expires, errors=dict(adapter.errors))
    if adapter.renew_every is not None:
        hello["renew_every"] = adapter.renew_every
    say({"hello": hello})
    for line in sys.stdin:
        say(_answer(adapter, json.loads(line)))
    adapter.close()
    sys.stderr.flush()
    os._exit(0)  # a library's threads must not keep it alive
