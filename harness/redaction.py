"""Taking secrets out of whatever is written: one redactor for this process, which all writers ask at the border.

`know` tells it a secret (`harness.secrets` does, for each that a trial uses); from then on `text`, `raw` and `data`
put `***` in its place. A secret is also found in the shapes that programs give it on the way: escaped for JSON, Python,
HTML or a shell, quoted for a URL, in hex, and in base64 wherever in the encoded text it stands. The mark is plain, so
that it means nothing to a terminal, a shell, or a page.

A secret that was cut (long texts are, before they reach us) is recognised at both ends of a long text by its first or
last characters. What can't be recognised: a secret that was split over two lines, encrypted, hashed or compressed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, AnyStr, TextIO, cast

MARK = "***"
PIECE = 8
"""Characters of a line of a secret that has several; shorter ones say nothing."""
CUT = 6
"""So many characters of a secret at the end of a long text are taken for one that was cut there."""
LONG = 100
"""Characters from which a text may have been cut."""
DEPTH = 64
"""What is nested deeper than this isn't looked through, and is left out where secrets are known."""


class Redactor:
    """Knows secrets and takes them out. Safe from several threads; without secrets it costs nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._texts: tuple[str, ...] = ()
        self._bytes: tuple[bytes, ...] = ()

    def know(self, secret: str) -> None:
        """From now on this is taken out, and each line of it where it has several."""
        with self._lock:
            if secret in self._known:
                return
            self._known.add(secret)
            lines = [line.strip() for line in secret.splitlines()]
            pieces = [line for line in lines if len(line) >= PIECE and not line.startswith("-----")]
            found = {*self._texts, *(form for piece in [secret, *pieces] for form in forms(piece))}
            # The longest first: one may hold another.
            self._texts = tuple(sorted(found, key=lambda form: (-len(form), form)))
            self._bytes = tuple(
                sorted((form.encode(errors="surrogateescape") for form in self._texts), key=len, reverse=True)
            )

    def text(self, text: str) -> str:
        """The text without secrets."""
        return _without(text, self._texts, MARK)

    def raw(self, data: bytes) -> bytes:
        """The same for bytes: a line, or a log as a whole, never a chunk that ends anywhere."""
        return _without(data, self._bytes, MARK.encode())

    def data(self, value: Any) -> Any:
        """The same for plain data (JSON), in every text and every key: it stays whole, whatever was in it."""
        return self._walk(value, 0) if self._texts else value

    def _walk(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if not isinstance(value, Mapping | list | tuple):
            return value
        if depth > DEPTH:
            return MARK
        if isinstance(value, Mapping):
            fresh = {}
            for key, item in value.items():
                fresh[self.text(key) if isinstance(key, str) else key] = self._walk(item, depth + 1)
            return fresh
        items = []
        for item in value:
            items.append(self._walk(item, depth + 1))
        return items


def forms(secret: str) -> set[str]:
    """The shapes in which a secret can turn up in a text."""
    import base64  # only who has secrets pays for these
    import html
    import json
    import re
    import shlex
    from urllib.parse import quote, quote_plus

    from harness import plain

    data = secret.encode(errors="surrogateescape")
    escapes = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    escapes |= {ascii(secret)[1:-1], repr(data)[2:-1]}
    found = {secret, *escapes, plain.line(secret), plain.block(secret), plain.json_text(json.dumps(secret)[1:-1])}
    found.add(plain.json_text(json.dumps(secret, ensure_ascii=False)[1:-1]))
    for escape in escapes:  # a line of JSON that is told in JSON, and the repr of one
        found |= {json.dumps(escape)[1:-1], json.dumps(escape, ensure_ascii=False)[1:-1], repr(escape)[1:-1]}
    quoted = {quote(data, safe=""), quote(data), quote_plus(data)}
    found |= quoted | {re.sub("%..", lambda code: code[0].lower(), text) for text in quoted}
    once = html.escape(secret, quote=False)
    found |= {once, once.replace('"', "&quot;").replace("'", "&#x27;")}
    found |= {once.replace('"', "&#34;").replace("'", "&#39;"), once.replace('"', "&quot;").replace("'", "&apos;")}
    found |= {shlex.quote(secret).removeprefix("'").removesuffix("'"), secret.replace("'", "'\\''")}
    found |= {data.hex(), data.hex().upper(), "".join(f"\\x{byte:02x}" for byte in data)}
    for offset in range(3):
        # Base64 turns three bytes into four characters, so there are three ways for a text to stand in another's; those
        # characters count that are made of its bits alone.
        start, end = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
        encoded = base64.b64encode(bytes(offset) + data).decode()[start:end]
        found |= {encoded, encoded.replace("+", "-").replace("/", "_")}
    return found


def _without(text: AnyStr, known: Sequence[AnyStr], mark: AnyStr) -> AnyStr:
    if not known or len(text) < len(known[-1]):  # most of what stands in an event
        return text
    for form in known:
        if form in text:
            text = text.replace(form, mark)
    if len(text) >= LONG:
        for form in known:
            text = _uncut(text, form, mark)
    return text


def _uncut(text: AnyStr, form: AnyStr, mark: AnyStr) -> AnyStr:
    """Without the beginning of a secret at the text's end, and the end of one at its beginning."""
    at = text.find(form[:CUT], max(0, len(text) - len(form)))
    while at >= 0:
        if form.startswith(text[at:]):
            text = text[:at] + mark
            break
        at = text.find(form[:CUT], at + 1)
    at = text.rfind(form[-CUT:], 0, len(form))
    while at >= 0:
        if form.endswith(text[: at + CUT]):
            return mark + text[at + CUT :]
        at = text.rfind(form[-CUT:], 0, at + CUT - 1)
    return text


# -- the redactor of this process

_REDACTOR = Redactor()
know, text, raw, data = _REDACTOR.know, _REDACTOR.text, _REDACTOR.raw, _REDACTOR.data


class _Redacted:
    """A text stream that takes secrets out of each write; in all else it is the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, words: str) -> int:
        self._stream.write(text(words))
        return len(words)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_terminal() -> None:
    """From now on stdout and stderr of this process are redacted too: errors, tracebacks, whatever a library prints."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Redacted):
            setattr(sys, name, cast(TextIO, _Redacted(stream)))
