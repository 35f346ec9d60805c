"""Removing what carries our labels: containers (frozen and paused ones too), networks, volumes; judging what is left.

Removal is patient where the engine is busy with the same thing (409, "removal in progress", "has active endpoints") and
says in the end what stayed and why. Nothing here needs to know how a site was made: the labels are enough.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from docker.errors import APIError, NotFound

from harness.engine import Engine, telling
from harness.errors import HarnessError
from harness.runtime import labels
from harness.runtime.creations import Creations
from harness.runtime.owner import Owner, State

DEADLINE_SECONDS = 60.0
"""For one `remove`; a busy engine was seen to need six seconds for two pods."""
LOOKS_APART_SECONDS = 0.1
SETTLE_SECONDS = 1.0
"""Between two looks for what may have come, while the engine still owes an answer."""
LOST_SECONDS = 5.0
PARALLEL = 8


@dataclass(frozen=True)
class Thing:
    """A container, network or volume of ours. `id` is what the engine takes, `name` what people read."""

    kind: str
    id: str
    name: str
    state: str = ""
    node: str = ""
    owner: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" ({self.state})" if self.state else "")


@dataclass
class SiteLeft:
    """All that carries one site's label, and what is known of its owner. `id` is "" for things without a site."""

    id: str
    things: list[Thing] = field(default_factory=list)
    owners: set[str] = field(default_factory=set)

    @property
    def state(self) -> State:
        """Whether the process that it belongs to still runs: running if any says so, gone only if all are."""
        if not self.owners:
            return "unknown"
        states = {owner.state() if owner else "unknown" for owner in map(Owner.parse, self.owners)}
        if "running" in states:
            return "running"
        return "unknown" if "unknown" in states else "gone"

    def counted(self) -> str:
        """What it is made of: "7 containers, 1 network"."""
        counts = Counter(thing.kind for thing in self.things)
        return ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items())

    @property
    def owner(self) -> str:
        """In words."""
        known = [str(Owner.parse(label)) for label in sorted(self.owners) if Owner.parse(label)]
        return ", ".join(known) or "nobody known"


def find(engine: Engine, site_id: str | None = None) -> list[SiteLeft]:
    """Everything that runs created (or one site), by site. What has an owner but no site comes under the id ""."""
    wanted = labels.of_site(site_id) if site_id is not None else (f"{labels.PROJECT}=1",)
    sites: dict[str, SiteLeft] = {}

    def add(thing: Thing, marks: dict[str, str] | None) -> None:
        marks = marks or {}
        if labels.SITE not in marks and labels.OWNER not in marks:
            return  # a container inherits fencepost=1 from our images: one that a person runs by hand is none of ours
        site = sites.setdefault(marks.get(labels.SITE, ""), SiteLeft(marks.get(labels.SITE, "")))
        site.things.append(thing)
        if labels.OWNER in marks:
            site.owners.add(marks[labels.OWNER])

    for container in engine.containers(*wanted):
        add(_container(container), container["Labels"])
    for network in engine.networks(*wanted):
        add(Thing("network", network["Id"], network["Name"], owner=_owner(network)), network["Labels"])
    for volume in engine.volumes(*wanted):
        add(Thing("volume", volume["Name"], volume["Name"], owner=_owner(volume)), volume["Labels"])
    return [sites[key] for key in sorted(sites)]


def containers_of(engine: Engine, site_id: str, nodes: set[str]) -> list[Thing]:
    """The containers of these nodes of a site, their services' included."""
    listed = map(_container, engine.containers(*labels.of_site(site_id)))
    return [thing for thing in listed if thing.node in nodes]


def _container(listed: dict[str, Any]) -> Thing:
    name = (listed["Names"] or [listed["Id"][:12]])[0].lstrip("/")
    node = (listed["Labels"] or {}).get(labels.NODE, "")
    return Thing("container", listed["Id"], name, listed["State"], node, _owner(listed))


def _owner(listed: dict[str, Any]) -> str | None:
    owner: str | None = (listed["Labels"] or {}).get(labels.OWNER)
    return owner


