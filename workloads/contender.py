"""A contender: the process that competes for the lock (PROTOCOL.md). `python3 -m workloads.contender`.

It owns what every workload needs and none should write twice: the stdio protocol, the client, the keeper that renews
the lease of a hold, the deadline of a guarded contender, and the events with their stamps. What it does with a lock
is the workload's business (`workloads/lock.py`).

Kinds of holders (`workloads/holders.py`). A *guarded* contender computes its own deadline on CLOCK_MONOTONIC from the
send time of the last request that started or extended its lease; when that passes, or the service says that the hold
has ended, it stops believing at once (`lost`) and writes no more. A *trusting* one has no deadline of its own: it stops
when its client says so. A *naive* one acts until it releases, like the job in the famous story; it renews as well, but
never looks at what became of it. A *careless* one hears that it holds nothing, and goes on.

Hold until told. A fault that is meant for the holder must hit somebody who holds, for longer than a job may last. So
the harness can order a contender to hold; one that holds says that it will, and from then on doesn't release before it
is let go. Its job goes on meanwhile, round after round, whatever it had planned.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from workloads.clients.base import Acquired, Answered, Checked, ClientConfig, ClientUnusable
from workloads.clocks import Flag, Stamp
from workloads.events import Events
from workloads.validate import BadConfig, ContenderConfig, load, parse

START_SECONDS = 60.0
"""How long to wait at the start for a resource and a service that are starting as well."""

MARGIN = 0.1
"""The share of the ttl by which a guarded contender stops before its deadline: timers fire late on a busy machine."""


FATAL_LENGTH = 1200
"""A reason to end with is cut to so many characters, from its beginning: a traceback has its point at its end."""
LET_GO_POLL_SECONDS = 0.02
"""How often a job that is done looks whether it may release."""


def operation_seconds(ttl_seconds: float) -> float:
    """The deadline of one operation: short enough for a second try before a lease that is renewed at ttl/3 runs out."""
    return ttl_seconds / 3


def told(answer: Answered) -> dict[str, Any]:
    """What the event of a renew's or a release's completion says of its answer; None is left out."""
    return {"held": answer.held, "proves": None if answer.proves else False, "error": answer.error}


class Order:
    """The harness's order to hold, for at most so long: one that forgot it must not keep the lock from everybody.

    By CLOCK_BOOTTIME, which no fault moves, while whoever is ordered may well be hit by one that moves its clocks.
    """

    def __init__(self, id_: int | str, seconds: float) -> None:
        self.id = id_
        self._until_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(seconds * 1e9)
        self._let_go = False

    def let_go(self) -> None:
        """It was told so."""
        self._let_go = True

    def over(self) -> bool:
        """Whether the hold may end."""
        return self._let_go or time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= self._until_ns


class Hold:
    """One grant, from its ok to its release.

    Three threads act on it (the job, the keeper, the watch over the deadline), and a client's own thread may end it.
    So whatever it says of itself is looked at *and said* in one step, under `_changing`: a job that looked first and
    told of its write afterwards could be overtaken by a `lost`, and would stand in the history as one that wrote
    without the lock.
    """

    def __init__(self, contender: Contender, answer: Acquired, since: Stamp) -> None:
        """`answer` that isn't ok makes a hold of somebody who presumes: without a grant, so there is nothing to keep,
        to lose or to give back.
        """
        self.token = answer.token
        self.grant = answer.grant
        self.granted = answer.type == "ok"
        self._kind = contender.config.kind
        self._order: Order | None = None
        self._leaving = False
        self._contender = contender
        self._ttl = answer.ttl_seconds or contender.config.ttl
        self._expires = contender.client.expires
        self._deadline = self._deadline_from(since)
        self._kept = Flag()
        self._over = Flag()
        self._changing = threading.Lock()
        self._lost: str | None = None
        self._told_ns = 0
        """When (a time of the history) its grant was told of."""
        self._giving_up_ns: int | None = None
        """When its release was sent, while that has no answer."""
        self._keeper = threading.Thread(target=self._guarding(self._keep), name="keeper", daemon=True)
        self._threads = []
        if self.granted and not contender.client.renews_itself:
            self._threads.append(self._keeper)
        if self.granted and self._kind.watches and self._expires:
            self._threads.append(threading.Thread(target=self._guarding(self._watch), name="watch", daemon=True))

    def start(self, **keys: Any) -> None:
        """Tell of the grant, with these keys; from then on the client's word that it has ended is heard. Start the
        keeper, and the watch over the deadline.
        """
        with self._changing:
            early = self._contender.enter(self)
            self._told_ns = self._contender.events.event("ok", "acquire", **keys)
            if early is not None:  # it was lost before we had heard that it was won
                self._say_lost(early)
        for thread in self._threads:
            thread.start()

    def _deadline_from(self, sent: Stamp) -> float:
        if not self._expires:
            return math.inf
        return sent.mono + self._ttl * (1 - MARGIN)

    def _guarding(self, run: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                run()
            except BaseException:  # noqa: BLE001 - a thread that dies alone would leave a lease unkept, unseen
                self._contender.die(traceback.format_exc())

        return guarded

    def _keep(self) -> None:
        """Renew until the hold is over or lost. After a renew without success the next one comes sooner."""
        client, events = self._contender.client, self._contender.events
        pause = client.client.renew_every_seconds
        while not self._kept.wait(pause):
            with self._changing:
                if self._lost is not None:  # renewed by somebody who doesn't believe in it, it would keep others out
                    return
                sent = Stamp.now()
                events.event("invoke", "renew")
            answer = client.renew()
            pause = client.client.renew_every_seconds - (Stamp.now().mono - sent.mono)
            with self._changing:
                events.event(answer.type, "renew", **told(answer))
                if answer.type == "ok":
                    self._deadline = max(self._deadline, self._deadline_from(sent))
                elif answer.held is False:
                    self._say_lost("expired")
                    return
                else:
                    pause = min(pause, self._ttl / 10)
            pause = max(pause, 0.01)

    def _watch(self) -> None:
        """Say `lost` when the deadline passes."""
        while True:
            with self._changing:
                left = self._deadline - time.monotonic()
                if left <= 0:
                    return self._say_lost("deadline")
            if self._over.wait(left):
                return None

    def renewed(self, sent: Stamp, proves: bool) -> None:
        """The client's library says that it has renewed the lease by itself, by a request not sent before `sent`.

        While a release is on its way the library may not have heard of it: what it sends then it sends in good faith.
        So that is told as sent before the release, which shortens what it promised, if anything.
        """
        with self._changing:
            by_ns = None if self._giving_up_ns is None else self._giving_up_ns - 1
            if self._contender.tell_renewal(sent, proves, since_ns=self._told_ns, by_ns=by_ns):
                self._deadline = max(self._deadline, self._deadline_from(sent))

    def lose(self, reason: str) -> None:
        """Whoever listens stops believing, once, for this reason."""
        with self._changing:
            self._say_lost(reason)

    def _say_lost(self, reason: str) -> None:
        """`lose`, for whoever has the turn already."""
        if self._kind.listens and self._lost is None and not self._over.is_set():
            self._lost = reason
            self._contender.events.event("info", "lost", reason=reason)

    def begin_write(self, f: str = "write", **keys: Any) -> bool:
        """Ask whether the job may write, and tell of the write (its invoke, with these keys), in one step.

        `f` is another name for it in the history, where it goes to something that is none of the twins.

        A guarded contender looks at its flag, at its own deadline, and at its client's connection; a trusting one at
        its flag. False: it must not write, and nothing was told.
        """
        contender = self._contender
        with self._changing:
            if self._over.is_set():
                return False
            if self._kind.watches and self.granted:
                if time.monotonic() >= self._deadline:
                    self._say_lost("deadline")
                if contender.client.doubtful:
                    return False
            if not self.goes_on:
                return False
            contender.events.event("invoke", f, **keys)
            return True

    def keep(self, order: Order) -> bool:
        """Take the order not to release before one is let go, and say so; or False, when the job has begun to leave.

        In one step with `leave`: who has said that it holds on does so, and who leaves has not said it.
        """
        with self._changing:
            if self._leaving or self._lost is not None or not self.granted:
                return False
            self._order = order
            self._contender.events.event("info", "hold", id=order.id, holds=True, token=self.token)
            return True

    def leave(self) -> bool:
        """Ask whether the job may come to its end: False while it was ordered to hold. After True it must release."""
        with self._changing:
            if self._order is None or self._order.over() or self._contender.stopping.is_set():
                self._leaving = True
            return self._leaving

    @property
    def told_to_hold(self) -> bool:
        """Whether an order to hold is in force."""
        order = self._order
        return order is not None and not order.over()

    @property
    def was_told_to_hold(self) -> bool:
        """Whether it was ordered to hold at any time, let go by now or not."""
        return self._order is not None

    @property
    def believes(self) -> bool:
        """Whether the contender still believes that it holds."""
        return self._lost is None

    @property
    def goes_on(self) -> bool:
        """Whether its job may act: a careless one does so whatever it was told."""
        return self._lost is None or not self._kind.heeds

    def release(self) -> None:
        """Give it up, also after it was lost: a lease that is still alive would keep the others out.

        The keeper leaves first: a renewal that is on its way comes to its end while the hold still stands, instead of
        following the release to the service, where it could be answered "not held", or revive what was given up. The
        deadline is watched meanwhile. While it is ordered to hold this waits; a job with better to do asks `leave`.
        """
        contender = self._contender
        while not self.leave():
            contender.stopping.wait(LET_GO_POLL_SECONDS)
        self._kept.set()
        if self._keeper in self._threads:
            self._keeper.join()
        with self._changing:
            contender.holding = None
            self._over.set()
            if self.granted:
                self._giving_up_ns = contender.events.event("invoke", "release")
        if self.granted:
            answer = contender.client.release()
            self._giving_up_ns = None
            contender.events.event(answer.type, "release", **told(answer))
        for thread in self._threads:
            thread.join()
        self._kept.close()
        self._over.close()


class Contender:
    """The running contender, as its workload sees it."""

    def __init__(self, config: ContenderConfig, events: Events) -> None:
        self.config, self.events = config, events
        self.random = random.Random(f"{config.seed}/{config.process}")
        self.stopping = Flag()
        self.started = Flag()
        self.holding: Hold | None = None
        self._entering = threading.Lock()
        self._latest: Hold | None = None
        """The hold that was granted last, over or not."""
        self._concluded = 0
        """The client's number of the acquire that has ended last, in whatever way."""
        self._renewing = threading.Lock()
        self._renewed_ns = 0
        """When (a time of the history) the last renewal that the client did by itself was told of."""
        self._early: dict[int, str] = {}
        """Grants of which the client has said already that they are lost, and that we have not heard of: the reason."""
        self._orders: dict[int | str, Order] = {}
        self.counts = {"acquires": 0, "grants": 0, "writes": 0, "refused": 0, "skipped": 0, "unreadable": 0}
        self.counts.update(presumed=0, renewals_out_of_order=0, renewals_of_others=0)
        client = load("client", config.client)
        self.client = Checked(
            client(
                ClientConfig(
                    settings=config.client_config,
                    lock=config.lock,
                    ttl_seconds=config.ttl,
                    process=config.process,
                    operation_seconds=operation_seconds(config.ttl),
                    on_lost=self._client_lost,
                    unasked=self,
                )
            )
        )

    def _client_lost(self, reason: str) -> None:
        hold = self.holding
        if hold is not None:
            hold.lose(reason)

    def enter(self, hold: Hold) -> str | None:
        """From now on this one holds; the reason, when the client has said already that it is lost again."""
        with self._entering:
            self.holding = self._latest = hold
            self._concluded = hold.grant or 0
            early = None if hold.grant is None else self._early.get(hold.grant)
            self._early.clear()
            return early

    def grant_lost(self, grant: int, reason: str) -> None:
        """See `Unasked`. Of a grant that is over there is nothing to lose."""
        with self._entering:
            hold = self.holding
            if hold is None or hold.grant != grant:
                self._early[grant] = reason
                return
        hold.lose(reason)

    def grant_renewed(self, grant: int, sent: Stamp, proves: bool) -> None:
        """See `Unasked`. A renewal of what was given up, or never granted, is told too: it keeps others out.

        But not while the contender believes in another grant: the history would take it for that one's.
        """
        with self._entering:
            latest, holding, concluded = self._latest, self.holding, self._concluded
        if latest is not None and latest.grant == grant:
            latest.renewed(sent, proves)
        elif grant > concluded:  # its acquire's answer is on its way to us
            self.tell_renewal(sent, proves, since_ns=None)
        elif holding is None:
            self.tell_renewal(sent, proves, since_ns=0)
        else:
            self.counts["renewals_of_others"] += 1

    def tell_renewal(self, sent: Stamp, proves: bool, since_ns: int | None, by_ns: int | None = None) -> bool:
        """Into the history as a renew that was sent at `sent` (at `by_ns`, where that is earlier) and has ended ok by
        now; whether it could be told so.

        Not where it was sent before `since_ns` (its grant was not told of by then; None: it still isn't), or before the
        last renewal had been told of: of one client's renews only one is open at a time, and a beginning later than the
        true one would lengthen what the service had promised. Then its outcome counts as unknown, as of now: which
        promises nothing, and may have lengthened the lease all the same.
        """
        sent_ns = self.events.relative(sent.boot_ns)
        sent_ns = sent_ns if by_ns is None else min(sent_ns, by_ns)
        with self._renewing:
            if since_ns is not None and sent_ns >= max(since_ns, self._renewed_ns):
                self.events.event("invoke", "renew", at_ns=sent_ns)
                self._renewed_ns = self.events.event("ok", "renew", proves=None if proves else False)
                return True
            self.counts["renewals_out_of_order"] += 1
            self.events.event("invoke", "renew")
            self._renewed_ns = self.events.event("info", "renew", error="sent before what was told last")
            return False

    def client_broken(self, reason: str) -> None:
        """See `Unasked`."""
        self.die(reason)

    def acquire(self, wait_seconds: float, **notes: Any) -> Hold | None:
        """Try to get the lock; a Hold whose lease is being kept, or None. `notes` go into the event of success."""
        self.counts["acquires"] += 1
        self.events.event("invoke", "acquire")
        answer = self.client.acquire(wait_seconds, self.stopping)
        if answer.type != "ok":
            with self._entering:
                self._concluded = answer.grant or 0
            self.events.event(answer.type, "acquire", error=answer.error, **answer.notes)
            if not self.config.kind.presumes or self.stopping.is_set():
                return None
            self.counts["presumed"] += 1
            return Hold(self, answer, Stamp.now())
        assert answer.since is not None
        self.counts["grants"] += 1
        hold = Hold(self, answer, answer.since)
        lease_from = self.events.relative(answer.since.boot_ns)
        ttl = answer.ttl_seconds if self.client.expires else None
        keys = {"token": answer.token, "ttl": ttl, "lease_from": lease_from}
        hold.start(**keys, renewals=None if self.client.renewals_seen else "unseen", **answer.notes, **notes)
        return hold

    def hold_until_told(self, id_: int | str, seconds: float) -> None:
        """An order of the harness: hold until told, for at most so long. Answered by an event, whatever it is."""
        hold, order = self.holding, Order(id_, seconds)
        if hold is not None and hold.keep(order):
            self._orders[id_] = order
        else:
            self.events.event("info", "hold", id=id_, holds=False)

    def let_go(self, id_: int | str) -> None:
        """The end of that order. One that was not taken has no end, and is answered all the same."""
        order = self._orders.pop(id_, None)
        if order is not None:
            order.let_go()
        self.events.event("info", "let_go", id=id_)

    def die(self, reason: str) -> None:
        """End the process at once: what it would say from here on could not be trusted. The harness records the
        crash.
        """
        print(reason, file=sys.stderr, flush=True)
        self.events.say(fatal=reason[-FATAL_LENGTH:])
        self.client.end()
        os._exit(1)


