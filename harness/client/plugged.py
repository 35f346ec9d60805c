"""The code of clients and workloads that other packages register, for nodes that haven't got those packages.

A plug-in is installed beside `fencepost`, where its system runs. Its client and its workload run on contenders' nodes,
so the package that they are in is sent there, as a whole and as it is here, into the folder of our own. What it needs
besides must be in the contenders' image.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness import registry
from harness.client.brought import Brought, Sent, read_file, walk
from harness.errors import UsageError

OURS = frozenset({"workloads", "lib", "harness", "nemesis", "checkers"})
"""Names in that folder, or of our own packages, which nobody else's package may take."""


@dataclass(frozen=True)
class Plugged:
    """A package, or a module, that is sent: its name, and its files by their paths beside our own."""

    name: str
    files: Mapping[str, Sent] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """As of a client that is brought."""
        return Brought((self.name,), self.files).digest


def read(wanted: Iterable[tuple[str, str]]) -> list[Plugged]:
    """The packages in which these (kind, name) live that aren't ours; each once.

    UsageError for one whose code isn't to be found, or can't be sent.
    """
    tops = (registry.foreign(kind, name) for kind, name in wanted)
    return [_package(top) for top in dict.fromkeys(tops) if top is not None]


def _package(top: str) -> Plugged:
    if top in OURS:
        raise UsageError(f"the package {top!r} has a name that Fencepost needs on a contender's node")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError) as error:
        raise UsageError(f"the package {top!r} can't be found: {error}") from error
    if spec is None:
        raise UsageError(f"the package {top!r} can't be found, though a part is registered in it")
    folders = list(spec.submodule_search_locations or ())
    if folders:
        return Plugged(
            top, {f"{top}/{path}": sent for folder in reversed(folders) for path, sent in walk(Path(folder))}
        )
    if not spec.origin or not spec.origin.endswith(".py"):
        raise UsageError(f"the module {top!r} is no file of Python ({spec.origin}), and can't be sent")
    return Plugged(top, {f"{top}.py": read_file(Path(spec.origin))})
