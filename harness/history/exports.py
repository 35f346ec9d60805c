"""Our histories in the notation of others, so that their checkers can be asked about them.

`to_edn` writes Jepsen's `history.edn`, whole: what Jepsen has no key for keeps our name, and a comment on the first
line carries the meta, so that reading it back (`imports`) gives the same history. `to_porcupine` writes the lines that
Porcupine's examples read, for one lock: only its acquires and releases, in their order, without times.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from harness.errors import UsageError
from harness.history.edn import Keyword, dumps
from harness.history.events import (
    ACQUIRE,
    AUDIT,
    DEFAULT_LOCK,
    FAULT,
    INFO,
    INVOKE,
    LOST,
    NO_REASON,
    NONE,
    OK,
    PAIRED_F,
    REASONS,
    RELEASE,
    RESOURCES,
    TYPES,
    UNSEEN,
    WRITE,
    Audit,
    History,
)
from harness.history.imports import FOOTER, HEADER

_KEYWORD = re.compile(r"[A-Za-z*+!_?<>=.-][\w*+!?<>=.#/-]*")
_INTEGERS = ("token", "lease_from", "read", "version", "seq")
_BOOLEANS = ("held", "proves")
_META = (
    "system",
    "ttl",
    "expires",
    "uncertainty",
    "rate_tolerance",
    "min_grants",
    "progress_bound",
    "require",
    "owners",
    "started",
    "end",
)


def to_edn(history: History, file: TextIO) -> None:
    """Writes a map a line, in order of time: `{:type :ok, :f :acquire, :value 7, :process 0, :time 10, :index 1}`.

    A grant's token is its value; `:lock`, `:ttl`, `:held` and the others follow where they are given. A comment on the
    last line carries the number of events that the history's own `end` line gives, where it has one. What the history
    keeps of an event whose `f` no verdict looks at is its time, process, type and f, and so is what is written of it.
    """
    meta = {name: getattr(history.meta, name) for name in _META}
    meta = {"type": "meta", "format": 1, **{name: value for name, value in meta.items() if value is not None}}
    file.write(HEADER + json.dumps(meta | dict(history.meta.extra)) + "\n")
    faults = {line: operation for fault in history.faults for line, operation in _fault_lines(fault)}
    audits = {audit.row: audit for audit in history.audits}
    for row in range(len(history)):
        file.write(dumps(_operation(history, row, faults, audits)) + "\n")
    if history.counted is not None:
        file.write(FOOTER + json.dumps({"type": "end", "events": history.counted}) + "\n")


def _operation(
    history: History, row: int, faults: dict[int, dict[str, Any]], audits: dict[int, Audit]
) -> dict[str, Any]:
    process, f, kind = history.process_name(row), int(history.f[row]), int(history.type[row])
    token = None if history.token[row] == NONE else int(history.token[row])
    operation: dict[str, Any] = {
        Keyword("type"): Keyword(TYPES[kind]),
        Keyword("f"): _word(history.fs[f]),
        Keyword("value"): token if f == ACQUIRE and kind == OK else None,
        Keyword("process"): process if isinstance(process, int) else Keyword(process),
        Keyword("time"): int(history.time[row]),
        Keyword("index"): row,
    }
    extra: dict[str, Any] = {}
    if f == FAULT:
        extra = faults[int(history.line[row])]
    elif f == AUDIT:
        lock = history.locks[history.lock[row]]
        extra = {
            "lock": None if lock == DEFAULT_LOCK else lock,
            "resource": _word(RESOURCES[audits[row].resource]),
            "ids": list(audits[row].ids),
        }
    elif f in PAIRED_F or f == LOST:
        lock = history.locks[history.lock[row]]
        extra["lock"] = None if lock == DEFAULT_LOCK else lock
        extra["resource"] = _word(RESOURCES[history.resource[row]]) if f == WRITE else None
        for name in _INTEGERS:
            value = int(getattr(history, name)[row])
            extra[name] = None if value == NONE or (name == "token" and f == ACQUIRE and kind == OK) else value
        extra["ttl"] = None if np.isnan(history.ttl[row]) else float(history.ttl[row])
        extra["id"] = None if history.id[row] == NONE else history.id_name(int(history.id[row]))
        for name in _BOOLEANS:
            value = int(getattr(history, name)[row])
            extra[name] = None if value < 0 else bool(value)
        extra["renewals"] = Keyword("unseen") if history.renewals[row] == UNSEEN else None
        extra["reason"] = _word(REASONS[history.reason[row]]) if history.reason[row] != NO_REASON else None
    operation |= {Keyword(name): value for name, value in extra.items() if value is not None}
    return operation


def _fault_lines(fault: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    yield (
        fault.start_line,
        {
            "phase": Keyword("start"),
            "id": fault.id,
            "kind": fault.kind,
            "targets": list(fault.targets),
            "processes": list(fault.processes),
            "receipt": fault.receipt,
            "what": fault.what,
        },
    )
    if fault.stop_line is not None:
        yield (
            fault.stop_line,
            {
                "phase": Keyword("stop"),
                "id": fault.id,
                "receipt": fault.stop_receipt,
                "bit": fault.bit,
            },
        )


def _word(text: str) -> str:
    return Keyword(text) if _KEYWORD.fullmatch(text) else text


def to_porcupine(history: History, file: TextIO, lock: str | None = None) -> int:
    """Writes the acquires and releases of one lock as `INFO  jepsen.util - 0<tab>:ok<tab>:acquire<tab>7`.

    The value is the token: of the grant at an acquire's ok, of the hold that it gives up at a release, `nil` where
    there is none. Only the order tells when: at equal times invokes come before returns, but a process's own return
    before its next invoke. A client number stands for one operation at a time: after an unknown outcome, or while an
    operation is still open, its process goes on under a new number, as Jepsen's do.

    Returns the number of operations. Raises `UsageError` when there are several locks and none is named.
    """
    known = [name for code, name in enumerate(history.locks) if _is_acquired(history, code)]
    if lock is None and len(known) > 1:
        raise UsageError(f"the line form holds one lock, and here are {len(known)}: {', '.join(known)}; name one")
    lock = lock if lock is not None else (known[0] if known else DEFAULT_LOCK)
    if lock not in known:
        raise UsageError(f"nobody acquires a lock {lock!r} here; there are {', '.join(known) or 'none'}")
    clients: dict[int, int] = {}  # a process's current number
    following = max(history.processes, default=-1) + 1
    open_as: dict[int, int] = {}  # an open operation's invoke: its number
    busy: set[int] = set()
    tokens: dict[int, str] = {}
    values: dict[int, str] = {}
    count = 0
    for row in _in_order(history, history.locks.index(lock)):
        process, f, kind = int(history.process[row]), int(history.f[row]), int(history.type[row])
        if kind == INVOKE:
            client = clients.get(process, history.processes[process])
            if client in busy:
                client, following = following, following + 1
            clients[process] = client
            busy.add(client)
            open_as[row] = client
            if f == ACQUIRE:
                tokens.pop(process, None)
            values[row] = tokens.get(process, "nil") if f == RELEASE else "nil"
            value = values[row]
            count += 1
        else:
            invoke = int(history.mate[row])
            client, value = open_as.pop(invoke), values.pop(invoke)
            if f == ACQUIRE and kind == OK and history.token[row] != NONE:
                value = tokens[process] = str(int(history.token[row]))
            if kind != INFO:  # a number with an unknown outcome stays busy for good
                busy.discard(client)
        file.write(f"INFO  jepsen.util - {client}\t:{TYPES[kind]}\t:{history.fs[f]}\t{value}\n")
    return count


def _is_acquired(history: History, lock: int) -> bool:
    return bool(((history.f == ACQUIRE) & (history.lock == lock)).any())


def _in_order(history: History, lock: int) -> Iterator[int]:
    """The rows of acquires and releases of a lock: by time; at one time invokes first, each process in its order."""
    chosen = np.flatnonzero((history.lock == lock) & ((history.f == ACQUIRE) | (history.f == RELEASE)))
    rows, start = chosen.tolist(), 0
    times = history.time[chosen].tolist()
    while start < len(rows):
        end = start + 1
        while end < len(rows) and times[end] == times[start]:
            end += 1
        yield from rows[start:end] if end - start == 1 else _tied(history, rows[start:end])
        start = end


def _tied(history: History, rows: list[int]) -> Iterator[int]:
    queues: defaultdict[int, deque[int]] = defaultdict(deque)
    for row in rows:
        queues[int(history.process[row])].append(row)
    while queues:
        heads = [queue for queue in queues.values() if history.type[queue[0]] == INVOKE]
        # Where only returns are left at the front, take one behind which most waits: an invoke may be among that.
        queue = heads[0] if heads else max(queues.values(), key=len)
        row = queue.popleft()
        if not queue:
            del queues[int(history.process[row])]
        yield row
