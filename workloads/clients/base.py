"""What a lock client is: five methods, typed outcomes, and a wrapper that rejects a malformed answer.

The rules of this project for every client: the library's own retries are off; an operation has one
deadline, which goes down into the socket; and an outcome is one of

    ok      it took effect
    fail    it certainly did not
    info    nobody knows

Which error means which is *data*, the client's `errors` table, recorded with every trial, because one line of it can
flip a verdict: calling a time-out `fail` hides the lock that was taken after all.

A client is used by two threads (the loop of the job, and the keeper that renews meanwhile); `Checked` lets them in
one at a time, so that a client need not think of it. `wait` in `acquire` is the one exception: nothing else is called
then.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from workloads.clocks import Flag, Stamp

Outcome = Literal["ok", "fail", "info"]
OUTCOMES = ("ok", "fail", "info")


@dataclass(frozen=True, slots=True)
class Acquired:
    """What became of an acquire.

    With `ok`: `token`, the fencing token, or None when the service has none; `ttl_seconds`, what the service granted,
    which may be more than was asked for; `since`, when the request was *sent* whose success last started or extended
    the lease. Otherwise `error` says why. `notes` are further keys for the event (the endpoint, the lease id), plain
    JSON. `grant` is the client's own number for it, where the client speaks of grants unasked (`Unasked`).
    """

    type: Outcome
    token: int | None = None
    ttl_seconds: float | None = None
    since: Stamp | None = None
    error: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    grant: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a renew or a release.

    `held` is False, with `fail`, only when the *service* said that this contender doesn't hold the lock; None
    otherwise. A client never guesses it: the verdict `lease` takes it as the end of the hold.

    `proves` is False, with `ok`, where the service answers ok whether or not the lock was held (a plain DEL, an Unlock
    of a key that is gone). The verdicts take any other ok for a proof that it was held when it was asked, and would
    accuse the service of having granted it twice.
    """

    type: Outcome
    held: bool | None = None
    error: str | None = None
    proves: bool = True


LostHandler = Callable[[str], None]
"""Called by a client, from any thread, when the service tells it on its own that the hold has ended; with the reason
`expired`. A connection that is merely down is no such thing; nor is it where the lock lives with the connection
(`expires` False) and nobody knows whether the service has noticed: then the reason is `disconnected`."""


class Unasked(Protocol):
    """What a client may say on its own, from any thread, of a grant (`Acquired.grant`), also of one that is over or of
    which the contender has not heard yet.
    """

    def grant_lost(self, grant: int, reason: str) -> None:
        """It is gone. `reason` is one of those of the contract; `expired` is the service's word alone."""

    def grant_renewed(self, grant: int, sent: Stamp, proves: bool) -> None:
        """Its lease was renewed, by a request that was not sent before `sent`. `proves` as in `Answered`."""

    def client_broken(self, reason: str) -> None:
        """Nothing that this client says can be trusted any more. May not return."""


class ClientUnusable(RuntimeError):
    """A client that can't even be made. Its text says why, for the user; `breach` is the rule of the adapter protocol
    that was broken, and how, where it was one.
    """

    breach: tuple[str, str] | None = None


@dataclass(frozen=True)
class ClientConfig:
    """What a client is made from. `settings` is what the system's `client_config` said: at least `endpoints`."""

    settings: Mapping[str, Any]
    lock: str
    ttl_seconds: float
    process: int
    operation_seconds: float
    """The deadline of one operation."""
    on_lost: LostHandler
    unasked: Unasked | None = None
    """Who hears what a client says on its own of one grant among others."""

    def endpoints(self) -> list[tuple[str, int]]:
        """The servers, this contender's own first: as users do, each starts at another one and goes on from there."""
        pairs = [(str(host), int(port)) for host, port in self.settings["endpoints"]]
        first = self.process % len(pairs)
        return pairs[first:] + pairs[:first]


