"""The disturbed part of a trial, between two undisturbed ones: warm-up, faults by schedule, recovery."""

from __future__ import annotations

import random
import time

from harness import secrets
from harness.errors import HarnessError
from harness.trial.config import TrialConfig
from harness.trial.injector import Injector, TrialEnvironment
from harness.trial.record import TrialRecord
from harness.trial.running import Running, Watch
from nemesis import faults
from nemesis.base import Fault, Seeks, Stands
from nemesis.bite import Tally

HOLD_MORE_SECONDS = 60.0
"""How much longer than a fault lasts a contender may be told to hold: for applying it, proving it, and undoing it."""


FIRST_GRANT_SECONDS = 20.0
"""How long the first grant is waited for, at least: a start is slower than a hand-over."""


class Disturbance:
    """Its three phases, to be called in this order, once everything is up."""

    def __init__(self, config: TrialConfig, record: TrialRecord, running: Running, watch: Watch) -> None:
        self._config, self._record, self._running, self._watch = config, record, running, watch
        self._injector: Injector | None = None

    @property
    def tally(self) -> Tally | None:
        """What the faults came to; None in a trial without faults."""
        if self._config.fault == "none":
            return None
        return self._injector.tally if self._injector else Tally()

    def warm_up(self) -> None:
        """Contenders start; undisturbed until the lock was granted once. Raises HarnessError when nobody gets it."""
        self._record.phase("warm-up")
        live = self._running.history.live
        for contender in self._running.contenders:
            contender.command("start")
        self._watch.wait(self._config.warmup)
        bound = max(self._config.progress_bound or 0.0, FIRST_GRANT_SECONDS)
        if not self._watch.await_event(lambda: live.grants > 0, bound):
            raise HarnessError(f"nobody got the lock within {bound:g} s, with nothing broken; see logs/")

    def disturb(self) -> None:
        """Faults by schedule, one after the other, each with its receipts."""
        self._record.phase("faults")
        config, running, wait = self._config, self._running, self._watch.wait
        assert config.duration is not None
        kind, target = faults.parse(config.fault)
        if kind == "none":
            wait(config.duration)
            return
        recorder, clock = running.history, running.clock
        environment = TrialEnvironment(
            running.servers,
            running.contenders,
            running.agents,
            running.lane.resource,
            recorder,
            clock.now,
            running.outlook.acts,
            self._watch.check,
            hold_most_seconds=(config.fault_on or 0.0) + HOLD_MORE_SECONDS,
        )
        injector = self._injector = Injector(environment, recorder, clock.now, clock.epoch_ns)
        injector.said = self._record.say
        schedule = config.make_schedule()
        began, number, undone = time.monotonic(), 0, 0
        live, cycle = recorder.live, schedule.cycle()
        while (window := cycle.next((injector.ended if number else time.monotonic()) - began)) is not None:
            wait(began + window.begin - time.monotonic())
            if number:
                self._in_use_again(undone)
                if not schedule.fits(window.on, time.monotonic() - began, number):
                    break
            if window.trigger == "grant":
                seen = live.grants
                left = schedule.duration - window.on - (time.monotonic() - began)
                if not self._watch.await_event(lambda seen=seen: live.grants > seen, left):  # type: ignore[misc]
                    break  # nobody got the lock any more, and a fault would not fit before the end
            number += 1
            options = {"seed": _draw(config.seed, number), **secrets.reveal(config.fault_options)}
            fault = faults.make(kind, target, options)
            on = fault.stands_seconds(environment, number, window.on) if isinstance(fault, Stands) else window.on
            self._apply(injector, environment, fault, on)
            undone = clock.now()
        wait(began + config.duration - time.monotonic())

    def _in_use_again(self, since_ns: int) -> None:
        """Wait until the lock was granted since then, or somebody holds it; for as long as `progress` needs to see.

        Where the last fault has locked everybody out, the next one must not come before `progress` can see it: a fault
        ends the stretch that it measures. Whoever still holds the lock can be believed to have it; should nobody get it
        after that, the next pause shows it.
        """
        live = self._running.history.live
        bound = self._locked_out_seconds
        if not self._watch.await_event(
            lambda: (live.last_grant_time or 0) > since_ns or live.holder() is not None, bound
        ):
            self._record.say(f"nobody got the lock within {bound:.0f} s after a fault was undone")

    @property
    def _locked_out_seconds(self) -> float:
        """After so long without a grant `progress` is false: its bound, behind the last lease that may still run."""
        return (self._config.progress_bound or 0.0) + self._config.ttl + 1.0

    def _apply(self, injector: Injector, environment: TrialEnvironment, fault: Fault, on: float) -> None:
        """One fault, for so long, or until the moment that it seeks."""
        _, target = faults.parse(self._config.fault)
        if not isinstance(fault, Seeks):
            injector.apply(fault, target, lambda: self._watch.wait(on))
            return
        watch, seeking, most = self._watch, fault, environment.terms().ttl_seconds
        injector.apply(
            fault,
            target,
            lambda: watch.await_event(lambda: seeking.ripe(environment), on),
            lambda: watch.await_event(lambda: seeking.seen(environment), most),
        )

    def recover(self) -> None:
        """Undisturbed again: the lock must be granted once more, or `progress_bound` passes and `progress` tells."""
        self._record.phase("recovery")
        config, live = self._config, self._running.history.live
        healed = self._running.clock.now()
        self._watch.wait(config.recovery)
        bound = self._locked_out_seconds
        if not self._watch.await_event(lambda: (live.last_grant_time or 0) > healed, bound):
            self._record.say(f"nobody got the lock within {bound:.0f} s after the faults were undone")
            self._watch.check_services()
        elif not self._watch.await_event(
            lambda: live.grants >= config.min_grants and live.handovers >= config.min_handovers, 8 * config.ttl
        ):
            self._record.say(f"only {live.grants} grants and {live.handovers} hand-overs")


def _draw(seed: int | None, number: int) -> int:
    """The seed of one fault of a trial: where its target leaves a choice, the draw follows from the trial's seed."""
    return random.Random(f"fault/{seed}/{number}").randrange(2**31)
