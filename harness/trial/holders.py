"""The kind of holders that a trial's contenders are (`workloads/holders.py`), as a user may say it.

`holder = "naive"` is the key; `guarded = false` its older form, which is taken wherever a key of a trial may stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.secrets import dotted
from workloads.holders import HOLDERS

OLDER = "guarded"


def take_holder(table: Mapping[str, Any], *, path: Path | str | None = None, key: str | None = None) -> dict[str, Any]:
    """The table with `holder` in the place of `guarded`; a list of them, as of an axis, becomes a list.

    ConfigError for what is neither true nor false, and where both are given.
    """
    taken = dict(table)
    if OLDER not in taken:
        return taken
    older = taken.pop(OLDER)
    for each in older if isinstance(older, list) else [older]:
        if not isinstance(each, bool):
            raise ConfigError(path, dotted(key, OLDER), f"must be true or false, not {each!r}")
    if "holder" in taken:
        raise ConfigError(path, dotted(key, OLDER), "is an older form of holder, which is given too")
    taken["holder"] = [_word(each) for each in older] if isinstance(older, list) else _word(older)
    return taken


def _word(guarded: bool) -> str:
    return "guarded" if guarded else "naive"


def check(holder: object) -> str | None:
    """None when there is such a kind, else what there is."""
    return None if holder in HOLDERS else f"must be one of {', '.join(HOLDERS)}, not {holder!r}"
