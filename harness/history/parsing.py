"""One line of a native history, checked: the exact reading, which decides what every faster one must say.

Events, faults, audits, the meta and the end line, each as a dict that JSON gave. What is wrong with one is `Malformed`,
a sentence that names the key; whoever knows the line makes a `HistoryError` of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from harness.errors import HistoryError
from harness.history.events import (
    COLUMN_TYPES,
    DEFAULT_LOCK,
    HARNESS,
    KNOWN_F,
    LIMIT,
    NEMESIS,
    NONE,
    PROCESS_NAMES,
    RESOURCES,
    SEEN,
    START_RECEIPTS,
    STOP_RECEIPTS,
    TIME_LIMIT,
    TYPES,
    UNSEEN,
    AuditRow,
    End,
    FaultRow,
    Meta,
    reason_code,
)


class Malformed(ValueError):
    """A reason why one event can't be read; becomes a `HistoryError` where its line is known."""


@dataclass(slots=True)
class Row:
    """One event, checked; `values` has every column but line, f, lock and id."""

    f: str
    lock: str | None
    values: dict[str, Any]
    id: int | str | None = None
    fault: FaultRow | None = None
    audit: AuditRow | None = None


_ABSENT: dict[str, Any] = {
    name: value for name, (_, value) in COLUMN_TYPES.items() if name not in ("line", "f", "lock", "id", "role")
}

#: Which keys an event uses, by its f and type ("" for any type); the others hold their "absent".
_USED = {
    ("acquire", "ok"): ("token", "ttl", "lease_from", "renewals"),
    ("renew", ""): ("ttl", "held"),
    ("renew", "ok"): ("proves",),
    ("release", ""): ("held",),
    ("release", "ok"): ("proves",),
    ("lost", ""): ("reason",),
    ("write", ""): ("resource", "token", "read", "version", "seq"),
}


def parse_event(event: object) -> Row:
    """Checks one event against the contract. Raises `Malformed` with the reason.

    Keys that the contract names must have its type wherever they stand on an event of a known `f`, even one that
    doesn't use them; of an event with another `f` only time, process, type and f are looked at, and of a fault and an
    audit only what they use.
    """
    if not isinstance(event, Mapping):
        raise Malformed(f"an event must be an object, not {_kind(event)}")
    if event.get("type") == "meta":
        raise Malformed("a meta that isn't the first line")
    if event.get("type") == "end":
        raise Malformed("an end line where an event is due")
    time = _integer(event, "time", required=True)
    process = _process(event)
    kind = _choice(event, "type", TYPES, required=True)
    f = _string(event, "f", required=True)
    assert f is not None
    values = {
        **_ABSENT,
        "time": time,
        "process": process,
        "type": TYPES.index(kind or ""),
    }
    if f == "fault":
        return Row(f, None, values, fault=parse_fault(event))
    if f == "audit":
        audit = parse_audit(event)
        return Row(f, _lock(event), values, audit=audit)
    if f not in KNOWN_F:
        return Row(f, None, values)
    if process in (NEMESIS, HARNESS):
        raise Malformed(f"{f} needs the integer of a contender as its process, not {event['process']!r}")
    if f in ("lost", "crash") and kind != "info":
        raise Malformed(f"{f} is a single event of type info, not {kind}")
    lock = _lock(event)
    resource = _choice(event, "resource", RESOURCES, required=True) if f == "write" else None
    keys: dict[str, Any] = {name: _integer(event, name) for name in ("token", "lease_from", "read", "version", "seq")}
    keys["ttl"] = _duration(event, "ttl")
    keys["held"] = _boolean(event, "held")
    keys["proves"] = _boolean(event, "proves")
    renewals = _string(event, "renewals")
    keys["renewals"] = None if renewals is None else (UNSEEN if renewals == "unseen" else SEEN)
    reason = _string(event, "reason")
    keys["reason"] = None if reason is None else reason_code(reason)
    keys["resource"] = None if resource is None else RESOURCES.index(resource)
    identity = _identity(event.get("id"))
    for key in _USED.get((f, kind or ""), ()) + _USED.get((f, ""), ()):
        if keys[key] is not None:
            values[key] = keys[key]
    assert time is not None
    if values["lease_from"] != NONE and values["lease_from"] > time:
        raise Malformed(f"lease_from ({values['lease_from']}) after the time of its ok ({time})")
    return Row(f, None if f == "crash" else lock, values, id=identity if f == "write" else None)


