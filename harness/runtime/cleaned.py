"""What came of cleaning up, in the same words whatever the runtime."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.runtime.owner import State

_NOT_GONE: dict[State, str] = {
    "running": "{owner} still runs",
    "unknown": "whether it still runs can't be seen from here ({owner})",
}


@dataclass
class Cleaned:
    """What was (or would be) removed, what was spared and why, and what would not go; one line each."""

    removed: list[str] = field(default_factory=list)
    spared: list[str] = field(default_factory=list)
    stayed: list[str] = field(default_factory=list)


def why_spared(state: State, owner: str) -> str:
    """Why something that belongs to `owner` (in words) is left alone; its state is not "gone"."""
    return _NOT_GONE[state].format(owner=owner)
