"""Watching the containers of a site: what happens to them, whoever does it.

There are two sources, because either alone misses something. The engine's *events* tell each pause, end, start and
change of the network with its time, but a stream can break, and an engine that is restarted forgets. *Looks* at the
state of all containers, once a second and when `look` is called, find what no event told of; they know only that it
happened between two looks. Before a difference counts that a look has found, the events since the last one are asked
for once more, so that an event that is only late wins, with its exact time.

One state for each container stands between the two sources and the handler: each change is told once, and in order.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

from harness.engine import Engine, Transport, wall_ns
from harness.errors import FencepostError, HarnessError
from harness.runtime import labels
from harness.runtime.base import Seen, SeenHandler
from harness.runtime.looking import keep_looking
from harness.runtime.network import Network

EVENTS = ("die", "start", "pause", "unpause", "oom", "kill", "connect", "disconnect")
"""What an engine is asked to tell. A `docker exec` makes events too, none of these."""
LOOK_SECONDS = 1.0
"""How often all containers are looked at, with one request."""
AGAIN_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""How long to wait before a broken stream of events is opened again, the last one over and over."""
CATCH_UP_SECONDS = 10.0
"""How long the engine may take to list past events."""
REMEMBERED = 1024
"""Events that are remembered so that none counts twice; the engine itself keeps 256."""
LEAVE_SECONDS = 2.0


@dataclass
class _Container:
    """What is known of one container. `addresses` are those it had when the watch began."""

    id: str
    node: str
    part: str
    joined: bool
    addresses: frozenset[str]
    started_ns: int
    """When its run began, or a little later: when the engine told of it."""
    running: bool = True
    paused: bool = False
    connected: bool = True
    ended_as: str = "killed"
    oom_ns: int | None = None
    """When the engine told of an OOM of which it is not known yet whether the main process has survived it."""
    signal: str | None = None
    """The last signal that somebody sent through the engine."""


@dataclass(frozen=True)
class _State:
    """One container as the engine lists it. `addresses` is None when it isn't on the site's network."""

    id: str
    node: str
    part: str
    joined: bool
    word: str
    addresses: frozenset[str] | None

    @property
    def running(self) -> bool:
        return self.word in ("running", "paused")


