"""Foreign text made safe to show: what a terminal or a page would obey, and what nobody can see, becomes visible.

Names, reasons and notes come out of files and programs that anybody may have written. A control character in them could
move the cursor and forge a line, a bidirectional one could turn a word around. Each is shown as an escape (`\\x1b`,
`\\u202e`): whoever prints text that isn't Fencepost's own passes it through here.
"""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), marks of direction and invisible ones (Unicode's Cf), separators of lines and
# paragraphs, fillers that look like nothing, lone surrogates, and what is no character at all.
_OBEYED = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0e\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_IN_BLOCK = re.compile(f"[{_OBEYED}]")
_IN_LINE = re.compile(f"[{_OBEYED}\t\n]")


def line(text: object) -> str:
    """Text for one line: nothing in it moves the cursor, ends the line, or hides.

    >>> line("c0\\x1b[2J\\nlease true")
    'c0\\\\x1b[2J\\\\nlease true'
    """
    return _IN_LINE.sub(_escape, str(text))


def block(text: object, indent: str = "") -> str:
    """Text that may have several lines, such as a traceback; those after the first begin with `indent`."""
    shown = _IN_BLOCK.sub(_escape, str(text).replace("\r\n", "\n"))
    return shown.replace("\n", f"\n{indent}") if indent else shown


def json_text(text: str) -> str:
    """JSON as it was written, but for such characters within its strings, which become JSON's own escapes."""
    return _IN_BLOCK.sub(_json_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _json_escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
