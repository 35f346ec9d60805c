"""A site of the runtime `local`: its stub, its pid 1, and the nodes on its switch."""

from __future__ import annotations

import logging
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from harness import trees
from harness.errors import HarnessError
from harness.private import private_folder
from harness.runtime import labels
from harness.runtime.base import Node, NodeSpec, SeenHandler
from harness.runtime.local.channel import Channel, Switchboard
from harness.runtime.local.node import LocalNode, Place
from harness.runtime.local.stub import Refused, Stub
from harness.runtime.local.watch import LocalWatch
from harness.runtime.owner import Owner
from harness.runtime.sites import Roster, check_names, own
from harness.runtime.turn import SharedTurn
from harness.trees import Tree

log = logging.getLogger(__name__)

CLOSE_SECONDS = 30.0
"""For ending a whole site; forty processes take a tenth of a second."""
READY_SECONDS = 30.0
IPV4, IPV6 = "10.183.0.{}/24", "fd00:fe9c:e905:7::{}/64"
"""Addresses by number. All sites have the same: each has a switch of its own, which nothing else is on."""


class LocalSite:
    """The nodes of one trial or lane (`harness.runtime.base.Site`). `open` comes first: until then it has nothing."""

    def __init__(self, site_id: str, images: Mapping[str, str], check: Callable[[], None]) -> None:
        self._id = labels.check_site_id(site_id)
        self._overrides = dict(images)
        self._trees: dict[str, Tree] = {}
        self._nodes: Roster[LocalNode] = Roster(site_id)
        self._lock = threading.Lock()  # guards the one above
        self._turn = SharedTurn(f"site {site_id}", folder=private_folder("local-turns"), slots=os.cpu_count() or 1)
        self._check = check
        self._stub: Stub | None = None
        self._place: Place | None = None
        self._ipv6 = True
        self._opening = threading.Lock()
        self._closing = False
        self.closed = False
        """Whether everything is gone, or was never there."""

    def open(self) -> None:
        """Start its stub and its pid 1. After an error nothing of it is left."""
        try:
            self._check()
            with self._opening:
                if self._closing:
                    raise HarnessError(f"site {self._id} is closed")
                stub = self._stub = Stub(self._id, Owner.current().label())
            self._await_ready(stub)
        except BaseException:
            self.close()
            raise

    def _await_ready(self, stub: Stub) -> None:
        told = threading.Event()
        said: dict[str, Any] = {}

        def heard(message: dict[str, Any], _: int) -> None:
            if not told.is_set():
                said.update(message)
                told.set()
            else:
                self._heard(message)

        switchboard = Switchboard(self._id)
        channel = Channel(stub.socket, f"site {self._id}", heard, told.set)
        switchboard.add(channel)
        if not told.wait(READY_SECONDS):
            raise HarnessError(f"site {self._id} was not made in {READY_SECONDS:g} s")
        if "ready" not in said:
            reason = said.get("fatal") or stub.why()
            raise Refused(self._id, "namespaces", reason)
        self._ipv6 = bool(said["ipv6"])
        self._place = Place(
            self._id,
            channel,
            switchboard,
            self.tree,
            self._check,
        )

    @property
    def _open_place(self) -> Place:
        assert self._place is not None, "open() comes first"
        return self._place

    @property
    def id(self) -> str:
        """Unique; part of its labels."""
        return self._id

    @property
    def notes(self) -> tuple[str, ...]:
        """What this place could not give, in sentences that a trial records: no IPv6."""
        return () if self._ipv6 else ("the network has no IPv6, since this machine's kernel has none",)

    @contextmanager
    def starting(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold this machine's turn for heavy start-ups; see `Site.starting`.

        Nodes cost milliseconds, so that only who starts servers and waits for them asks for a turn. There are as many
        as processors, in a queue that those who start containers aren't in.
        """
        with self._turn.held(check):
            yield

    def start_nodes(self, specs: Sequence[NodeSpec]) -> list[Node]:
        """Create and start nodes, in parallel, in the order of the specs. On an error none of them is left."""
        if self._closing:
            raise HarnessError(f"site {self._id} is closed")
        self._resolve(check_names(specs))

        def make(spec: NodeSpec, number: int) -> LocalNode:
            return LocalNode(self._open_place, spec, number, self._numbered(number))

        with self._lock:
            nodes = self._nodes.enter(specs, make)
        try:
            self._tell_names()
            for node in nodes:
                node.create()
            for node in nodes:
                node.await_ready()
        except BaseException:
            self.remove_nodes(nodes)
            raise
        return list(nodes)

    def _numbered(self, number: int) -> list[str]:
        return [each.format(number) for each in ((IPV4, IPV6) if self._ipv6 else (IPV4,))]

    def _tell_names(self) -> None:
        """Write /etc/hosts, which all nodes have in common."""
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        with self._lock:
            for node in self._nodes.all():
                names = [node.name] + (["resource"] if node.spec.role == "resource" else [])
                lines += [f"{address} {' '.join(dict.fromkeys(names))}" for address in node.addresses]
            text = "\n".join(lines) + "\n"
            self._open_place.channel.ask("hosts", f"naming the nodes of site {self._id}", text=text)

    def remove_nodes(self, nodes: Sequence[Node]) -> None:
        """Remove nodes and their services, with all that they wrote, frozen ones too. Idempotent."""
        mine = own(self._id, nodes, LocalNode, self._place)
        with self._lock:
            mine = [node for node in mine if self._nodes.has(node)]
            if not mine:
                return
            if not self._closing:
                names = [node.name for node in mine]
                self._open_place.channel.ask("remove", f"removing {', '.join(names)} from site {self._id}", names=names)
            self._nodes.forget(mine)
        if not self._closing:
            self._tell_names()

    def watch(self, on_seen: SeenHandler, on_note: Callable[[str], None]) -> AbstractContextManager[LocalWatch]:
        """See what happens to the nodes that the site has now, until the context ends; see `Site.watch`."""
        with self._lock:
            return LocalWatch(self._id, self._open_place.channel, self._nodes.all(), on_seen, on_note)

    def keep(self) -> None:
        """Let it stay when this process ends; see `Site.keep`. Its trees can't be removed as long as it stays."""
        assert self._stub is not None, "open() comes first"
        held = trees.hold(self._trees.values())
        try:
            self._open_place.channel.ask("keep", f"keeping site {self._id}", held)
        finally:
            for descriptor in held:
                os.close(descriptor)
        self._stub.keep()

    def close(self, *, within_seconds: float = CLOSE_SECONDS) -> None:
        """Remove all that is left of this site. Idempotent. Raises HarnessError naming what stays.

        Nothing is created any more from here on.
        """
        self._closing = True
        with self._opening:
            stub = self._stub
        if stub is not None and not stub.end(within_seconds):
            raise HarnessError(
                f"left of site {self._id}: its processes did not end within {within_seconds:g} s. "
                f"Try {self.how_to_remove()}"
            )
        with self._lock:
            self._nodes.forget(self._nodes.all())
        self.closed = True

    def how_to_remove(self) -> str:
        """The command that removes this site when it was kept."""
        return f"fencepost clean --site {shlex.quote(self._id)}"

    def tree(self, image: str) -> Tree:
        """The file tree behind an image name, looked for once for the site."""
        self._resolve({image})
        return self._trees[image]

    def _resolve(self, names: set[str]) -> None:
        missing = sorted(names - self._trees.keys())
        if missing:
            # As a spec's image may be a reference itself.
            references = {name: name for name in missing if ":" in name or "/" in name}
            self._trees |= trees.need(missing, {**references, **self._overrides})

    def _heard(self, message: dict[str, Any]) -> None:
        """The site's pid 1 tells of the end of nodes; each node learns of its own by the end of its socket, too."""
        log.debug("site %s: %s", self._id, message)
