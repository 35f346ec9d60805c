"""Histories that other tools wrote: Jepsen's `history.edn`, the EDN of Knossos' lock data, Jepsen's operations as JSON.

    >>> history = read("history.edn", release_fail="held")     # doctest: +SKIP
    >>> history.meta.extra["import"]                           # doctest: +SKIP
    {'format': 'edn', 'release_fail': 'held', 'failed_releases': 158, 'time': 'recorded', ...}

An operation is a map with `:type`, `:f`, `:process`, and mostly `:time` (ns), `:index` and `:value`. `:acquire` and
`:release` (and `:renew`) are read; a grant's token is its value where that is a number, or the value's `:fence` or
`:token`. Everything else, the nemesis included, is kept as an event that no verdict looks at: Jepsen's nemesis gives no
receipts, so nothing can be said of its faults.

What a foreign history leaves open, and how it is read here (docs/imports.md has the reasons):

- *A failed release* flips real verdicts, so how it is read is a named policy, `RELEASE_FAIL`, and recorded.
- *No ttl*: holds end only by their release (`expires: false`), unless `Options.ttl` gives one.
- *No time*: the index stands in for it; then no ttl means anything, and what needs durations is unknown.
- *A process that goes on after its own timeout*: the old operation stays pending for good.
- *A completion of unknown outcome without an invoke* says nothing, and is left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import HistoryError, UsageError
from harness.history import edn, packed
from harness.history.building import from_events
from harness.history.events import History

#: What a failed release says of the hold that it was sent for.
RELEASE_FAIL = {
    "held": "the lock was still held: the release did nothing",
    "released": "the lock was no longer held by that process when the answer came",
    "unknown": "nothing: the hold may have ended, or not",
}

DEFAULT_RELEASE_FAIL = "unknown"
"""Of two accounts of a history the one that clears the accused counts, so this one is the default."""

#: Names that `Options.fields` can map: keys of an operation, and the three operations themselves.
KEYS = ("type", "f", "process", "time", "index", "value", "lock", "token", "ttl", "lease_from", "held", "proves")
OPERATIONS = ("acquire", "release", "renew")

#: A comment with which `exports.to_edn` begins: the rest of it is the history's meta line, as JSON. A file that has it
#: is read as it was recorded: every key keeps its own meaning, and no policy applies.
HEADER = ";; fencepost "
#: The last line of such a file where the history has an `end` line: the rest of it is that line.
FOOTER = ";; fencepost-end "

_TYPES = ("invoke", "ok", "fail", "info")
_RECORDED_KEYS = (
    "lock", "token", "ttl", "lease_from", "held", "reason", "resource", "read", "version", "seq",
    "proves", "renewals", "ids", "what", "bit", "phase", "id", "kind", "targets", "processes", "receipt",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """How to read a foreign history. None stands for the default."""

    release_fail: str = "unknown"
    """A name of `RELEASE_FAIL`."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Our name to theirs: `{"time": "timestamp", "acquire": "lock", "token": "value.0"}`. A dot leads into a map by
    key, or into a vector by position."""
    owners: bool | None = None
    """False when any process may release (Jepsen's `mutex`). None: as recorded, else true."""
    ttl: float | None = None
    """Time to live of a lease, in seconds; None when unknown."""
    format: str = "auto"
    """`edn`, `jepsen-json` or `auto` (by the name and the first characters)."""

    def __init__(
        self,
        *,
        release_fail: str | None = None,
        fields: Mapping[str, str] | None = None,
        owners: bool | None = None,
        ttl: float | None = None,
        format: str = "auto",
    ) -> None:
        release_fail = release_fail or DEFAULT_RELEASE_FAIL
        if release_fail not in RELEASE_FAIL:
            raise UsageError(f"release-fail must be one of {', '.join(RELEASE_FAIL)}, not {release_fail!r}")
        for name in fields or {}:
            if name not in KEYS + OPERATIONS:
                raise UsageError(f"no field {name!r} to map; there are {', '.join(KEYS + OPERATIONS)}")
        if ttl is not None and not 0 <= ttl < float("inf"):
            raise UsageError(f"ttl must be a number of seconds from 0 on, not {ttl}")
        if format not in ("auto", "edn", "jepsen-json"):
            raise UsageError(f"format must be auto, edn or jepsen-json, not {format!r}")
        for name, value in (
            ("release_fail", release_fail), ("fields", dict(fields or {})), ("owners", owners), ("ttl", ttl),
            ("format", format),
        ):  # fmt: skip
            object.__setattr__(self, name, value)


def parse_fields(pairs: tuple[str, ...]) -> dict[str, str]:
    """`("time=ts", "acquire=lock,release=unlock")` as given on a command line. Raises `UsageError`."""
    fields = {}
    for pair in (part for argument in pairs for part in argument.split(",")):
        name, equals, theirs = pair.partition("=")
        if not equals or not name.strip() or not theirs.strip():
            raise UsageError(f"a field is mapped by OURS=THEIRS, as in time=timestamp, not by {pair!r}")
        fields[name.strip()] = theirs.strip().removeprefix(":")
    return fields


def detect(text: str, path: str | Path) -> str:
    """`edn` or `jepsen-json`: by the end of the name, else by the first characters."""
    suffix = packed.bare(Path(path)).suffix.lower()
    if suffix in (".edn", ".json"):
        return "edn" if suffix == ".edn" else "jepsen-json"
    return "edn" if re.match(r"\s*(\[?\s*(\{\s*:|#[A-Za-z])|;)", text) else "jepsen-json"


def read(path: str | Path, **options: Any) -> History:
    """The history in a file. Keywords are those of `Options`. Raises `HistoryError`."""
    chosen = Options(**options)
    return _Source(path, chosen).history(chosen.release_fail)


def readings(path: str | Path, **options: Any) -> dict[str, History]:
    """The history under each policy that there is for a failed release, the chosen one first.

    Just the chosen one when no release failed. Keywords are those of `Options`. Raises `HistoryError`.
    """
    chosen = Options(**options)
    source = _Source(path, chosen)
    names = [chosen.release_fail]
    if source.failed_releases and not source.recorded:
        names += [name for name in RELEASE_FAIL if name != chosen.release_fail]
    return {name: source.history(name) for name in names}


# -- from text to operations -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Half:
    """One line of a foreign history: an invoke, a completion, or something that no verdict looks at."""

    line: int
    position: int
    time: int
    process: int | str
    type: str
    f: str
    keys: dict[str, Any]


@dataclass(slots=True)
class _Op:
    invoke: _Half
    completion: _Half | None = None


class _Source:
    """A file, read and paired once; `history` gives it under a policy."""

    def __init__(self, path: str | Path, options: Options) -> None:
        self.path, self.options = path, options
        self.notes: Counter[str] = Counter()
        text = self._text()
        self.format = detect(text, path) if options.format == "auto" else options.format
        self.meta = self._header(text)
        self.recorded = self.meta is not None
        self.end = self._footer(text) if self.recorded else None
        self.time_basis = "recorded"
        self.halves = self._halves(text)
        self.ops = self._pair()
        self.failed_releases = sum(
            op.invoke.f == "release" and done.type == "fail" and "held" not in done.keys
            for op in self.ops
            if (done := op.completion) is not None
        )

    def error(self, line: int, reason: str) -> HistoryError:
        return HistoryError(self.path, line, reason)

    def _text(self) -> str:
        try:
            data = packed.text(Path(self.path))
        except OSError as error:
            raise self.error(0, error.strerror or str(error)) from None
        except packed.Broken as broken:
            raise self.error(broken.line, str(broken)) from None
        try:
            return data.removeprefix(b"\xef\xbb\xbf").decode()
        except UnicodeDecodeError as error:
            raise self.error(data.count(b"\n", 0, error.start) + 1, "not UTF-8") from None

    def _header(self, text: str) -> dict[str, Any] | None:
        if self.format != "edn" or not text.startswith(HEADER):
            return None
        try:
            meta = json.loads(text.partition("\n")[0][len(HEADER) :])
            edn.whole(json.dumps(meta, ensure_ascii=False), 1)
        except (ValueError, RecursionError):
            meta = None
        if not isinstance(meta, dict):
            raise self.error(1, "the header isn't the JSON of a meta line")
        return meta

    def _footer(self, text: str) -> tuple[int, dict[str, Any]] | None:
        """The end line that a file of our own making carries, and its line number."""
        lines = text.rstrip().splitlines()
        if not lines or not lines[-1].startswith(FOOTER):
            return None
        try:
            end = json.loads(lines[-1][len(FOOTER) :])
        except (ValueError, RecursionError):
            end = None
        if not isinstance(end, dict):
            raise self.error(len(lines), "the last comment isn't the JSON of an end line")
        return len(lines), {"type": "end", "events": end.get("events")}

    def _forms(self, text: str) -> Iterator[tuple[int, Any]]:
        if self.format == "edn":
            try:
                for form in edn.forms(text, splice=True):
                    yield form.line, form.value
            except edn.EdnError as error:
                raise self.error(error.line, error.reason) from None
        else:
            try:
                yield from _json_values(text)
            except edn.EdnError as error:
                raise self.error(error.line, error.reason) from None

    def _halves(self, text: str) -> list[_Half]:
        paths = {name: tuple(_steps(theirs)) for name, theirs in self.options.fields.items() if name in KEYS}
        for name in ("type", "f", "process", "time", "index", "value"):
            paths.setdefault(name, (name,))
        if self.recorded:
            for name in _RECORDED_KEYS:
                paths.setdefault(name, (name,))
        theirs_to_ours = {self.options.fields.get(name, name).removeprefix(":"): name for name in OPERATIONS}
        halves: list[_Half] = []
        times: list[int | None] = []
        indexes: list[int | None] = []
        for line, value in self._forms(text):
            if not isinstance(value, dict):
                raise self.error(line, f"an operation must be a map, not {_shown(value)}")
            half = self._half(line, len(halves), value, paths, theirs_to_ours)
            times.append(self._integer(line, "time", _at(value, paths["time"])))
            indexes.append(self._integer(line, "index", _at(value, paths["index"])))
            halves.append(half)
        self._stamp(halves, times, indexes)
        return halves

    def _half(
        self, line: int, position: int, value: dict[Any, Any], paths: Mapping[str, tuple[str | int, ...]],
        theirs_to_ours: Mapping[str, str],
    ) -> _Half:  # fmt: skip
        kind = _word(_at(value, paths["type"]))
        if kind not in _TYPES:
            raise self.error(line, f"type must be one of {', '.join(_TYPES)}, not {_shown(_at(value, paths['type']))}")
        process = _word(_at(value, paths["process"]))
        client = isinstance(process, int) and not isinstance(process, bool)
        if not client and not isinstance(process, str):
            raise self.error(line, f"process must be an integer or a name such as :nemesis, not {_shown(process)}")
        f = _word(_at(value, paths["f"]))
        if f is None:
            raise self.error(line, "an operation without an f")
        f = f if isinstance(f, str) else _shown(f)
        keys: dict[str, Any] = {}
        if self.recorded:
            keys = {name: _plain(_at(value, paths[name])) for name in _RECORDED_KEYS}
            if f == "acquire" and kind == "ok" and keys["token"] is None:
                keys["token"] = _token(_at(value, paths["value"]))
            keys = {name: item for name, item in keys.items() if item is not None}
            return _Half(line, position, 0, process, kind, f, keys)
        if not client:
            return _Half(line, position, 0, "nemesis", kind, f"{process} {f}", keys)
        if f not in theirs_to_ours:
            return _Half(line, position, 0, process, kind, f"other {f}", keys)
        f = theirs_to_ours[f]
        for name in ("lock", "ttl", "lease_from", "held", "proves"):
            if name in paths and (item := _plain(_at(value, paths[name]))) is not None:
                keys[name] = _shown(item) if name == "lock" and not isinstance(item, str) else item
        if f == "acquire" and kind == "ok":
            token = _plain(_at(value, paths["token"])) if "token" in paths else _token(_at(value, paths["value"]))
            if token is not None:
                keys["token"] = token
        return _Half(line, position, 0, process, kind, f, keys)

    def _integer(self, line: int, name: str, value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(line, f"{name} must be an integer, not {_shown(value)}")
        return value

    def _stamp(self, halves: list[_Half], times: list[int | None], indexes: list[int | None]) -> None:
        """Their times; or, where there are none (jepsen.history writes -1 for "none"), their indexes or positions."""
        if all(time is None for time in times) or (len(times) > 1 and all(time == -1 for time in times)):
            self.time_basis = "index"
            times = list(range(len(halves))) if None in indexes else indexes
        for half, time in zip(halves, times, strict=True):
            if time is None:
                raise self.error(half.line, "an operation without a time, where others have one")
            half.time = time

    # -- pairing ------------------------------------------------------------------------------------------------------

    def _pair(self) -> list[_Op]:
        """Pairs by process, in the order of the file: a completion closes that process's latest open operation with
        the same f and lock. In a file of our own making the native reader pairs."""
        ops: list[_Op] = []
        if self.recorded:
            return ops
        open_ops: dict[tuple[int | str, str, str], _Op] = {}
        latest: dict[int | str, _Half] = {}
        dropped: set[int] = set()
        for half in self.halves:
            if half.f not in OPERATIONS:
                continue
            before = latest.get(half.process)
            if before is not None and half.time < before.time:
                back = f"goes back from {before.time} (line {before.line}) to {half.time}"
                raise self.error(half.line, f"the time of process {half.process} {back}")
            latest[half.process] = half
            slot = (half.process, half.f, half.keys.get("lock", "lock"))
            if half.type == "invoke":
                self.notes["left pending"] += slot in open_ops
                open_ops[slot] = _Op(half)
                ops.append(open_ops[slot])
            elif (op := open_ops.pop(slot, None)) is not None:
                op.completion = half
            elif half.type == "info":
                self.notes["unpaired info"] += 1
                dropped.add(half.position)
            else:
                raise self.error(half.line, f"process {half.process}: {half.f} completed without an open invoke")
        self.halves = [half for half in self.halves if half.position not in dropped]
        return ops

    # -- from operations to a history ---------------------------------------------------------------------------------

    def history(self, policy: str) -> History:
        """The history, a failed release read by this policy."""
        meta = dict(self.meta or {})
        if self.options.owners is not None:
            meta["owners"] = self.options.owners
        if not self.recorded:
            self._lease_terms(meta)
        meta["import"] = {
            "format": self.format,
            "release_fail": "as recorded" if self.recorded else policy,
            "failed_releases": self.failed_releases,
            "time": self.time_basis,
            **({"fields": dict(self.options.fields)} if self.options.fields else {}),
            **{name: count for name, count in self.notes.items() if count},
        }
        events = list(self._events(policy, meta.get("owners") is not False))
        return from_events(meta, events if self.end is None else [*events, self.end], self.path)

    def _lease_terms(self, meta: dict[str, Any]) -> None:
        if self.options.ttl is None and "ttl" not in self.options.fields:
            meta["expires"] = False
        elif self.time_basis == "recorded" and self.options.ttl is not None:
            meta["ttl"] = self.options.ttl

    def _events(self, policy: str, owners: bool) -> Iterator[tuple[int, dict[str, Any]]]:
        types, moved = self._failed_releases(policy, owners)
        open_slots: set[tuple[int | str, str, str]] = set()
        invokes_moved = {half.position for half in moved.values()}
        for half in self.halves:
            if half.position in invokes_moved:
                continue
            slot = (half.process, half.f, half.keys.get("lock", "lock"))
            if half.f in OPERATIONS and not self.recorded:
                if half.type == "invoke":
                    if slot in open_slots:  # it goes on after its own timeout
                        yield half.line, self._event(half, "info", {"lock": slot[2]})
                    open_slots.add(slot)
                else:
                    open_slots.discard(slot)
            yield half.line, self._event(half, types.get(half.position, half.type), half.keys)
            if half.position in moved:
                invoke = moved[half.position]
                open_slots.add((invoke.process, invoke.f, invoke.keys.get("lock", "lock")))
                yield invoke.line, self._event(invoke, "invoke", invoke.keys) | {"time": half.time}

    def _event(self, half: _Half, kind: str, keys: Mapping[str, Any]) -> dict[str, Any]:
        keys = {name: item for name, item in keys.items() if name != "ttl" or self.time_basis == "recorded"}
        return {"time": half.time, "process": half.process, "type": kind, "f": half.f, **keys}

    def _failed_releases(self, policy: str, owners: bool) -> tuple[dict[int, str], dict[int, _Half]]:
        """For each failed release, by the positions in the file: the type that its completion is read with; and, where
        its invoke is read as sent right after the grant, the grant's ok with that invoke.

        With owners, a hold that has ended or may have ended is a release of unknown outcome: it binds the hold no
        longer. Without owners, `released` says that the hold of this process ended at some instant between its grant
        and the answer: a release that took effect in between. One that had nothing to release did nothing.
        """
        types: dict[int, str] = {}
        moved: dict[int, _Half] = {}
        if policy == "held":
            return types, moved
        grant: dict[tuple[int | str, str], _Half] = {}
        doubtful: set[tuple[int | str, str]] = set()
        latest: dict[tuple[int | str, str], _Op] = {}  # of each holder's releases, by their invokes
        overlapped: set[int] = set()  # grants during which an older release was still open
        steps = [(op.invoke.position, op) for op in self.ops if op.invoke.f == "release"]
        steps += [(op.completion.position, op) for op in self.ops if op.completion is not None]
        for position, op in sorted(steps, key=lambda step: step[0]):
            done, holder = op.completion, (op.invoke.process, op.invoke.keys.get("lock", "lock"))
            if position == op.invoke.position:
                latest[holder] = op
                if done is None:
                    doubtful.add(holder)
            elif done is None:
                continue
            elif op.invoke.f == "acquire" and done.type == "ok":
                grant[holder] = done
                doubtful.discard(holder)
                older = latest.get(holder)
                if older is not None and (older.completion is None or older.completion.position > position):
                    overlapped.add(position)
            elif op.invoke.f != "release":
                continue
            elif done.type == "info":
                doubtful.add(holder)
            elif done.type == "ok":
                grant.pop(holder, None)
            elif "held" in done.keys:  # the service's own word, by a mapped field
                continue
            elif policy == "unknown" or owners:
                types[position] = "info"
            elif holder in grant and op.invoke.position > grant[holder].position:
                given = grant.pop(holder)
                if holder in doubtful or given.position in overlapped:
                    types[position] = "info"
                else:
                    types[position] = "ok"
                    moved[given.position] = op.invoke
        return types, moved


def _json_values(text: str) -> Iterator[tuple[int, Any]]:
    """Line and value of each element of the one array that the text is, or of each of its values."""
    lines, decoder, blank = edn.Lines(text), json.JSONDecoder(), re.compile(r"\s*+")

    def skip(place: int) -> int:
        match = blank.match(text, place)
        assert match is not None
        return match.end()

    place = skip(0)
    array = text.startswith("[", place)
    place = skip(place + 1) if array else place
    first = True
    while place < len(text):
        if array and text[place] == "]":
            place = skip(place + 1)
            if place < len(text):
                raise edn.EdnError(lines.of(place), "something follows the array of operations")
            return
        if array and not first:
            if text[place] != ",":
                raise edn.EdnError(lines.of(place), "a comma is missing between two operations")
            place = skip(place + 1)
        try:
            value, end = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise edn.EdnError(lines.of(error.pos), f"not JSON: {error.msg}") from None
        except (ValueError, RecursionError) as error:
            raise edn.EdnError(lines.of(place), f"not JSON that can be read: {error}") from None
        if "\\u" in text[place:end]:
            edn.whole(json.dumps(value, ensure_ascii=False), lines.of(place))
        yield lines.of(place), value
        place, first = skip(end), False
    if array:
        raise edn.EdnError(lines.of(place), "the array of operations is never closed")


def _steps(path: str) -> Iterator[str | int]:
    for step in path.split("."):
        yield int(step) if step.isascii() and step.isdigit() and len(step) < 10 else step.removeprefix(":")


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    """Where the path leads, None where it leads nowhere. Keys may carry Jepsen's colon, as some JSON exports have."""
    for step in path:
        if isinstance(value, dict):
            value = value[step] if step in value else value.get(f":{step}")
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _word(value: Any) -> Any:
    return str(value).removeprefix(":") if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """Without the types of EDN: strings for keywords and symbols."""
    if isinstance(value, str):
        return _word(value) if isinstance(value, edn.Keyword) else str(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _token(value: Any) -> int | None:
    """A grant's token: the value where it is a number, or has `:fence` or `:token`."""
    if isinstance(value, dict):
        value = next((item for name in ("fence", "token") if (item := _at(value, (name,))) is not None), None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a map" if isinstance(value, dict) else "a vector"
    shown = str(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge number"
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
