"""What is wrong with a spec, whichever runtime it is for."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

from harness.errors import HarnessError, UsageError
from harness.runtime.base import MAIN, NODE_PARTS, ServiceSpec

T = TypeVar("T")

SERVICE_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


def check_files(spec: ServiceSpec) -> None:
    """Raises UsageError for a file that has no absolute path, or would be hidden by a tmpfs."""
    for path in spec.files:
        if not path.startswith("/") or path.endswith("/"):
            raise UsageError(f"file {path!r} of the service's container: an absolute path to a file is wanted")
        for mount in spec.tmpfs:
            if path.startswith(mount.rstrip("/") + "/"):
                raise UsageError(
                    f"file {path!r} would be hidden by the tmpfs on {mount!r}, which is empty at each start"
                )


def check_name(spec: ServiceSpec, node: str, present: Collection[str]) -> str:
    """What a service that is about to be started is called as a part of its node: MAIN for the first, else its name.

    Raises HarnessError when the node has one of that name already, UsageError for a name that none can have.
    """
    if spec.name in present:
        raise HarnessError(f"node {node} has a service already that is called {spec.name!r}")
    if not SERVICE_NAME.fullmatch(spec.name):
        raise UsageError(f"a service's name is made of a-z, 0-9 and -, a letter first; {spec.name!r} isn't")
    if not present:
        return MAIN
    if spec.name in NODE_PARTS:
        raise UsageError(f"a second service of node {node} can't be called {spec.name!r}; that means something else")
    return spec.name


def which(name: str | None, node: str, services: Mapping[str, T]) -> T:
    """The service of this name among those of a node, the main one first; None is the main one, and so is MAIN.

    Raises HarnessError that names those that there are.
    """
    if not services:
        raise HarnessError(f"node {node} has no service")
    if name in services:
        return services[name]  # type: ignore[index]
    if name is None or name == MAIN:
        return next(iter(services.values()))
    raise HarnessError(f"node {node} has no service {name!r} (it has: {', '.join(services)})")
