"""Sent to a contender's node as it is, to call a lock client there: one JSON command a line in, one answer a line out.

{"call": "acquire", "seconds": 1.0} | {"call": "renew"} | {"call": "release"}
"""

import json
import os
import sys

from workloads.clients.base import Checked, ClientConfig
from workloads.clocks import Flag
from workloads.validate import load

given = json.loads(sys.stdin.readline())
lost: list[str] = []
config = ClientConfig(
    settings=given["settings"],
    lock="lock",
    ttl_seconds=given["ttl"],
    process=given["process"],
    operation_seconds=given["ttl"] / 3,
    on_lost=lost.append,
)
lock = Checked(load("client", given["client"])(config))
print(json.dumps({"problem": lock.connect(20.0), "pid": os.getpid()}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if command["call"] == "acquire":
        got = lock.acquire(command["seconds"], Flag())
        since = got.since.boot_ns if got.since else None
        answer = {"type": got.type, "token": got.token, "ttl": got.ttl_seconds, "since": since, "error": got.error}
    else:
        said = getattr(lock, command["call"])()
        answer = {"type": said.type, "held": said.held, "error": said.error, "lost": lost}
    print(json.dumps(answer), flush=True)