def until_gone(
    engine: Engine, site_id: str, creations: Creations, within_seconds: float, *, owner: str | None = None
) -> list[str]:
    """Remove all of a site, and what still comes of what was asked for; returns what stays, one sentence each.

    `creations` has ended. It is over when two looks, `LOOKS_APART_SECONDS` apart and both after the last answer, have
    found nothing. What was asked for and got no answer at all is looked for `LOST_SECONDS` longer, and told, since it
    may come later still. With an `owner` only what carries that owner's label.
    """
    deadline = time.monotonic() + within_seconds
    patient_until: float | None = None
    empty = 0
    stayed: list[str] = []
    unanswered: list[str] = []
    while True:
        things = [thing for site in find(engine, site_id) for thing in site.things if owner in (None, thing.owner)]
        if things:
            left = deadline - time.monotonic()
            stayed = remove(engine, things, within_seconds=max(0.0, left))
            empty = 0
        elif not unanswered:
            stayed, empty = [], empty + 1
        if time.monotonic() > deadline:
            return stayed or [f"{name}: asked for, and the engine has given no answer yet" for name in unanswered]
        lost = creations.lost
        if lost and patient_until is None:
            patient_until = min(deadline, time.monotonic() + LOST_SECONDS)
        if empty >= 2 and time.monotonic() >= (patient_until or 0.0):
            return [f"{name}: asked for, but the engine gave no answer, so it may come later" for name in lost]
        # The first look removes what is there already, while the engine is still busy with the rest.
        unanswered = creations.settle(min(SETTLE_SECONDS, max(0.0, deadline - time.monotonic())))
        time.sleep(LOOKS_APART_SECONDS)


def remove(engine: Engine, things: Iterable[Thing], *, within_seconds: float | None = None) -> list[str]:
    """Remove them, containers first, networks and volumes after; returns what stayed, one sentence each.

    In `DEADLINE_SECONDS` when nothing else is said.
    """
    deadline = time.monotonic() + (DEADLINE_SECONDS if within_seconds is None else within_seconds)
    todo = list(things)
    stayed: list[str] = []
    for kind in ("container", "network", "volume"):
        wave = [thing for thing in todo if thing.kind == kind]
        if wave:
            with ThreadPoolExecutor(max_workers=min(PARALLEL, len(wave))) as pool:
                stayed += [word for word in pool.map(lambda thing: _remove(engine, thing, deadline), wave) if word]
    return stayed


def remove_containers(engine: Engine, names: Sequence[str]) -> list[str]:
    """Remove containers by name or id, whatever their state; returns what stayed."""
    return remove(engine, [Thing("container", name, name) for name in names])


def _remove(engine: Engine, thing: Thing, deadline: float) -> str | None:
    """Remove one thing; None when it is gone, else why it stays."""
    calls: dict[str, Callable[[], Any]] = {
        "container": lambda: engine.api.remove_container(thing.id, v=True, force=True),
        "network": lambda: _remove_network(engine, thing.id),
        "volume": lambda: engine.api.remove_volume(thing.id, force=True),
    }
    if thing.state == "paused":
        # A paused process takes no signal, and everything in its pid namespace waits for it.
        _unpause(engine, thing.id)
    pause = 0.02
    while True:
        try:
            with telling(f"removing {thing}"):
                try:
                    calls[thing.kind]()
                except NotFound:
                    return None
                except APIError as error:
                    if error.status_code is None or not _may_pass(error):
                        raise
                    if "paused" in str(error.explanation):
                        _unpause(engine, thing.id)
                    reason = str(error.explanation or error)
                else:
                    return None
        except HarnessError as error:
            reason = str(error)
        if time.monotonic() + pause > deadline:
            return f"{thing}: {reason}"
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def _may_pass(error: APIError) -> bool:
    """Whether trying again can help: somebody else removes it too, an endpoint still leaves, the engine is busy."""
    return error.status_code in (403, 409, 500, 503)


def _unpause(engine: Engine, container: str) -> None:
    try:
        engine.api.unpause(container)
    except NotFound:
        return
    except APIError as error:
        # It was unpaused meanwhile, or has ended: the removal that follows finds out.
        if error.status_code not in (304, 409, 500):
            raise


def _remove_network(engine: Engine, network: str) -> None:
    """Remove a network, and before it what still hangs on it: a container that somebody attached by hand, say."""
    attached = engine.api.inspect_network(network).get("Containers") or {}
    for container in attached:
        try:
            engine.api.disconnect_container_from_network(container, network, force=True)
        except NotFound:
            continue
    engine.api.remove_network(network)
