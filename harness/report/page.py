"""Turning templates into one self-contained file: styles and script inside, nothing fetched, everything escaped."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from harness import __version__
from harness.report import words

_FOLDER = Path(__file__).parent / "templates"


def render(template: str, **context: Any) -> str:
    """The page of `templates/<template>`.

    A content security policy inside lets run nothing but our own script, known by its hash: should a name out of a
    history ever slip through as markup, it still can't load or run anything.
    """
    environment = _environment()
    script = (_FOLDER / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        style=Markup((_FOLDER / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=digest,
        fencepost=__version__,
        **context,
    )


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


def write(path: Path, text: str) -> Path:
    """Writes a page so that a reader never meets half of it; into what isn't a regular file (a pipe) as it is."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return path
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    return path