class LockClient(Protocol):
    """One contender's client of one lock. Made from a `ClientConfig`; no method raises for what a service or network
    does.

    Some attributes may be left out. True then: `expires`, whether its locks do: False says that a hold ends by
    its release alone, or with the connection that it was taken on (an advisory lock of a database). It has no deadline
    then; `renew`, called as often, asks whether it is still held. `has_tokens`, whether its grants carry fencing tokens
    (without them a trial doesn't require `fencing` and `fenced`), and `renewals_seen`, whether each renewal of the
    lease goes through `renew`. A library that renews by itself, unasked and untold, says False: then nobody can tell
    from outside how long a lease ran, and a trial doesn't require `lease` and `linearizable`. False then:
    `renews_itself`, whether the lease is kept without `renew`, which is never called then; and `sessions`, whether a
    grant may stand on a lease that is older than its acquire, so that `since` may lie before that. `more` is plain JSON
    that the contender's hello tells of its client, besides. A client that has started processes has an `end`, which
    ends them at once.
    """

    name: str
    """As in the entry-point group `fencepost.clients`."""
    library: str
    """What it stands on, with the version: "redis 8.1.0"."""
    errors: Mapping[str, Outcome]
    """The error table: a kind of error -> what it says about the request. The key "*" is for all others."""
    renew_every_seconds: float
    """How often the keeper should renew, by the recipe of this service (ttl/3, ttl/2)."""
    counters: Counter[str]
    """What nobody should do uncounted: endpoint switches, reconnects, polls, repeated attempts."""

    def connect(self, timeout_seconds: float) -> str | None:
        """Be ready to acquire. None, or why not."""

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """Try for at most so long, with a fresh owner id; leave nothing behind that could be granted later if it can
        help it.
        """

    def renew(self) -> Answered:
        """Set the lease of the current hold anew. `ok` proves that the lock is still held, unless it says otherwise."""

    def release(self) -> Answered:
        """Give the current hold up."""

    @property
    def doubtful(self) -> bool:
        """Whether the client knows of no working connection just now, so that a careful job would not write yet."""

    def close(self) -> None:
        """Give connections back. Idempotent. Never tells the service to end a hold: that is `release`."""


def classify(errors: Mapping[str, Outcome], kind: str) -> Outcome:
    """What an error says about the request: the longest key of the table that begins it, else "*".

    Keys are the beginnings of error texts, because services put details behind them.
    """
    keys = [key for key in errors if key != "*" and kind.startswith(key)]
    return errors[max(keys, key=len)] if keys else errors["*"]


