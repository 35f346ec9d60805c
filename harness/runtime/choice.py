"""Which runtime to use where nobody says: `auto` takes Docker where an engine answers, else namespaces of this machine.

A runtime that was named is taken or is an error, never replaced: who asks for Docker wants to know that it is down.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness import plain, registry
from harness.errors import RuntimeUnavailable
from harness.runtime.base import Runtime

AUTO = "auto"
ORDER = ("docker", "local")
"""What `auto` tries, the first first."""
VARIABLE = "FENCEPOST_RUNTIME"
"""The environment variable with the name of a runtime, or `auto`, for commands that aren't told."""


@dataclass(frozen=True)
class Choice:
    """A runtime that can be used. `why` says in words why this one; None where it was asked for by name."""

    name: str
    runtime: Runtime
    why: str | None = None

    @property
    def words(self) -> str:
        """`local, since Docker can't be reached: …`."""
        return self.name + ("" if self.why is None else f", {self.why}")


def choose(name: str) -> Choice:
    """The runtime of that name, or with AUTO the first of ORDER that can be used.

    Raises UsageError for a name that isn't registered, RuntimeUnavailable when it (or none) can be used.
    """
    if name != AUTO:
        if name not in registry.names("runtimes"):
            raise registry.unknown("runtimes", name, also=(AUTO,))
        return Choice(name, registry.load("runtimes", name)())
    refused: list[tuple[str, RuntimeUnavailable]] = []
    for each in ORDER:
        try:
            runtime = registry.load("runtimes", each)()
        except RuntimeUnavailable as error:
            refused.append((each, error))
            continue
        why = f"since {plain.line(str(refused[0][1]))}" if refused else "since an engine answers"
        return Choice(each, runtime, why)
    reasons = "".join(f"\n- {each}: {error}" for each, error in refused)
    raise RuntimeUnavailable(f"there is no runtime that can be used here:{reasons}") from refused[-1][1]
