"""pandas frames of a history, for questions of one's own.

    from harness import frames

    operations = frames.operations("results/my-trial")  # a DataFrame, one row for each operation
    grants = frames.grants("results/my-trial")          # one row for each grant, with its intervals
    faults = frames.faults("results/my-trial")          # one row for each fault

Each takes a history's file, a folder with a `history.jsonl`, or a `History` that was read already.

All times are integers, ns since the trial began; where there may be none the dtype is `Int64` and a missing one is
`<NA>`. Durations (`ttl`) are seconds. Subtract two times and divide by 1e9 for seconds. docs/notebook.md shows some
questions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from checkers.intervals import INF, build
from harness.history.events import (
    CRASH,
    EXPIRED,
    INFO,
    INVOKE,
    LOST,
    NO_REASON,
    NONE,
    PAIRED_F,
    REASONS,
    RESOURCES,
    TYPES,
    History,
    Ints,
)
from harness.history.reader import read


def operations(source: str | Path | History) -> pd.DataFrame:
    """One row for each operation of a contender, and for each `lost` and `crash`, in order of their invokes.

    ============== ======== =============================================================================
    process        int64    the contender's id
    f              category acquire, renew, release, write, lost, crash
    lock           category; missing for a crash
    type           category what became of it: ok, fail or info (an operation that was never closed: info)
    invoke         int64    ns
    end            Int64    ns of its completion; missing when it never came; of lost and crash the same as invoke
    invoke_line    int64    line of the file, from 1
    end_line       Int64
    resource       category fenced or unfenced, of writes
    token          Int64    of grants and writes
    ttl            float64  s, as given by the event itself (not the meta's)
    lease_from     Int64    ns, of grants that gave it
    held           boolean  what a failed renew or release said
    reason         category of a lost: `expired`, `deadline`, `disconnected`, `renew-failed` or `other`
    read, version  Int64    of writes
    seq            Int64    of accepted writes
    id             object   of writes: an integer or a string; None without one
    proves         boolean  what a renew or release that returned ok said
    ============== ======== =============================================================================

    For keys that may stand on either event the completion's wins.
    """
    history = _read(source)
    paired = np.isin(history.f, PAIRED_F) & (history.type == INVOKE)
    single = (history.f == LOST) | (history.f == CRASH)
    row = np.flatnonzero(paired | single)
    done = np.where(single[row], row, history.mate[row]).astype(np.int64)
    closed = done >= 0
    outcome = np.where(closed, history.type[done] if len(history) else INFO, INFO)
    crash = history.f[row] == CRASH
    lock = _category(np.where(crash, -1, history.lock[row]), history.locks)

    def either(name: str) -> Ints:
        """A key of the completion, else of the invoke."""
        column: Ints = getattr(history, name)
        answered = np.where(closed, column[done] if len(history) else NONE, NONE)
        chosen: Ints = np.where(answered != NONE, answered, column[row])
        return chosen

    ttl = np.where(closed, history.ttl[done] if len(history) else np.nan, np.nan)
    held = np.where(closed, history.held[done] if len(history) else -1, -1)
    proves = np.where(closed, history.proves[done] if len(history) else -1, -1)
    ids = [None if code == NONE else history.id_name(code) for code in either("id").tolist()]
    reason = history.reason[row]
    processes = np.array(history.processes, dtype=np.int64)
    return pd.DataFrame(
        {
            "process": processes[history.process[row]] if len(row) else np.empty(0, np.int64),
            "f": _category(history.f[row], history.fs),
            "lock": lock,
            "type": _category(outcome, TYPES),
            "invoke": history.time[row],
            "end": _optional(np.where(closed, history.time[done] if len(history) else 0, NONE)),
            "invoke_line": history.line[row],
            "end_line": _optional(np.where(closed, history.line[done] if len(history) else 0, NONE)),
            "resource": _category(history.resource[row], RESOURCES),
            "token": _optional(either("token")),
            "ttl": np.where(np.isnan(ttl), history.ttl[row], ttl),
            "lease_from": _optional(either("lease_from")),
            "held": pd.arrays.BooleanArray(held == 1, held == -1),
            "reason": _category(np.where(reason == NO_REASON, -1, reason - EXPIRED), REASONS[EXPIRED:]),
            "read": _optional(either("read")),
            "version": _optional(either("version")),
            "seq": _optional(either("seq")),
            "id": pd.Series(ids, dtype=object),
            "proves": pd.arrays.BooleanArray(proves == 1, proves == -1),
        }
    )


def grants(source: str | Path | History) -> pd.DataFrame:
    """One row for each grant, in order of its `ok`, with the intervals by which the verdicts judge (docs/contract.md).

    ================ ======== ==============================================================================
    process          int64    the contender's id
    lock             category
    token            Int64
    line             int64    of its ok
    invoke, ok       int64    ns
    ttl              float64  s, the acquire's own or the meta's; missing when unknown
    belief_end       int64    ns; it believed that it held the lock from ok to here
    belief_ended_by  category release, lost, crash, acquire (it asked anew); missing: to the end of the history
    promise          Int64    ns; until when the service had promised it; missing when unknown or endless
    endless          bool     a lock that doesn't expire: the promise has no end
    proven           Int64    ns; the latest instant at which a success proved that it was held
    ended            Int64    ns; when the service said that it isn't held
    earliest_end     Int64    ns; L, the earliest instant at which the hold can have ended; missing when unknown or
                              endless
    latest_end       Int64    ns; when its lease can have run out by itself at the latest; missing when unknown or
                              endless
    core_end         Int64    ns; for solid grants earliest_end: [ok, core_end] was held for certain
    solid, late      bool     held for certain at its ok, and for longer than the uncertainty; run out before its ok
    unseen           bool     its client renews by itself and doesn't tell when
    ================ ======== ==============================================================================
    """
    history = _read(source)
    model = build(history)
    n = len(history)
    by = np.where(model.belief_end_row < n, history.f[np.minimum(model.belief_end_row, n - 1)] if n else -1, -1)
    endless = model.promise >= INF

    def time(values: Ints) -> Any:
        return _optional(np.where(values >= INF, NONE, values))

    processes = np.array(history.processes, dtype=np.int64)
    return pd.DataFrame(
        {
            "process": processes[model.process] if len(model) else np.empty(0, np.int64),
            "lock": _category(model.lock, history.locks),
            "token": _optional(model.token),
            "line": history.line[model.ok_row],
            "invoke": model.invoke,
            "ok": model.ok,
            "ttl": model.ttl,
            "belief_end": model.belief_end,
            "belief_ended_by": _category(by, history.fs),
            "promise": time(model.promise),
            "endless": endless,
            "proven": time(model.proven),
            "ended": time(model.ended),
            "earliest_end": time(model.L),
            "latest_end": time(model.latest),
            "core_end": time(np.where(model.solid, model.L, NONE)),
            "solid": model.solid,
            "late": model.late,
            "unseen": model.unseen,
        }
    )


def faults(source: str | Path | History) -> pd.DataFrame:
    """One row for each fault, in order of its start.

    `id`, `kind`, `targets` (nodes), `processes` (contenders), `start` and `stop` (ns; stop is missing when it never
    came), the receipts `receipt` and `stop_receipt`, `what` somebody other than the nemesis did (kind `outside`), and
    `bit`, whether it had the chance to matter (True, False, `immune`, or None where it isn't told).
    """
    every = _read(source).faults
    return pd.DataFrame(
        {
            "id": pd.Series([fault.id for fault in every], dtype=object),
            "kind": pd.Series([fault.kind for fault in every], dtype=object),
            "targets": pd.Series([fault.targets for fault in every], dtype=object),
            "processes": pd.Series([fault.processes for fault in every], dtype=object),
            "start": np.array([fault.start for fault in every], dtype=np.int64),
            "stop": _optional(
                np.array([NONE if fault.stop is None else fault.stop for fault in every], dtype=np.int64)
            ),
            "receipt": pd.Series([fault.receipt for fault in every], dtype=object),
            "stop_receipt": pd.Series([fault.stop_receipt for fault in every], dtype=object),
            "what": pd.Series([fault.what for fault in every], dtype=object),
            "bit": pd.Series([fault.bit for fault in every], dtype=object),
        }
    )


def _read(source: str | Path | History) -> History:
    return source if isinstance(source, History) else read(source)


def _optional(values: Ints) -> Any:
    """Integers of which `NONE` is a missing one."""
    values = values.astype(np.int64)
    return pd.arrays.IntegerArray(values, values == NONE)


def _category(codes: Ints, names: tuple[str, ...]) -> Any:
    """Names by their codes; a negative code is a missing one. Only names that occur are categories."""
    codes = codes.astype(np.int64)
    used = np.unique(codes[codes >= 0])
    place = np.full(int(used.max(initial=-1)) + 1, -1, dtype=np.int64)
    place[used] = np.arange(len(used))
    fresh = np.where(codes >= 0, place[codes] if len(place) else -1, -1)
    return pd.Categorical.from_codes(fresh, pd.Index([names[code] for code in used.tolist()], dtype=object))