class MalformedAnswer(RuntimeError):
    """A lock client broke its protocol. Says each problem; the contender ends with it, because nothing it says can be
    trusted.
    """

    def __init__(self, operation: str, answer: object, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__(f"the lock client answered {operation} with {answer!r}: {'; '.join(problems)}")


def _problems_of_acquired(answer: object, sent: Stamp, has_tokens: bool, sessions: bool) -> list[str]:
    if not isinstance(answer, Acquired):
        return [f"it must be an Acquired, not {type(answer).__name__}"]
    problems = [] if answer.type in OUTCOMES else [f"type must be one of {OUTCOMES}, not {answer.type!r}"]
    if answer.type == "ok":
        if answer.token is not None and (isinstance(answer.token, bool) or not isinstance(answer.token, int)):
            problems.append(f"token must be an integer or None, not {answer.token!r}")
        elif answer.token is not None and not has_tokens:
            problems.append(f"a token ({answer.token}) from a client whose has_tokens is False")
        if not isinstance(answer.ttl_seconds, int | float) or not answer.ttl_seconds > 0:
            problems.append(f"ttl_seconds must be a number above 0, not {answer.ttl_seconds!r}")
        if answer.since is None:
            problems.append("since is missing: when was the request sent that last started the lease?")
        elif not (sessions or sent.boot_ns <= answer.since.boot_ns) or answer.since.boot_ns > Stamp.now().boot_ns:
            problems.append("since must lie between the call and its return")
    elif not answer.error:
        problems.append(f"an answer of type {answer.type} needs an error text")
    return problems


def _problems_of_answered(answer: object) -> list[str]:
    if not isinstance(answer, Answered):
        return [f"it must be an Answered, not {type(answer).__name__}"]
    problems = [] if answer.type in OUTCOMES else [f"type must be one of {OUTCOMES}, not {answer.type!r}"]
    if answer.held is not None and answer.type != "fail":
        problems.append(f"held belongs to a fail, not to {answer.type}")
    if answer.held is True:
        problems.append("held can only be False or None")
    if not isinstance(answer.proves, bool):
        problems.append(f"proves must be True or False, not {answer.proves!r}")
    elif not answer.proves and answer.type != "ok":
        problems.append(f"proves belongs to an ok, not to {answer.type}")
    if answer.type != "ok" and not answer.error:
        problems.append(f"an answer of type {answer.type} needs an error text")
    return problems


class Checked:
    """A lock client whose every answer is checked, and which lets one thread in at a time."""

    def __init__(self, client: LockClient) -> None:
        problems = [
            f"it has no attribute {name!r}"
            for name in ("name", "library", "errors", "renew_every_seconds", "counters")
            if not hasattr(client, name)
        ]
        if not problems:
            problems = [f"errors[{kind!r}] is {out!r}" for kind, out in client.errors.items() if out not in OUTCOMES]
            if "*" not in client.errors:
                problems.append("errors has no '*', for errors that nobody foresaw")
            if not client.renew_every_seconds > 0:
                problems.append(f"renew_every_seconds must be above 0, not {client.renew_every_seconds!r}")
            for name in ("has_tokens", "renewals_seen", "expires", "renews_itself", "sessions"):
                if not isinstance(getattr(client, name, True), bool):
                    problems.append(f"{name} must be True or False, not {getattr(client, name)!r}")
        if problems:
            raise MalformedAnswer("its construction", client, problems)
        self.client = client
        self.has_tokens: bool = getattr(client, "has_tokens", True)
        self.renewals_seen: bool = getattr(client, "renewals_seen", True)
        self.expires: bool = getattr(client, "expires", True)
        self.renews_itself: bool = getattr(client, "renews_itself", False)
        self._sessions: bool = getattr(client, "sessions", False)
        self.more: Mapping[str, Any] = getattr(client, "more", {})
        self._turn = threading.Lock()

    def connect(self, timeout_seconds: float) -> str | None:
        """See `LockClient.connect`."""
        with self._turn:
            return self.client.connect(timeout_seconds)

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """See `LockClient.acquire`. MalformedAnswer when the client broke the protocol."""
        with self._turn:
            sent = Stamp.now()
            answer = self.client.acquire(wait_seconds, cancelled)
        if problems := _problems_of_acquired(answer, sent, self.has_tokens, self._sessions):
            raise MalformedAnswer("acquire", answer, problems)
        return answer

    def renew(self) -> Answered:
        """See `LockClient.renew`."""
        return self._answered("renew", self.client.renew)

    def release(self) -> Answered:
        """See `LockClient.release`."""
        return self._answered("release", self.client.release)

    def _answered(self, operation: str, call: Callable[[], Answered]) -> Answered:
        with self._turn:
            answer = call()
        if problems := _problems_of_answered(answer):
            raise MalformedAnswer(operation, answer, problems)
        return answer

    @property
    def doubtful(self) -> bool:
        """See `LockClient.doubtful`."""
        return self.client.doubtful

    def close(self) -> None:
        """See `LockClient.close`."""
        self.client.close()

    def end(self) -> None:
        """This process is about to end, at once: nothing that the client has started may outlive it."""
        if (end := getattr(self.client, "end", None)) is not None:
            end()


class NoLock:
    """The lock that locks nothing: every acquire is granted at once. For trying a workload without a service, and the
    simplest of the locks that are wrong on purpose. Its ok proves nothing: nobody was asked."""

    name = "noop"
    library = "none"
    has_tokens = False
    errors: Mapping[str, Outcome] = {"*": "info"}

    def __init__(self, config: ClientConfig) -> None:
        self._ttl = config.ttl_seconds
        self.renew_every_seconds = config.ttl_seconds / 3
        self.counters: Counter[str] = Counter()

    def connect(self, timeout_seconds: float) -> str | None:
        """Always ready."""
        return None

    def acquire(self, wait_seconds: float, cancelled: Flag) -> Acquired:
        """Granted, without a token."""
        return Acquired("ok", ttl_seconds=self._ttl, since=Stamp.now())

    def renew(self) -> Answered:
        """Renewed."""
        return Answered("ok", proves=False)

    def release(self) -> Answered:
        """Released."""
        return Answered("ok", proves=False)

    @property
    def doubtful(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Nothing to give back."""
