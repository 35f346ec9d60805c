"""Secrets among the options of a trial: which they are, where their values come from, and what stands in their place.

A value is a secret when its key says so (`is_secret`), when the user marks its key (`--secret KEY`,
`secrets = ["KEY"]`), when it is a URL with a password in it, or when it is written as `env:NAME`. What travels through
the harness, into records and onto command lines, is never the value but that reference, `env:NAME`:

- `seal`, at the border where options come in, puts `env:FENCEPOST_SECRET_<KEY>` in the place of a secret that was given
  in the open, and keeps its value in the memory of this process alone;
- `reveal`, where options are used, takes the values from there and from the environment.

So a config can be shown to anybody. Whatever gets out all the same (an error text of a client, a log) is the business
of `harness.redaction`, which `reveal` tells each value.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import redaction
from harness.errors import ConfigError

TABLES = ("system_options", "fault_options", "workload_options", "endpoint_options", "client_options")
"""The tables of a trial's config in which secrets are looked for."""
PREFIX = "FENCEPOST_SECRET_"
LEAST = 8
"""Characters of a secret; a shorter one would be found all over the place."""
PLAIN_LEAST = 20
"""Characters of one that is made of one kind of letters alone, as the words of our own records are."""

_ANYWHERE = frozenset({"dsn", "pwd", "pass", "passphrase", "credential", "credentials", "requirepass", "masterauth"})
_INSIDE = ("password", "passwd", "secret")
_LAST = frozenset(
    {"key", "token", "apikey", "authkey", "accesskey", "privatekey", "apitoken", "authtoken", "accesstoken"}
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s:@]*:(\S+)@[^@\s]*")
_PAIR = re.compile(r"(?i)\b(?:password|passwd|pwd)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s;&]+)")


def is_secret(key: str) -> bool:
    """Whether a key's own words say that its value is a secret: `db_password`, `apiKey`, `auth-token`, `dsn`.

    `key` and `token` count as the last word: `private_key` is one, `key_prefix`, `keyspace` and `monkey` are not.
    """
    words = [word.lower() for word in _WORDS.findall(key)]
    return bool(words) and (
        words[-1] in _LAST or any(word in _ANYWHERE or any(part in word for part in _INSIDE) for word in words)
    )


def why_not(value: str) -> str | None:
    """Why a value can't be kept out of what is written; None when it can.

    The redactor goes by the text alone: were the password "redis", no name of a system would be left in any record.
    """
    if not value:
        return "it is empty"
    if len(value) < LEAST:
        return f"it is too short to be redacted: a secret must have {LEAST} characters at least"
    if value.isdigit():
        return "it is all digits, which can't be told from times and tokens in the records; put a letter in it"
    kinds = [str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum() and char not in "-_. "]
    if len(value) < PLAIN_LEAST and sum(any(map(kind, value)) for kind in kinds) < 2:
        return (
            "it is too common to be redacted: words as plain as this stand in the records; "
            f"mix small letters with capitals or digits, or take {PLAIN_LEAST} characters"
        )
    return None


# -- in at the border


def seal(
    given: Mapping[str, Any], *, marks: Iterable[str] = (), path: Path | str | None = None, key: str | None = None
) -> dict[str, Any]:
    """A copy of a trial's keys, or of a whole matrix file, in which references stand in the place of secrets.

    Marks are `marks` and every list called `secrets` in it. Raises ConfigError that names the key (never the value) for
    a secret that is no text, or can't be redacted. What is sealed already stays as it is.
    """
    try:
        wanted = {*marks, *_marks(given)}
        sealed = _tables(given, wanted, path, key)
    except RecursionError as error:
        raise ConfigError(path, key, "nested too deeply") from error
    assert isinstance(sealed, dict)
    return sealed


