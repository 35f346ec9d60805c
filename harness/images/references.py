"""Which images the environment names, and what an image reference must look like."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from harness.errors import UsageError

BUILT = "built"
"""In place of a reference: use the image built here, even where the official one is present."""

ENVIRONMENT = "FENCEPOST_IMAGE_"
"""FENCEPOST_IMAGE_ETCD names the image for etcd."""

#: The grammar of the engine's own references: host and port, path in lower case, tag, digest. An engine that is asked
#: for something else answers with whatever its web server makes of it ("page not found").
_REFERENCE = re.compile(
    r"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*"
    r"(?::\w[\w.-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[+._-][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,})?",
    re.ASCII,
)


def why_not(reference: str) -> str | None:
    """Why a text can't be the reference of an image; None when it can, or is `BUILT`."""
    if reference == BUILT or _REFERENCE.fullmatch(reference):
        return None
    return f"{reference!r} is no image reference: [HOST[:PORT]/]NAME[:TAG][@DIGEST] with NAME in lower case is one"


def given(named: Mapping[str, str], name: str) -> str | None:
    """The reference that was named for an image, if any. UsageError for one that can't be a reference."""
    reference = named.get(name)
    if reference is not None and (reason := why_not(reference)) is not None:
        raise UsageError(f"image {name}: {reason}")
    return None if reference == BUILT else reference


def from_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Image name -> what a FENCEPOST_IMAGE_<NAME> of the environment says of it."""
    return {
        key.removeprefix(ENVIRONMENT).lower().replace("_", "-"): value
        for key, value in (os.environ if environment is None else environment).items()
        if key.startswith(ENVIRONMENT) and value
    }