def parse_fault(event: Mapping[str, Any]) -> FaultRow:
    """Checks the keys of one `fault` event. Raises `Malformed`."""
    if event.get("process") != "nemesis" or event.get("type") != "info":
        raise Malformed('a fault event must have the process "nemesis" and the type "info"')
    phase = _choice(event, "phase", ("start", "stop"), required=True)
    assert phase is not None
    identity = event.get("id")
    if identity is None:
        raise Malformed("a fault without an id")
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise Malformed(f"id must be a string, not {_kind(identity)}")
    receipt = _choice(event, "receipt", START_RECEIPTS if phase == "start" else STOP_RECEIPTS)
    targets, processes = _list(event, "targets"), _list(event, "processes")
    for target in targets:
        if not isinstance(target, str):
            raise Malformed(f"targets must be a list of strings; it has {_kind(target)}")
    for process in processes:
        if isinstance(process, bool) or not isinstance(process, int):
            raise Malformed(f"processes must be a list of integers; it has {_kind(process)}")
    what, bit = _string(event, "what"), event.get("bit")
    if bit is not None and not isinstance(bit, bool) and bit != "immune":
        raise Malformed(f'bit must be true, false or "immune", not {_kind(bit)}')
    kind = _string(event, "kind")
    return FaultRow(phase, identity, kind, tuple(targets), tuple(processes), receipt, what, bit)


def parse_audit(event: Mapping[str, Any]) -> AuditRow:
    """Checks the keys of one `audit` event. Raises `Malformed`."""
    if event.get("process") != "harness" or event.get("type") != "info":
        raise Malformed('an audit event must have the process "harness" and the type "info"')
    _string(event, "lock")
    resource = _choice(event, "resource", RESOURCES, required=True)
    assert resource is not None
    _required(event, "ids")
    ids = tuple(_identity(item, listed=True) for item in _list(event, "ids"))
    return AuditRow(RESOURCES.index(resource), tuple(item for item in ids if item is not None))


def parse_end(event: Mapping[str, Any], line: int) -> End:
    """Checks the `end` line. Raises `Malformed`."""
    if event.get("events") is None:
        raise Malformed("an end without the number of events")
    events = _integer(event, "events")
    assert events is not None
    return End(line, events)


