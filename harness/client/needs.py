"""The packages of Python that a client needs: those that its file names itself, or its requirements.txt.

They are installed once for all trials with the same ones, in an image upon the contender's (`harness.images.brought`).
So only what pip can fetch serves: a line that names another file would mean something else there, and a password in
one would be kept in the image.
"""

from __future__ import annotations

import re
import tomllib

from harness.errors import UsageError

FILE = "requirements.txt"

#: What Python's packaging guide calls inline script metadata (PEP 723), with its own regular expression.
_BLOCK = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]*@")
_INDEX = ("--index-url", "-i", "--extra-index-url", "--trusted-host", "--find-links", "-f", "--no-index")
"""Options of pip that say where packages come from: this machine's own settings do."""


def inline(source: str, where: str) -> list[str] | None:
    """What a Python file says of itself in a block `# /// script`; None where it has none.

    UsageError for a block that can't be read.
    """
    found = _BLOCK.search(source)
    if found is None:
        return None
    text = "".join(
        line[2:] if line.startswith("# ") else line[1:] for line in found["content"].splitlines(keepends=True)
    )
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: its block `# /// script` is not TOML: {error}") from error
    named = said.get("dependencies", [])
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise UsageError(f"{where}: dependencies in its block `# /// script` must be a list of strings")
    return _checked(named, where)


def listed(content: bytes, where: str) -> list[str]:
    """The lines of a requirements.txt that name a package. UsageError for one that can't be used here, and why."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not a text: {error}") from error
    lines = text.replace("\\\n", " ").splitlines()
    return _checked([" ".join(re.sub(r"(^|\s)#.*$", "", line).split()) for line in lines], where)


def _checked(lines: list[str], where: str) -> list[str]:
    kept = [line for line in lines if line]
    for line in kept:
        option = re.split(r"[\s=]", line, maxsplit=1)[0]
        if _PASSWORD.search(line):
            raise UsageError(f"{where}: a password in a URL would be kept in an image; let pip's own settings have it")
        if option in _INDEX:
            raise UsageError(
                f"{where}: {option}: where packages come from is said by the settings of this machine's pip"
            )
        if option.startswith(("-", ".", "/")) or line.startswith("file:") or "@ file:" in line:
            raise UsageError(f"{where}: {line!r} means something on this machine; only what pip can fetch is installed")
        if "\n" in line or "\0" in line:
            raise UsageError(f"{where}: {line!r} is no requirement")
    return kept
