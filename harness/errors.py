"""The errors that a user can meet. Each is a sentence that says what happened, where, and what to do.

The exit code travels with the error (DESIGN: 0 as expected, 1 an unexpected violation, 2 usage, 3 unknown or
too little happened, 4 the harness or the clean-up failed).
"""

from __future__ import annotations

from pathlib import Path


class FencepostError(Exception):
    """Base of all errors that the command line prints as one sentence, without a traceback."""

    exit_code = 4


class UsageError(FencepostError):
    """The request itself is wrong: an unknown name, a bad value, an impossible combination."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file is wrong. Names the file, the key (dotted) and the reason."""

    def __init__(self, path: Path | str | None, key: str | None, reason: str) -> None:
        self.path, self.key, self.reason = path, key, reason
        super().__init__(": ".join(str(part) for part in (path, key, reason) if part is not None))


class HistoryError(UsageError):
    """A file that cannot be read as a history. `line` counts from 1; 0 when no line is to blame."""

    def __init__(self, path: Path | str, line: int, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")


class RuntimeUnavailable(FencepostError):
    """The place where nodes should live can't be used: Docker isn't running, an image is missing, a disk is full."""


class HarnessError(FencepostError):
    """The harness could not do its work (a node, an agent, a contender or a service did not behave)."""


class NotHealthy(HarnessError):
    """A wait ran into its deadline. Says what was awaited, for how long, and what was seen instead."""


class AgentError(HarnessError):
    """The agent on a node refused a command or failed in it; carries the agent's own words."""
