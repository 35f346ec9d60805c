"""What every runtime keeps of its sites, and every site of its nodes, wherever they live."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from harness.errors import FencepostError, HarnessError
from harness.runtime import labels
from harness.runtime.addresses import Addresses
from harness.runtime.base import NodeSpec

LATE_SECONDS = 0.1
"""How much longer than it was given a site may take to say that it could not be removed in that time."""


class Closable(Protocol):
    """A site, as far as it is known here."""

    closed: bool

    @property
    def id(self) -> str:
        """Its id."""

    def close(self, *, within_seconds: float) -> None:
        """Remove it; an error names what stays."""

    def how_to_remove(self) -> str:
        """The command for it."""


class Numbered(Protocol):
    """A node, as far as it is known here."""

    @property
    def name(self) -> str:
        """Its name in its site."""

    @property
    def host_number(self) -> int:
        """Which address it has, by number."""


S = TypeVar("S", bound=Closable)
N = TypeVar("N", bound=Numbered)


class OpenSites(Generic[S]):
    """The sites of one runtime that have, or may have, something in it."""

    def __init__(self) -> None:
        self._sites: list[S] = []
        self._lock = threading.Lock()  # guards the one above

    def add(self, site: S) -> None:
        """Before it has anything: `sweep` must know of it."""
        with self._lock:
            self._sites = [*(known for known in self._sites if not known.closed), site]

    def sweep(self, within_seconds: float) -> list[str]:
        """Close them all, side by side; see `Runtime.sweep`."""
        with self._lock:
            sites = [site for site in self._sites if not site.closed]
        said: list[str] = []
        deadline = time.monotonic() + within_seconds

        def close(site: S) -> None:
            try:
                site.close(within_seconds=max(0.0, deadline - time.monotonic()))
            except FencepostError as error:
                said.append(str(error))

        # Threads of its own, and daemons: a place that hangs holds up nobody beyond the time.
        threads = [threading.Thread(target=close, args=(site,), daemon=True) for site in sites]
        for thread in threads:
            thread.start()
        for site, thread in zip(sites, threads, strict=True):
            thread.join(max(0.0, deadline - time.monotonic()) + LATE_SECONDS)
            if thread.is_alive():
                said.append(f"site {site.id} could not be removed in {within_seconds:g} s. Try {site.how_to_remove()}")
        return said


class Roster(Generic[N]):
    """The nodes of one site, by name, and the addresses that they have. Its site's lock guards it."""

    def __init__(self, site_id: str) -> None:
        self._site_id = site_id
        self._nodes: dict[str, N] = {}
        self._addresses = Addresses()

    def enter(self, specs: Sequence[NodeSpec], make: Callable[[NodeSpec, int], N]) -> list[N]:
        """Make a node of each spec and its address's number. HarnessError for a name that is there: none stays then."""
        nodes: list[N] = []
        for spec in specs:
            if spec.name in self._nodes:
                names = [node.name for node in nodes]
                self.forget(nodes)
                raise HarnessError(f"site {self._site_id} has a node {spec.name} already (of {[*names, spec.name]})")
            node = make(spec, self._addresses.take())
            self._nodes[spec.name] = node
            nodes.append(node)
        return nodes

    def all(self) -> list[N]:
        """Those that there are, in the order in which they came."""
        return list(self._nodes.values())

    def has(self, node: N) -> bool:
        """Whether it is this very node that has the name."""
        return self._nodes.get(node.name) is node

    def forget(self, nodes: Sequence[N]) -> None:
        """They are gone; their addresses go round."""
        for node in nodes:
            self._nodes.pop(node.name, None)
            self._addresses.give_back(node.host_number)


def check_names(specs: Sequence[NodeSpec]) -> set[str]:
    """The images that these nodes need. UsageError for a name that no node can have."""
    for spec in specs:
        labels.check_node_name(spec.name)
    return {spec.service.image if spec.service else spec.image for spec in specs}


def own(site_id: str, nodes: Sequence[Any], kind: type[N], place: object) -> list[N]:
    """The nodes as the site's own kind. HarnessError when one of them is another site's."""
    mine = [node for node in nodes if isinstance(node, kind) and getattr(node, "place", None) is place]
    if len(mine) != len(nodes):
        raise HarnessError(f"site {site_id} was given nodes of another site to remove")
    return mine
