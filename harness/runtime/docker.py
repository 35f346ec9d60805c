"""The Docker runtime: nodes as pods.

A node is a *node container* that owns the network and pid namespace, and the *system container* joined to it, which
runs the service's image unmodified and unprivileged. So the agent and the service's address outlive the service, and
the service image needs nothing for its own torture. docs/runtime.md tells the reasons and the measured times.
"""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

from harness.errors import HarnessError
from harness.runtime import labels, network, removal
from harness.runtime.base import Node, NodeSpec
from harness.runtime.cleaning import clean
from harness.runtime.engine import Engine, telling
from harness.runtime.owner import Owner
from harness.runtime.pod import DockerNode
from harness.runtime.turn import turn

log = logging.getLogger(__name__)

PARALLEL = 6
"""Containers created and started at once. On two cores three at once take a third longer in all, nine are no faster."""


class DockerRuntime:
    """Nodes in the Docker engine that the `docker` command uses. Raises RuntimeUnavailable when there is none."""

    def __init__(self) -> None:
        self.engine = Engine()

    def open_site(self, site_id: str, *, images: Mapping[str, str] | None = None) -> DockerSite:
        """A new site with its own network. `images` overrides image names with references."""
        return DockerSite(self.engine, site_id, images or {})

    def describe(self) -> dict[str, str]:
        """Versions and limits of the engine: engine, api, kernel, os, architecture, cgroup, storage, cpus, …"""
        return self.engine.describe()

    def image_versions(
        self, names: Sequence[str], *, images: Mapping[str, str] | None = None
    ) -> dict[str, dict[str, str]]:
        """For each image name: reference, id and origin. RuntimeUnavailable names those that are missing."""
        return image_versions(self.engine, names, images or {})

    def clean(self, *, site_id: str | None = None, include_running: bool = False, dry_run: bool = False) -> list[str]:
        """Remove what runs have left behind, by labels alone; a line for each thing (that would be) removed.

        Sites whose process still runs, or can't be judged from here, stay unless `include_running`. Raises HarnessError
        that names what would not go.
        """
        cleaned = clean(self.engine, site_id=site_id, include_running=include_running, dry_run=dry_run)
        if cleaned.stayed:
            raise HarnessError("not removed: " + "; ".join(cleaned.stayed))
        return cleaned.removed


