"""A lock like any other, whose programmer left all the debugging in: somebody else's workload, for `test_outputs`."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from workloads.lock import LockWorkload

SECRETS = ("password", "api_key", "colour")


class Leaky(LockWorkload):
    """Tells each secret that it knows on stderr, in errors of events and in other keys of theirs, in six shapes; in two
    writes; and at a place where the event's error is cut. With `dies` it ends in a way that shows one more.
    """

    name = "leaky"
    summary = "Tells what it should not."

    @classmethod
    def resolve(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the lock, and our own as they are."""
        own = {name: given[name] for name in (*SECRETS, "dies") if name in given}
        return {**super().resolve({name: value for name, value in given.items() if name not in own}), **own}

    def run(self) -> None:
        """Tell them all, then work."""
        told = [self.resolved[name] for name in SECRETS if name in self.resolved]
        told += [value for name, value in self._contender.config.client_config.items() if name == "password"]
        for secret in told:
            self._tell(secret)
        if self.resolved.get("dies") == "raises":
            raise RuntimeError(f"no login with {told[0]}")
        if self.resolved.get("dies") == "babbles":
            os.write(1, f"no event at all: {told[0]}\n".encode())
        super().run()

    def _tell(self, secret: str) -> None:
        events = self._contender.events
        shapes = {
            "plain": secret,
            "json": json.dumps({"error": secret}),
            "repr": repr(secret),
            "url": f"redis://me:{quote(secret, safe='')}@n1",
            "basic": base64.b64encode(f"me:{secret}".encode()).decode(),
            "base64": base64.b64encode(secret.encode()).decode(),
        }
        for name, shape in shapes.items():
            print(f"{name}: {shape}", file=sys.stderr, flush=True)
            events.event("invoke", "acquire")
            events.event("fail", "acquire", error=f"as {name}: {shape}", login={"as": [shape]})
        for piece in ("in two writes: ", secret[:7], secret[7:] + "\n"):
            os.write(2, piece.encode())
            time.sleep(0.05)  # so that each is a chunk of its own
        events.event("invoke", "acquire")
        events.event("fail", "acquire", error="cut: " + "x" * 385 + secret)
