"""The runtime `local`: nodes as Linux namespaces, made by the harness itself, as root or as anybody."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Mapping, Sequence

from harness import trees
from harness.errors import HarnessError, RuntimeUnavailable
from harness.images.halting import Halt
from harness.runtime.local import probe
from harness.runtime.local.left import clean
from harness.runtime.local.site import LocalSite
from harness.runtime.sites import OpenSites


class LocalRuntime:
    """Nodes on this machine, without an engine. Raises RuntimeUnavailable when they can't be made here."""

    name = "local"

    def __init__(self, tried: Sequence[probe.Finding] | None = None) -> None:
        """`tried`: what `probe.findings` has just found, for whoever has asked it already."""
        lacking = probe.obstacle(tried)
        if lacking is not None:
            raise RuntimeUnavailable(
                f"nodes can't be made on this machine: {lacking.name} can't be had ({lacking.detail})"
                + (f". {lacking.remedy[:1].upper()}{lacking.remedy[1:]}" if lacking.remedy else "")
            )
        _allow_descriptors()
        self._sites: OpenSites[LocalSite] = OpenSites()

    def open_site(
        self,
        site_id: str,
        *,
        images: Mapping[str, str] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> LocalSite:
        """A new site with a switch of its own. `images` overrides image names; `check` as in `Runtime`."""
        site = LocalSite(site_id, images or {}, check)
        self._sites.add(site)
        site.open()
        return site

    def sweep(self, within_seconds: float) -> list[str]:
        """Remove all that the sites of this runtime still have, and let none of them create any more; see `Runtime`."""
        return self._sites.sweep(within_seconds)

    def describe(self) -> dict[str, str]:
        """Versions and limits of the place: engine, kernel, os, architecture, run_by, storage, cpus, memory_bytes."""
        system = platform.freedesktop_os_release() if os.path.exists("/etc/os-release") else {}
        return {
            "engine": "none (Linux namespaces)",
            "kernel": platform.release(),
            "os": system.get("PRETTY_NAME", platform.system()),
            "architecture": platform.machine(),
            "run_by": "root" if os.geteuid() == 0 else "an ordinary user",
            "storage": "overlay on tmpfs",
            "cpus": str(os.cpu_count()),
            "memory_bytes": str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
        }

    def image_versions(
        self, names: Sequence[str], *, images: Mapping[str, str] | None = None
    ) -> dict[str, dict[str, str]]:
        """For each image name: reference, id and origin of its tree. RuntimeUnavailable names the missing."""
        found = trees.need(names, images)
        return {
            name: {"reference": tree.reference, "id": tree.id, "origin": tree.origin} for name, tree in found.items()
        }

    def get_images(self, names: Sequence[str], *, report: Callable[[str], None], halt: Halt) -> None:
        """Make the trees that are missing; see `Runtime.get_images`."""
        trees.ensure(names, report=report, halt=halt)

    def clean(self, *, site_id: str | None = None, include_running: bool = False, dry_run: bool = False) -> list[str]:
        """End the sites that are left over; a line for each that was, or would be, removed. See `Runtime`."""
        cleaned = clean(site_id=site_id, include_running=include_running, dry_run=dry_run)
        if cleaned.stayed:
            raise HarnessError("not removed: " + "; ".join(cleaned.stayed))
        return cleaned.removed


def _allow_descriptors() -> None:
    """As many open files as this process may have at all: a trial's nodes take a hundred, and several run side by side.

    What is usual, 1024, is for programs that use select().
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
