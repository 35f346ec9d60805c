"""The two places where trials can run: a Docker engine, and this machine without one; what each of them has."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from harness import images, trees
from harness.doctor.findings import Finding, size, untried
from harness.doctor.nodes import examine_node
from harness.errors import FencepostError
from harness.images.maker import DEBIAN_OFFICIAL
from harness.images.registry import Registries
from harness.runtime.base import Runtime
from harness.runtime.docker import DockerRuntime
from harness.runtime.local import probe as local
from harness.runtime.local.runtime import LocalRuntime

NEEDED_IMAGES = ("node", "contender", "postgres")
"""Every trial needs these, and the image of its system."""

Say = Callable[[str], None]
Opened = Callable[[Runtime], None]


def docker(say: Say, opened: Opened) -> list[Finding]:
    """The engine, its images, and what a node in it can do."""
    try:
        runtime = DockerRuntime()
        opened(runtime)
        facts = runtime.describe()
    except FencepostError as error:
        return [Finding("engine", "failed", True, str(error), "start Docker, or install it", "docker")]
    found = [_engine(facts), _storage(facts), size(int(facts["cpus"]), int(facts["memory_bytes"]), "docker")]
    client = runtime.engine.client
    registry = _InBackground(lambda: Registries(client).refusal(DEBIAN_OFFICIAL))
    there = images.listing(client)
    have = {name: _image(image) for name, image in there.items()}
    found.append(kept("images", have, "docker"))
    if there["node"] is None:
        found.append(untried("docker"))
    else:
        say("trying faults in a throwaway node in Docker")
        found += examine_node(runtime)
    found.append(_registry(registry.result()))
    return found


def machine(say: Say, opened: Opened) -> list[Finding]:
    """Namespaces, file trees, and what a node made of them can do, without any engine."""
    say("making namespaces")
    tried = local.findings()
    found = [
        Finding(each.name, "ok" if each.works else "failed", each.needed, each.detail, each.remedy, "local")
        for each in tried
    ]
    if any(each.lacking for each in found):
        return found
    runtime = LocalRuntime(tried)
    opened(runtime)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found.append(size(os.cpu_count() or 1, memory, "local"))
    try:
        have = {name: _tree(tree) for name, tree in trees.listing().items()}
    except FencepostError as error:
        return [*found, Finding("file trees", "failed", True, str(error), "", "local")]
    found.append(kept("file trees", have, "local"))
    if have["node"] is None:
        found.append(untried("local"))
        if reason := trees.why_not():
            found.append(Finding("making trees", "failed", True, reason, "", "local"))
    else:
        say("trying faults in a throwaway node of namespaces")
        found += examine_node(runtime)
    return found


def _image(image: images.ImageRef | None) -> str | None:
    return None if image is None else _named(image.version, image.reference, image.origin)


def _tree(tree: trees.Tree | None) -> str | None:
    return None if tree is None else _named(tree.version, tree.reference, tree.origin)


def _named(version: str | None, reference: str, origin: str) -> str:
    return f"{version or reference.rpartition(':')[2]} ({origin})"


def kept(what: str, have: Mapping[str, str | None], runtime: str) -> Finding:
    """Whether what trials start from is there. `have`: name -> version and origin, None where it is missing."""
    missing = [name for name, image in have.items() if image is None]
    systems = [name for name in have if name not in NEEDED_IMAGES]
    remedy = "fencepost images" if len(missing) == len(have) else f"fencepost images {' '.join(missing)}"
    told = ", ".join(f"{name} {image}" for name, image in have.items() if image is not None)
    if not missing:
        return Finding(what, "ok", True, told, runtime=runtime)
    lacks_needed = any(name in NEEDED_IMAGES for name in missing) or set(systems) <= set(missing)
    told = f"missing: {', '.join(missing)}" + (f"; present: {told}" if told else "")
    return Finding(what, "missing" if lacks_needed else "limited", True, told, remedy, runtime)


def _engine(facts: Mapping[str, str]) -> Finding:
    told = (
        f"{facts['engine']}, API {facts['api']}, cgroup {facts['cgroup']}, runtime {facts['runtime']}, "
        f"kernel {facts['kernel']} {facts['architecture']}, {facts['os']}"
    )
    return Finding("engine", "ok", True, told, runtime="docker")


def _storage(facts: Mapping[str, str]) -> Finding:
    driver = facts["storage"]
    if driver in ("vfs", "fuse-overlayfs"):
        slow = "copies each image for each container" if driver == "vfs" else "runs in user space"
        told = f"{driver}, which {slow}: starting nodes is slower"
        return Finding("storage", "limited", False, told, "use overlay2 if you can", "docker")
    return Finding("storage", "ok", False, driver, runtime="docker")


def _registry(refusal: str | None) -> Finding:
    if refusal is None:
        return Finding("registry", "ok", False, f"{DEBIAN_OFFICIAL} can be pulled", runtime="docker")
    told = f"out of reach ({refusal}): images are built from Debian's packages instead"
    return Finding("registry", "limited", False, told, runtime="docker")


class _InBackground:
    """A call that goes on while other things are done."""

    def __init__(self, call: Callable[[], str | None]) -> None:
        self._result: list[str | None] = []
        self._thread = threading.Thread(target=lambda: self._result.append(call()), daemon=True)
        self._thread.start()

    def result(self) -> str | None:
        """Waits for the end."""
        self._thread.join()
        return self._result[0] if self._result else "asking for it failed"
