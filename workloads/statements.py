"""The workload `statements`: the nightly job of the famous story. Whoever holds the lock sends each customer of a month
one statement, in batches; whoever is not stopped sends some customers two.

A batch: look who has none yet (`Look`), render them for a while, send. Between the look and the sending the job may be
paused for longer than its lease; then another holder has the lock, looks, and sends the same customers theirs; and the
first one wakes and sends what it has rendered. When all customers have one the next month begins.

Each batch goes to three worlds of one job (`workloads/mailing.py`), which are looked at, rendered for and sent to side
by side: `unfenced` takes everything, `fenced` refuses a token that is older than one it has seen, `idempotent` files by
customer and month and swallows what it has. What came of it is counted at the end by the mail room itself
(`workloads/tally.py`).

In the history a batch to `unfenced` or `fenced` is one `write`, with the keys of the contract: `read` is the version
that its look showed, `version` what it would make, `id` and `seq` of the batch as a whole. Besides, `month` and
`customers` ("181-200"). A batch that the fenced world refuses at the look fails at once, without having been rendered.
One to `idempotent` is no write, for it is no twin: it is a `send` with `world`, `id`, `month`, `customers`, and on its
ok `taken` and `swallowed`; no verdict looks at it.

While its holder is told to hold, a job stays with the batch that it renders: so a pause comes in its middle, and not in
the few milliseconds between two. The time that it stayed counts as work: let go, it releases after the batch in its
hands, instead of going through all that it had planned, which may take longer than a lease from when it woke.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workloads.jobs import Jobs
from workloads.parameters import Parameter, resolve
from workloads.tally import TALLY, ranges, told

if TYPE_CHECKING:
    from workloads.contender import Contender, Hold
    from workloads.mailing import Look, World


PARAMETERS: Mapping[str, Parameter] = {
    "customers": Parameter(400, 1, 100_000, "customers", "how many there are, in each month", whole=True),
    "batch": Parameter(20, 1, 200, "customers", "in a batch", whole=True),
    "batches_min": Parameter(1, 1, 10_000, "batches", "that a holder sends at least before it releases", whole=True),
    "batches_max": Parameter(6, 1, 10_000, "batches", "that it sends at most", whole=True),
    "render_min": Parameter(0.08, 0, 3600, "s", "the shortest time between looking who has none and sending"),
    "render_max": Parameter(0.25, 0, 3600, "s", "the longest"),
    "wait_ttls": Parameter(4.0, 0.1, 1000, "ttl", "how long an acquire waits for its turn"),
    "rest_max": Parameter(0.1, 0, 3600, "s", "the longest pause between a release and the next acquire"),
    "after_failure": Parameter(0.1, 0.001, 3600, "s", "the pause after an acquire without success"),
}
POLL_SECONDS = 0.02
"""How often a job that is told to hold looks whether it may go on."""
PAUSE_TTLS = 0.5
"""A look that comes so much later than the last one comes after a pause."""


class StatementsWorkload(Jobs[int]):
    """See the module."""

    name = "statements"
    summary = "Send each customer one statement a month, in batches; unfenced, fenced and idempotent side by side."
    parameters = PARAMETERS
    tally = TALLY
    """What the harness asks the resource at the end, for psql: one JSON document."""
    told: Callable[[Mapping[str, Any]], Sequence[str]] = staticmethod(told)
    """That document in sentences."""

    @classmethod
    def resolve(cls, given: Mapping[str, Any]) -> dict[str, float]:
        """All parameters, the given ones over the defaults. BadConfig names one that is unknown or out of range."""
        pairs = (("batches_min", "batches_max"), ("render_min", "render_max"))
        return resolve(cls.parameters, given, pairs)

    def __init__(self, contender: Contender, parameters: Mapping[str, Any]) -> None:
        from workloads.mailing import MailRoom  # only a process that uses PostgreSQL pays for its library

        super().__init__(contender, parameters)
        self._mail = MailRoom(self._resource, contender.config.lock, contender.config.process)
        self._swallowed = 0

    def prepare(self, timeout_seconds: float) -> str | None:
        """Have the mail room ready. None, or why not."""
        return self._mail.prepare(timeout_seconds)

    def _draw(self) -> tuple[int, float]:
        """A job is so many batches."""
        values = self.resolved
        batches = self._contender.random.randint(int(values["batches_min"]), int(values["batches_max"]))
        return batches, batches * (values["render_min"] + values["render_max"]) / 2

    def _work(self, hold: Hold, batches: int) -> None:
        """Send so many batches, or until the hold is lost or the contender stopped; at least one is tried.

        One that was told to hold sends what it has in its hands, and then leaves as soon as it was let go.
        """
        contender, values = self._contender, self.resolved
        while True:
            self._batch(hold, contender.random.uniform(values["render_min"], values["render_max"]))
            batches = 0 if hold.was_told_to_hold else batches - 1
            if not hold.goes_on or contender.stopping.is_set() or (batches <= 0 and hold.leave()):
                return

    def _batch(self, hold: Hold, render_seconds: float) -> None:
        """One batch for each world, with the same rendering in between.

        They are worlds of one job: when the fenced one refuses, the others, which know no tokens, go on.
        """
        from workloads.mailing import IDEMPOTENT
        from workloads.resource import FENCED, UNFENCED, ResourceError, Stale

        contender, values = self._contender, self.resolved
        sizes = {"customers": int(values["customers"]), "batch": int(values["batch"])}
        looks: dict[World, Look] = {}
        worlds: tuple[World, ...] = (UNFENCED, FENCED, IDEMPOTENT)
        for world in worlds:
            if hold.token is None and world == FENCED:
                continue  # a lock without tokens can't be fenced
            attempt = self._attempts.next()
            try:
                looks[world] = self._mail.look(world, hold.token, **sizes, attempt=attempt)
            except Stale as error:
                contender.counts["refused"] += 1
                if hold.begin_write(resource=world, token=hold.token, id=attempt.id):
                    contender.events.event("fail", "write", resource=world, error=f"at the look: {error}")
            except ResourceError as error:
                contender.counts["unreadable"] += 1
                print(f"look at {world}: {error}", file=sys.stderr, flush=True)
        self._render(hold, render_seconds)
        for world, look in looks.items():
            if not (self._file(hold, look) if world == IDEMPOTENT else self._send(hold, world, look)):
                contender.counts["skipped"] += 1
                return

    def _render(self, hold: Hold, seconds: float) -> None:
        """Take so long, and while the holder is told to hold stay with it: until the pause that it waits for is over.

        One that stayed until it is let go would still believe long after it woke, and be let go only once it wrote.
        """
        stopping, due = self._contender.stopping, time.monotonic() + seconds
        stopping.wait(seconds)
        while hold.told_to_hold and hold.goes_on and not stopping.is_set():
            late, due = time.monotonic() - due, time.monotonic() + POLL_SECONDS
            if late > PAUSE_TTLS * self._contender.config.ttl:
                return
            stopping.wait(POLL_SECONDS)

    def _send(self, hold: Hold, world: World, look: Look) -> bool:
        """Send one batch to a twin, and tell of it. False when the contender must not."""
        from workloads.resource import ResourceError, Stale

        contender, attempt = self._contender, self._attempts.next()
        keys: dict[str, Any] = {
            "resource": world,
            "token": hold.token,
            "read": look.version,
            "version": attempt.version,
        }
        keys |= {"id": attempt.id, "month": look.month, "customers": ranges(look.customers)}
        if not hold.begin_write(**keys):
            return False
        try:
            seq = self._mail.send(world, hold.token, look, attempt)
        except ResourceError as error:
            contender.counts["refused"] += isinstance(error, Stale)
            contender.events.event(error.type, "write", resource=world, error=str(error))
        else:
            contender.counts["writes"] += 1
            contender.events.event("ok", "write", **keys, seq=seq)
        return True

    def _file(self, hold: Hold, look: Look) -> bool:
        """Send one batch to the idempotent world, and tell of it. False when the contender must not."""
        from workloads.mailing import IDEMPOTENT
        from workloads.resource import ResourceError

        contender, attempt = self._contender, self._attempts.next()
        keys: dict[str, Any] = {
            "world": IDEMPOTENT,
            "id": attempt.id,
            "month": look.month,
            "customers": ranges(look.customers),
        }
        if not hold.begin_write("send", **keys):
            return False
        try:
            taken = self._mail.file(hold.token, look, attempt)
        except ResourceError as error:
            contender.events.event(error.type, "send", **keys, error=str(error))
        else:
            swallowed = len(look.customers) - taken
            self._swallowed += swallowed
            contender.events.event("ok", "send", **keys, taken=taken, swallowed=swallowed)
        return True

    def counts(self) -> dict[str, int]:
        """For the bye."""
        return {"resource_reconnects": self._mail.reconnects, "swallowed": self._swallowed}
