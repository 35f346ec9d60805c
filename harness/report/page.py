"""Turning templates into one self-contained file: styles and script inside, nothing fetched, everything escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from harness import __version__, plain, redaction, results
from harness.errors import ConfigError, UsageError
from harness.report import words

_FOLDER = Path(__file__).parent / "templates"


def render(template: str, **context: Any) -> str:
    """The page of `templates/<template>`.

    A content security policy inside lets run nothing but our own script, known by its hash: should a name out of a
    history ever slip through as markup, it still can't load or run anything. Characters that nobody sees, or that turn
    the text around, are written as escapes.
    """
    environment = _environment()
    script = (_FOLDER / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = environment.get_template(template).render(
        style=Markup((_FOLDER / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=digest,
        fencepost=__version__,
        **context,
    )
    return plain.block(text)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        seconds=words.seconds,
        instant=words.instant,
        share=words.share,
        truth=words.truth,
        who=words.who,
        say=words.event,
    )
    environment.globals["words"] = words
    return environment


def write(path: Path, text: str, sources: Sequence[Path]) -> Path:
    """Writes a page made from `sources`, as a whole or not at all, and returns its path.

    Raises UsageError where that would destroy evidence, or anything else that is no page; ConfigError where it can't
    be written.
    """
    results.spare(path, sources)
    if path.is_file() and not _is_page(path):
        raise UsageError(f"{path} is there already, and is no page; name another file")
    with results.replaced(path) as file:
        file.write(redaction.text(text))
    return path


def _is_page(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(15).lower() in (b"", b"<!doctype html>")
    except OSError as error:
        raise ConfigError(path, None, f"can't be read: {error.strerror or error}") from None