@dataclass
class DockerWatch:
    """A watched site (`harness.runtime.base.Watch`), as a context. Two threads of its own, both daemons."""

    engine: Engine
    site_id: str
    network: Network
    on_seen: SeenHandler
    on_note: Callable[[str], None]
    _known: dict[tuple[str, str], _Container] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _stream: Transport | None = None
    _offset_ns: int = 0
    """What the engine's wall clock is ahead of ours."""
    _doubt_ns: int = 0
    """By how much that may be wrong, either way."""
    _newest_ns: int = 0
    """The time of the newest event that was handled; events are asked for from there on."""
    _looked_ns: int = 0
    """When the last look began that found nothing left to tell, by the engine's clock."""
    _handled: deque[tuple[int, str, str]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def __enter__(self) -> Self:
        self._measure_clock()
        with self._lock:
            self._newest_ns = self._looked_ns = self._now_ns()
            for state in self._states():
                self._meet(state)
            self._compare()
        for run, what in ((self._listen, "events"), (self._keep_looking, "looks")):
            thread = threading.Thread(target=run, name=f"{what} of site {self.site_id}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            with suppress(OSError):  # it had ended by itself
                stream.shut()
        for thread in self._threads:
            thread.join(LEAVE_SECONDS)

    def look(self) -> None:
        """Hand on all that happened before this call: first what events tell of, then what only looking finds."""
        with self._lock:
            self._catch_up()
            self._compare(thoroughly=True)

    def _measure_clock(self) -> None:
        before = time.time_ns()
        theirs = self.engine.wall_ns()
        after = time.time_ns()
        if not before <= theirs <= after:  # else it is one clock
            self._doubt_ns = (after - before) // 2
            self._offset_ns = theirs - (before + self._doubt_ns)

    def _now_ns(self) -> int:
        return time.time_ns() + self._offset_ns

    # -- the events -----------------------------------------------------------------------------------------------

    def _path(self, until_ns: int | None = None) -> str:
        wanted = quote(json.dumps({"type": ["container", "network"], "event": list(EVENTS)}))
        path = f"/events?filters={wanted}&since={_seconds(self._newest_ns)}"
        return path if until_ns is None else f"{path}&until={_seconds(until_ns)}"

    def _listen(self) -> None:
        """Handle events as they come; opens the stream again when it breaks, from the last event on."""
        tries, broke = 0, None
        while not self._stopped.is_set():
            try:
                self._stream = self.engine.listen(self._path(), "listening to its events")
                if broke is not None:
                    self.on_note(
                        f"Docker's events could not be heard for {time.monotonic() - broke:.1f} s; they were asked for "
                        "again from then on, and all containers looked at"
                    )
                    self._look_again()
                tries, broke = 0, None
                for event in _events(self._stream, None):
                    self._event(event)
                self._stream.close()
                why = "the stream ended"
            except (OSError, ValueError, FencepostError) as error:
                why = str(error)
            if self._stopped.is_set():
                return
            if broke is None:
                broke = time.monotonic()
                self.on_note(f"Docker's events can't be heard: {why}; states are looked at meanwhile")
            self._stopped.wait(AGAIN_SECONDS[min(tries, len(AGAIN_SECONDS) - 1)])
            tries += 1

    def _look_again(self) -> None:
        try:
            self.look()
        except FencepostError as error:
            self.on_note(f"the containers can't be looked at: {error}")

    def _catch_up(self) -> None:
        """Handle the events that the engine knows of and the stream has not brought yet."""
        now = max(self._now_ns() + self._doubt_ns, self._newest_ns)
        transport = self.engine.listen(self._path(now), "asking for past events")
        try:
            for event in _events(transport, time.monotonic() + CATCH_UP_SECONDS):
                self._event(event)
        except (OSError, ValueError) as error:
            raise HarnessError(f"Docker's past events can't be read: {error}") from error
        finally:
            transport.close()

    def _event(self, event: dict[str, Any]) -> None:
        """Handle one event, once, if it is about a container of this site."""
        at, action = int(event["timeNano"]), str(event["Action"])
        actor = event["Actor"]
        attributes: dict[str, str] = actor.get("Attributes") or {}
        about = attributes.get("container", "") if event["Type"] == "network" else str(actor["ID"])
        with self._lock:
            if self._stopped.is_set() or (at, about, action) in self._handled:
                return
            self._handled.append((at, about, action))
            self._newest_ns = max(self._newest_ns, at)
            if event["Type"] == "network":
                known = self._of(about)
                if known is not None and actor["ID"] == self.network.id:
                    self._network_event(known, action, at)
                return
            if attributes.get(labels.SITE) != self.site_id:
                return
            known = self._known.get((attributes.get(labels.NODE, ""), attributes.get(labels.PART, "")))
            if known is not None:
                self._container_event(known, about, action, at, attributes)

    def _container_event(
        self, known: _Container, container: str, action: str, at: int, attributes: dict[str, str]
    ) -> None:
        if action == "start":
            known.id = container  # the service of a node that was created anew is another container
            self._started(known, at)
        elif container != known.id:
            return  # what becomes of a container that has a successor
        elif action == "kill":
            known.signal = attributes.get("signal")
        elif action == "oom":
            known.oom_ns = at
            self._tell(known, "oom", False, at, "the kernel killed a process of it for want of memory")
        elif action == "die" and at > known.started_ns:  # not of a run whose end was found by looking
            self._ended(known, at, f"exited with code {attributes.get('exitCode', '?')}")
        elif action in ("pause", "unpause"):
            self._paused(known, action == "pause", at, f"the engine's event {action!r}")

    def _network_event(self, known: _Container, action: str, at: int) -> None:
        found = self.engine.inspect(known.id, f"{known.part} of {known.node}")
        if found is None or not found["State"]["Running"]:
            return  # a container that ends leaves its network too; its end is what counts
        addresses = _addresses(found["NetworkSettings"], self.network.name)
        self._connected(known, action == "connect", addresses, at, f"the engine's event {action!r}")

    # -- looking --------------------------------------------------------------------------------------------------

    def _keep_looking(self) -> None:
        def compare() -> None:
            with self._lock:
                self._compare()

        keep_looking(
            self._stopped,
            LOOK_SECONDS,
            compare,
            lambda error: self.on_note(f"the containers can't be looked at: {error}"),
        )

    def _states(self) -> list[_State]:
        """All containers of the site that belong to a node."""
        found = []
        for listed in self.engine.containers(*labels.of_site(self.site_id)):
            marks = listed["Labels"] or {}
            joined = str((listed.get("HostConfig") or {}).get("NetworkMode", "")).startswith("container:")
            addresses = _addresses(listed.get("NetworkSettings") or {}, self.network.name)
            if labels.NODE in marks:
                node, part = marks[labels.NODE], marks.get(labels.PART, "node")
                found.append(_State(listed["Id"], node, part, joined, listed["State"], addresses))
        return found

    def _meet(self, state: _State) -> None:
        """A container that was not known. It should run, be on the network, and not be paused."""
        found = self.engine.inspect(state.id, f"{state.part} of {state.node}")
        started = 0 if found is None else wall_ns(found["State"]["StartedAt"])
        addresses = state.addresses or frozenset()
        self._known[(state.node, state.part)] = _Container(
            state.id, state.node, state.part, state.joined, addresses, started
        )

    def _differs(self, states: dict[tuple[str, str], _State]) -> bool:
        """Whether these states are other than what is known."""
        return any(
            (state := states.get(key)) is None
            or state.id != known.id
            or state.running != known.running
            or (state.word == "paused") != known.paused
            or (state.running and not known.joined and (state.addresses is not None) != known.connected)
            for key, known in self._known.items()
        )

    def _compare(self, *, thoroughly: bool = False) -> None:
        """Tell whatever differs from what is known; `thoroughly` also a restart between two looks."""
        began = self._now_ns()
        states = {(state.node, state.part): state for state in self._states()}
        if self._differs(states):
            self._catch_up()
            states = {(state.node, state.part): state for state in self._states()}
        for key, known in self._known.items():
            state = states.get(key)
            if state is None:
                if known.running:
                    self._ended(known, self._looked_ns, "was removed")
                continue
            if thoroughly or state.id != known.id or state.running != known.running:
                self._compare_runs(known, state)
            if state.running:
                if known.oom_ns is not None and known.oom_ns < self._looked_ns:  # its end would have come by now
                    known.oom_ns = None
                    self._tell(known, "oom", True, began, "its main process has survived it")
                paused = state.word == "paused"
                self._paused(known, paused, self._looked_ns if paused else began, f"found {state.word} by looking")
                if not known.joined:
                    here = state.addresses is not None
                    at = began if here else self._looked_ns
                    self._connected(known, here, state.addresses, at, "found by looking")
        self._looked_ns = began

    def _compare_runs(self, known: _Container, state: _State) -> None:
        """Whether it runs, and whether it is the same run, by the times of its last start and end."""
        found = self.engine.inspect(state.id, f"{state.part} of {state.node}")
        if found is None:
            return
        now = found["State"]
        if known.running and (not now["Running"] or wall_ns(now["StartedAt"]) > known.started_ns):
            ended = max(wall_ns(now["FinishedAt"]), known.started_ns)
            self._ended(known, ended, f"exited with code {now['ExitCode']}, found by looking")
        if not known.running and now["Running"]:
            known.id = state.id
            self._started(known, wall_ns(now["StartedAt"]))

    # -- what changes ---------------------------------------------------------------------------------------------

    def _of(self, container: str) -> _Container | None:
        return next((known for known in self._known.values() if known.id == container), None)

    def _tell(self, known: _Container, what: str, over: bool, at: int, detail: str, restored: bool = True) -> None:
        self.on_seen(Seen(known.node, known.part, what, over, at, detail, restored))

    def _paused(self, known: _Container, paused: bool, at: int, detail: str) -> None:
        if paused != known.paused:
            known.paused = paused
            self._tell(known, "paused", not paused, at, detail)

    def _connected(self, known: _Container, here: bool, addresses: frozenset[str] | None, at: int, detail: str) -> None:
        if here == known.connected:
            return
        known.connected = here
        same = addresses == known.addresses
        if here and not same:
            detail += f": its addresses are {', '.join(sorted(addresses or ()))} now"
        self._tell(known, "disconnected", here, at, detail, restored=same)

    def _ended(self, known: _Container, at: int, detail: str) -> None:
        if not known.running:
            return
        found = self.engine.inspect(known.id, f"{known.part} of {known.node}")
        out_of_memory = known.oom_ns is not None or bool(found and found["State"].get("OOMKilled"))
        if known.signal is not None:
            detail += f", after signal {known.signal} was sent to it through the engine"
        self._paused(known, False, at, "it ended")
        known.running, known.oom_ns, known.signal = False, None, None
        known.ended_as = "oom" if out_of_memory else "killed"
        self._tell(known, known.ended_as, False, at, detail)

    def _started(self, known: _Container, at: int) -> None:
        known.started_ns = max(known.started_ns, at)
        if not known.running:
            known.running = True
            self._tell(known, known.ended_as, True, at, "it was started again")


def _seconds(moment_ns: int) -> str:
    """A moment as the engine takes it: seconds with nine digits behind the point."""
    return f"{moment_ns // 10**9}.{moment_ns % 10**9:09d}"


def _addresses(settings: dict[str, Any], network: str) -> frozenset[str] | None:
    """The addresses on that network; None when it isn't on it."""
    endpoint = (settings.get("Networks") or {}).get(network)
    if endpoint is None:
        return None
    return frozenset(filter(None, (endpoint.get("IPAddress"), endpoint.get("GlobalIPv6Address"))))


def _events(transport: Transport, deadline: float | None) -> Iterator[dict[str, Any]]:
    """The events of a stream until it ends. Raises OSError when it breaks, ValueError when it isn't one of events."""
    partial = b""
    while data := transport.receive(65536, None if deadline is None else max(0.0, deadline - time.monotonic())):
        *lines, partial = (partial + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)
