"""Putting a service back to what it was when a snapshot was taken, where a system has a way for that.

It is what is done after data was lost or broken, and what every runbook has: everything that was granted since the
snapshot is forgotten, and what was held then is held again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from harness.runtime.base import ServiceSpec
from harness.systems.base import Server


@dataclass(frozen=True)
class Snapshot:
    """What a service held at one moment."""

    order: str
    """How it was had, in the words of an operator's command."""
    data: bytes = field(repr=False)
    """It, in the system's own form."""
    version: str = ""
    """Of which version the server was that gave it, where what it is put back with depends on that."""


@runtime_checkable
class Restores(Protocol):
    """A system that a snapshot can be taken of, and put back.

    Either while its servers run (`restores_running`), by `restore`; or by ending all of them and starting each from
    `restored_from`, after which `restore` orders what is left to be ordered.
    """

    restores_running: bool

    def snapshot(self, servers: Sequence[Server]) -> Snapshot:
        """Take one. AgentError when no server gives it."""

    def restored_from(
        self, snapshot: Snapshot, specs: Mapping[str, ServiceSpec]
    ) -> Mapping[str, Sequence[ServiceSpec]]:
        """From what each server is started, without its data, when they were planned so: one after the other on each
        node, of which all but the last end by themselves with 0, and leave their data to the next.
        """

    def restore(self, servers: Sequence[Server], snapshot: Snapshot) -> str:
        """Put it back, or do what is left of it; what was ordered. AgentError when it was refused, or isn't sure."""

    def put(self, servers: Sequence[Server], key: str, value: str) -> None:
        """Write a key of ours, by a quorum. AgentError when it isn't sure that it was written."""

    def get(self, servers: Sequence[Server], key: str) -> str | None:
        """Read it, as a quorum has it; None: there is none. AgentError without an answer."""
