"""What is wrong with a spec, whichever runtime it is for."""

from __future__ import annotations

from harness.errors import UsageError
from harness.runtime.base import ServiceSpec


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
