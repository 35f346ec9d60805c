"""Sent to a contender's node as it is, to use the twin ledgers there: one JSON call a line in, one answer a line out.

[contender, "read", "fenced", 7] -> 0    [contender, "write", "fenced", 7, 0, 1, 1] -> 1
or {"type": …, "error": …}

Contenders 2 and 3 have the resources that are wrong on purpose, off by one and unraised.
Those of the mail room: [contender, "look", "fenced", 7, 100, 20, 1] -> [1, 0, [1, 2, …]],
[contender, "send", "fenced", 7, [1, 0, [1, 2]], 2, 2] -> 1, and
[contender, "file", 7, [1, null, [1, 2]], 3, 3] -> 2.
"""

import json
import sys
from dataclasses import astuple

from workloads.mailing import Look, MailRoom
from workloads.resource import Attempt, ResourceError, Twins
from workloads.zoo import fence

given = json.loads(sys.stdin.readline())
twins = {process: Twins(given, "lock", process) for process in range(2)}
twins |= {2: fence.off_by_one()(given, "lock", 2), 3: fence.unraised()(given, "lock", 3)}
rooms = {process: MailRoom(given, "lock", process) for process in range(2)}
print(json.dumps([each.prepare(30.0) for each in (*twins.values(), *rooms.values())]), flush=True)
for line in sys.stdin:
    process, call, *arguments = json.loads(line)
    named = {}
    if call == "write":
        arguments[3:] = [Attempt(*arguments[3:])]
    elif call == "look":
        *arguments, customers, batch, name = arguments
        named = {"customers": customers, "batch": batch, "attempt": Attempt(name, 0)}
    elif call in ("send", "file"):
        *arguments, look, name, version = arguments
        arguments += [Look(*look), Attempt(name, version)]
    try:
        answer = getattr((rooms if hasattr(MailRoom, call) and not hasattr(Twins, call) else twins)[process], call)(
            *arguments, **named
        )
        answer = astuple(answer) if isinstance(answer, Look) else answer
    except ResourceError as error:
        answer = {"type": error.type, "error": str(error)}
    print(json.dumps(answer), flush=True)
