"""The helper for Python, `fencepost_adapter`: what a library does by itself, raises and prints."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.adapters.stage import Stage
from tests.waiting import until

LOCK = """
import os, threading, time
from fencepost_adapter import Adapter, Fail, now, ok, run

class Library(Adapter):
    library, version = "own", "7"
    renewals, tokens = "told", True
    errors = {"busy": "fail", "ConnectionError": "info", "ConnectionError: refused": "fail", "*": "info"}

    def open(self, config):
        print("connecting to", config.endpoints[0], config.options["shard"], flush=True)
        self.asked = 0

    def acquire(self, wait):
        self.asked += 1
        if self.asked == 1:
            raise ConnectionError("refused")
        if self.asked == 2:
            raise ConnectionError("reset")
        if self.asked == 3:
            raise Fail("busy")
        of = self.grant
        threading.Thread(target=self.keep, args=(of,)).start()
        return ok(token=self.asked, ttl=5.0, since=now(), shard=3)

    def keep(self, of):
        while not os.path.exists(__file__ + ".told"): time.sleep(0.01)
        self.renewed(now(), proves=True, of=of)
        self.lost("renew-failed", of=of)

    def release(self):
        raise Fail("gone", held=False)

run(Library)
"""


def test_exceptions_are_answers_and_what_it_does_by_itself_is_told(tmp_path: Path) -> None:
    """Each exception means what the longest beginning in the table says; what is printed gets into nobody's way. An
    error that no line of the table calls a failure can say nothing of what is held, and that is a breach.
    """
    path = tmp_path / "lock.py"
    path.write_text(LOCK)
    stage = Stage([sys.executable, str(path)], options={"shard": 4})
    assert stage.adapter.library == "own 7 (Python {}.{}.{})".format(*sys.version_info[:3])
    assert [stage.contender.acquire(1.0) for _ in range(3)] == [None] * 3
    hold = stage.contender.acquire(1.0)
    assert hold is not None
    (tmp_path / "lock.py.told").touch()
    until(lambda: not hold.believes, "what the library noticed")
    hold.release()
    until(lambda: stage.died, "the breach of the release's answer")
    events = stage.events()
    acquires = [(event["type"], event.get("error")) for event in events if event["f"] == "acquire"]
    assert acquires[1::2] == [
        ("fail", "ConnectionError: refused"),
        ("info", "ConnectionError: reset"),
        ("fail", "busy"),
        ("ok", None),
    ]
    granted = next(event for event in events if (event["f"], event["type"]) == ("acquire", "ok"))
    assert (granted["token"], granted["ttl"], granted["shard"]) == (4, 5.0, 3)
    assert [event["type"] for event in events if event["f"] == "renew"] == ["invoke", "ok"]
    assert [event["reason"] for event in events if event["f"] == "lost"] == ["renew-failed"]
    [reason] = stage.died
    assert "has held, which belongs to a fail, and its error table calls 'gone' info" in reason
