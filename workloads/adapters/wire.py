"""The adapter protocol (docs/adapters.md), version 1: its lines, and what is wrong with one.

Everything that an adapter says is checked here, at the border. Each rule has a name, so that a person, a test and
`fencepost adapter check` mean the same by it; what breaks one is a `Breach`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.clients.base import OUTCOMES, Outcome, classify

PROTOCOL = 1
LINE_BYTES = 65536
"""The longest line that an adapter may print, its newline included."""
NOTES_BYTES = 1024
"""How long the notes of an answer may be, as JSON: they go into an event, which is one write of less than PIPE_BUF."""

RENEWALS = ("asked", "told", "unseen", "none")
REASONS = ("expired", "deadline", "disconnected", "renew-failed")
COMMANDS = ("acquire", "renew", "release")

RULES: Mapping[str, str] = {
    "starts": "its command can be started on the node",
    "says-hello": "its first line is a hello, within 20 s of its config",
    "speaks-version-1": "its hello says that it speaks version 1 of the protocol",
    "hello-is-whole": "its hello has every key, each of its kind, and no other",
    "one-hello": "it says hello once",
    "prints-json": "each line on its stdout is one JSON object",
    "ends-its-lines": f"no line on its stdout is longer than {LINE_BYTES} bytes",
    "answers-what-was-asked": "an answer has the number of the command that is open, and each command has one",
    "answers-in-form": "an answer, a `lost` and a `renewed` have the keys of the protocol, each of its kind",
    "errors-stand-in-the-table": "an answer that is not ok has an error, and is what the error table of its hello says",
    "stamps-are-possible": "a stamp lies after its start, and before the contender reads it",
    "no-flood": "it says no more than 200 things unasked within a second",
    "answers-in-time": "a command is answered within its limit",
    "stays": "it does not end before its stdin does",
}
"""Name of a rule -> what an adapter does that keeps it."""


class Breach(Exception):
    """An adapter broke a rule. `rule` is one of `RULES`; the text is a sentence that says what it did."""

    def __init__(self, rule: str, what: str) -> None:
        assert rule in RULES, rule
        self.rule, self.what = rule, what
        super().__init__(f"{what} (rule {rule}: {RULES[rule]})")


@dataclass(frozen=True)
class Hello:
    """What an adapter says it is. `renewals` is one of `RENEWALS`, `renew_every` in s, None for the usual ttl/3."""

    library: str
    version: str
    language: str
    renewals: str
    tokens: bool
    expires: bool
    errors: Mapping[str, Outcome]
    renew_every: float | None = None

    def __str__(self) -> str:
        return f"{self.library} {self.version} ({self.language})"


@dataclass(frozen=True)
class When:
    """A stamp: seconds of CLOCK_BOOTTIME, or, with `after`, seconds forward from the contender's stamp of a command."""

    seconds: float
    after: int | None = None


@dataclass(frozen=True)
class Answer:
    """What became of a command. As `Acquired` and `Answered` (workloads/clients/base.py), but for the stamp."""

    id: int
    type: Outcome
    token: int | None = None
    ttl: float | None = None
    since: When | None = None
    held: bool | None = None
    proves: bool = False
    error: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """Unasked: the grant of acquire `of` is gone, as the library says, since `when`."""

    reason: str
    of: int
    when: When


@dataclass(frozen=True)
class Renewed:
    """Unasked: the library has renewed the grant of acquire `of`, by a request that was not sent before `when`."""

    of: int
    when: When
    proves: bool = False


def config_line(
    *,
    lock: str,
    ttl: float,
    process: int,
    system: str | None,
    endpoints: list[list[Any]],
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    operation_seconds: float,
) -> bytes:
    """The first line to an adapter. `endpoints` are [host, port], this contender's own first."""
    return line(
        protocol=PROTOCOL,
        lock=lock,
        ttl=ttl,
        process=process,
        system=system,
        endpoints=endpoints,
        settings=settings,
        options=options,
        operation_seconds=operation_seconds,
    )


