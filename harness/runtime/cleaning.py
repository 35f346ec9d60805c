"""Removing what runs have left behind, by labels alone (`fencepost clean`).

A site is left over when the process that owns it is gone: it was killed, or it kept the site on purpose and has ended.
What belongs to a process that still runs is somebody's trial, and is spared unless asked for.
"""

from __future__ import annotations

from harness.engine import Engine
from harness.runtime import removal
from harness.runtime.cleaned import Cleaned, why_spared


def clean(
    engine: Engine, *, site_id: str | None = None, include_running: bool = False, dry_run: bool = False
) -> Cleaned:
    """Remove all sites that are left over, or only one; with `include_running` whatever carries our label."""
    result = Cleaned()
    for site in removal.find(engine, site_id):
        name = f"site {site.id}" if site.id else "things without a site"
        if site.state != "gone" and not include_running:
            reason = why_spared(site.state, site.owner)
            result.spared.append(f"{name} stays ({site.counted()}): {reason}")
            continue
        stayed = [] if dry_run else removal.remove(engine, site.things)
        refused = {thing for thing in site.things if any(word.startswith(f"{thing}: ") for word in stayed)}
        result.removed += [f"{thing}, of {name}" for thing in site.things if thing not in refused]
        result.stayed += [f"{word}, of {name}" for word in stayed]
    return result