def _marks(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name == "secrets" and isinstance(item, list):
                yield from (mark for mark in item if isinstance(mark, str))
            elif name not in TABLES:
                yield from _marks(item)
    elif isinstance(value, list):
        for item in value:
            yield from _marks(item)


def _tables(value: Any, marks: set[str], path: Path | str | None, key: str | None) -> Any:
    """Copies down to the tables of options, and seals those; one that is an axis is a list of tables."""
    if isinstance(value, Mapping):
        fresh = {}
        for name, item in value.items():
            place = dotted(key, str(name))
            if name in TABLES:
                fresh[name] = _sealed(item, marks, path, place)
            else:
                fresh[name] = _tables(item, marks, path, place)
        return fresh
    if isinstance(value, list):
        return [_tables(item, marks, path, key) for item in value]
    return value


def _sealed(
    value: Any, marks: set[str], path: Path | str | None, place: str, *, secret: bool = False, marked: bool = False
) -> Any:
    """`secret`: its key says so. `marked`: the user does, and then it is all that is in it."""
    if isinstance(value, Mapping):
        fresh = {}
        for name, item in value.items():
            mark = marked or name in marks
            told = mark or is_secret(str(name))
            fresh[name] = _sealed(item, marks, path, dotted(place, name), secret=told, marked=mark)
        return fresh
    if isinstance(value, list):
        return [_sealed(item, marks, path, place, secret=secret, marked=marked) for item in value]
    if isinstance(value, str):
        if value.startswith("env:"):
            _variable(value, path, place)
            return value
        if not secret and not _URL.search(value):
            return value
        return f"env:{_put(place.rpartition('.')[2], value, path, place)}"
    if not secret or value is None or isinstance(value, bool):
        return value
    raise ConfigError(path, place, "a secret must be a text; put it in quotes")


def _variable(reference: str, path: Path | str | None, place: str) -> str:
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise ConfigError(path, place, "env: must be followed by the name of an environment variable, and nothing else")
    return found[1]


_given: dict[str, str] = {}
"""Variable -> the value of a secret that was given in the open; the environment itself is left as it is, so that no
process that we start inherits it."""
_lock = threading.Lock()


def _put(name: str, value: str, path: Path | str | None, place: str) -> str:
    """The variable that stands for a value from now on: one of its own for each value."""
    _tell(value, path, place)
    usual = PREFIX + (re.sub(r"\W+", "_", name.upper(), flags=re.ASCII).strip("_") or "VALUE")
    number = 1
    with _lock:
        while True:
            variable = usual if number == 1 else f"{usual}_{number}"
            if _given.get(variable, os.environ.get(variable, value)) == value:
                _given[variable] = value
                return variable
            number += 1


def _tell(value: str, path: Path | str | None, place: str) -> None:
    """Have it redacted, with the passwords inside of it, or raise ConfigError that says why it can't be."""
    passwords = _passwords(value)
    for what, secret in [("", value), *(("the password in it: ", password) for password in passwords)]:
        reason = why_not(secret)
        if reason is not None:
            raise ConfigError(path, place, f"can't be kept secret: {what}{reason}")
    for secret in (value, *passwords):
        redaction.know(secret)


def _passwords(value: str) -> list[str]:
    """The passwords inside of URLs and DSNs, as they are written there and as they are meant."""
    from urllib.parse import unquote

    found = [match[1].strip("'") for match in (*_URL.finditer(value), *_PAIR.finditer(value))]
    return [*found, *(meant for password in found if (meant := unquote(password)) != password)]


def notice(value: str) -> None:
    """Have the passwords in a URL redacted that isn't ours to refuse (a proxy of the machine's), where they can be."""
    for password in _passwords(value):
        if why_not(password) is None:
            redaction.know(password)


# -- out where it is used


def reveal(table: Mapping[str, Any], *, path: Path | str | None = None, key: str | None = None) -> dict[str, Any]:
    """The options with the values of their secrets, which are redacted from now on wherever they turn up.

    For handing on to what uses them, never for writing down. Raises ConfigError that names the key and the variable
    when one isn't set, or holds what can't be redacted.
    """
    revealed = _revealed(table, path, key or "")
    assert isinstance(revealed, dict)
    return revealed


def _revealed(value: Any, path: Path | str | None, place: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _revealed(item, path, dotted(place, name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_revealed(item, path, place) for item in value]
    if not isinstance(value, str) or not value.startswith("env:"):
        return value
    variable = _variable(value, path, place)
    secret = _given.get(variable, os.environ.get(variable))
    if secret is None:
        hint = " (an earlier run was given its value in the open)" if variable.startswith(PREFIX) else ""
        raise ConfigError(path, place, f"the environment variable {variable} is not set{hint}")
    _tell(secret, path, f"{place}, from the environment variable {variable}")
    return secret


def variables(value: Any) -> list[str]:
    """The variables that options refer to, each once, in their order."""
    if isinstance(value, Mapping):
        found = [name for item in value.values() for name in variables(item)]
    elif isinstance(value, list):
        found = [name for item in value for name in variables(item)]
    else:
        match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        found = [match[1]] if match else []
    return list(dict.fromkeys(found))


def keys(value: Any) -> set[str]:
    """All keys of options, nested ones too: what a mark can mean."""
    if isinstance(value, Mapping):
        return {str(name) for name in value}.union(*(keys(item) for item in value.values()))
    return set().union(*(keys(item) for item in value)) if isinstance(value, list) else set()


def unset(names: Iterable[str]) -> list[str]:
    """Those of the variables that stand for a value given in the open, and must be set to run the same again."""
    return [name for name in names if name not in os.environ]


def dotted(prefix: str | None, name: object) -> str:
    """The key of a key: "system_options.password"."""
    return f"{prefix}.{name}" if prefix else str(name)
