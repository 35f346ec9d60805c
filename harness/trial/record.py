"""What a trial writes down of itself as it goes: trial.json, its phases and errors, harness.log, and the live view.

`guard` belongs here because an error that is met must be written down before anything else happens.
"""

from __future__ import annotations

import logging
import platform
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness import __version__, redaction
from harness.errors import FencepostError
from harness.trial.clock import HistoryClock
from harness.trial.config import TrialConfig
from harness.trial.live import LiveState
from harness.trial.recorder import write_json


@dataclass
class Progress:
    """What the live view shows of a trial; written by the trial's thread, read by the view's."""

    title: str
    phase: str = "waiting"
    started: float = field(default_factory=time.monotonic)
    live: LiveState | None = None
    on_line: Callable[[str], None] | None = None

    def say(self, line: str) -> None:
        """A line for people who watch plain text."""
        if self.on_line is not None:
            self.on_line(line)


class TrialRecord:
    """A trial's folder, as far as the harness itself tells of the trial. `open` comes first, `close` last."""

    def __init__(self, folder: Path, clock: HistoryClock, progress: Progress) -> None:
        self.folder, self.progress = folder, progress
        self.data: dict[str, Any] = {}
        """The object of trial.json (docs/layout.md); each part of a trial adds what it knows, `save` writes it."""
        self.errors: list[str] = []
        """What went wrong, in the order in which it was met."""
        self._phases: list[dict[str, Any]] = []
        self._clock = clock

    def open(self) -> None:
        """Make the folder and begin harness.log: what the harness did, with times, and every traceback."""
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self._log = logging.Logger(f"fencepost.{self.folder.name}", logging.DEBUG)
        self._handler = _QuietFileHandler(self.folder / "harness.log")
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self._log.addHandler(self._handler)

    def close(self) -> None:
        """End harness.log."""
        self._log.removeHandler(self._handler)
        self._handler.close()

    def begin(self, config: TrialConfig, site_id: str, runtime: str) -> None:
        """The first trial.json: what is asked for, before anything can fail."""
        self.data = {
            "format": 1,
            "id": self.folder.name,
            "cell": config.cell(),
            "config": msgspec.to_builtins(config),
            "repeat": config.repeat_command(runtime),
            "runtime": runtime,
            "site": site_id,
            "versions": {"fencepost": __version__, "python": platform.python_version()},
            "expect": dict(config.expect),
            "expect_reason": config.expect_reason,
            "system": {},
            "nodes": {},
            "contenders": {},
            "phases": self._phases,
            "outcome": None,
            "error": None,
        }
        self.save()

    def save(self) -> None:
        """Write trial.json so that a reader never meets half of it."""
        write_json(self.folder / "trial.json", self.data)

    def log_folder(self, node: str) -> Path:
        """The folder for a node's logs, which is there then."""
        folder = self.folder / "logs" / node
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def phase(self, name: str) -> None:
        """From now on the trial is in this phase, and no longer in the one before."""
        now = self._clock.now()
        if self._phases and self._phases[-1]["end"] is None:
            self._phases[-1]["end"] = now
        self._phases.append({"name": name, "start": now, "end": None})
        self.progress.phase = name
        self.say(name)

    def end_phases(self) -> None:
        """The last phase ends as it began: what writes down its end can't be in it."""
        self._phases[-1]["end"] = self._phases[-1]["start"]

    def say(self, line: str) -> None:
        """A line for whoever watches, and for harness.log."""
        line = redaction.text(line)
        self.progress.say(line)
        self._log.info("%s", line)

    def note(self, error: str) -> None:
        """Something went wrong: the trial will end as a harness error that says this."""
        error = redaction.text(error)
        self.errors.append(error)
        self._log.error("%s", error)
        self.progress.say(f"error: {error}")

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """An error inside ends that stage, is written down, and does not stop the stages after it.

        Whatever it is, an exit of the interpreter included: what was started must be undone and taken down first.
        """
        try:
            yield
        except FencepostError as error:
            self.note(f"{what}: {error}" if what != "trial" else str(error))
            self._log.debug("%s", traceback.format_exc())
        except BaseException as error:  # noqa: BLE001 - the traceback is kept, the trial ends as a harness error
            self.note(f"{what}: {type(error).__name__}: {error} (traceback in harness.log)")
            self._log.error("%s", traceback.format_exc())


class _QuietFileHandler(logging.FileHandler):
    """A log file without secrets. A full disk ends it without a traceback on the terminal: the trial tells of that."""

    def format(self, record: logging.LogRecord) -> str:
        return redaction.text(super().format(record))

    def handleError(self, record: logging.LogRecord) -> None:
        return None

    def close(self) -> None:
        try:
            super().close()
        except OSError:
            self.stream = None
