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

from harness import images
from harness.engine import Engine, telling
from harness.errors import HarnessError
from harness.images import theirs
from harness.runtime import labels, network, removal
from harness.runtime.base import Node, NodeSpec, SeenHandler
from harness.runtime.cleaning import clean
from harness.runtime.creations import Creations
from harness.runtime.owner import Owner
from harness.runtime.pod import DockerNode, Place
from harness.runtime.sites import OpenSites, Roster, check_names, own
from harness.runtime.turn import SharedTurn
from harness.runtime.watch import DockerWatch

log = logging.getLogger(__name__)

PARALLEL = 6
"""Containers created and started at once. On two cores three at once take a third longer in all, nine are no faster."""
CLOSE_SECONDS = 90.0
"""For removing a whole site; a busy engine was seen to need six seconds for two pods, and 14 s for one start."""


class DockerRuntime:
    """Nodes in the Docker engine that the `docker` command uses. Raises RuntimeUnavailable when there is none."""

    name = "docker"

    def __init__(self) -> None:
        self.engine = Engine()
        self._sites: OpenSites[DockerSite] = OpenSites()

    def open_site(
        self,
        site_id: str,
        *,
        images: Mapping[str, str] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> DockerSite:
        """A new site with its own network. `images` overrides image names with references; `check` as in `Runtime`."""
        site = DockerSite(self.engine, site_id, images or {}, check)
        self._sites.add(site)
        site.open()
        return site

    def sweep(self, within_seconds: float) -> list[str]:
        """Remove all that the sites of this runtime still have, and let none of them create any more; see `Runtime`."""
        return self._sites.sweep(within_seconds)

    def describe(self) -> dict[str, str]:
        """Versions and limits of the engine: engine, api, kernel, os, architecture, cgroup, storage, cpus, …"""
        return self.engine.describe()

    def image_versions(
        self, names: Sequence[str], *, images: Mapping[str, str] | None = None
    ) -> dict[str, dict[str, str]]:
        """For each image name: reference, id and origin. RuntimeUnavailable names those that are missing."""
        return image_versions(self.engine, names, images or {})

    def get_images(self, names: Sequence[str], *, report: Callable[[str], None], halt: images.Halt) -> None:
        """Pull or build those that are missing; see `Runtime.get_images`."""
        images.ensure(self.engine.client, names, report=report, halt=halt)

    def take_image(self, reference: str, *, report: Callable[[str], None], halt: images.Halt) -> theirs.Theirs:
        """Pull an image of a user's own where it isn't there, and say what it is; see `TakesImages`."""
        return theirs.take(self.engine.client, reference, report=report, halt=halt)

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
    """The nodes of one trial or lane (`harness.runtime.base.Site`). `open` comes first: until then it has nothing."""

    def __init__(self, engine: Engine, site_id: str, images: Mapping[str, str], check: Callable[[], None]) -> None:
        self.engine = engine
        self._id = labels.check_site_id(site_id)
        self._overrides = dict(images)
        self._references: dict[str, str] = {}
        self._nodes: Roster[DockerNode] = Roster(site_id)
        self._lock = threading.Lock()  # guards the two above
        self._turn = SharedTurn(f"site {site_id}")
        self._check = check
        self._creations = Creations()
        self.labels = {labels.PROJECT: "1", labels.SITE: site_id, labels.OWNER: Owner.current().label()}
        self._place: Place | None = None
        self.closed = False
        """Whether everything is gone, or was never there."""

    def open(self) -> None:
        """Create its network. After an error nothing of it is left."""
        try:
            self._check()
            made = network.create(self.engine, self._id, self.labels, self._creations)
        except BaseException:
            # A refusal has created nothing, and what carries the site's label then is another's. Without an answer it
            # may have been created, and is ours by the owner's label.
            if self._creations.lost:
                self.close(mine_alone=True)
            self._creations.end()
            self.closed = True
            raise
        self._place = Place(
            self.engine,
            self._id,
            self.labels,
            made,
            self.reference,
            lambda: self.starting(self._check),
            self._creations,
            self._check,
        )

    @property
    def network(self) -> network.Network:
        """Its network, once it is open."""
        return self._open_place.network

    @property
    def _open_place(self) -> Place:
        assert self._place is not None, "open() comes first"
        return self._place

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
        if self._creations.ended:
            raise HarnessError(f"site {self._id} is closed")
        self._resolve(check_names(specs))
        with self._lock:
            nodes = self._nodes.enter(specs, lambda spec, number: DockerNode(self._open_place, spec, number))
        try:
            with self.starting(self._check):
                _each(nodes, DockerNode.create_and_start)
        except BaseException:
            self.remove_nodes(nodes)
            raise
        return list(nodes)

    def remove_nodes(self, nodes: Sequence[Node]) -> None:
        """Remove nodes and their services, with their volumes, in parallel; frozen or paused ones too. Idempotent."""
        mine = own(self._id, nodes, DockerNode, self._place)
        if not mine:
            return
        # Asked from the engine, not from memory: a creation that failed here may have succeeded there.
        found = removal.containers_of(self.engine, self._id, {node.name for node in mine})
        stayed = removal.remove(self.engine, found)
        with self._lock:
            self._nodes.forget([node for node in mine if self._nodes.has(node)])
        if stayed:
            raise HarnessError(f"not removed from site {self._id}: " + "; ".join(stayed))

    def watch(self, on_seen: SeenHandler, on_note: Callable[[str], None]) -> DockerWatch:
        """See what happens to the nodes that the site has now, until the context ends; see `Site.watch`."""
        return DockerWatch(self.engine, self._id, self.network, on_seen, on_note)

    def close(self, *, within_seconds: float = CLOSE_SECONDS, mine_alone: bool = False) -> None:
        """Remove all that is left of this site, network last. Idempotent. Raises HarnessError naming what stays.

        Nothing is created any more from here on. What was asked for and has no answer yet is waited for; the end is
        when two looks, after the last answer, have found nothing. With `mine_alone` only what this process made.
        """
        self._creations.end()
        owner = self.labels[labels.OWNER] if mine_alone else None
        left = removal.until_gone(self.engine, self._id, self._creations, within_seconds, owner=owner)
        with self._lock:
            self._nodes.forget(self._nodes.all())
        if left:
            raise HarnessError(f"left of site {self._id}: {'; '.join(left)}. Try {self.how_to_remove()}")
        self.closed = True

    def keep(self) -> None:
        """Nothing to do: containers stay until somebody removes them."""

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


def image_versions(engine: Engine, names: Sequence[str], overrides: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Reference, id and origin of each image, by `harness.images`; a name with ":" or "/" is a reference itself."""
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