def _listen(contender: Contender) -> None:
    """Take commands from stdin until it ends, which is the order to stop at once."""
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            said = json.loads(line)
            command, id_, seconds = said.get("cmd"), said.get("id"), said.get("seconds")
        except (ValueError, AttributeError):
            command = None
        if command == "hold" and type(id_) in (int, str) and type(seconds) in (int, float):
            contender.hold_until_told(id_, seconds)
        elif command == "let_go" and type(id_) in (int, str):
            contender.let_go(id_)
        elif command == "start":
            contender.started.set()
        elif command == "stop":
            contender.stopping.set()
            contender.started.set()  # whoever waits for the start must hear of it too
        else:
            print(f"not a command, left unheeded: {line.rstrip()!r}", file=sys.stderr, flush=True)
    # Nobody is left to hear a goodbye.
    contender.client.end()
    os._exit(0)


def _run(events: Events, config: ContenderConfig) -> int:
    contender = Contender(config, events)
    workload = load("workload", config.workload)(contender, config.parameters)
    threading.Thread(target=_listen, args=(contender,), name="listener", daemon=True).start()
    for problem in (workload.prepare(START_SECONDS), contender.client.connect(START_SECONDS)):
        if problem is not None:
            events.say(fatal=problem)
            return 1
    client = contender.client.client
    hello: Mapping[str, Any] = {
        "pid": os.getpid(),
        "python": sys.version.split()[0],
        "cpu_seconds": round(time.process_time(), 3),
        "client": {
            "name": client.name,
            "library": client.library,
            "tokens": contender.client.has_tokens,
            "renewals": "seen" if contender.client.renewals_seen else "unseen",
            "expires": contender.client.expires,
            **contender.client.more,
        },
        "errors": dict(client.errors),
        "operation_seconds": operation_seconds(config.ttl),
        "margin_seconds": config.ttl * MARGIN if config.kind.watches else None,
        "parameters": workload.resolved,
        "holds": getattr(workload, "takes_orders", True),
    }
    events.say(hello=hello)
    while not contender.started.wait(3600):
        pass
    workload.run()
    contender.client.close()
    events.say(bye={**contender.counts, **client.counters, **workload.counts()})
    return 0


def main() -> int:
    """Run as PROTOCOL.md says; the exit code."""
    events = Events(0, 0, "lock")
    try:
        config = parse(sys.stdin.readline())
        events = Events(config.epoch_ns, config.process, config.lock)
        return _run(events, config)
    except (BadConfig, ClientUnusable) as error:
        events.say(fatal=str(error))
        return 1
    except BrokenPipeError:
        return 1
    except Exception as error:  # noqa: BLE001 - the harness must hear of it, whatever it is
        traceback.print_exc()
        events.say(fatal=f"{type(error).__name__}: {error}")
        return 1


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # a library's threads must not keep a contender alive that has said goodbye