class DockerSite:
    """The nodes of one trial or lane (`harness.runtime.base.Site`)."""

    def __init__(self, engine: Engine, site_id: str, images: Mapping[str, str]) -> None:
        self.engine = engine
        self._id = labels.check_site_id(site_id)
        self._overrides = dict(images)
        self._references: dict[str, str] = {}
        self._nodes: dict[str, DockerNode] = {}
        self._addresses = network.Addresses()
        self._lock = threading.Lock()  # guards the three above
        self._turn = _SharedTurn(f"site {site_id}")
        self._closed = False
        self.labels = {labels.PROJECT: "1", labels.SITE: site_id, labels.OWNER: Owner.current().label()}
        self.network = network.create(engine, site_id, self.labels)

    @property
    def id(self) -> str:
        """Unique; part of all names and labels."""
        return self._id

    @property
    def notes(self) -> tuple[str, ...]:
        """What this place could not give, in sentences that a trial records: no IPv6."""
        return self.network.notes

    @contextmanager
    def starting(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold this machine's turn for heavy start-ups; see `Site.starting`."""
        with self._turn.held(check):
            yield

    def start_nodes(self, specs: Sequence[NodeSpec]) -> list[Node]:
        """Create and start nodes, in parallel, in the order of the specs. On an error none of them is left."""
        if self._closed:
            raise HarnessError(f"site {self._id} is closed")
        for spec in specs:
            labels.check_node_name(spec.name)
        self._resolve({spec.service.image if spec.service else spec.image for spec in specs})
        nodes: list[DockerNode] = []
        with self._lock:
            for spec in specs:
                if spec.name in self._nodes:
                    names = [node.name for node in nodes]
                    self._forget(nodes)
                    raise HarnessError(f"site {self._id} has a node {spec.name} already (of {[*names, spec.name]})")
                node = DockerNode(self, spec, self._addresses.take())
                self._nodes[spec.name] = node
                nodes.append(node)
        try:
            with self._turn:
                _each(nodes, DockerNode.create_and_start)
        except BaseException:
            self.remove_nodes(nodes)
            raise
        return list(nodes)

    def remove_nodes(self, nodes: Sequence[Node]) -> None:
        """Remove nodes and their services, with their volumes, in parallel; frozen or paused ones too. Idempotent."""
        mine = [node for node in nodes if isinstance(node, DockerNode) and node.site is self]
        if len(mine) != len(nodes):
            raise HarnessError(f"site {self._id} was given nodes of another site to remove")
        if not mine:
            return
        # Asked from the engine, not from memory: a creation that failed here may have succeeded there.
        found = removal.containers_of(self.engine, self._id, {node.name for node in mine})
        stayed = removal.remove(self.engine, found)
        with self._lock:
            self._forget([node for node in mine if self._nodes.get(node.name) is node])
        if stayed:
            raise HarnessError(f"not removed from site {self._id}: " + "; ".join(stayed))

    def close(self) -> None:
        """Remove all that is left of this site, network last. Idempotent. Raises HarnessError naming what stays."""
        self._closed = True
        stayed: list[str] = []
        for _ in range(2):  # a second look: what was being created while the first one removed
            things = [thing for site in removal.find(self.engine, self._id) for thing in site.things]
            if not things:
                break
            stayed = removal.remove(self.engine, things)
        left = [str(thing) for site in removal.find(self.engine, self._id) for thing in site.things]
        with self._lock:
            self._forget(list(self._nodes.values()))
        if left:
            raise HarnessError(f"left of site {self._id}: {'; '.join(stayed or left)}. Try {self.how_to_remove()}")

    def how_to_remove(self) -> str:
        """The command that removes this site when it was kept."""
        return f"fencepost clean --site {shlex.quote(self._id)}"

    def reference(self, image: str) -> str:
        """The reference behind an image name, resolved once for the site."""
        self._resolve({image})
        return self._references[image]

    def _resolve(self, names: set[str]) -> None:
        with self._lock:
            missing = sorted(names - self._references.keys())
            if missing:
                self._references |= {
                    name: ref["reference"]
                    for name, ref in image_versions(self.engine, missing, self._overrides).items()
                }

    def _forget(self, nodes: Sequence[DockerNode]) -> None:
        for node in nodes:
            self._nodes.pop(node.name, None)
            self._addresses.give_back(node.host_number)


class _SharedTurn:
    """One turn of the machine, held by a site for as long as any of its threads is inside. Re-entrant so."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._inside = 0
        self._held: Any = None

    @contextmanager
    def held(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold it; `check` may raise while it is waited for."""
        self._enter(check)
        try:
            yield
        finally:
            self.__exit__()

    def __enter__(self) -> None:
        self._enter(lambda: None)

    def _enter(self, check: Callable[[], None]) -> None:
        with self._lock:  # the threads that come while one waits wait here, and then share what it got
            if self._inside == 0:
                held = turn(f"starting {self._what}", check=check)
                waited = held.__enter__()
                if waited.seconds > 0.5:
                    log.info("%s waited %.1f s for its turn, behind %d", self._what, waited.seconds, waited.ahead)
                self._held = held
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                held, self._held = self._held, None
                held.__exit__(None, None, None)


def image_versions(engine: Engine, names: Sequence[str], overrides: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Reference, id and origin of each image, by `harness.images`; a name with ":" or "/" is a reference itself."""
    from harness import images

    known = [name for name in names if name in overrides or not _is_reference(name)]
    found = {name: {"reference": name, "id": "", "origin": "given"} for name in names if name not in known}
    for name, reference in (images.resolve(engine.client, known, overrides) if known else {}).items():
        found[name] = {"reference": reference.reference, "id": reference.id, "origin": reference.origin}
    for name, version in found.items():
        if not version["id"]:
            with telling(f"looking for image {name}"):
                inspected: dict[str, Any] = engine.client.images.get(name).attrs
            version["id"] = str(inspected["Id"])
    return found


def _is_reference(image: str) -> bool:
    return ":" in image or "/" in image


def _each(nodes: Sequence[DockerNode], action: Any) -> None:
    """Do something on all nodes, some at once; when one fails the rest isn't begun, and the first error is raised."""
    if not nodes:
        return
    with ThreadPoolExecutor(max_workers=min(PARALLEL, len(nodes))) as pool:
        futures: list[Future[None]] = [pool.submit(action, node) for node in nodes]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
