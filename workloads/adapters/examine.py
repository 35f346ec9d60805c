"""The conformance examination of an adapter: rule by rule, against nothing, and against a service that works.

`against_nothing` needs no service: a port where nobody listens, and one where nobody answers. `with_service` needs one
that is healthy, and somebody who can freeze and thaw it. Each ends at the first rule that is broken: what comes after
would only follow from it. `python3 -m workloads.adapters.examine` is both on a node, spoken to in JSON lines.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from workloads.adapters.child import children_of
from workloads.adapters.wire import RULES as WIRE
from workloads.clients.adapter import Adapter
from workloads.clients.base import Acquired, Answered, ClientConfig, ClientUnusable
from workloads.clocks import Flag, Stamp
from workloads.contender import operation_seconds

ALONE: Mapping[str, str] = {
    "errors-are-no-success": "an acquire that has reached nobody is not ok",
    "leaves-at-the-end": "it leaves by itself within 2 s of the end of its stdin",
    "leaves-nothing": "nothing that it started is there any more once it has left",
}
SERVED: Mapping[str, str] = {
    "gets-the-lock": "its acquire of a free lock of a healthy service is ok",
    "excludes": "while one holds the lock, the acquire of another is not ok",
    "refusals-are-certain": "an acquire that a healthy service refuses, as another has the lock, is fail and not info",
    "renewals-keep": "renewed as its hello says, a hold outlasts its lease: renewals are ok, and nobody else gets it",
    "tells-renewals": "a library that renews by itself is told of: `renewed` comes before its lease is over",
    "frees-the-lock": "once it has released, another gets the lock within half a ttl",
    "tokens-rise": "with tokens, each grant has one, higher than the one before",
    "counts-from-the-request": "its lease counts from when the request was sent, not from when the answer came",
    "doubts-what-was-sent": "an acquire that a service took and did not answer is info",
    "held-is-the-service-s-word": "a release that the service did not answer says nothing about what is held",
    "claims-no-proof": "of a hold that ran out, and that another was given, no ok claims to prove that it was held",
    "leaves-others-alone": "a renewal or release of a hold that ran out doesn't touch what another was granted by then",
    "frozen-between-write-and-read": "what it wrote while nobody read is as true when it is read later, and it goes on",
}
EVERY: Mapping[str, str] = {**WIRE, **ALONE, **SERVED}
"""Every rule by its name, in the order in which they are looked at."""


HANGS = "answers-in-time"
"""Whoever breaks this one with nobody there is looked at with a service all the same: many libraries wait for ever, as
they come, and are right otherwise.
"""


class Broken(Exception):
    """A rule was broken, in these words."""

    def __init__(self, rule: str, what: str) -> None:
        assert rule in EVERY, rule
        self.rule, self.what = rule, what
        super().__init__(f"{rule}: {what}")


class Service(Protocol):
    """The service that the adapter locks at."""

    def freeze(self) -> None:
        """It answers nobody, and forgets nothing; returns when that is so."""

    def thaw(self) -> None:
        """It goes on."""


@dataclass
class Heard:
    """What an adapter said unasked."""

    lost: list[tuple[int, str]] = field(default_factory=list)
    renewed: list[tuple[int, Stamp, bool]] = field(default_factory=list)

    def grant_lost(self, grant: int, reason: str) -> None:
        """See `Unasked`."""
        self.lost.append((grant, reason))

    def grant_renewed(self, grant: int, sent: Stamp, proves: bool) -> None:
        """See `Unasked`."""
        self.renewed.append((grant, sent, proves))

    def client_broken(self, reason: str) -> None:
        """See `Unasked`. The breach itself is looked at after each operation."""


@dataclass(frozen=True)
class Subject:
    """What is examined: the adapter's settings, and the lease and the place that it is told to lock at."""

    own: Mapping[str, Any]
    ttl: float
    endpoints: list[list[Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    lock: str = "examined"
    operation: float | None = None
    """The deadline of one operation, in s; None for that of a trial with this ttl."""

    @property
    def operation_seconds(self) -> float:
        """The deadline of one operation."""
        return operation_seconds(self.ttl) if self.operation is None else self.operation


class One:
    """One process of the adapter, whose every answer is looked at."""

    def __init__(self, subject: Subject, process: int, endpoints: list[list[Any]] | None = None) -> None:
        self.heard = Heard()
        places = subject.endpoints if endpoints is None else endpoints
        config = ClientConfig(
            settings={**subject.settings, "endpoints": places, "adapter": subject.own},
            lock=subject.lock,
            ttl_seconds=subject.ttl,
            process=process,
            operation_seconds=subject.operation_seconds,
            on_lost=lambda reason: None,
            unasked=self.heard,
        )
        self._never = Flag()
        try:
            self.adapter = Adapter(config)
        except ClientUnusable as error:
            if error.breach is None:
                raise
            raise Broken(error.breach[0], error.breach[1]) from None

    def _looked_at(self, answer: Any) -> Any:
        if (breach := self.adapter.breach) is not None:
            raise Broken(breach.rule, breach.what)
        return answer

    def acquire(self, wait: float) -> Acquired:
        """Try for so long."""
        answer: Acquired = self._looked_at(self.adapter.acquire(wait, self._never))
        return answer

    def renew(self) -> Answered:
        """Renew."""
        answer: Answered = self._looked_at(self.adapter.renew())
        return answer

    def release(self) -> Answered:
        """Release."""
        answer: Answered = self._looked_at(self.adapter.release())
        return answer

    def check(self) -> None:
        """That it has broken nothing meanwhile."""
        self._looked_at(None)

    def leave(self) -> None:
        """The end of its stdin, and what it leaves behind."""
        self.check()
        self.adapter.close()
        if self.adapter.counters["adapter_killed"]:
            raise Broken("leaves-at-the-end", "it was still there 2 s after the end of its stdin")
        if left := self.adapter.left_behind:
            raise Broken("leaves-nothing", f"{len(left)} of its processes were still there after it had left")

    def kill(self) -> None:
        """End it, whatever it does."""
        self.adapter.end()


def wait(seconds: float) -> None:
    """Let time pass."""
    never = Flag()
    never.wait(seconds)
    never.close()


@contextmanager
def several(*made: Callable[[], One]) -> Iterator[list[One]]:
    """Processes of an adapter; none of them is left."""
    ones: list[One] = []
    try:
        for make in made:
            ones.append(make())
        yield ones
    finally:
        for one in ones:
            one.kill()


@dataclass(frozen=True)
class Alone:
    """An adapter that kept the rules that need no service: what it said of itself, and the slowest of its acquires that
    had to fail (s, of `given` s), with where it was.
    """

    library: str
    said: Mapping[str, str]
    """library, version, language and renewals."""
    given: float
    slowest: float
    where: str


def against_nothing(subject: Subject) -> Alone:
    """The rules that need no service. Raises Broken."""
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # not listening: whoever connects is refused
        refused = _nobody(subject, dead.getsockname()[1], "a port at which nobody listens")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)  # the kernel takes connections and requests, and nobody ever answers
        unanswered = _nobody(subject, silent.getsockname()[1], "a server that takes connections and never answers")
    return max(refused, unanswered, key=lambda each: each.slowest)


def _nobody(subject: Subject, port: int, where: str) -> Alone:
    with several(lambda: One(subject, 0, [["127.0.0.1", port]])) as [one]:
        slowest, given = 0.0, subject.operation_seconds
        for _ in range(2):
            began = time.monotonic()
            if one.acquire(given).type == "ok":
                raise Broken("errors-are-no-success", f"an acquire at {where} was ok")
            slowest = max(slowest, time.monotonic() - began)
        one.leave()
        return Alone(one.adapter.library, one.adapter.more["adapter"], given, slowest, where)


class Examination:
    """The rules that need a service."""

    def __init__(self, subject: Subject, service: Service) -> None:
        self._subject, self._service = subject, service
        self._ttl, self._operation = subject.ttl, subject.operation_seconds

    def run(self, only: Collection[str] = SERVED, tries: int = 2) -> None:
        """All of them, in order, or those alone. Raises Broken.

        What is seen of a lease goes by the clock, and a machine that gives nobody a turn for so long as a lease lasts
        makes the right one look wrong: a rule counts as broken when that was seen so many times in a row.
        """
        with several(lambda: One(self._subject, 0), lambda: One(self._subject, 1)) as [one, other]:
            for names, step in (
                ({"gets-the-lock", "excludes", "refusals-are-certain", "frees-the-lock", "tokens-rise"}, self._locks),
                ({"renewals-keep", "tells-renewals"}, self._keeps),
                ({"counts-from-the-request"}, self._counts),
                ({"doubts-what-was-sent"}, self._doubts),
                ({"held-is-the-service-s-word"}, self._word),
                ({"claims-no-proof", "leaves-others-alone"}, self._over),
                ({"frozen-between-write-and-read"}, self._unread),
            ):
                if names & set(only):
                    self._tried(step, one, other, tries)
            one.leave()
            other.leave()

    def _tried(self, step: Callable[[One, One], None], one: One, other: One, tries: int) -> None:
        for left in reversed(range(tries)):
            try:
                return step(one, other)
            except Broken as broken:
                if left == 0 or broken.rule in WIRE:
                    raise
            for each in (one, other):
                each.release()  # whether it holds or not: it may be in the middle of anything
            wait(2 * self._ttl)
        return None

    def _locks(self, one: One, other: One) -> None:
        first = self._get(one)
        self._refused(other, self._ttl / 4, "excludes", "while the first one held it")
        self._give(one)
        self._get(one)
        self._give(one)
        second = other.acquire(self._ttl / 2)
        if second.type != "ok":
            raise Broken("frees-the-lock", f"it could not be had within half a ttl after its release: {second.error}")
        self._give(other)
        tokens = (first.token, second.token)
        if one.adapter.has_tokens and not (None not in tokens and tokens[0] < tokens[1]):  # type: ignore[operator]
            raise Broken("tokens-rise", f"the token of the first grant was {first.token}, then {second.token}")

    def _get(self, one: One, longer: float = 0.0) -> Acquired:
        """The lock, which is free by then."""
        answer = one.acquire(4 * self._ttl + longer)
        if answer.type != "ok":
            raise Broken("gets-the-lock", f"an acquire of a free lock was {answer.type}: {answer.error}")
        return answer

    def _give(self, one: One) -> None:
        answer = one.release()
        if answer.type != "ok":
            raise Broken("frees-the-lock", f"a release of what it held was {answer.type}: {answer.error}")

    def _refused(self, other: One, seconds: float, rule: str, when: str) -> None:
        answer = other.acquire(seconds)
        if answer.type == "ok":
            raise Broken(rule, f"another was granted the lock {when}")
        if answer.type == "info":
            raise Broken("refusals-are-certain", f"an acquire {when} was info: {answer.error}")

    def _keeps(self, one: One, other: One) -> None:
        """For two leases."""
        renewals = one.adapter.renewals
        if renewals == "none":
            return
        self._get(one)
        end = time.monotonic() + 2 * self._ttl
        while time.monotonic() < end:
            wait(self._ttl / 6)
            if renewals == "asked" and (answer := one.renew()).type != "ok":
                raise Broken("renewals-keep", f"a renewal of what it held was {answer.type}: {answer.error}")
        one.check()
        if renewals == "told" and not one.heard.renewed:
            raise Broken("tells-renewals", "it renews by itself, and told of none in two leases")
        self._refused(other, self._ttl / 4, "renewals-keep", "while the first one held and renewed it, two leases on")
        self._give(one)

    def _counts(self, one: One, other: One) -> None:
        """A request that waits for its answer for a while."""
        self._service.freeze()
        try:
            answers: list[Any] = []
            asked = self._aside(lambda: one.acquire(2 * self._ttl), answers)
            wait(0.4 * self._operation)
        finally:
            thawed = Stamp.now()
            self._service.thaw()
        asked.join()
        answer = self._first(answers)
        if answer.type != "ok":
            return  # it gave up sooner: nothing to be seen
        if answer.since.boot_ns > thawed.boot_ns:
            late = (answer.since.boot_ns - thawed.boot_ns) / 1e9
            raise Broken(
                "counts-from-the-request",
                f"the service was frozen when the request came, and its lease is said to count from {late:.3f} s after "
                "the service had gone on",
            )
        self._give(one)

    def _doubts(self, one: One, other: One) -> None:
        """A request that is never answered in time, on a connection that stands."""
        if not one.adapter.expires:
            return  # what it may have got then nobody could give back
        self._get(one)
        self._give(one)
        self._service.freeze()
        try:
            answer = one.acquire(self._operation)
        finally:
            self._service.thaw()
        if answer.type != "info":
            raise Broken(
                "doubts-what-was-sent",
                f"an acquire that a frozen service did not answer was {answer.type}: {answer.error}",
            )

    def _word(self, one: One, other: One) -> None:
        """What it says of its hold while nobody answers."""
        if not one.adapter.expires:
            return
        self._get(one, longer=2 * self._ttl)  # what was sent before may have been granted, and has to run out
        self._service.freeze()
        try:
            answer = one.release()
        finally:
            self._service.thaw()
        if answer.held is False:
            raise Broken(
                "held-is-the-service-s-word", f"a release that nobody answered said held: false ({answer.error})"
            )

    def _over(self, one: One, other: One) -> None:
        """It is frozen itself, for longer than its lease, and another is granted the lock meanwhile."""
        if not one.adapter.expires:
            return
        self._get(one, longer=2 * self._ttl)
        tree = children_of(one.adapter.pid)
        for pid in tree:
            os.kill(pid, signal.SIGSTOP)
        try:
            granted = other.acquire(6 * self._ttl)
        finally:
            for pid in reversed(tree):
                os.kill(pid, signal.SIGCONT)
        if granted.type != "ok":
            return  # a service that never ends such a hold, as one that lives with its connection
        answers = ([("renewal", one.renew())] if one.adapter.renewals == "asked" else []) + [("release", one.release())]
        for what, answer in answers:
            if answer.type == "ok" and answer.proves:
                raise Broken("claims-no-proof", f"its {what} of what another held by then was ok, and proves: true")
        if other.adapter.renewals == "asked":
            other.renew()
        if one.acquire(self._ttl / 4).type == "ok":
            did = " and ".join(f"a {what} that was answered with {answer.type}" for what, answer in answers)
            raise Broken(
                "leaves-others-alone",
                f"its own hold had run out while it was frozen, and another had been granted the lock; after {did} it "
                "could be had again: does it look whose lock it gives back?",
            )
        self._give(other)

    def _unread(self, one: One, other: One) -> None:
        """As if its contender were frozen just there, for two leases."""
        renewals = one.adapter.renewals
        answers: list[Any] = []
        came: list[Stamp] = []
        before = len(one.heard.renewed)
        with one.adapter.unread(came):
            asked = self._aside(lambda: one.acquire(2 * self._ttl), answers)
            end = time.monotonic() + 4 * self._ttl
            while not came and asked.is_alive() and time.monotonic() < end:
                wait(0.005)
            wait(2 * self._ttl)
        asked.join()
        answer = self._first(answers)
        rule = "frozen-between-write-and-read"
        if answer.type != "ok":
            raise Broken("gets-the-lock", f"an acquire of a free lock was {answer.type}: {answer.error}")
        if answer.since.boot_ns > came[0].boot_ns:
            raise Broken(rule, "its lease is said to count from after its answer was written")
        if renewals == "told":
            end = time.monotonic() + self._ttl
            while len(one.heard.renewed) == before and time.monotonic() < end:
                wait(0.005)
            early = [
                sent for _, sent, _ in one.heard.renewed[before:] if sent.boot_ns < came[0].boot_ns + self._ttl * 1e9
            ]
            if not early:
                raise Broken(rule, "it told of no renewal within the lease that ran while nobody read")
        one.release()

    @staticmethod
    def _aside(run: Callable[[], Any], answers: list[Any]) -> threading.Thread:
        def running() -> None:
            try:
                answers.append(run())
            except Broken as error:
                answers.append(error)

        thread = threading.Thread(target=running, daemon=True)
        thread.start()
        return thread

    @staticmethod
    def _first(answers: list[Any]) -> Any:
        if isinstance(answers[0], Broken):
            raise answers[0]
        return answers[0]


class _Asked:
    """A service that somebody else freezes, who is asked in JSON lines."""

    def freeze(self) -> None:
        """See `Service`."""
        self._ask("freeze")

    def thaw(self) -> None:
        """See `Service`."""
        self._ask("thaw")

    def _ask(self, word: str) -> None:
        print(json.dumps({"please": word}), flush=True)
        if json.loads(sys.stdin.readline()) != {"done": word}:
            raise RuntimeError(f"{word} was not done")


def main() -> int:
    """The first line of stdin is the subject; then what came of it without a service is told, and at last with one."""
    subject = Subject(**json.loads(sys.stdin.readline()))
    broken: list[tuple[str, str]] = []
    try:
        print(json.dumps({"alone": asdict(against_nothing(subject))}), flush=True)
    except Broken as error:
        broken.append((error.rule, error.what))
    if not broken or broken[0][0] == HANGS:
        try:
            Examination(subject, _Asked()).run()
        except Broken as error:
            broken.append((error.rule, error.what))
    print(json.dumps({"broken": broken}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
