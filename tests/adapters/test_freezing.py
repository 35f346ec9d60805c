"""A contender that is frozen between its adapter's write and its own read accuses nobody.

The adapters here do the freezing themselves, of their parent, exactly there. Then the service gives the lock to another
when it may: after all that it had promised. What the history says of the first holder must leave room for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkers.judge import judge
from harness.history.reader import read
from tests.adapters.stage import paper
from tests.workloads.test_process import Process, spawn

__all__ = ["spawn"]
TTL = 0.5
FROZEN = f"""
import signal
def frozen(**line):
    "Write a line while the contender is stopped, and let it go on when its lease is long over."
    os.kill(os.getppid(), signal.SIGSTOP)
    while open(f"/proc/{{os.getppid()}}/stat").read().rpartition(")")[2].split()[0] != "T": pass
    say(**line)
    time.sleep({4 * TTL})
    os.kill(os.getppid(), signal.SIGCONT)
"""
RENEWED = """
say(hello=HELLO)
for command in commands():
    if command["do"] == "acquire":
        say(id=command["id"], type="ok", token=1)
        while not os.path.exists(__file__ + ".told"): time.sleep(0.01)
        sent = now()
        frozen(renewed=True, of=command["id"], at=sent, proves=True)
    else:
        say(id=command["id"], type="fail", error="busy", held=False)
"""
GRANTED = """
say(hello=HELLO)
for command in commands():
    if command["do"] == "acquire":
        sent = now()
        frozen(id=command["id"], type="ok", token=1, since={"at": sent})
    else:
        say(id=command["id"], type="fail", error="busy", held=False)
"""
FORWARD = GRANTED.replace('{"at": sent}', '{"after": command["id"], "seconds": 0}')
LOST = RENEWED.replace("renewed=True", "lost='expired'").replace(", proves=True", "")


def told(tmp_path: Path, spawn: Callable[..., Process], body: str) -> list[dict[str, Any]]:
    """The events of a contender with this adapter, from its grant to after its release."""
    process = spawn(
        workload="tests.adapters.holding:Holding",
        client="workloads.clients.adapter:Adapter",
        client_config={"endpoints": [["n1", 1]], "adapter": {"command": paper(tmp_path, FROZEN + body)}},
        ttl=TTL,
        guarded=None,
        holder="trusting",
    )
    assert "hello" in process.hear()
    process.say('{"cmd": "start"}')
    events = [process.hear(), process.hear()]
    (tmp_path / "adapter.py.told").touch()
    if "renewed" in body:
        events += [process.hear(), process.hear()]
    elif "lost" in body:
        events.append(process.hear())
    process.say('{"cmd": "stop"}')
    return events + [line for line in process.rest() if "f" in line]


def verdict(path: Path, events: list[dict[str, Any]], granted_ns: int) -> bool | str:
    """The verdict `lease`, when another was granted the lock at that moment."""
    other = {"process": 9, "f": "acquire", "lock": "lock"}
    ours = [
        {**other, "type": "invoke", "time": granted_ns - 1000},
        {**other, "type": "ok", "time": granted_ns, "token": 2, "ttl": 60},
        {**other, "f": "release", "type": "invoke", "time": 10**12},
    ]
    meta = {"type": "meta", "format": 1, "ttl": TTL}
    path.write_text("\n".join(map(json.dumps, [meta, *events, *ours])))
    return judge(read(path)).verdicts["lease"].valid


@pytest.mark.parametrize("body", [RENEWED, GRANTED, FORWARD, LOST], ids=["renewed", "granted", "forward", "lost"])
def test_a_freeze_between_write_and_read_accuses_nobody(
    tmp_path: Path, spawn: Callable[..., Process], body: str
) -> None:
    """Whatever it was that was on its way meanwhile. An age that is counted back from the read would accuse."""
    events = told(tmp_path, spawn, body)
    granted = next(event for event in events if (event["f"], event["type"]) == ("acquire", "ok"))
    last = granted["lease_from"]
    for event in events:
        if (event["f"], event["type"]) == ("renew", "invoke"):
            last = event["time"]
    read_ns = max(event["time"] for event in events if event["f"] != "release")
    freed_ns = last + int(TTL * 1e9) + 1_000_000
    assert freed_ns < read_ns or "lost" in body, "it was frozen for too short"
    assert verdict(tmp_path / "true.jsonl", events, freed_ns) is not False
    if body == RENEWED:
        moved = [
            event | ({"time": read_ns} if (event["f"], event["type"]) == ("renew", "invoke") else {})
            for event in events
        ]
        assert verdict(tmp_path / "moved.jsonl", moved, freed_ns) is False
    elif body != LOST:
        moved = [event | ({"lease_from": read_ns} if event is granted else {}) for event in events]
        assert verdict(tmp_path / "moved.jsonl", moved, freed_ns) is False
