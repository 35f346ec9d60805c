"""What stands between a program that is not ours and the history.

A lock of the user's own can print anything. An event enters only when the reader of histories will take it, in its
place and beside all others: a line that makes the file unreadable would lose everybody's.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from harness.history.parsing import Malformed, parse_event

OPERATIONS = frozenset({"acquire", "renew", "release", "write"})
"""What has an invoke and a completion; `lost` is one event."""

HARNESS_ALONE = frozenset({"fault", "crash", "audit"})
"""What only the harness may say."""


class Claims:
    """What may stand once in a whole history, whoever says it: ids of writes, and their places in the resource's order.

    One for all borders of a trial. Safe from several threads.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._taken: set[tuple[str, str | None, str, str | int]] = set()

    def take(self, lock: str, resource: str | None, kind: str, value: str | int) -> bool:
        """Whether it was free; it is taken from now on."""
        claim = (lock, resource, kind, value)
        with self._turn:
            if claim in self._taken:
                return False
            self._taken.add(claim)
            return True


class Border:
    """The border for one contender. `claims` is what it shares with those of the others."""

    def __init__(self, process: int, claims: Claims) -> None:
        self._process, self._claims = process, claims
        self._open: dict[tuple[str, str, str | None], Mapping[str, Any]] = {}

    def problems(self, event: object) -> list[str]:
        """What is wrong with a line that was printed as an event; empty when it may enter, which it then has."""
        if not isinstance(event, dict):
            return [f"not a JSON object but {type(event).__name__}"]
        found = []
        if type(event.get("process")) is not int or event["process"] != self._process:
            found.append(f"process must be {self._process}, not {event.get('process')!r}")
        if isinstance(event.get("f"), str) and event["f"] in HARNESS_ALONE:
            found.append(f"f must be an operation's name, not {event['f']!r}")
        try:
            parse_event(event)
        except Malformed as error:
            found.append(str(error))
        if not found and event["f"] in OPERATIONS:
            found += self._out_of_place(event)
        return found

    def _out_of_place(self, event: Mapping[str, Any]) -> list[str]:
        """What is wrong with an event that is right by itself."""
        lock = event.get("lock") or "lock"
        place = (event["f"], lock, event.get("resource"))
        begun = self._open.get(place)
        if event["type"] == "invoke":
            if begun is not None:
                return [f"an invoke of {event['f']} while the same one is open"]
        elif begun is None:
            return [f"a completion of {event['f']} without an invoke"]
        elif (event.get("lease_from") or event["time"]) > event["time"]:
            return ["lease_from lies after its ok"]
        found = self._taken(event, begun, lock) if event["f"] == "write" else []
        if not found and event["type"] == "invoke":
            self._open[place] = event
        elif not found:
            del self._open[place]
        return found

    def _taken(self, event: Mapping[str, Any], begun: Mapping[str, Any] | None, lock: str) -> list[str]:
        """What a write says of itself that another write has said, or this one differently."""
        identity, resource = event.get("id"), event["resource"]
        if identity is not None:
            if isinstance(identity, bool) or not isinstance(identity, int):
                return [f"id must be an integer, as the resource keeps it, not {identity!r}"]
            told = begun.get("id") if begun is not None else None
            if told is not None and identity != told:
                return [f"id {identity!r} on the completion of the write {told!r}"]
            if told is None and not self._claims.take(lock, resource, "id", identity):
                return [f"id {identity!r} is that of another write to {resource}: each attempt has its own"]
        seq = event.get("seq") if event["type"] == "ok" else None
        if seq is not None and not self._claims.take(lock, resource, "seq", seq):
            return [f"seq {seq} is that of another accepted write to {resource}"]
        return []
