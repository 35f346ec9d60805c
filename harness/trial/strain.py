"""How far a trial's machine was overcome by its work: for what share of a time some task waited for a processor.

The kernel counts it (/proc/pressure/cpu, "some"; Linux 4.20 and newer, where pressure is accounted). Times that a trial
judges by, above all the bound of `progress`, are meant for a machine that comes round to everything; a reader of a red
cell must know when it did not. Nothing is decided by it.

It is the machine of the harness that is asked. With an engine elsewhere that isn't the one that the nodes are on, which
is why a trial only tells of it, and only in words.
"""

from __future__ import annotations

import time
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")
OVERCOME = 0.9
"""From this share on a machine is called overloaded. Two processors had 0.1 to 0.6 with four trials side by side on the
runtime local."""


class Strain:
    """Counts from its construction on, until `share` is asked for the first time."""

    def __init__(self) -> None:
        self._began, self._waited = time.monotonic(), _waited()
        self._share: float | None = None

    def share(self) -> float | None:
        """Between 0 and 1; None where the kernel doesn't tell."""
        now, seconds = _waited(), time.monotonic() - self._began
        if self._share is None and now is not None and self._waited is not None and seconds > 0:
            self._share = min(1.0, (now - self._waited) / seconds)
        return self._share


def words(share: float | None) -> str | None:
    """What a reader must know of it; None where there is nothing."""
    if share is None or share < OVERCOME:
        return None
    return (
        f"this machine was overloaded: for {share:.0%} of the time something waited for a processor; "
        "run fewer trials side by side (-j), or less beside them"
    )


def _waited() -> float | None:
    """Seconds since the machine started in which some task waited for a processor."""
    try:
        line = PRESSURE.read_text().splitlines()[0]
        return int(line.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return None