def is_end(event: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a line is the end of its history instead of an event."""
    return isinstance(event, Mapping) and event.get("type") == "end"


_META_KEYS = {
    "type", "format", "system", "ttl", "expires", "uncertainty", "rate_tolerance", "min_grants", "progress_bound",
    "require", "owners", "started", "end",
}  # fmt: skip


def parse_meta(meta: Mapping[str, Any], line: int, path: str | Path) -> Meta:
    """Checks the meta line. Raises `HistoryError`."""
    try:
        version = meta.get("format")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version != 1):
            raise Malformed(f"format {version!r} isn't one that this version reads (it reads 1)")
        rate = _duration(meta, "rate_tolerance", "a share")
        if rate is not None and rate > 1:
            raise Malformed(f"rate_tolerance is a share between 0 and 1, not {rate}")
        least = _integer(meta, "min_grants")
        if least is not None and least < 0:
            raise Malformed(f"min_grants must not be negative, and is {least}")
        require = meta.get("require")
        if require is not None and not (isinstance(require, list) and all(isinstance(name, str) for name in require)):
            raise Malformed("require must be a list of verdict names")
        expires, owners, end = (_boolean(meta, key) for key in ("expires", "owners", "end"))
        return Meta(
            system=_string(meta, "system"),
            ttl=_duration(meta, "ttl"),
            expires=True if expires is None else expires,
            uncertainty=_duration(meta, "uncertainty") or 0.0,
            rate_tolerance=rate or 0.0,
            min_grants=least or 0,
            progress_bound=_duration(meta, "progress_bound"),
            require=tuple(require) if require else None,
            owners=True if owners is None else owners,
            started=_string(meta, "started"),
            end=bool(end),
            line=line,
            extra={key: value for key, value in meta.items() if key not in _META_KEYS},
        )
    except Malformed as error:
        raise HistoryError(path, line, str(error)) from None


def _kind(value: object) -> str:
    """A value's JSON type in words, with the value where it is short."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value!r}" if len(repr(value)) <= 40 else "a huge number"
    if isinstance(value, str):
        return f"the string {value!r}" if len(value) <= 40 else "a string"
    return "an array" if isinstance(value, Sequence) else "an object"


def _required(event: Mapping[str, Any], key: str) -> Any:
    value = event.get(key)
    if value is None:
        what = (
            f"{'an' if event['f'][0] in 'aeiou' else 'a'} {event['f']}"
            if event.get("f") in KNOWN_F and key != "f"
            else "an event"
        )
        raise Malformed(f"{what} without a {key}")
    return value


def _integer(event: Mapping[str, Any], key: str, required: bool = False) -> int | None:
    value = _required(event, key) if required else event.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(f"{key} must be an integer, not {_kind(value)}")
    limit = TIME_LIMIT if key in ("time", "lease_from") else LIMIT
    if not -limit <= value <= limit:
        shown = value if abs(value) < 10**40 else "a huge number"
        raise Malformed(f"{key} is too great: {shown} (at most 2**{limit.bit_length() - 1})")
    return value


def _process(event: Mapping[str, Any]) -> int:
    value = _required(event, "process")
    if isinstance(value, str):
        if value not in PROCESS_NAMES:
            raise Malformed(f'process must be an integer, "nemesis" or "harness", not {_kind(value)}')
        return PROCESS_NAMES[value]
    number = _integer(event, "process")
    assert number is not None
    return number


def _lock(event: Mapping[str, Any]) -> str:
    lock = _string(event, "lock")
    return DEFAULT_LOCK if lock is None else lock


def _identity(value: object, listed: bool = False) -> int | str | None:
    """The id of a write, None where it is absent; or one of those that an audit lists, where null is none."""
    if isinstance(value, str) or (value is None and not listed):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        must = (
            "ids must be a list of integers or of strings; it has" if listed else "id must be an integer or string, not"
        )
        raise Malformed(f"{must} {_kind(value)}")
    return _integer({"id": value}, "id")


def _string(event: Mapping[str, Any], key: str, required: bool = False) -> str | None:
    value = _required(event, key) if required else event.get(key)
    if value is not None and not isinstance(value, str):
        raise Malformed(f"{key} must be a string, not {_kind(value)}")
    return value


def _boolean(event: Mapping[str, Any], key: str) -> bool | None:
    value = event.get(key)
    if value is not None and not isinstance(value, bool):
        raise Malformed(f"{key} must be true or false, not {_kind(value)}")
    return value


def _choice(event: Mapping[str, Any], key: str, choices: tuple[str, ...], required: bool = False) -> str | None:
    value = _string(event, key, required)
    if value is not None and value not in choices:
        raise Malformed(f"{key} must be one of {', '.join(choices)}, not {_kind(value)}")
    return value


def _duration(event: Mapping[str, Any], key: str, what: str = "a number of seconds") -> float | None:
    value = event.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{key} must be {what}, not {_kind(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise Malformed(f"{key} is a huge number") from None
    if not np.isfinite(number):
        raise Malformed(f"{key} must be finite, not {number}")
    if number < 0:
        raise Malformed(f"a negative {key}: {value}")
    return number


def _list(event: Mapping[str, Any], key: str) -> list[Any]:
    value = event.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise Malformed(f"{key} must be a list, not {_kind(value)}")
    return list(value)
