"""`python3 -m workloads.adapters.greeting`: an adapter is started on a node, says hello, and leaves.

For a look at it before a trial. stdin has {"settings": …, "ttl": s} as a contender's client gets them; nobody listens
at its endpoint. On stdout {"library": what it says it is}, or {"unusable": why it can't be used} and exit code 1.
"""

from __future__ import annotations

import json
import sys

from workloads.clients.adapter import Adapter
from workloads.clients.base import ClientConfig, ClientUnusable
from workloads.clocks import Stamp
from workloads.contender import operation_seconds

NOBODY = ("127.0.0.1", 9)
"""The port of a service that throws away what it is sent; no node has it."""


class _Deaf:
    """Nobody hears what it says unasked."""

    def grant_lost(self, grant: int, reason: str) -> None:
        """See `Unasked`."""

    def grant_renewed(self, grant: int, sent: Stamp, proves: bool) -> None:
        """See `Unasked`."""

    def client_broken(self, reason: str) -> None:
        """See `Unasked`."""


def main() -> int:
    """The exit code."""
    asked = json.load(sys.stdin)
    config = ClientConfig(
        settings={"endpoints": [list(NOBODY)], **asked["settings"]},
        lock="lock",
        ttl_seconds=asked["ttl"],
        process=0,
        operation_seconds=operation_seconds(asked["ttl"]),
        on_lost=lambda reason: None,
        unasked=_Deaf(),
    )
    try:
        adapter = Adapter(config)
    except ClientUnusable as error:
        print(json.dumps({"unusable": str(error)}))
        return 1
    adapter.close()
    print(json.dumps({"library": adapter.library}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
