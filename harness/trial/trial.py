"""A trial's life: start, wait, disturb, heal, recover, stop, take down, judge, report; one way out of every error.

Three rules hold it together:

- *Nothing is lost.* Config and history are on disk before anything can fail; every stage after the first event runs
  whatever happened before it (undo, stop, audit, logs, take-down, judging, report), each guarded by itself, and what
  failed in it is added to the trial's errors.
- *Everything is undone.* Faults are undone by their own `stop`, then by the agents (`undo_all`), and the agents verify
  it; should the harness be killed, their stdin ends and they do the same by themselves.
- *A lane keeps what is clean.* Contender nodes and the resource outlive a trial when a lane is handed in, and only
  after their agents have proven that nothing of ours is in force on them.
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

from harness.errors import UsageError
from harness.results import EVIDENCE, held
from harness.runtime.base import Runtime
from harness.trial.bringup import BringUp
from harness.trial.clock import HistoryClock
from harness.trial.config import TrialConfig
from harness.trial.disturb import Disturbance
from harness.trial.judging import TrialResult, conclude
from harness.trial.lane import Lane
from harness.trial.record import Progress, TrialRecord
from harness.trial.running import Running, Watch, giving_up
from harness.trial.strain import Strain
from harness.trial.wayout import WayOut


class Trial:
    """One run of one cell. `run` never raises for what happens in the trial; the outcome tells it."""

    def __init__(
        self,
        config: TrialConfig,
        folder: Path,
        runtime: Runtime,
        *,
        lane: Lane | None = None,
        cancel: threading.Event | None = None,
        progress: Progress | None = None,
        keep: bool = False,
    ) -> None:
        """Starts nothing. Without a lane the trial has one of its own; `keep` leaves the nodes running afterwards."""
        clock = HistoryClock()
        self._config, self._runtime = config, runtime.name
        self._cancel = cancel or threading.Event()
        if lane is None:
            own = Lane(runtime, f"t{secrets.token_hex(4)}", images=config.images, check=giving_up(self._cancel))
        self._record = TrialRecord(folder, clock, progress or Progress(config.describe()))
        self._running = Running(own if lane is None else lane, clock)
        self._watch = Watch(self._running, self._cancel)
        self._bring_up = BringUp(config, runtime, self._record, self._running, self._watch)
        self._disturbance = Disturbance(config, self._record, self._running, self._watch)
        self._strain: Strain | None = None
        self._way_out = WayOut(config, self._record, self._running, own_lane=lane is None, keep=keep)

    def run(self) -> TrialResult:
        """Run the trial to its end, whatever happens in it.

        Raises UsageError, and does nothing, when another process writes into its folder or a trial ran there before.
        """
        folder = self._record.folder
        folder.mkdir(parents=True, exist_ok=True)
        with held(folder):
            earlier = next((name for name in EVIDENCE if (folder / name).exists()), None)
            if earlier is not None:
                raise UsageError(f"{folder} has the {earlier} of an earlier trial")
            return self._run()

    def _run(self) -> TrialResult:
        self._record.open()
        try:
            with self._record.guard("trial"):
                self._live()
            self._leave()
            recorder = self._running.recorder
            return conclude(
                self._config,
                self._record,
                handovers=recorder.live.handovers if recorder is not None else 0,
                tally=self._disturbance.tally,
                kept=self._way_out.kept,
                cancel=self._cancel,
                strain=None if self._strain is None else self._strain.share(),
                unknown=recorder.live.unknown_share if recorder is not None else None,
            )
        finally:
            self._record.close()

    def _live(self) -> None:
        """From nothing to the end of the recovery; whatever raises here is what the trial ends with."""
        self._record.begin(self._config, self._running.lane.site_id, self._runtime)
        self._bring_up.run()
        self._strain = Strain()
        self._disturbance.warm_up()
        self._disturbance.disturb()
        self._way_out.heal()
        self._watch.check_services()
        self._disturbance.recover()
        self._strain.share()

    def _leave(self) -> None:
        """Every stage runs, whatever the one before it met."""
        guard, way_out = self._record.guard, self._way_out
        with guard("healing"):
            way_out.heal()
        with guard("looking after the servers"):
            self._watch.check_services()
        with guard("stopping the contenders"):
            way_out.stop_contenders()
        with guard("auditing the resource"):
            way_out.audit()
        with guard("removing the trial's keys"):
            way_out.tidy()
        with guard("looking for what others did"):
            way_out.look_back()
        with guard("closing the history"):
            way_out.close_history()
        self._record.phase("take-down")
        with guard("collecting the logs"):
            way_out.collect_logs()
        with guard("taking down"):
            way_out.take_down()
        way_out.tell_what_stays()
