"""The labels on everything that a run creates in an engine, and the names. `fencepost clean` works from them alone."""

from __future__ import annotations

import re

from harness.errors import HarnessError

PROJECT = "fencepost"
"""`fencepost=1` is on every container, network, volume and image of ours."""
SITE = "fencepost.site"
NODE = "fencepost.node"
ROLE = "fencepost.role"
PART = "fencepost.part"
"""Which part of a node a container is: "node", or "service" for one that is joined to it."""
OWNER = "fencepost.owner"
"""The process that the site belongs to (harness/runtime/owner.py)."""

_SITE_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


def check_site_id(site_id: str) -> str:
    """The id itself. Raises HarnessError when it can't be part of a container's name."""
    if not _SITE_ID.fullmatch(site_id):
        raise HarnessError(
            f"site id {site_id!r}: up to 63 letters, digits and . _ - are allowed, a letter or digit first"
        )
    return site_id


def check_node_name(name: str) -> str:
    """The name itself. Raises HarnessError when it can't be a host's name."""
    if not _NODE_NAME.fullmatch(name):
        raise HarnessError(f"node name {name!r}: a host's name has up to 32 of a-z, 0-9 and -, and no - at its ends")
    return name


def container_name(site_id: str, node: str, part: str = "node") -> str:
    """What `docker ps` shows: "fencepost-t1-n2", and "fencepost-t1-n2-service" for the service joined to it."""
    return f"fencepost-{site_id}-{node}" + ("" if part == "node" else f"-{part}")


def network_name(site_id: str) -> str:
    """What `docker network ls` shows."""
    return f"fencepost-{site_id}"


def of_site(site_id: str) -> tuple[str, str]:
    """The filter that finds everything of one site."""
    return f"{PROJECT}=1", f"{SITE}={site_id}"
