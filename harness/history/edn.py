"""A reader for EDN, the notation in which Jepsen and Knossos write histories.

Why not a library: edn_format (the one that is kept) reads 17,000 operations a second, raises on every tag that was not
registered, and its errors carry no line; kim-edn reads a dialect. This one reads five times as many, keeps going
on unknown tags, never recurses (so no nesting can break it) and names the line of whatever is wrong.

    >>> [form.value for form in forms('{:f :acquire} #jepsen.history.Op{:f "x"} ; the end')]
    [{'f': 'acquire'}, {'f': 'x'}]

Keywords become `Keyword` (a `str` without the colon, namespace kept), symbols `Symbol`, lists, vectors and sets become
lists, maps dicts, a tagged value the value itself, `#inst` and `#uuid` their strings. Ratios and `M` numbers become
floats. Grammar: https://github.com/edn-format/edn; `#:ns{…}` and `^meta`, which Clojure prints besides, are read too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


class Keyword(str):
    """A keyword such as `:acquire`, without its colon. Equal to, and hashed as, the plain string."""

    __slots__ = ()


class Symbol(str):
    """A bare word such as `Infinity` or `foo/bar`."""

    __slots__ = ()


class EdnError(ValueError):
    """The text is not EDN. `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        self.line, self.reason = line, reason
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True, slots=True)
class Form:
    """A value with the line on which it begins."""

    line: int
    value: Any


# One alternative for each kind of token; which one matched is told by the number of its group. The order counts: a
# number before a symbol, since `-1` and `-` begin alike. The possessive `*+` keep it linear: no text makes it go back.
_TOKEN = re.compile(
    r"""
    [\s,]*+(?:;[^\n]*+[\s,]*+)*+
    (?:
      :([^\s,;"(){}\[\]\\^`~@]+)                       # 1 keyword
    | ([+-]?\d+)N?(?=[\s,;"(){}\[\]]|\Z)               # 2 integer
    | "((?:[^"\\]++|\\.)*+)"                           # 3 string
    | ([\[({])                                         # 4 opening
    | ([\])}])                                         # 5 closing
    | ([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)M?(?=[\s,;"(){}\[\]]|\Z)   # 6 float
    | ([+-]?\d+)/(\d+)(?=[\s,;"(){}\[\]]|\Z)           # 7, 8 ratio
    | \#(\#[A-Za-z]+|_|\{|\^|:[^\s,;"(){}\[\]]*|[A-Za-z][^\s,;"(){}\[\]]*)   # 9 dispatch
    | \\(newline|return|space|tab|formfeed|backspace|u[0-9A-Fa-f]{4}|o[0-7]{1,3}|.)(?=[\s,;"(){}\[\]]|\Z)   # 10 char
    | (\^)                                             # 11 metadata
    | ([^\s,;"(){}\[\]\\^`~@:\#\d][^\s,;"(){}\[\]\\^`~@]*)   # 12 symbol
    | \Z
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "b": "\b", "f": "\f", "'": "'"}
_CHARACTERS = {"newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f", "backspace": "\b"}
_CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_SYMBOLS = {"nil": None, "true": True, "false": False}
_SPECIAL = {"#Inf": float("inf"), "#NaN": float("nan")}
_LONGEST_NUMBER = 400  # digits; Python refuses to read integers of more than 4,300, and no history has such


class Lines:
    """Tells the line of a place in a text."""

    def __init__(self, text: str) -> None:
        self.breaks = [match.start() for match in re.finditer("\n", text)]

    def of(self, place: int) -> int:
        return bisect_right(self.breaks, place - 1) + 1


def forms(text: str, *, splice: bool = False) -> Iterator[Form]:
    """The values of a text, one after the other. Raises `EdnError`.

    `splice`: when the text is one vector or list, the values in it instead, each with its own line: so a history that
    is one vector reads like one that has a map a line.
    """
    lines = Lines(text)
    # A frame is an unfinished collection: [kind, where it began, its values so far, places of its values].
    # kind "#" stands for a prefix (a tag, #_, ^) that waits for the values that it applies to.
    top: list[Any] = []
    places: list[int] = []
    stack: list[tuple[str, int, list[Any]]] = []
    values = top
    spliced: int | None = None  # where the vector began whose values stand in for those of the text
    match_at, place, size = _TOKEN.match, 0, len(text)
    while True:
        match = match_at(text, place)
        if match is None:
            raise EdnError(*_unreadable(text, place, lines))
        kind, start, place = match.lastindex, match.start(match.lastindex or 0), match.end()
        value: Any
        if kind == 1:
            value = Keyword(match[1])
        elif kind == 2:
            if place - start > _LONGEST_NUMBER:
                raise EdnError(lines.of(start), "a number with too many digits")
            value = int(match[2])
        elif kind == 4:
            opening = match[4]
            if opening != "{" and splice and not stack and not top and spliced is None:
                spliced = start
                continue
            stack.append((opening, start, values))
            values = []
            continue
        elif kind == 5:
            if not stack and spliced is not None and match[5] == _CLOSING[text[spliced]]:
                yield from _drain(top, places, lines)
                rest = _skip(text, place)
                if rest != size:
                    raise EdnError(lines.of(rest), "something follows the vector of operations")
                return
            if not stack:
                raise EdnError(lines.of(start), f"{match[5]} closes nothing")
            opening, began, outer = stack.pop()
            if opening not in _CLOSING:
                raise EdnError(lines.of(start), f"{opening} of line {lines.of(began)} has nothing to apply to")
            if _CLOSING[opening] != match[5]:
                raise EdnError(
                    lines.of(start),
                    f"{match[5]} where {_CLOSING[opening]} closes the {opening} of line {lines.of(began)}",
                )
            value = _collection(opening, values, lines, began)
            values, start = outer, began
        elif kind == 3:
            value = match[3]
            if "\\" in value:
                value = _unescape(value, lines.of(start))
        elif kind == 12:
            value = match[12]
            value = _SYMBOLS[value] if value in _SYMBOLS else Symbol(value)
        elif kind == 6:
            value = float(match[6])
        elif kind == 8:
            if place - start > _LONGEST_NUMBER or not int(match[8]):
                raise EdnError(lines.of(start), f"{match[0].strip()[:40]} is not a number")
            value = float(int(match[7]) / int(match[8]))
        elif kind == 9:
            tag = match[9]
            if tag in _SPECIAL:
                value = _SPECIAL[tag]
            elif tag.startswith("#"):
                raise EdnError(lines.of(start), f"#{tag} is not a value")
            else:
                stack.append(("#{" if tag == "{" else f"#{tag}", start, values))
                values = []
                continue
        elif kind == 10:
            value = whole(_character(match[10]), lines.of(start))
        elif kind == 11:
            stack.append(("^", start, values))
            values = []
            continue
        else:
            break

        # A value is complete: it may complete the prefixes that wait for it.
        values.append(value)
        while stack and stack[-1][0] not in _CLOSING:
            prefix, began, outer = stack[-1]
            if len(values) < (2 if prefix == "^" else 1):
                break
            stack.pop()
            value, values, start = values[-1], outer, began
            if prefix != "#_":
                values.append(value)
        if not stack:
            if len(top) > len(places):
                places.append(start)
            if len(top) >= 1000:
                yield from _drain(top, places, lines)
    if stack or spliced is not None:
        opening, began = stack[-1][:2] if stack else (text[spliced or 0], spliced or 0)
        raise EdnError(lines.of(began), f"{opening} is never closed")
    yield from _drain(top, places, lines)


def _drain(top: list[Any], places: list[int], lines: Lines) -> Iterator[Form]:
    for place, value in zip(places, top, strict=True):
        yield Form(lines.of(place), value)
    top.clear()
    places.clear()


def _collection(opening: str, values: list[Any], lines: Lines, began: int) -> Any:
    if opening != "{":
        return values
    if len(values) % 2:
        raise EdnError(lines.of(began), "a map with a key that has no value")
    pairs = iter(values)
    try:
        return dict(zip(pairs, pairs, strict=True))
    except TypeError:  # a collection as a key: legal, and nothing that a history has
        raise EdnError(lines.of(began), "a map with a collection as its key") from None


def _character(name: str) -> str:
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if len(name) > 1:
        return chr(int(name[1:], 16 if name[0] == "u" else 8))
    return name


def _unescape(text: str, line: int) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if code in _ESCAPES:
            return _ESCAPES[code]
        if code[0] == "u" and len(code) == 5:
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8))
        raise EdnError(line, f"\\{code} in a string means nothing")

    return whole(_ESCAPE.sub(replace, text), line)


def whole(text: str, line: int) -> str:
    """The text with escaped surrogate pairs joined, as Clojure and Java mean them. Half a pair can't be written out."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise EdnError(line, "half of a surrogate pair, which is no character") from None


def _skip(text: str, place: int) -> int:
    match = re.compile(r"[\s,]*+(?:;[^\n]*+[\s,]*+)*+").match(text, place)
    assert match is not None
    return match.end()


def _unreadable(text: str, place: int, lines: Lines) -> tuple[int, str]:
    place = _skip(text, place)
    if text[place] == '"':
        return lines.of(place), "a string is never closed"
    word = re.compile(r"[^\s,;(){}\[\]]{1,40}").match(text, place)
    return lines.of(place), f"{word[0] if word else text[place]!r} is not EDN"


def dumps(value: Any) -> str:
    """A value as EDN on one line: dicts with `Keyword` or `str` keys, lists, strings, numbers, booleans, None.

    >>> dumps({Keyword("f"): Keyword("acquire"), Keyword("value"): None, Keyword("by"): ["a\\"b", 1.5, True]})
    '{:f :acquire, :value nil, :by ["a\\\\"b" 1.5 true]}'
    """
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Keyword):
        return f":{value}"
    if isinstance(value, str):
        return '"' + re.sub(r"[\\\"\n\r\t]", lambda match: _QUOTED[match[0]], value) + '"'
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dumps(key)} {dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(dumps, value)) + "]"
    raise TypeError(f"{type(value).__name__} has no EDN form")


_QUOTED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
