"""Sent to a contender's node as it is, to use the twin ledgers there: one JSON call a line in, one answer a line out.

[contender, "read", "fenced", 7] -> 0    [contender, "write", "fenced", 7, 0, "0-1", 1] -> 1
or {"type": …, "error": …}
"""

import json
import sys

from workloads.resource import Attempt, ResourceError, Twins

given = json.loads(sys.stdin.readline())
twins = {process: Twins(given, "lock", process) for process in range(2)}
print(json.dumps([each.prepare(30.0) for each in twins.values()]), flush=True)
for line in sys.stdin:
    process, call, *arguments = json.loads(line)
    if call == "write":
        arguments[3:] = [Attempt(*arguments[3:])]
    try:
        answer = getattr(twins[process], call)(*arguments)
    except ResourceError as error:
        answer = {"type": error.type, "error": str(error)}
    print(json.dumps(answer), flush=True)