def line(**keys: Any) -> bytes:
    """One line to an adapter."""
    return json.dumps(keys, separators=(",", ":")).encode() + b"\n"


def shown(text: bytes) -> str:
    """The beginning of what an adapter printed, for a message."""
    return repr(text[:160].decode(errors="replace")) + (" …" if len(text) > 160 else "")


def read(text: bytes) -> dict[str, Any]:
    """A line of an adapter. Breach `prints-json` when it is none."""
    try:
        said = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Breach("prints-json", f"it printed what is not JSON ({error}): {shown(text)}") from None
    if not isinstance(said, dict):
        raise Breach("prints-json", f"it printed no JSON object: {shown(text)}")
    return said


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def hello(said: Mapping[str, Any]) -> Hello:
    """The hello, from `read` of the first line."""
    if set(said) != {"hello"} or not isinstance(said["hello"], dict):
        raise Breach("says-hello", f"its first line is no hello: {shown(json.dumps(said).encode())}")
    told = said["hello"]
    if told.get("protocol") != PROTOCOL or isinstance(told.get("protocol"), bool):
        raise Breach("speaks-version-1", f"it speaks version {told.get('protocol')!r} of the protocol, not {PROTOCOL}")
    wrong = _wrong_keys(told, ("library", "version", "language", "renewals", "tokens", "expires", "errors"), HELLO)
    if not wrong and told["renewals"] not in RENEWALS:
        wrong.append(f"renewals must be one of {', '.join(RENEWALS)}, not {told['renewals']!r}")
    if not wrong:
        errors = told["errors"]
        wrong += [
            f"errors[{key!r}] is {out!r}, not ok, fail or info" for key, out in errors.items() if not _outcome(out)
        ]
        if "*" not in errors:
            wrong.append("errors has no '*', for errors that nobody foresaw")
        if told.get("renew_every") is not None and not told["renew_every"] > 0:
            wrong.append(f"renew_every must be above 0, not {told['renew_every']!r}")
    if wrong:
        raise Breach("hello-is-whole", f"its hello is wrong: {'; '.join(wrong)}")
    return Hello(**{key: value for key, value in told.items() if key != "protocol"})


def _outcome(value: object) -> bool:
    return isinstance(value, str) and value in OUTCOMES


def answer(said: Mapping[str, Any], command: str, hello: Hello) -> Answer:
    """What became of a command ("acquire", "renew", "release"), from a line that has an `id`."""
    allowed = {"id", "type", "error"}
    type_ = said.get("type")
    if type_ == "ok":
        allowed = {"id", "type"} | ({"token", "ttl", "since", "notes"} if command == "acquire" else {"proves"})
    elif command == "acquire":
        allowed |= {"notes"}
    elif type_ == "fail":
        allowed |= {"held"}
    what = f"its answer to {command}"
    if not _outcome(type_):
        raise Breach("answers-in-form", f"{what} has the type {type_!r}, not one of ok, fail and info")
    if said.get("held") is not None and type_ != "fail":
        table = "" if type_ == "ok" else f", and its error table calls {said.get('error')!r} {type_}"
        raise Breach("answers-in-form", f"{what}, {type_}, has held, which belongs to a fail{table}")
    if wrong := _wrong_keys(said, ("id", "type"), {key: ANSWER[key] for key in ANSWER if key in allowed}):
        raise Breach("answers-in-form", f"{what}, {type_}, is wrong: {'; '.join(wrong)}")
    given = {key: value for key, value in said.items() if value is not None}
    if given.get("token") is not None and not hello.tokens:
        raise Breach("answers-in-form", f"{what} has a token, and its hello says that it has none")
    if given.get("ttl") is not None and not 0 < given["ttl"] < 86400:
        raise Breach("answers-in-form", f"{what} has the ttl {given['ttl']!r}, which must lie between 0 and 86400 s")
    if given.get("held") is True:
        raise Breach("answers-in-form", f"{what}: held can only be false, when the service said that it is not held")
    if len(json.dumps(given.get("notes", {}))) > NOTES_BYTES:
        raise Breach("answers-in-form", f"{what} has notes of more than {NOTES_BYTES} bytes")
    if type_ != "ok":
        error = given.get("error")
        if not error:
            raise Breach("errors-stand-in-the-table", f"{what}, {type_}, has no error")
        if (meant := classify(hello.errors, error)) != type_:
            raise Breach(
                "errors-stand-in-the-table",
                f"{what} is {type_} for {error[:200]!r}, which its error table calls {meant}",
            )
    if "since" in given:
        given["since"] = _when(given["since"], f"since in {what}")
    return Answer(**given)


def unasked(said: Mapping[str, Any]) -> Lost | Renewed:
    """A line that answers nothing."""
    kind = "lost" if "lost" in said else "renewed" if "renewed" in said else None
    if kind is None:
        raise Breach(
            "answers-in-form", f"it said what the protocol has no word for: {shown(json.dumps(said).encode())}"
        )
    keys: Mapping[str, tuple[type | tuple[type, ...], str]] = {
        "of": (int, "the number of the acquire that was granted"),
        "at": ((int, float), "a number of seconds"),
        "after": (int, "the number of a command"),
        "seconds": ((int, float), "a number of seconds"),
    }
    if kind == "lost":
        keys = {"lost": (str, f"one of {', '.join(REASONS)}"), **keys}
    else:
        keys = {"renewed": (bool, "true"), "proves": (bool, "true or false"), **keys}
    if wrong := _wrong_keys(said, (kind, "of"), keys):
        raise Breach("answers-in-form", f"its {kind} is wrong: {'; '.join(wrong)}")
    when = _when({key: said[key] for key in ("at", "after", "seconds") if key in said}, f"its {kind}")
    if kind == "renewed":
        if said["renewed"] is not True:
            raise Breach("answers-in-form", "its renewed is not true")
        return Renewed(said["of"], when, said.get("proves", False))
    if said["lost"] not in REASONS:
        raise Breach("answers-in-form", f"its lost must be one of {', '.join(REASONS)}, not {said['lost']!r}")
    return Lost(said["lost"], said["of"], when)


def _when(given: Mapping[str, Any], where: str) -> When:
    """`{"at": s}`, or `{"after": number, "seconds": s}`."""
    numbers = [value for value in given.values() if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(given):
        if set(given) == {"at"}:
            return When(given["at"])
        if set(given) == {"after", "seconds"} and isinstance(given["after"], int):
            return When(given["seconds"], given["after"])
    raise Breach(
        "answers-in-form", f"{where} needs a stamp: `at`, or `after` and `seconds`, numbers; not {dict(given)!r}"
    )


HELLO: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "protocol": (int, "an integer"),
    "library": (str, "a string"),
    "version": (str, "a string"),
    "language": (str, "a string"),
    "renewals": (str, f"one of {', '.join(RENEWALS)}"),
    "tokens": (bool, "true or false"),
    "expires": (bool, "true or false"),
    "errors": (dict, "an object"),
    "renew_every": ((int, float), "a number of seconds"),
}
ANSWER: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "id": (int, "an integer"),
    "type": (str, "ok, fail or info"),
    "token": (int, "an integer"),
    "ttl": ((int, float), "a number of seconds"),
    "since": (dict, "an object, a stamp"),
    "held": (bool, "false"),
    "proves": (bool, "true or false"),
    "error": (str, "a string"),
    "notes": (dict, "an object"),
}


def _wrong_keys(
    given: Mapping[str, Any], needed: tuple[str, ...], known: Mapping[str, tuple[type | tuple[type, ...], str]]
) -> list[str]:
    """What is wrong with the keys of an object; null counts as absent."""
    wrong = [f"{key} is missing" for key in needed if given.get(key) is None]
    for key, value in given.items():
        if key not in known:
            wrong.append(f"{key} does not belong here (known: {', '.join(known)})")
            continue
        kind, words = known[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and bool not in kinds)):
            wrong.append(f"{key} must be {words}, not {value!r}")
    return wrong
